"""The options of a query by name, whatever their capitals, and what is refused of them."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from afspark.errors import UsageError
from afspark.store import Throttle

#: Options that are numbers, by the field of `RunOptions` that they become.
_NUMBERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "batch_bytes": ("batchBytes", int),
    "host_grace_seconds": ("hostGraceSeconds", float),
    "silent_seconds": ("silentSeconds", float),
    "lease_seconds": ("leaseSeconds", float),
    "store_wait_seconds": ("storeWaitSeconds", float),
    "flush_seconds": ("flushSeconds", float),
    "quarantine_bytes": ("quarantineBytes", int),
    "max_replay_seconds": ("maxReplaySeconds", float),
    "max_kept_bytes": ("maxKeptBytes", int),
}
OWN_OPTIONS = {
    "checkpointLocation",
    "segments",
    "bounds",
    "storeLatencySeconds",
    "storeBytesPerSecond",
    "savepoint",
    "discardState",
    *(option for option, _ in _NUMBERS.values()),
}
_OWN_BY_LOWER = {name.lower(): name for name in OWN_OPTIONS}
#: How alike two names are of which one is taken for a slip of the other.
_SLIP = 0.85


def own_name(name: object) -> str:
    """The name as it is written in the guide, if it is one of ours; UsageError if it cannot be a name."""
    if not isinstance(name, str) or not name:
        raise UsageError(f"The name of an option is a text, not {name!r}.", remedy="Write option('name', value).")
    return _OWN_BY_LOWER.get(name.lower(), name)


def text_of(name: str, value: object) -> str:
    """The value of an option as Spark keeps it; UsageError for None, which would be the text 'None'."""
    if value is None:
        raise UsageError(f"The option {name!r} is None.", remedy="Leave it out, or give it a value.", option=name)
    return str(value).lower() if isinstance(value, bool) else str(value)


def for_sink(given: Mapping[str, str]) -> dict[str, str]:
    """The options that are not the query's own."""
    return {key: value for key, value in given.items() if key not in OWN_OPTIONS}


def check_options(given: Mapping[str, str], sinks: Iterable[str] | None) -> None:
    """UsageError for an option that nobody takes, or that looks like a slip of one of ours.

    ``sinks``: the options that the sink takes; None if it takes any.
    """
    taken = OWN_OPTIONS if sinks is None else {*OWN_OPTIONS, *sinks}
    known = {name.lower() for name in taken}
    for name in sorted(for_sink(given)):
        near = nearest(name, taken)
        if sinks is None:
            if near is not None and _likeness(name, near) >= _SLIP:
                raise UsageError(
                    f"The option {name!r} looks like {near!r}.",
                    remedy=f"Write {near!r}, or give the sink its options in foreachBatch.",
                    option=name,
                )
        elif name.lower() not in known:
            meant = f"Did you mean {near!r}? " if near is not None else ""
            raise UsageError(
                f"Nobody takes the option {name!r}.",
                remedy=f"{meant}Options of a query are {', '.join(sorted(taken))}.",
                option=name,
            )
    if given.get("bounds", "false").lower() not in ("true", "false"):
        raise UsageError(
            f"Option 'bounds' is {given['bounds']!r}.", remedy="Write option('bounds', True).", option="bounds"
        )


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that one is most likely a slip of; None if it is like none of them.

    >>> nearest("checkpointDir", OWN_OPTIONS), nearest("batchbyte", OWN_OPTIONS), nearest("x", OWN_OPTIONS)
    ('checkpointLocation', 'batchBytes', None)
    """
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), sorted(by_lower), n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def run_settings(given: Mapping[str, str]) -> dict[str, Any]:
    """The fields of `RunOptions` that options set."""
    found = {field: number(given, option, kind) for field, (option, kind) in _NUMBERS.items() if option in given}
    found["discard_state"] = discarded(given)
    return found | ({"segments": given["segments"]} if "segments" in given else {})


def discarded(given: Mapping[str, str]) -> frozenset[str]:
    """The operators that ``discardState`` names, separated by commas."""
    return frozenset(name.strip() for name in given.get("discardState", "").split(",") if name.strip())


def throttle_of(given: Mapping[str, str]) -> Throttle | None:
    """``storeLatencySeconds`` and ``storeBytesPerSecond`` make the backup store slower, for experiments."""
    if not {"storeLatencySeconds", "storeBytesPerSecond"} & given.keys():
        return None
    latency = number(given, "storeLatencySeconds", float) if "storeLatencySeconds" in given else 0.0
    rate = number(given, "storeBytesPerSecond", float) if "storeBytesPerSecond" in given else math.inf
    return Throttle(latency_seconds=latency, bytes_per_second=rate)


def number(given: Mapping[str, str], option: str, kind: Callable[[str], Any]) -> Any:
    """The value of an option that is a number."""
    try:
        return kind(given[option])
    except ValueError:
        raise UsageError(
            f"Option {option!r} is {given[option]!r}, not a number.",
            remedy="Give one without a unit: 10, not '10s'.",
            option=option,
        ) from None


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one.lower(), other.lower()).ratio()
