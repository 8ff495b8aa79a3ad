"""What an operator sends while a batch is processed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from afspark.errors import OperatorMisuse
from afspark.model.operator import Outbox
from afspark.model.windows import PaneReport
from afspark.protocol.parcels import Packet
from afspark.protocol.ports import ALL, items_for
from afspark.task.returned import no_batch


@dataclass
class Output:
    """What a batch made besides its changes of state."""

    #: what is kept for others, by port
    kept: dict[str, bytes | memoryview] = field(default_factory=dict)
    #: feedback by receiver
    feedback: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    panes: PaneReport | None = None
    #: of the items for everybody; None if there are none
    schema: pa.Schema | None = None
    #: what the operator tells of the batch
    metrics: dict[str, Any] = field(default_factory=dict)


class CollectingOutbox(Outbox):
    """Keeps what an operator sends, by port. ``titles``: what the user calls those whose id is another one, by id."""

    def __init__(
        self,
        operator: str,
        successors: tuple[str, ...],
        feeds_back: tuple[str, ...],
        titles: Mapping[str, str] | None = None,
    ) -> None:
        known = titles or {}
        self.operator = operator
        #: ids by what the user calls them
        self.successors = {known.get(name, name): name for name in successors}
        self.feeds_back = {known.get(name, name): name for name in feeds_back}
        self.step = 0
        self.sent: dict[str, list[Packet]] = {}
        self.feedback: dict[str, list[pa.RecordBatch]] = {}

    def send(self, items: pa.RecordBatch, *, to: str) -> None:
        if to not in self.successors:
            raise OperatorMisuse(
                f"{self.operator!r} sends items to {to!r}, which does not read from it.",
                remedy=f"It can send to {', '.join(self.successors) or 'nobody'}.",
            )
        self._put(items_for(self.successors[to]), self._checked(items, "sends"))

    def feed_back(self, items: pa.RecordBatch, *, to: str) -> None:
        if to not in self.feeds_back:
            raise OperatorMisuse(
                f"{self.operator!r} sends feedback to {to!r}, which it did not announce.",
                remedy="Announce it: apply(..., feeds_back=[name]).",
            )
        if self._checked(items, "sends as feedback").num_rows:
            self.feedback.setdefault(self.feeds_back[to], []).append(items)

    def put(self, items: pa.RecordBatch | None) -> None:
        """What the operator has returned."""
        if items is not None:
            self._put(ALL, self._checked(items, "returned"))

    def _checked(self, items: object, how: str) -> pa.RecordBatch:
        if not isinstance(items, pa.RecordBatch):
            raise no_batch(f"The operator {self.operator!r}", items, how)
        return items

    def _put(self, port: str, items: pa.RecordBatch) -> None:
        if items.num_rows:
            self.sent.setdefault(port, []).append(Packet(items, self.step))
