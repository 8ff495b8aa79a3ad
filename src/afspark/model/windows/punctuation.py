"""Punctuation: the items that say that a window, or the stream, has ended."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

END = 2**63 - 1
"""Window number of the punctuation that ends the stream: greater than any pane, and still an int64."""


@dataclass(frozen=True, order=True)
class Punctuation:
    """Window ``window`` of an operator, [``start``, ``end``) in the units of its length, has ended.

    Sorted by operator, then by window. ``last`` marks the end of the stream itself, which follows all windows.

    >>> Punctuation("counts", 3, 30, 40) < Punctuation.of_stream("counts")
    True
    """

    operator: str
    window: int
    start: float
    end: float
    last: bool = False

    @classmethod
    def of_stream(cls, operator: str) -> Punctuation:
        """The punctuation that ends the stream."""
        return cls(operator, END, -math.inf, math.inf, last=True)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; the ends of the stream, which are infinite, become null."""
        values = asdict(self)
        return values | {name: None for name in ("start", "end") if math.isinf(values[name])}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Punctuation:
        """The punctuation that `to_json` described."""
        start, end = document["start"], document["end"]
        ends = {"start": -math.inf if start is None else start, "end": math.inf if end is None else end}
        return cls(**{**document, **ends})
