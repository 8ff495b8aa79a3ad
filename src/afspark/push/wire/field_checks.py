"""Checks of the fields of a message: what comes back is of the type asked for, or `WireError` is raised."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from afspark.push.wire.push_errors import WireError

T = TypeVar("T")

_NAME = re.compile(r"[^/\x00-\x1f\x7f]{1,200}")
_SESSION = re.compile(r"([0-9a-f]{8,64})?")
_RECEIPT = re.compile(r"[0-9a-f]{0,128}")
_LARGEST = (1 << 63) - 1

#: sequence numbers end here: every JSON library reads them, and sums of a thousand such fit 64 bits
LAST_NUMBER = 1 << 53


def parse(data: Any, limit: int) -> dict[str, Any]:
    view = memoryview(data)
    if view.nbytes > limit:
        raise WireError(f"A message of {view.nbytes} bytes came, {limit} are allowed.", what="size")
    try:
        return json_object(json.loads(bytes(view), parse_constant=_refuse_constant), "message")
    except (ValueError, RecursionError) as error:
        raise WireError("A message is no JSON.", what="json") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def wrong(what: str, expected: str) -> WireError:
    return WireError(f"Field {what} of a message must be {expected}.", what=what)


def json_object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(what, "a JSON object")
    return value


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e300


def count(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise wrong(what, "an integer >= 0")
    return value


def sequence_number(value: Any, what: str) -> int:
    if count(value, what) > LAST_NUMBER:
        raise wrong(what, f"at most {LAST_NUMBER}")
    return int(value)


def flag(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise wrong(what, "true or false")
    return value


def text(value: Any, what: str) -> str:
    if not (isinstance(value, str) and 0 < len(value) <= 300 and value.isprintable()):
        raise wrong(what, "a text of 1 to 300 printable characters")
    return value


def producer_name(value: Any) -> str:
    if not (isinstance(value, str) and _NAME.fullmatch(value) and value.isprintable()):
        raise wrong("producer", "a name of 1 to 200 printable characters without '/'")
    return value


def session_name(value: Any) -> str:
    """The name of a session; empty for one that has none yet."""
    if not (isinstance(value, str) and _SESSION.fullmatch(value)):
        raise wrong("session", "what the receiver has answered: 8 to 64 hexadecimal digits")
    return value


def receipt(value: Any, what: str) -> str:
    if not (isinstance(value, str) and _RECEIPT.fullmatch(value)):
        raise wrong(what, "a text of at most 128 hexadecimal digits")
    return value


def limit_or_inf(value: Any, what: str) -> float:
    if value is None:
        return math.inf
    if not (is_number(value) and value >= 0):
        raise wrong(what, "null or a number >= 0")
    return float(value)


def positions(value: Any, what: str) -> dict[str, int]:
    return {text(name, what): count(end, what) for name, end in json_object(value, what).items()}


def by_lane(value: Any, what: str, check: Callable[[Any, str], T]) -> dict[int, T]:
    """An object from lanes to values, each of which is checked."""
    found = {}
    for lane, each in json_object(value, what).items():
        if not (lane.isascii() and lane.isdigit() and len(lane) < 10):
            raise wrong(what, "an object with numbers of lanes as names")
        found[int(lane)] = check(each, what)
    return found


def from_lanes(values: Mapping[int, T]) -> dict[str, T]:
    return {str(lane): value for lane, value in values.items()}


def null_for_inf(value: float) -> float | None:
    return None if math.isinf(value) else value
