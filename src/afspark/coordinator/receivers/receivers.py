"""The receivers of a query, seen from its driver: which lane is where, how far it was taken, what may be forgotten.

Positions of the lanes are in the commit record. A receiver that ended without being closed may have lost what it was
allowed to, so every such end halves what the next one may hold without backup.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Container, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from afspark.cluster.cluster import Cluster
from afspark.coordinator.receivers.intensity import Intensity
from afspark.coordinator.receivers.past_positions import Lanes, PastPositions, copied
from afspark.coordinator.receivers.receiver_hosts import DriverReceivers, ExecutorReceivers, ReceiverHosts
from afspark.graph.node import Node
from afspark.graph.pipeline import Pipeline
from afspark.numbers import Batch
from afspark.protocol.lane_ticket import LaneTicket
from afspark.protocol.reports import TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.push.receiver.limits import Limits
from afspark.push.receiver.receiver_process import ReceiverPlan
from afspark.push.wire.security import Security, new_secret
from afspark.sources import Pushed
from afspark.store import Store
from afspark.store.commits import LanePositions
from afspark.store.epochs import read_history
from afspark.store.itemlosses import Gap
from afspark.store.lane_order import LaneOrder
from afspark.task.intake import LaneAway
from afspark.task.remote_lane import RemoteLane, open_lane

#: A lane is pressed when so much of its memory holds items that no durable record covers.
_PRESSED = 0.5


class Receivers:
    """All pushed sources of one query. ``positions``: by source and lane, as of the last committed batch.

    ``past``: of sources whose items are retained, where the batches ended that may have to be applied once more.
    ``pressed``: so much is retained that producers might have to wait.
    """

    def __init__(self, cluster: Cluster, pipeline: Pipeline, folders: Mapping[str, Store]) -> None:
        self._cluster, self._pipeline, self._folders = cluster, pipeline, folders
        self._hosts: dict[str, ReceiverHosts] = {}
        self._intensity = Intensity()
        self.positions: dict[str, Lanes] = {}
        #: what was missing on the lanes of each source in the last batch
        self.gaps: dict[str, Mapping[int, tuple[Gap, ...]]] = {}
        #: in which order it has taken them
        self.orders: dict[str, Mapping[int, LaneOrder]] = {}
        self.past = PastPositions()
        self.pressed = False
        self._before: dict[str, Lanes] = {}

    @property
    def sources(self) -> dict[str, Pushed]:
        return self._pipeline.pushed

    # --- life -----------------------------------------------------------------------------------------------

    def open(self, recorded: Mapping[str, LanePositions] | None = None) -> None:
        """Starts the receivers. ``recorded``: the positions of the newest record, as `recorded_lanes` finds them."""
        self.restore(recorded or {})
        for name, source in self.sources.items():
            (reader,) = [node for node in self._pipeline.nodes if name in {edge.origin for edge in node.inputs}]
            secret = new_secret()
            plans = receiver_plans(source, reader, self._pipeline, secret)
            kind = DriverReceivers if source.where == "driver" else ExecutorReceivers
            listed = partial(self._listed, name)
            access = replace(source.access(secret), transport=self._cluster.receiver_environment.transport)
            receiver_hosts = kind(self._cluster, plans, self._folders[name], access, listed)
            try:
                receiver_hosts.open()
            except BaseException:
                self.close()
                raise
            self._hosts[name] = receiver_hosts

    def close(self) -> None:
        """Ends all receivers in order: what they hold is durable afterwards."""
        while self._hosts:
            _, receiver_hosts = self._hosts.popitem()
            receiver_hosts.close()

    def crash(self) -> None:
        """A failure of the whole system takes the receivers as well."""
        for receiver_hosts in self._hosts.values():
            receiver_hosts.crash()

    def homes(self) -> list[str]:
        """Hosts on which receivers take a task slot, once for each."""
        return [home for receiver_hosts in self._hosts.values() for home in receiver_hosts.homes]

    def addresses(self) -> list[str]:
        return [address for receiver_hosts in self._hosts.values() for address in receiver_hosts.addresses()]

    def stats(self) -> dict[str, Any]:
        """Counters of all receivers, by address."""
        found: dict[str, Any] = {}
        for receiver_hosts in self._hosts.values():
            found |= receiver_hosts.stats()
        return found

    def lost(self, name: str) -> dict[int, float]:
        """By lane of a source: how many items its receiver's failures can have taken."""
        return self._hosts[name].lost() if name in self._hosts else {}

    def damaged(self, name: str) -> list[str]:
        """Objects of the item log that could not be read."""
        stats = self._hosts[name].stats() if name in self._hosts else {}
        lanes = [lane for one in stats.values() for lane in one["lanes"].values()]
        return sorted({damaged for lane in lanes for damaged in lane["damaged"]})

    def watch(self, seconds: float) -> dict[str, float]:
        """What came since the last batch, which took so long."""
        stats = self.stats()
        lanes_now = [lane for one in stats.values() for lane in one["lanes"].values()]
        self.pressed = any(lane["pending_bytes"] > _PRESSED * lane["capacity_bytes"] for lane in lanes_now)
        since = self._intensity.of_batch(stats)
        allowed = [plan.items for receiver_hosts in self._hosts.values() for plan in receiver_hosts.plans]
        if since and math.isfinite(min(allowed)):
            lanes = sum(len(plan.lanes) for receiver_hosts in self._hosts.values() for plan in receiver_hosts.plans)
            self._intensity.warn(since, seconds, min(allowed), lanes)
        return since

    # --- batches --------------------------------------------------------------------------------------------

    def restore(self, found: Mapping[str, LanePositions]) -> None:
        """Takes up the positions of a commit record."""
        self.positions = copied(found)

    def recorded(self) -> dict[str, LanePositions]:
        """The positions for a commit record."""
        return {name: dict(lanes) for name, lanes in self.positions.items()}

    def ticket(self, name: str, lane: int, batch: Batch | None = None) -> LaneTicket:
        """All that the worker of a lane needs to take it: for ``batch``, which may have to be applied once more."""
        announced, allow = self._hosts[name].of_lane(lane)
        new = LaneTicket(
            lane=lane,
            address=announced.address,
            access=self._hosts[name].access,
            seconds=self.sources[name].tick_seconds,
            positions=self.positions.get(name, {}).get(lane, {}),
            allow=allow,
        )
        if name not in self._pipeline.retained:
            return new
        new = replace(new, released=self.past.released.get(name, {}).get(lane, {}))
        span = None if batch is None else self.past.span(name, lane, batch)
        if batch is None or span is None:
            return new
        gone, order = self.past.gaps_of(name, lane, batch), self.past.order_of(name, lane, batch)
        return replace(new, positions=span[0], until=span[1], gone=gone, order=order)

    def advance(self, name: str, reports: Sequence[TaskReport]) -> None:
        """What the workers of a source have taken in the batch at work."""
        lanes = self.positions.setdefault(name, {})
        self.gaps[name] = {report.worker: tuple(report.gaps) for report in reports if report.gaps}
        self.orders[name] = {report.worker: report.lane_order for report in reports if report.lane_order}
        for report in reports:
            if report.positions is not None:
                before = lanes.get(report.worker, {})
                self._before.setdefault(name, {})[report.worker] = before
                # Those that were heard of last come last.
                lanes[report.worker] = dict(
                    sorted(report.positions.items(), key=lambda position: before.get(position[0]) != position[1])
                )

    def take_over(self, name: str, requests: Sequence[TaskRequest]) -> None:
        """Takes the lanes of a source from the tasks that had them: those confirm nothing any more."""
        if name not in self._hosts:
            return  # the query has stopped, and its receivers with it
        for request in requests:
            # Nobody can confirm anything to a receiver that is away.
            with closing(self._lane(name, request)) as lane, suppress(LaneAway):
                lane.attach(None)

    def confirm(self, name: str, requests: Sequence[TaskRequest], *, stepped: bool) -> None:
        """Tells receivers after the commit what has become final, so that they may forget it, and the next record the
        sessions that are over.

        With steps all of the record is. Other items are when Spark has committed their batch as well, which it has
        done before it runs another: if everything dies before, that batch runs again, from the record before it. What
        is retained is when such a record covers it.
        """
        lanes = self.positions.get(name, {})
        before = self.past.released if name in self._pipeline.retained else self._before
        for request in requests:
            final = (lanes if stepped else before.get(name, {})).get(request.worker)
            with closing(self._lane(name, request)) as lane:
                try:
                    # Also shuts out the tasks of the batch, which is over.
                    lane.attach(None)
                    if not final:
                        continue
                    answer = lane.confirm(final)
                except LaneAway:
                    continue  # the next tick says it again
            now = lanes[request.worker]
            over = {producer for producer in answer.over if now.get(producer) == final[producer]}
            forgotten = partial(_without, over=over, listed=answer.listed)
            lanes[request.worker] = forgotten(now)
            self.past.change(name, request.worker, forgotten)

    def _lane(self, name: str, request: TaskRequest) -> RemoteLane:
        return open_lane(request, self.ticket(name, request.worker))

    def _listed(self, name: str, lanes: Sequence[int]) -> Lanes:
        found = self.positions.get(name, {})
        return {lane: found[lane] for lane in lanes if lane in found}


