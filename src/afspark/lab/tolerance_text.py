"""A tolerance as a reader wants to see it."""

from __future__ import annotations

from dataclasses import MISSING, fields

from afspark.policies import Tolerance


def tolerance_text(tolerance: Tolerance) -> str:
    """The name of a policy, with what differs from its defaults.

    >>> from afspark.policies import Approximate, MiniBatch
    >>> tolerance_text(MiniBatch()), tolerance_text(Approximate(theta=10.0))
    ('MiniBatch()', 'Approximate(theta=10.0)')
    """
    given = []
    for field in fields(tolerance):
        value = getattr(tolerance, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if value != default and field.init:
            given.append(f"{field.name}={value!r}")
    return f"{type(tolerance).__name__}({', '.join(given)})"
