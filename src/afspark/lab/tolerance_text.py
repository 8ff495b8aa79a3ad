"""A tolerance as a reader wants to see it."""

from __future__ import annotations

from dataclasses import fields

from afspark.policies import Tolerance


def tolerance_text(tolerance: Tolerance) -> str:
    """The name of a policy, with what differs from its defaults.

    >>> from afspark.policies import ActiveStandby, Approximate
    >>> tolerance_text(ActiveStandby()), tolerance_text(Approximate(theta=10.0))
    ('ActiveStandby()', 'Approximate(theta=10.0)')
    """
    kind = type(tolerance)
    try:
        # Policies fill in some of what they were not given.
        plain: Tolerance | None = kind()
    except TypeError:
        plain = None
    given = [
        f"{field.name}={value!r}"
        for field in fields(tolerance)
        if (value := getattr(tolerance, field.name)) != getattr(plain, field.name, field.default)
    ]
    return f"{kind.__name__}({', '.join(given)})"