def _without(ends: Mapping[str, int], *, over: Container[str], listed: Mapping[str, int]) -> dict[str, int]:
    """The positions without sessions that are over, and with how many sessions of each start were listed."""
    counted = {start: max(number, ends.get(start, 0)) for start, number in listed.items()}
    return {producer: end for producer, end in ends.items() if producer not in over} | counted


def recorded_lanes(store: Store) -> Mapping[str, LanePositions]:
    """The positions in the newest record of a query that is not running, as `Receivers.open` takes them."""
    records = read_history(store, sys.maxsize).records
    if not records:
        return {}
    _, newest = records[max(records)]
    return newest.lanes


def receiver_plans(source: Pushed, reader: Node, pipeline: Pipeline, worker_secret: str) -> list[ReceiverPlan]:
    """The receivers of a source: their lanes in turn, and what the tolerance of its readers allows them."""
    allowed = pipeline.item_limits(reader)
    secured = source.token_file is not None or source.certificate_file is not None
    security = Security(token_file=source.token_file, cert_file=source.certificate_file, key_file=source.key_file)
    number = 1 if source.where == "driver" else min(source.receivers, source.lanes)
    rate = {} if source.max_rows_per_second is None else {"rows_per_second": source.max_rows_per_second}
    return [
        ReceiverPlan(
            number=at,
            lanes=tuple(range(at, source.lanes, number)),
            schema=source.schema(),
            host=source.host,
            port=source.port,
            items=allowed.items,
            seconds=allowed.seconds,
            # A producer spreads what it sends over all lanes, each of which has its own share.
            unacked=reader.workers * allowed.unacked,
            keeps_upstream=allowed.keeps_upstream,
            logs_first=allowed.logs_first,
            limits=Limits(
                message_bytes=source.max_message_bytes,
                buffer_bytes=source.buffer_bytes,
                producers=source.max_producers,
                **rate,
            ),
            security=security if secured else None,
            worker_secret=worker_secret,
        )
        for at in range(number)
    ]
