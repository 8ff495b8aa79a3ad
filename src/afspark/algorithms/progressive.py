"""What a learner counts on its way: items, right predictions, losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import pyarrow as pa

from afspark.model.kernels.logistic import Lesson
from afspark.model.operator import Share
from afspark.model.states import OwnState

UNIT = 10.0
"""The divergence of a count of which a backup has nothing: a threshold of 1 lets a failure forget a tenth."""


@dataclass
class Progress(OwnState):
    """Counts of one worker. All of them go into a backup together, so that what a failure leaves fits together.

    The divergence is relative: the number of items decides how long a step is, and a backup that lacks a hundredth
    of them changes that little, however many they are. Nothing is backed up in most batches of a long stream.
    """

    items: int = 0
    positives: int = 0
    correct: int = 0
    loss: float = 0.0
    skipped: int = 0
    #: the first, third and fourth as they were when the model was last sent
    sent_items: int = 0
    sent_correct: int = 0
    sent_loss: float = 0.0
    #: whether a batch has ended since without sending
    held: bool = False

    def learned(self, items: int, lesson: Lesson) -> None:
        self.items += items
        self.positives += lesson.positives
        self.correct += lesson.correct
        self.loss += lesson.loss

    @property
    def unsent(self) -> int:
        return self.items - self.sent_items

    def sent(self) -> dict[str, Any]:
        """Notes that the model is on its way, with what is told beside it."""
        facts = {
            "items": self.unsent,
            "correct": self.correct - self.sent_correct,
            "loss": self.loss - self.sent_loss,
        }
        self.sent_items, self.sent_correct, self.sent_loss, self.held = self.items, self.correct, self.loss, False
        return facts

    def divergence(self, backup: pa.RecordBatch | None) -> float:
        other = Progress()
        other.recover(backup)
        counts = [one.items + one.skipped for one in (self, other)]
        return UNIT * (1.0 - min(counts) / max(counts)) if max(counts) else 0.0

    def backup(self) -> pa.RecordBatch | None:
        if not self.items and not self.skipped:
            return None
        return pa.record_batch({name: [value] for name, value in asdict(self).items()})

    def recover(self, backup: pa.RecordBatch | None) -> None:
        for field in fields(self):
            setattr(self, field.name, field.default if backup is None else backup.column(field.name)[0].as_py())

    @classmethod
    def together(cls, shares: Sequence[Share], state: str) -> Progress:
        """The counts of all workers."""
        whole = cls()
        for share in shares:
            for image in share.cells[state].column("image").to_pylist():
                part = cls()
                part.recover(pa.ipc.open_stream(image).read_next_batch())
                for field in fields(cls):
                    setattr(whole, field.name, getattr(whole, field.name) + getattr(part, field.name))
        return whole

    def table(self) -> pa.Table:
        """One row; rates are null before the first item."""
        total = self.items
        rates = (self.correct, max(self.positives, total - self.positives), self.loss)
        shown = [rate / total if total else None for rate in rates]
        return pa.table(
            {
                "items": pa.array([total], pa.int64()),
                "prediction_rate": pa.array(shown[:1], pa.float64()),
                "base_rate": pa.array(shown[1:2], pa.float64()),
                "log_loss": pa.array(shown[2:], pa.float64()),
                "skipped": pa.array([self.skipped], pa.int64()),
            }
        )
