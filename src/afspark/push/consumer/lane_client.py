"""The worker's side of a lane: it attaches, pulls entries, has logging stopped, and confirms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from afspark.numbers import FIRST_INCARNATION, NO_FENCE, Fence, Incarnation
from afspark.push.wire.messages import ATTACH, CONFIRM, STATS, STOP_LOGGING, Allowance, Positions, PunctuationMark
from afspark.push.wire.security import Access
from afspark.push.wire.worker_messages import (
    NO_BACKUP,
    Attach,
    Attached,
    BackupNumber,
    Confirm,
    Confirmed,
    EntryTag,
    LoggingStopped,
    Pull,
    Stats,
    StopLogging,
)


@dataclass(frozen=True, slots=True)
class Pulled:
    """An entry of the lane: the numbers [start, end) of a producer.

    ``batch`` is None for a ``punctuation`` (one number) and for a ``mark`` (none: everything below ``start`` was
    acknowledged to the producer). A worker whose position is below ``start`` has lost what is between.
    """

    producer: str
    start: int
    batch: pa.RecordBatch | None
    logged: bool
    punctuation: PunctuationMark | None = None
    mark: bool = False

    @property
    def end(self) -> int:
        if self.batch is not None:
            return self.start + self.batch.num_rows
        return self.start if self.mark else self.start + 1


class LaneClient:
    """A connection of one worker to its lane. Calls raise `PushError`; none is repeated by itself.

    `Superseded`: a newer incarnation has the lane, or another process of the same one (``owner``) that has attached
    since. `ReceiverUnreachable`: the receiver does not answer within ``timeout`` seconds beyond what the call waits
    for on purpose.
    """

    def __init__(
        self,
        address: str,
        lane: int,
        *,
        incarnation: Incarnation = FIRST_INCARNATION,
        fence: Fence = NO_FENCE,
        owner: str = "",
        access: Access | None = None,
        timeout: float = 30.0,
    ) -> None:
        self._claim = (lane, incarnation, fence, owner)
        self._timeout = timeout
        self._connection = (access or Access()).connect(address)

    def attach(self, positions: Positions | None = None, allow: Allowance | None = None) -> Attached:
        """What the receiver knows to be confirmed on the lane, which is taken over from older incarnations."""
        message = Attach(*self._claim, positions=positions, allow=allow)
        return self._connection.act(ATTACH, message, Attached, seconds=self._timeout)

    def pull(
        self,
        confirmed: Positions,
        *,
        after: Positions | None = None,
        until: Positions | None = None,
        max_bytes: int = 16 << 20,
        wait: float = 0.0,
        allow: Allowance | None = None,
        durable: BackupNumber = NO_BACKUP,
    ) -> list[Pulled]:
        """Entries above ``confirmed`` and ``after``, the oldest first; empty if none came within ``wait`` seconds.

        What is below ``confirmed`` is released for good. What is below ``after`` stays pending and is merely not
        handed out this time. With ``until`` only entries come that have something below it. About ``max_bytes`` come at
        once, at least one entry.
        """
        ticket = Pull(
            *self._claim,
            confirmed=confirmed,
            after=after or {},
            until=until,
            bytes=max_bytes,
            wait=wait,
            allow=allow,
            durable=durable,
        )
        return [_pulled(batch, tag) for batch, tag in self._connection.pull(ticket, seconds=wait + self._timeout)]

    def stop_logging(self, positions: Positions) -> bool:
        """Whether the receiver has logged any item below the positions. It logs none of them from now on."""
        message = StopLogging(*self._claim, positions=positions)
        return self._connection.act(STOP_LOGGING, message, LoggingStopped, seconds=self._timeout).logged

    def confirm(self, positions: Positions, durable: BackupNumber = NO_BACKUP) -> Confirmed:
        """Which positions need not be kept any more. The receiver forgets what is below them: it is final."""
        message = Confirm(*self._claim, positions=positions, durable=durable)
        return self._connection.act(CONFIRM, message, Confirmed, seconds=self._timeout)

    def stats(self) -> Mapping[str, Any]:
        """The receiver's counters."""
        return self._connection.act(STATS, None, Stats, seconds=self._timeout).counters

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _pulled(batch: pa.RecordBatch, tag: EntryTag) -> Pulled:
    has_items = tag.punctuation is None and not tag.mark
    return Pulled(tag.producer, tag.start, batch if has_items else None, tag.logged, tag.punctuation, tag.mark)
