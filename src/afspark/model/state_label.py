"""How a state of a worker is called: its name, and the pane that it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from afspark.numbers import PaneNumber

Pane = PaneNumber | None


@dataclass(frozen=True)
class StateLabel:
    """One state of a worker. ``pane`` is None where the operator has no panes."""

    state: str
    pane: Pane = None

    def text(self) -> str:
        """The name of the state in a segment, and for people.

        >>> StateLabel("counts").text(), StateLabel("counts", 17).text()
        ('counts', 'counts@17')
        """
        return self.state if self.pane is None else f"{self.state}@{self.pane}"

    @classmethod
    def parse(cls, text: str) -> StateLabel:
        """The label that gives this text."""
        state, _, pane = text.partition("@")
        return cls(state, PaneNumber(int(pane)) if pane else None)

    @classmethod
    def of_column(cls, column: str) -> StateLabel | None:
        """The state whose array a column of a segment is; None if it is no state's.

        >>> StateLabel.of_column("counts@17.value"), StateLabel.of_column("base")
        (StateLabel(state='counts', pane=17), None)
        """
        name, dot, _ = column.partition(".")
        return cls.parse(name) if dot else None

    def to_json(self) -> dict[str, Any]:
        return {"state": self.state, "pane": self.pane}
