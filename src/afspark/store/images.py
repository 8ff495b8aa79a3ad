"""What the Arrow tables inside a stored object are of, as the object's header says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from afspark.model.state_label import StateLabel
from afspark.numbers import Batch


@dataclass(frozen=True, order=True)
class FeedbackPart:
    """Feedback to the operator ``to`` that was sent in ``batch`` and waited; parts are numbered in order of sending."""

    to: str
    batch: Batch
    number: int

    def to_json(self) -> dict[str, Any]:
        return {"to": self.to, "batch": self.batch, "number": self.number}


ImageKey = str | StateLabel | FeedbackPart
"""A backup has images of states and of feedback. Other objects give their tables plain names."""


def key_to_json(key: ImageKey) -> Any:
    return key if isinstance(key, str) else key.to_json()


def key_from_json(found: Any) -> ImageKey:
    """The key that `key_to_json` described; KeyError or TypeError for anything else."""
    if isinstance(found, str):
        return found
    if "state" in found:
        return StateLabel(found["state"], found["pane"])
    return FeedbackPart(found["to"], found["batch"], found["number"])
