"""JSON as this package writes it: text keys only, and infinite thresholds survive the round trip."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from afspark.errors import UsageError

_FLOAT = "$float"


def to_json(value: Any) -> bytes:
    """Strict JSON in UTF-8. Tuples become lists; numpy scalars plain numbers; non-finite floats are marked.

    `UsageError` for anything that would not come back equal.
    """
    return json.dumps(_plain(value), allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()


def from_json(data: bytes) -> Any:
    """The value written by `to_json`; ValueError for anything else."""
    return json.loads(data, object_hook=_revive)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_FLOAT: str(value)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) and key != _FLOAT for key in value):
        return {key: _plain(item) for key, item in value.items()}
    raise UsageError(
        f"{value!r} cannot be stored as JSON.", remedy="Use text keys and plain values.", value=repr(value)
    )


def _revive(pairs: dict[str, Any]) -> Any:
    return float(pairs[_FLOAT]) if _FLOAT in pairs else pairs
