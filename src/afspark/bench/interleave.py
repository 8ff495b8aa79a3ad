"""Interleaved repetition: every contender runs once per round, so that a slow minute hits all of them."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: One run of a contender: numbers by name, and perhaps other values that only the experiment itself understands.
Measure = Callable[[], dict[str, Any]]

NONE = "none"
#: The same once more: how far its ratio is from 1 is what the machine's scatter does to the others.
AGAIN = "none again"


@dataclass(frozen=True)
class Contest:
    """Figures of all rounds per contender."""

    rounds: Mapping[str, list[dict[str, Any]]]

    def median(self, contender: str, figure: str) -> float:
        return statistics.median(round_[figure] for round_ in self.rounds[contender])

    def ratio(self, contender: str, other: str, figure: str) -> float:
        """Median over rounds of the ratio within a round: what both had in common cancels out."""
        return self.ratio_spread(contender, other, figure)["median"]

    def ratio_spread(self, contender: str, other: str, figure: str) -> dict[str, float]:
        """The same with the least and the most of the rounds."""
        pairs = zip(self.rounds[contender], self.rounds[other], strict=True)
        return spread_of([mine[figure] / theirs[figure] for mine, theirs in pairs])

    def to_json(self) -> dict[str, Any]:
        """The numbers of all contenders."""
        return {
            name: {
                figure: spread_of(values)
                for figure in numbers_of(rounds[0])
                for values in [[round_[figure] for round_ in rounds]]
            }
            for name, rounds in self.rounds.items()
        }


def numbers_of(figures: Mapping[str, Any]) -> dict[str, float]:
    """What of a run's figures are numbers."""
    return {name: value for name, value in figures.items() if type(value) in (int, float)}


def spread_of(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def interleave(contenders: Mapping[str, Measure], *, rounds: int, warm_up: bool = True) -> Contest:
    """One unmeasured round to warm up, then ``rounds`` measured ones, the order turning from round to round."""
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(0 if warm_up else 1, rounds + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            figures = contenders[name]()
            label = "warm-up" if number == 0 else f"round {number}/{rounds}"
            shown = ", ".join(f"{key} {value:,.2f}" for key, value in numbers_of(figures).items())
            print(f"  {label:10} {name:28} {shown}", file=sys.stderr, flush=True)
            if number:
                results[name].append(figures)
    return Contest(results)
