"""Tests of your own pipelines, without Spark and without a JVM: batch by batch, with failures where you want them.

::

    from afspark import testing

    def pipeline(lines):
        return lines.apply(WordCount(), name="counts", workers=2, tolerance=Approximate(theta=10))

    with testing.run(pipeline, pa.schema({"value": pa.large_string()})) as query:
        query.batch({"value": ["to be or not to be"]})
        query.lose_host()
        query.batch({"value": ["that is the question"]})
        assert query.bounds("counts")["counts"] <= 10

What runs is what runs on Spark, apart from Spark: the same tasks on the same resident state, with real backups, records
and recoveries, in a temporary folder.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from afspark.api.accounts import Accounts
from afspark.api.arguments import check_tolerance
from afspark.api.arrow_results import ArrowResults
from afspark.api.assembly import assemble
from afspark.api.result_shares import current_shares
from afspark.api.stream import Inflow, StatefulStream, Stream
from afspark.api.writer import StreamWriter
from afspark.cluster.local.local_cluster import LocalCluster
from afspark.coordinator.batch_loop import Coordinator
from afspark.coordinator.batch_progress import BatchProgress
from afspark.coordinator.last_snapshot import take_last_snapshot
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.rescaling.rescaling import rescaled
from afspark.coordinator.run_options import DEFAULT_BATCH_BYTES, RunOptions
from afspark.errors import AfsparkError, UsageError
from afspark.graph.node import Node
from afspark.graph.pipeline import Pipeline
from afspark.graph.worker_numbers import with_workers
from afspark.model.operator import Share
from afspark.numbers import Batch
from afspark.policies import Tolerance
from afspark.policies.parameters import count, shown
from afspark.protocol.fault_plan import FaultPhase
from afspark.resident import process_cache
from afspark.resident.scratch_folders import scratch_folder, sweep_scratch
from afspark.sources import Source
from afspark.sources.given_items import GivenItems, Items
from afspark.store import Store, claim, open_store
from afspark.store.naming import FOLDER

Sinks = StatefulStream | StreamWriter | Sequence[StatefulStream | StreamWriter]

#: Begins the names of the folders of tests.
_PREFIX = "afspark-testing-"

#: Moments of a batch at which a worker can be killed.
_KILLED_AT = (FaultPhase.BETWEEN, FaultPhase.APPLYING, FaultPhase.BACKING_UP)


@contextmanager
def run(
    pipeline: Callable[..., Sinks], schema: pa.Schema | Sequence[pa.Schema], *, hosts: int = 2
) -> Iterator[LocalQuery]:
    """Runs what ``pipeline(stream)`` gives, on as many hosts; with several schemas it is given a stream for each.

    The pipeline returns its last operator, or several. To look at the rows that a batch changes or at the items that
    it sends, return ``operator.writeStream.outputMode("update")`` or ``("append")``. Sinks are not called: what they
    would get, the query shows.
    """
    schemas = [schema] if isinstance(schema, pa.Schema) else list(schema)
    sources = [GivenItems(number, one) for number, one in enumerate(schemas)]
    assembled = _assembled(pipeline, sources)
    count("hosts", hosts, "It is on how many hosts the workers run.")
    sweep_scratch(_PREFIX)
    with scratch_folder(_PREFIX) as folder:
        query = LocalQuery(folder, assembled, sources, hosts)
        try:
            yield query
        finally:
            query.close()


def _assembled(pipeline: Callable[..., Sinks], sources: Sequence[GivenItems]) -> Pipeline:
    """What ``pipeline`` makes of streams of these sources."""
    made = pipeline(*(Stream(None, (Inflow(source),)) for source in sources))
    sinks = made if isinstance(made, list | tuple) else [made]
    assembled = assemble([_sink(one) for one in sinks], batch_bytes=DEFAULT_BATCH_BYTES)
    if assembled.pushed or not all(isinstance(source, Source) for source in assembled.sources.values()):
        raise UsageError("A test gives all items itself.", remedy="Build the pipeline on the streams it is given.")
    return assembled


def _sink(made: object) -> tuple[StatefulStream, str | None]:
    if isinstance(made, StatefulStream):
        return made, None
    if isinstance(made, StreamWriter):
        return made.stateful, made.mode
    raise UsageError(
        f"The pipeline returned {shown(made)}, which is no operator.",
        remedy="Return what apply(...) gives, or its writeStream; several in a list.",
    )


class LocalQuery(Accounts):
    """A query in a test. `bounds`, `tolerance`, `ledger` and `bad_items` are those of a query on Spark."""

    def __init__(self, folder: Path, pipeline: Pipeline, sources: Sequence[GivenItems], hosts: int) -> None:
        self._folder, self._pipeline, self._sources = folder, pipeline, sources
        workers = max(node.workers for node in pipeline.nodes)
        self._cluster = LocalCluster({f"host{number}": workers for number in range(hosts)})
        self._results = ArrowResults(self._cluster)
        self._checkpoint = self._opened(folder / "checkpoint")
        self._begun = self._committed = Batch(-1)
        self._now, self._replaced = 0.0, 0
        #: by batch: what each operator has given out, by kind
        self._shown: dict[int, dict[tuple[str, str], pa.Table]] = {}
        self._engine = self._driver()

    # --- batches --------------------------------------------------------------------------------------------

    def batch(self, *items: Items, at: float | None = None) -> dict[str, Any]:
        """Runs one batch with these items, one argument for each stream; its progress, as ``lastProgress`` has it.

        ``at``: the time of the batch in seconds, for windows by processing time; by default one second after the last.
        """
        if len(items) != len(self._sources):
            raise UsageError(
                f"The number of streams is {len(self._sources)}, and that of arguments {len(items)}.",
                remedy="Give one argument for each stream, None for one without items.",
                streams=len(self._sources),
            )
        for source, given in zip(self._sources, items, strict=True):
            source.add(given)
        if self._begun > self._committed:
            # A batch that has failed runs again first, as it was.
            self._run(self._begun)
        self._now = self._now + 1.0 if at is None else at
        self._begun = Batch(self._begun + 1)
        head = json.dumps({"batchTimestampMs": round(self._now * 1000)})
        offsets = [json.dumps(planner.discover()) for planner in self._engine.planners.values()]
        self._checkpoint.put(f"offsets/{self._begun}", "\n".join(["v1", head, *offsets]).encode())
        return self._run(self._begun).to_json()

    def _run(self, batch: Batch) -> BatchProgress:
        self._shown = {}
        progress = self._engine.run(batch, None, self._deliver)
        self._engine.checkpoint.put(f"commits/{batch}", b"v1\n{}")
        self._committed = batch
        return progress

    def end(self) -> None:
        """Ends the stream: all windows close, and every operator is told."""
        self._shown = {}
        self._engine.end(self._deliver)

    # --- what comes out -------------------------------------------------------------------------------------

    def results(self, operator: str | None = None) -> pa.Table:
        """An operator's results after the last batch, merged over all workers; default: the last one's.

        With windows: what is still open.
        """
        self._engine.ready()
        return self._results.current(self._engine.operator(operator))

    def shares(self, operator: str | None = None) -> list[Share]:
        """What ``Operator.results`` is made from: every worker's cells after the last batch."""
        self._engine.ready()
        return current_shares(self._cluster, self._engine.operator(operator))

    def bounds(self, operator: str | None = None) -> dict[str, float]:
        """Per state: how far failures of this operator can have moved it at most."""
        self._open()
        return super().bounds(operator)

    def upstream_losses(self, operator: str | None = None) -> list[str]:
        """The operators whose losses may have changed what this one received; `bounds` leaves that out."""
        self._open()
        return super().upstream_losses(operator)

    def tolerance(self) -> list[dict[str, Any]]:
        """Thresholds θ, l and γ in force per worker, and why."""
        self._open()
        return super().tolerance()

    def set_tolerance(self, operator: str | None, tolerance: Tolerance) -> None:
        """Has all workers of an operator (None: the last one) protected by ``tolerance`` from the next batches on."""
        check_tolerance(tolerance)
        self._open()
        self._engine.operator(operator).want(tolerance)

    def _open(self) -> None:
        """A driver that was restarted knows its workers once it has looked for them."""
        if not self._engine.runs:
            self._engine.ready()

    def rows(self, operator: str | None = None) -> pa.Table | None:
        """The rows that the last batch changed; needs ``outputMode("update")``."""
        node = self._node(operator)
        if not node.emits:
            raise UsageError(
                f"Nothing keeps the rows that {node.name!r} changes.",
                remedy="Let the pipeline return operator.writeStream.outputMode('update').",
            )
        return self._output("rows", node.name)

    def items(self, operator: str | None = None) -> pa.Table | None:
        """The items that the last batch sent, None if none; needs ``outputMode("append")``."""
        node = self._node(operator)
        if not node.appends:
            raise UsageError(
                f"Nothing keeps the items that {node.name!r} sends.",
                remedy="Let the pipeline return operator.writeStream.outputMode('append').",
            )
        return self._output("items", node.name)

    def windows(self, operator: str | None = None) -> pa.Table | None:
        """The windows that the last batch, or the end of the stream, has closed; None if none."""
        node = self._node(operator)
        if node.window is None:
            raise UsageError(f"{node.name!r} has no windows.", remedy="Give apply(...) a window, or ask for results.")
        return self._output("windows", node.name)

    def _node(self, operator: str | None) -> Node:
        nodes = {node.title: node for node in self._pipeline.operators}
        name = operator or next(reversed(nodes))
        if name not in nodes:
            raise UsageError(f"There is no operator {name!r}.", remedy=f"The pipeline has {', '.join(nodes)}.")
        return nodes[name]

    def _output(self, kind: str, name: str) -> pa.Table | None:
        tables = [shown[kind, name] for shown in self._shown.values() if (kind, name) in shown]
        return pa.concat_tables(tables) if tables else None

    def _deliver(self, batch: Batch) -> None:
        """Reads what sinks would get; called again if a worker was lost meanwhile."""
        self._shown[batch] = shown = {}
        for run in self._engine.runs:
            for kind, table in self._read(run, batch):
                if table is not None:
                    shown[kind, run.name] = table

    def _read(self, run: OperatorRun, batch: Batch) -> Iterator[tuple[str, pa.Table | None]]:
        if run.node.emits:
            yield "rows", self._results.changed_rows(run, batch)
        if run.node.appends:
            yield "items", self._results.sent_items(run, batch)
        if run.node.window is not None:
            yield "windows", self._results.closed_windows(run, batch)

    # --- failures -------------------------------------------------------------------------------------------

    @property
    def hosts(self) -> list[str]:
        """The names of all hosts."""
        return sorted(self._cluster.slots)

    def homes(self, operator: str | None = None) -> tuple[str, ...]:
        """The hosts of an operator's workers."""
        return tuple(self._engine.operator(operator).homes.values())

    def lose_host(self, host: str | None = None) -> str:
        """A host is lost with all state on it, and a new one comes in its place; default: that of the last operator's
        first worker, or any if that one is lost already. Its name.
        """
        homes = self.homes() if self._engine.runs else ()
        lost = host or next((home for home in homes if home in self.hosts), self.hosts[0])
        if lost not in self.hosts:
            raise UsageError(f"There is no host {lost!r}.", remedy=f"There are {', '.join(self.hosts)}.", got=lost)
        slots = self._cluster.slots.pop(lost)
        shutil.rmtree(self._segments / lost, ignore_errors=True)
        self._replaced += 1
        self._cluster.slots[f"{lost.partition('-')[0]}-{self._replaced}"] = slots
        return lost

    def kill_worker(self, operator: str, worker: int, phase: str = "applying", *, lose_state: bool = False) -> None:
        """In the next batch the worker's process is killed: "between" (before anything), "applying" or "backing up".

        Its state stays on its host and is rolled back, unless it is lost as well. `UsageError` if there is no such
        worker or moment.
        """
        workers = {node.title: node.workers for node in self._pipeline.operators}
        if operator not in workers or worker not in range(workers[operator]):
            known = ", ".join(f"{name!r} with {count}" for name, count in workers.items())
            raise UsageError(f"There is no worker {worker!r} of {operator!r}.", remedy=f"There are {known}, from 0 on.")
        if phase not in _KILLED_AT:
            raise UsageError(f"No worker is killed at {phase!r}.", remedy=f"Moments are {', '.join(_KILLED_AT)}.")
        self._cluster.kill(self._node(operator).name, worker, FaultPhase(phase), lose_state=lose_state)

    def restart_driver(
        self,
        pipeline: Callable[..., Sinks] | None = None,
        *,
        discard: Collection[str] = (),
        workers: Mapping[str, int] | None = None,
        planned: bool = False,
    ) -> None:
        """The driver is gone, and another one goes on from the checkpoint: with another ``pipeline``, if one is given.

        ``discard`` names operators whose state may be given up if that one cannot keep it, as option("discardState")
        does. ``workers``: from now on these operators have so many, as if the program had been changed. ``planned``:
        the query was stopped in an orderly way, as by ``query.stop()``. `CheckpointError` if it cannot start; then
        nothing has changed, and the old one can be started again.
        """
        if planned:
            take_last_snapshot(self._engine)
        made = self._pipeline if pipeline is None else _assembled(pipeline, self._sources)
        self._engine.close()
        for operator, number in (workers or {}).items():
            count("workers", number, f"It is how many workers {operator!r} has.")
        numbers = {self._node(operator).name: number for operator, number in (workers or {}).items()}
        before, self._pipeline = self._pipeline, with_workers(made, numbers)
        most = max(node.workers for node in self._pipeline.nodes)
        self._cluster.slots = {host: max(slots, most) for host, slots in self._cluster.slots.items()}
        try:
            self._engine = self._driver(discard)
        except AfsparkError:
            self._pipeline = before
            self._engine = self._driver()
            raise

    @property
    def _segments(self) -> Path:
        return self._folder / "segments"

    def _opened(self, checkpoint: Path) -> Store:
        return open_store(checkpoint)

    def _driver(self, discard: Collection[str] = ()) -> Coordinator:
        options = RunOptions(
            checkpoint=str(self._folder / "checkpoint"),
            segments=str(self._segments),
            host_grace_seconds=0.0,
            takeover=True,
            lease_seconds=0.0,
            # A test looks at what a batch has left behind; only snapshots may be further apart than batches.
            max_replay_seconds=math.inf if any(node.tolerance.replays for node in self._pipeline.nodes) else 0.0,
            discard_state=frozenset(discard),
        )
        pipeline = self._pipeline
        identity = claim(self._checkpoint.below(FOLDER), pipeline.fingerprint(), pipeline.settings(), discard)
        pipeline = rescaled(self._cluster, pipeline, options, identity, self._checkpoint)
        return Coordinator(self._cluster, pipeline, options, identity, self._checkpoint)

    def close(self) -> None:
        """Ends the query; its folder goes with the block of `run`."""
        self._engine.close()
        process_cache().clear()
