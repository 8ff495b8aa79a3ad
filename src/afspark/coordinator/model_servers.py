"""The model servers of a query: one for each shard of every model that workers train together.

A batch is trained in *rounds* that a server keeps. It begins them with the model that the global operator has, and what
comes of them becomes that operator's state when the batch ends. If a server is lost, or a worker, all workers take the
batch back and begin it anew in another attempt.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from afspark.cluster.cluster import Cluster, StageFailed
from afspark.coordinator.hosted_server import HostedServer
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.placement import spread
from afspark.errors import UsageError, WorkerFailed
from afspark.exchange.driver_calls import ServerCalls
from afspark.exchange.exchange_messages import REFUSED, Begin, ExchangeFailed, Opened
from afspark.exchange.exchange_ticket import ExchangeTicket, RoundKey
from afspark.exchange.server_memory import CELL_BYTES, free_bytes, shards_for
from afspark.exchange.server_process import ServerProcess
from afspark.graph.pipeline import Pipeline
from afspark.model.training import DRIVER, EXECUTORS, Training
from afspark.numbers import Batch
from afspark.protocol.lifecycle import Hint
from afspark.protocol.requests import TaskRequest
from afspark.task.model_loading import ModelDestination, load_model

LOG = logging.getLogger("afspark")

#: No batch at all, of a driver that has begun some.
_NONE = Batch(-1)


@dataclass
class _Trained:
    """One model that is trained: its servers, and the rounds that are open."""

    training: Training
    shards: int
    secret: str = field(default_factory=lambda: secrets.token_hex(16))
    servers: list[ServerProcess | HostedServer] = field(default_factory=list)
    batch: Batch | None = None
    attempt: int = 0
    base: str = ""
    #: some may have applied the batch in rounds that do not count
    spoiled: bool = False


class ModelServers:
    """Equips workers that train a model, and the operator that has it, for a batch."""

    def __init__(self, cluster: Cluster, pipeline: Pipeline) -> None:
        self._cluster = cluster
        self._trained: dict[str, _Trained] = {}
        self._last_events: dict[str, Any] = {}
        for node in pipeline.nodes:
            training = node.operator.training
            if training is not None:
                self._trained[node.name] = _Trained(training, pipeline.called(training.model).workers)

    @property
    def active(self) -> bool:
        """Whether the pipeline trains any model."""
        return bool(self._trained)

    def check_slots(self, pipeline: Pipeline) -> None:
        """UsageError if workers that train together could not all be at work at the same time."""
        slots = sum(self._cluster.slots_by_host().values())
        for name in self._trained:
            workers = pipeline.node(name).workers
            if workers > slots:
                raise UsageError(
                    f"The {workers} workers of {name!r} train at the same time, and there are {slots} task slots.",
                    remedy=f"Use a master with more slots, such as local[{workers}], or fewer workers.",
                    workers=workers,
                    slots=slots,
                )

    def check_sizes(self) -> None:
        """UsageError if a model does not fit into its servers."""
        for name, trained in self._trained.items():
            cells = trained.training.cells
            needed = shards_for(cells)
            if trained.shards < needed:
                raise UsageError(
                    f"The model that {name!r} trains has {cells:,} cells, too many for {trained.shards} shards.",
                    remedy=f"Use shards={needed} or more, or a smaller model.",
                    cells=cells,
                    shards=trained.shards,
                )
        # Of hosts of executors nobody knows here what is free, and servers that run have taken what they need.
        here = {
            name: one.training.cells
            for name, one in self._trained.items()
            if one.training.servers == DRIVER and not one.servers
        }
        cells, free = sum(here.values()), free_bytes()
        if free is not None and cells * CELL_BYTES > free:
            raise UsageError(
                f"What {' and '.join(map(repr, here))} would train has {cells:,} cells, for which model servers beside"
                f" the driver need {cells * CELL_BYTES / 1e9:.1f} GB; {free / 1e9:.1f} GB are free.",
                remedy="Use a smaller model, such as fewer slots, servers='executors', or a machine with more memory.",
                cells=cells,
            )

    def must_take_back(self, run: OperatorRun, runs: Sequence[OperatorRun], batch: Batch) -> bool:
        """Whether ``batch`` has to be taken back before the workers of ``run`` are equipped: rounds of it were begun
        that cannot be completed, or others may have begun some. It stays so until `taken_back` or `gone_back`.
        """
        trained = self._trained.get(run.name)
        if trained is None:
            return False
        model = self._of(trained, runs)
        base = _version(model, batch)
        if trained.batch != batch:
            # A driver before this one may have begun it.
            members = [*run.group.members, *model.group.members]
            trained.spoiled = trained.batch is None and any(one.hint is Hint.RESUME for one in members)
            trained.batch, trained.attempt, trained.base = batch, trained.attempt + 1, base
        elif base != trained.base or not self._are_open(trained, run):
            trained.attempt, trained.base, trained.spoiled = trained.attempt + 1, base, True
        return trained.spoiled

    def has_rounds(self, run: OperatorRun, runs: Sequence[OperatorRun], batch: Batch) -> bool:
        """Whether an operator that has a model finds what ``batch`` has made of it; others look for nothing."""
        for name, trained in self._trained.items():
            if trained.training.model == run.title:
                trainer = next(one for one in runs if one.name == name)
                return trained.batch == batch and not trained.spoiled and self._are_open(trained, trainer)
        return True

    def taken_back(self, name: str, *, everywhere: bool) -> None:
        """Workers of an operator have taken the batch at work back; if they have ``everywhere``, it is begun anew, and
        nothing counts that they have pushed. Else it has to be taken back once more.
        """
        trained = self._trained.get(name)
        if trained is not None:
            trained.attempt, trained.spoiled = trained.attempt + 1, not everywhere

    def gone_back(self) -> None:
        """All workers are given an older state: no rounds count."""
        for trained in self._trained.values():
            trained.batch, trained.spoiled = _NONE, False

    def equip(
        self,
        run: OperatorRun,
        runs: Sequence[OperatorRun],
        batch: Batch,
        requests: Sequence[TaskRequest],
        restore: Callable[[OperatorRun], bool],
    ) -> list[TaskRequest] | None:
        """The requests with what is needed to train in a batch, or to take what was trained.

        None if it has to be tried again. ``restore`` gives workers that have none a state.
        """
        trained = self._trained.get(run.name)
        if trained is not None:
            if not self._open(trained, run, self._of(trained, runs), batch, restore):
                return None
        else:
            trained = next((one for one in self._trained.values() if one.training.model == run.title), None)
        if trained is None:
            return list(requests)
        ticket = self._ticket(trained, runs, batch)
        return [replace(request, exchange=ticket) for request in requests]

    def warn_of_waits(self, name: str, batch: Batch, why: Iterable[str]) -> None:
        """Says that workers of an operator train a batch in vain, for these reasons: it may take minutes to give up."""
        waits = sorted(one for one in why if one.startswith(REFUSED)) if name in self._trained else []
        if waits:
            LOG.warning("%r begins batch %d anew. %s", name, batch, waits[0])

    def events(self) -> dict[str, Any]:
        """By operator that trains: ``pushes`` and ``pulls`` of the newest rounds at the server of its first shard.
        After the end, what there was then.
        """
        found = dict(self._last_events)
        for name, trained in self._trained.items():
            if trained.batch is None or not trained.servers:
                continue
            key = RoundKey(batch=trained.batch, attempt=trained.attempt)
            with contextlib.suppress(ExchangeFailed), _calls(trained, 0) as calls:
                found[name] = calls.events(key)
        return found

    def close(self) -> None:
        self._last_events = self.events()
        for trained in self._trained.values():
            for server in trained.servers:
                server.close()
            trained.servers = []

    def _open(
        self,
        trained: _Trained,
        run: OperatorRun,
        model: OperatorRun,
        batch: Batch,
        restore: Callable[[OperatorRun], bool],
    ) -> bool:
        """Opens the rounds on all servers; False if that has to be tried again."""
        self._refuse_crowded(run)
        begin = self._begin(trained, run)
        try:
            self._start(trained)
            for shard in range(trained.shards):
                opened = _asked_to_begin(trained, shard, begin)
                if opened is Opened.LACKS_BASE:
                    if not self._load(trained, model, shard, restore):
                        return False
                    opened = _asked_to_begin(trained, shard, begin)
                if opened is not Opened.OPEN:
                    return False
        except (ExchangeFailed, StageFailed):
            return False
        return True

    def _refuse_crowded(self, run: OperatorRun) -> None:
        """Those who wait for a slot would be waited for."""
        slots = self._cluster.slots_by_host()
        for host, count in Counter(run.homes.values()).items():
            if host in slots and slots[host] < count:
                raise WorkerFailed(
                    f"{count} workers of {run.name!r} on {host} train together, and it has {slots[host]} slots.",
                    remedy="Give hosts more slots, so that the others can take the workers of one that is lost.",
                    host=host,
                )

    def _are_open(self, trained: _Trained, run: OperatorRun) -> bool:
        begin = self._begin(trained, run)
        try:
            return all(server.lives for server in trained.servers) and all(
                _asked_to_begin(trained, shard, begin) is Opened.OPEN for shard in range(len(trained.servers))
            )
        except ExchangeFailed:
            return False

    def _begin(self, trained: _Trained, run: OperatorRun) -> Begin:
        assert trained.batch is not None
        return Begin(
            batch=trained.batch,
            attempt=trained.attempt,
            base=trained.base,
            workers=[member.worker for member in run.group.members],
            incarnations=[member.incarnation for member in run.group.members],
            consistency=str(trained.training.consistency),
            seconds=trained.training.wait_seconds,
        )

    def _start(self, trained: _Trained) -> None:
        """Starts servers that are not there."""
        bounds = trained.training.bounds(trained.shards)
        for shard in range(trained.shards):
            if shard < len(trained.servers) and trained.servers[shard].lives:
                continue
            for gone in trained.servers[shard : shard + 1]:
                gone.give_up()
            size = bounds[shard + 1] - bounds[shard]
            trained.servers[shard : shard + 1] = [self._server(trained, shard, size)]

    def _server(self, trained: _Trained, shard: int, size: int) -> ServerProcess | HostedServer:
        if trained.training.servers == EXECUTORS:
            host = spread(range(trained.shards), self._cluster.slots_by_host())[shard]
            return HostedServer(self._cluster, host, size, secret=trained.secret)
        return ServerProcess(size, host=self._cluster.driver_host, secret=trained.secret)

    def _load(self, trained: _Trained, model: OperatorRun, shard: int, restore: Callable[[OperatorRun], bool]) -> bool:
        """Gives a server the model as the global operator has it; False if that has none."""
        assert trained.batch is not None
        bounds, server = trained.training.bounds(trained.shards), trained.servers[shard]
        task = partial(
            load_model,
            model.residents,
            model.node.operator,
            ModelDestination(
                shard=shard,
                size=bounds[shard + 1] - bounds[shard],
                address=server.address,
                secret=trained.secret,
                base=trained.base,
                version=Batch(trained.batch - 1),
            ),
        )
        home = {0: model.homes[shard]}
        return all(self._cluster.try_on(home, task)) or (restore(model) and all(self._cluster.try_on(home, task)))

    def _ticket(self, trained: _Trained, runs: Sequence[OperatorRun], batch: Batch) -> ExchangeTicket:
        return ExchangeTicket(
            addresses=tuple(server.address for server in trained.servers),
            bounds=trained.training.bounds(trained.shards),
            key=RoundKey(batch=batch, attempt=trained.attempt),
            secret=trained.secret,
            becomes=_version(self._of(trained, runs), Batch(batch + 1)),
            in_rounds=trained.training.consistency.in_rounds,
            seconds=trained.training.wait_seconds,
        )

    def _of(self, trained: _Trained, runs: Sequence[OperatorRun]) -> OperatorRun:
        """The operator that has the model."""
        return next(one for one in runs if one.title == trained.training.model)


def _calls(trained: _Trained, shard: int) -> contextlib.closing[ServerCalls]:
    return contextlib.closing(ServerCalls(trained.servers[shard].address, trained.secret))


def _asked_to_begin(trained: _Trained, shard: int, begin: Begin) -> Opened:
    """What a server says to rounds that it is to open; `ExchangeFailed` if nothing: another one will take its place."""
    try:
        with _calls(trained, shard) as calls:
            return calls.begin(begin)
    except ExchangeFailed:
        trained.servers[shard].give_up()
        raise


def _version(model: OperatorRun, batch: Batch) -> str:
    """How the model is called that ``batch`` begins with; "": nobody has learned anything yet."""
    if batch == 0:
        return ""
    incarnations = ".".join(str(member.incarnation) for member in model.group.members)
    return f"{batch - 1} of {incarnations}"
