"""Which host each worker lives on. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from afspark.errors import UsageError


def check_slots(slots: dict[str, int], workers: int, receivers: int = 0) -> None:
    """Raises UsageError if the workers, and receivers on executors, cannot all run at the same time."""
    total = sum(slots.values())
    if total < workers + receivers:
        others = f" and {receivers} receivers" if receivers else ""
        raise UsageError(
            f"{workers} workers{others} need {workers + receivers} task slots and Spark offers {total}.",
            remedy=f"Use --workers {max(total - receivers, 1)} or fewer, or a master with more cores.",
            workers=workers,
            slots=total,
        )


def spread(workers: Sequence[int], slots: dict[str, int], taken: Sequence[str] = ()) -> dict[int, str]:
    """Homes for ``workers``, evenly by free slots; ``taken`` are the homes of workers that stay.

    >>> spread([0, 1, 2, 3], {"a": 2, "b": 2})
    {0: 'a', 1: 'b', 2: 'a', 3: 'b'}
    >>> spread([1], {"a": 2, "b": 2}, taken=["a"])
    {1: 'b'}
    """
    load = Counter(taken)
    homes: dict[int, str] = {}
    for worker in workers:
        host = min(sorted(slots), key=lambda name: load[name] / slots[name])
        homes[worker] = host
        load[host] += 1
    return homes
