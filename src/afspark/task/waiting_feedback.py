"""Feedback of the last batch, out of a backup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from afspark.protocol.parcels import Packet
from afspark.protocol.ports import feedback_for


def waiting_feedback(images: Mapping[str, Sequence[pa.RecordBatch]], batch: int) -> dict[str, list[Packet]]:
    """The feedback of ``batch`` that a backup holds, by port, in the order it was sent."""
    found: list[tuple[str, int, pa.RecordBatch]] = []
    for name, sent in images.items():
        if name.startswith(feedback_for("")):
            port, sender, number = name.rsplit("@", 2)
            if int(sender) == batch:
                found += [(port, int(number), one) for one in sent]
    ports: dict[str, list[Packet]] = {}
    for port, _, items in sorted(found, key=lambda entry: entry[:2]):
        ports.setdefault(port, []).append(Packet(items))
    return ports
