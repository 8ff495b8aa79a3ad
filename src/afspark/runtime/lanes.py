"""A worker's lane over the wire; a receiver that does not answer is away, not an error."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from afspark.errors import SegmentError
from afspark.push.drain import Drain, Pulled
from afspark.push.errors import ReceiverStopped, ReceiverUnreachable, Superseded
from afspark.push.wire import Allowance
from afspark.push.workerwire import Attached, BackupNumber, Confirmed
from afspark.runtime.intake import LaneAway
from afspark.runtime.orders import Order
from afspark.runtime.sources import Chunk

T = TypeVar("T")


class RemoteLane:
    """Implements `intake.Lane` for one worker in one batch."""

    def __init__(self, drain: Drain, allow: Allowance) -> None:
        self._drain, self._allow = drain, allow

    def attach(self, positions: Mapping[str, int] | None) -> Attached:
        return self._asked(lambda: self._drain.attach(positions, self._allow))

    def pull(
        self,
        after: Mapping[str, int],
        confirmed: Mapping[str, int],
        durable: BackupNumber,
        *,
        size: int,
        wait: float,
    ) -> Sequence[Pulled]:
        return self._asked(lambda: self._drain.pull(confirmed, after=after, durable=durable, max_bytes=size, wait=wait))

    def settle(self, positions: Mapping[str, int]) -> bool:
        return self._asked(lambda: self._drain.settle(positions))

    def confirm(self, positions: Mapping[str, int]) -> Confirmed:
        return self._asked(lambda: self._drain.confirm(positions))

    def close(self) -> None:
        self._drain.close()

    def _asked(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except Superseded as error:
            # The driver has sent another task in this one's place.
            raise SegmentError(str(error)) from error
        except (ReceiverStopped, ReceiverUnreachable) as error:
            raise LaneAway from error


def open_lane(order: Order, chunk: Chunk) -> RemoteLane:
    """The lane of a chunk that `Reception.claim` has made complete, for this process alone."""
    drain = Drain(
        chunk["address"],
        chunk["lane"],
        incarnation=order.incarnation,
        fence=order.fence,
        owner=secrets.token_hex(8),
        access=chunk["access"],
    )
    return RemoteLane(drain, Allowance.from_json(chunk["allow"]))
