"""A counted failure, as commit records and the loss ledger keep it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from afspark.model.state_label import StateLabel
from afspark.numbers import FIRST_TICK, NO_INCARNATION, Incarnation, PaneNumber


@dataclass(frozen=True, kw_only=True)
class CountedFailure:
    """What the loss of one ``incarnation`` of a worker may have taken, at most.

    ``taken`` is by state, where there are no panes; ``pane_taken`` by pane and state. ``panes`` is the range that was
    open, None without panes. For decaying states ``tick`` says when it was. ``theta`` are the thresholds that the loss
    was reckoned with, those of a pane that no failure concerned. ``shared``: all workers have the entry with this word,
    because nobody knows whose part of the state the loss was in; where losses add up it counts once.
    """

    taken: Mapping[str, float] = field(default_factory=dict)
    pane_taken: Mapping[PaneNumber, Mapping[str, float]] = field(default_factory=dict)
    panes: tuple[PaneNumber, PaneNumber] | None = None
    tick: PaneNumber = FIRST_TICK
    incarnation: Incarnation = NO_INCARNATION
    theta: Mapping[str, float] = field(default_factory=dict)
    shared: str = ""

    @property
    def affected(self) -> frozenset[PaneNumber]:
        """The panes that it may have taken something from."""
        return frozenset(self.pane_taken)

    @property
    def may_take(self) -> bool:
        """Whether a threshold above 0 was in force: a loss that was reckoned with 0 uses up nothing of a budget."""
        return not self.theta or any(self.theta.values())

    def labelled(self) -> dict[StateLabel, float]:
        """All that it may have taken."""
        by_pane: list[tuple[PaneNumber | None, Mapping[str, float]]] = [(None, self.taken), *self.pane_taken.items()]
        return {StateLabel(state, pane): most for pane, taken in by_pane for state, most in taken.items()}

    def told(self) -> dict[str, float]:
        """All that it may have taken, under the names that users see: ``state`` or ``state@pane``."""
        return {label.text(): most for label, most in self.labelled().items()}

    def to_json(self) -> dict[str, Any]:
        return {
            "taken": dict(self.taken),
            "pane_taken": [[pane, dict(taken)] for pane, taken in self.pane_taken.items()],
            "panes": self.panes,
            "tick": self.tick,
            "incarnation": self.incarnation,
            "theta": dict(self.theta),
            **({"shared": self.shared} if self.shared else {}),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> CountedFailure:
        return cls(
            taken=found["taken"],
            pane_taken=dict(found["pane_taken"]),
            panes=(found["panes"][0], found["panes"][1]) if found["panes"] else None,
            tick=found["tick"],
            incarnation=found["incarnation"],
            theta=found["theta"],
            shared=found.get("shared", ""),
        )
