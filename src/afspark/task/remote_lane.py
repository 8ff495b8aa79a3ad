"""A worker's lane over the wire; a receiver that does not answer is away, not an error."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from afspark.errors import SegmentError
from afspark.protocol.lane_ticket import LaneTicket
from afspark.protocol.requests import TaskRequest
from afspark.push.consumer.lane_client import LaneClient, Pulled
from afspark.push.wire.messages import Allowance
from afspark.push.wire.push_errors import NotAReceiver, ReceiverStopped, ReceiverUnreachable, Superseded
from afspark.push.wire.worker_messages import Attached, BackupNumber, Confirmed
from afspark.task.intake import LaneAway

T = TypeVar("T")


class RemoteLane:
    """Implements `intake.LaneConnection` for one worker in one batch."""

    def __init__(self, client: LaneClient, allow: Allowance) -> None:
        self._client, self._allow = client, allow

    def attach(self, positions: Mapping[str, int] | None) -> Attached:
        return self._asked(lambda: self._client.attach(positions, self._allow))

    def pull(
        self,
        after: Mapping[str, int],
        confirmed: Mapping[str, int],
        durable: BackupNumber,
        *,
        size: int,
        wait: float,
        until: Mapping[str, int] | None = None,
    ) -> Sequence[Pulled]:
        return self._asked(
            lambda: self._client.pull(confirmed, after=after, until=until, durable=durable, max_bytes=size, wait=wait)
        )

    def stop_logging(self, positions: Mapping[str, int]) -> bool:
        return self._asked(lambda: self._client.stop_logging(positions))

    def confirm(self, positions: Mapping[str, int]) -> Confirmed:
        return self._asked(lambda: self._client.confirm(positions))

    def close(self) -> None:
        self._client.close()

    def _asked(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except Superseded as error:
            # The driver has sent another task in this one's place.
            raise SegmentError(str(error)) from error
        except (ReceiverStopped, ReceiverUnreachable, NotAReceiver) as error:
            raise LaneAway from error


def open_lane(request: TaskRequest, ticket: LaneTicket) -> RemoteLane:
    """The lane of a ticket, for this process alone."""
    client = LaneClient(
        ticket.address,
        ticket.lane,
        incarnation=request.incarnation,
        fence=request.fence,
        owner=secrets.token_hex(8),
        access=ticket.access,
    )
    return RemoteLane(client, ticket.allow)
