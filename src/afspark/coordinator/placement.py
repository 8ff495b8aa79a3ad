"""Which host each replica of a worker, and each receiver, lives on. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from afspark.errors import UsageError


def check_slots(slots: dict[str, int], workers: int, receivers: int = 0) -> None:
    """Raises UsageError if the workers, and receivers on executors, cannot all run at the same time."""
    total = sum(slots.values())
    if total < workers + receivers:
        fitting = max(total - receivers, 1)
        others = f" and {receivers} receivers" if receivers else ""
        raise UsageError(
            f"{workers} workers{others} need {workers + receivers} task slots and Spark offers {total}.",
            remedy=f"Use workers={fitting} or fewer (--workers {fitting}), or a master with more cores.",
            workers=workers,
            slots=total,
        )


#: What needs a home: a replica of a worker, or a receiver.
T = TypeVar("T", bound=Hashable)


def spread(homeless: Iterable[T], slots: Mapping[str, int], taken: Sequence[str] = ()) -> dict[T, str]:
    """Homes for replicas or receivers, evenly by free slots; ``taken`` are the homes of those that stay.

    >>> spread([0, 1, 2, 3], {"a": 2, "b": 2})
    {0: 'a', 1: 'b', 2: 'a', 3: 'b'}
    >>> spread([1], {"a": 2, "b": 2}, taken=["a"])
    {1: 'b'}
    """
    load = Counter(taken)
    homes: dict[T, str] = {}
    for one in homeless:
        host = min(sorted(slots), key=lambda name: load[name] / slots[name])
        homes[one] = host
        load[host] += 1
    return homes
