"""What a task took to carry out its part of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class TaskWork:
    """What the batch of one worker took on its host; estimates and costs are made of it."""

    #: seconds with the items: they were read, transformed and given to the operator
    seconds: float = 0.0
    #: seconds of CPU of the whole task
    cpu: float = 0.0
    #: items and bytes that came to the worker itself: what others have read and combined for it counts as it came
    items: int = 0
    bytes: int = 0
    #: bytes that the worker keeps for others: items, rows, windows
    sent: int = 0
    #: seconds of CPU for choosing and sealing what is backed up, and seconds until that was written or spooled
    backup_cpu: float = 0.0
    backup_seconds: float = 0.0
    #: bytes that reached the store since the worker was asked last, and in how many seconds of writing
    uploaded: int = 0
    upload_seconds: float = 0.0
    #: requests of the task's process to the store since its last report, by kind
    requests: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
