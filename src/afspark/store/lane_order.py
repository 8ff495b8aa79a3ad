"""In which order a batch has taken the items of its lane: whoever applies it once more takes them in the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: One portion after the other; of each entry in it the producer, and the number after its last item.
LaneOrder = tuple[tuple[tuple[str, int], ...], ...]


def order_to_json(order: LaneOrder) -> dict[str, Any]:
    """The order, with every producer named once.

    >>> order_to_json(((("a/1", 5), ("b/1", 2)), (("a/1", 9),)))
    {'producers': ['a/1', 'b/1'], 'portions': [[0, 5, 1, 2], [0, 9]]}
    """
    numbers: dict[str, int] = {}
    portions = [
        [number for producer, end in portion for number in (numbers.setdefault(producer, len(numbers)), end)]
        for portion in order
    ]
    return {"producers": list(numbers), "portions": portions} if portions else {}


def order_from_json(found: Mapping[str, Any]) -> LaneOrder:
    """The inverse of `order_to_json`.

    >>> order_from_json(order_to_json(((("a/1", 5), ("b/1", 2)), (("a/1", 9),))))
    ((('a/1', 5), ('b/1', 2)), (('a/1', 9),))
    """
    producers = found.get("producers", ())
    return tuple(
        tuple((producers[number], end) for number, end in zip(portion[::2], portion[1::2], strict=True))
        for portion in found.get("portions", ())
    )
