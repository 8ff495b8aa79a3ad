"""What a worker tells the driver about the panes it has filled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from afspark.model.windows.panes import Part, Split
from afspark.numbers import PaneNumber


@dataclass(frozen=True, kw_only=True)
class PaneReport:
    """One worker's part of a batch: the greatest time it saw, the panes it put items into, and the items it
    has seen since the stream began. ``late`` and ``unplaced`` count what was left out in this batch.
    """

    worker: int
    latest: float | None = None
    panes: frozenset[PaneNumber] = frozenset()
    seen: int = 0
    late: int = 0
    unplaced: int = 0

    def noting(self, divided: Split, kept: Iterable[Part], late: int = 0) -> PaneReport:
        """The report after another Arrow batch, of which ``kept`` was applied."""
        times = [time for time in (self.latest, divided.latest) if time is not None]
        return replace(
            self,
            latest=max(times, default=None),
            panes=self.panes.union(part.pane for part in kept),
            seen=self.seen + divided.items,
            late=self.late + late,
            unplaced=self.unplaced + divided.unplaced,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"panes": sorted(self.panes)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> PaneReport:
        return cls(**{**document, "panes": frozenset(document["panes"])})
