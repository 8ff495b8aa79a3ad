"""Feedback of the last batch, out of a backup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from afspark.numbers import Batch
from afspark.protocol.parcels import Packet
from afspark.protocol.ports import feedback_for
from afspark.store.images import FeedbackPart, ImageKey


def waiting_feedback(images: Mapping[ImageKey, Sequence[pa.RecordBatch]], batch: Batch) -> dict[str, list[Packet]]:
    """The feedback of ``batch`` that a backup holds, by port, in the order it was sent."""
    ports: dict[str, list[Packet]] = {}
    for part in sorted(key for key in images if isinstance(key, FeedbackPart) and key.batch == batch):
        ports.setdefault(feedback_for(part.to), []).extend(map(Packet, images[part]))
    return ports
