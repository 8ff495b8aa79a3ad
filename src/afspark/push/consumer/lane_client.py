"""The worker's side of a lane: attach, pull, settle, confirm."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
from pyarrow import flight

from afspark.push.wire.messages import ATTACH, CONFIRM, SETTLE, STATS, Allowance, Message, Positions, PunctuationMark
from afspark.push.wire.push_errors import from_flight
from afspark.push.wire.security import Access
from afspark.push.wire.worker_messages import (
    NO_BACKUP,
    Attach,
    Attached,
    BackupNumber,
    Confirm,
    Confirmed,
    EntryTag,
    Pull,
    Settled,
    StopLogging,
)

_CHANNEL = [
    # A receiver that was restarted is found again at once.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
]


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
    """A connection of one worker to the lane it drains. Calls raise `PushError`; none is repeated by itself.

    `Superseded`: a newer incarnation has the lane, or another process of the same one (``owner``) that has attached
    since. `ReceiverUnreachable`: the receiver does not answer within
    ``timeout`` seconds beyond what the call waits for on purpose.
    """

    def __init__(
        self,
        address: str,
        lane: int,
        *,
        incarnation: int,
        fence: int,
        owner: str = "",
        access: Access | None = None,
        timeout: float = 30.0,
    ) -> None:
        access = access or Access()
        self._address = address
        self._claim = (lane, incarnation, fence, owner)
        self._timeout = timeout
        self._headers = access.headers()
        self._client = access.connect(address, generic_options=_CHANNEL)

    def attach(self, positions: Positions | None = None, allow: Allowance | None = None) -> Attached:
        """Takes the lane over from older incarnations. What the receiver knows to be confirmed on it."""
        return Attached.from_bytes(self._act(ATTACH, Attach(*self._claim, positions=positions, allow=allow)))

    def pull(
        self,
        confirmed: Positions,
        *,
        after: Positions | None = None,
        max_bytes: int = 16 << 20,
        wait: float = 0.0,
        allow: Allowance | None = None,
        durable: BackupNumber = NO_BACKUP,
    ) -> list[Pulled]:
        """Entries above ``confirmed`` and ``after``, the oldest first; empty if none came within ``wait`` seconds.

        What is below ``confirmed`` is released for good. What is below ``after`` stays pending and is merely not
        handed out this time. About ``max_bytes`` come at once, at least one entry.
        """
        ticket = Pull(
            *self._claim,
            confirmed=confirmed,
            after=after or {},
            bytes=max_bytes,
            wait=wait,
            allow=allow,
            durable=durable,
        )
        try:
            reader = self._client.do_get(flight.Ticket(ticket.to_bytes()), self._options(wait))
            return _read(reader)
        except (pa.ArrowException, OSError) as error:
            raise from_flight(error, self._address) from error

    def stop_logging(self, positions: Positions) -> bool:
        """What is below the positions becomes final now, and is not logged any more; whether some of it is."""
        return Settled.from_bytes(self._act(SETTLE, StopLogging(*self._claim, positions=positions))).logged

    def confirm(self, positions: Positions, durable: BackupNumber = NO_BACKUP) -> Confirmed:
        """What is below the positions is final: the receiver forgets it, and says which of them need not be kept."""
        message = Confirm(*self._claim, positions=positions, durable=durable)
        return Confirmed.from_bytes(self._act(CONFIRM, message))

    def stats(self) -> dict[str, Any]:
        """The receiver's counters."""
        return json.loads(self._act(STATS, None))

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _act(self, kind: str, message: Message | None) -> bytes:
        action = flight.Action(kind, b"" if message is None else message.to_bytes())
        try:
            (result,) = self._client.do_action(action, self._options(0.0))
        except (pa.ArrowException, OSError) as error:
            raise from_flight(error, self._address) from error
        return result.body.to_pybytes()

    def _options(self, wait: float) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=wait + self._timeout, headers=self._headers)


def _read(reader: Any) -> list[Pulled]:
    pulled: list[Pulled] = []
    while True:
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            return pulled
        tag = EntryTag.from_bytes(chunk.app_metadata)
        has_items = tag.punctuation is None and not tag.mark
        batch = chunk.data if has_items else None
        pulled.append(Pulled(tag.producer, tag.start, batch, tag.logged, tag.punctuation, tag.mark))
