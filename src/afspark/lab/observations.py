"""What a campaign saw of one target: scores of its trials and of the golden runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float64]


class Rate(StrEnum):
    """Which rate of a target turned the seconds of an outage into items."""

    AVERAGE = "average"
    PEAK = "peak"
    #: the outage was given in items
    GIVEN = "given"


@dataclass(frozen=True)
class Outage:
    """How many items a fault took from a target; and in how many seconds, at which rate, if it was given so."""

    items: int
    seconds: float | None = None
    rate: Rate = Rate.GIVEN

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        return {"items": self.items, "seconds": self.seconds, "rate": self.rate.value}


@dataclass(frozen=True)
class TargetObservations:
    """The scores of all trials of a target: m offsets, n outages, p repetitions, q golden runs, s local sections.

    The names of section 5.2 of the paper: ``scores`` are FO, ``golden_scores`` GO, ``local`` LO, ``golden_local`` GLO,
    ``begins`` S_begin.
    """

    target: str
    offsets: tuple[int, ...]
    outages: tuple[Outage, ...]
    #: m x n x p, each over the section that the longest outage at this offset affects
    scores: Scores
    #: m x q, over the same sections
    golden_scores: Scores
    #: m x n x p x s
    local: Scores
    #: q x s
    golden_local: Scores
    #: the first section of the golden output after the fault, for each offset
    begins: tuple[int, ...]
