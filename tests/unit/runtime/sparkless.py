"""The whole engine without a JVM: Spark's part is played by forked processes that can be killed for real.

A task runs in a process of its own on a named host and is tried again when the process dies, as Spark does.
Shuffle outputs are kept until somebody forgets them. The micro-batch loop writes offsets before a batch and its
commit after it, so a driver killed anywhere is continued by the next one from the same checkpoint.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError

from afspark.cluster.spark import stages
from afspark.coordinator import batch_loop as engine
from afspark.coordinator import worker_group as group
from afspark.coordinator.batch_loop import Coordinator
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.run_options import RunOptions
from afspark.coordinator.told_bounds import realised
from afspark.coordinator.worker_state import WorkerState
from afspark.graph.pipeline import Pipeline
from afspark.model.distances import cells_of
from afspark.model.operator import Operator
from afspark.model.state_label import StateLabel
from afspark.model.windows import Decaying
from afspark.protocol.lifecycle import Present
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.parcels import open_packets, open_parts
from afspark.protocol.ports import ALL, WINDOWS
from afspark.resident import examine
from afspark.resident.residents import Residents, kept_by, segment_of
from afspark.resident.spark_host import HOST_VARIABLE
from afspark.store import LedgerEntry, claim, open_store
from afspark.task.pane_states import PaneStates

TASK_TRIES = 4
KILLED = "killed"
RUN_OPTIONS = {
    "batch_bytes",
    "faults",
    "host_grace_seconds",
    "quarantine_bytes",
    "throttle",
    "takeover",
    "lease_seconds",
    "store_wait_seconds",
}
#: Drivers of one process stand for one after the other: the next one takes over, and waits for nobody.
SUCCESSION = {"host_grace_seconds": 0.0, "takeover": True, "lease_seconds": 0.0}
NO_OFFSET = "-"


class JobFailed(Py4JJavaError):  # type: ignore[misc]
    """A task died as often as Spark lets it."""

    def __init__(self, why: str) -> None:
        Exception.__init__(self, why)
        self.why = why

    def __str__(self) -> str:
        return self.why


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit


def forked(*tasks: Callable[[], Any]) -> list[tuple[bool, Any]]:
    """(True, result) of each task in a process of its own; (False, why) if it was killed or raised."""
    return [answer(child) for child in [begin(task) for task in tasks]]


def begin(task: Callable[[], Any]) -> tuple[int, int]:
    """Starts a process of its own for a task: its number, and where `answer` hears of it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        # What the parent has left of Flight waits for threads that do not exist here; nobody may collect it.
        gc.freeze()
        try:
            told = pickle.dumps((True, task()))
        except BaseException:  # noqa: BLE001 (told to the parent; this process must not go on)
            told = pickle.dumps((False, traceback.format_exc()))
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(told)
        sys.stdout.flush()
        os._exit(0)
    os.close(writer)
    return child, reader


def answer(process: tuple[int, int]) -> tuple[bool, Any]:
    """As `forked`, once the process has ended."""
    child, reader = process
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(told) if told else (False, KILLED)


@dataclass
class Hosts:
    """The executors of a pretended cluster, and hooks into its scheduling."""

    slots: dict[str, int] = field(default_factory=lambda: {"a": 1, "b": 1})
    #: called in the driver before each attempt of a task: (kind of job, partition, attempt)
    before: Callable[[str, int, int], None] | None = None
    #: where the next such task runs instead of its home: (kind of job, partition) -> host
    astray: dict[tuple[str, int], str] = field(default_factory=dict)
    shuffles: list[Shuffle] = field(default_factory=list)

    def anchor(self, sc: Any, homes: Iterable[str]) -> Rdd:
        homes = list(homes)
        return Rdd(self, len(homes), lambda i: [i], homes)

    def mailed(self, sc: Any, homes: Iterable[str], items: Rdd) -> Rdd:
        homes = list(homes)
        inbox = items.partitionBy(len(homes), int)
        return Rdd(self, len(homes), lambda i: [(i, row) for row in inbox.compute(i)], homes, inbox.needs)

    def place(self, kind: str, partition: int, home: str | None) -> str:
        host = self.astray.pop((kind, partition), home)
        return host if host in self.slots else min(self.slots)

    def forget_outputs(self) -> None:
        """All executors that hold map outputs are gone."""
        for shuffle in self.shuffles:
            shuffle.outputs = None

    def run(self, kind: str, rdd: Rdd) -> list[list[Any]]:
        """The rows of each partition. Tasks run side by side, or one after the other if somebody interferes."""
        answers: list[tuple[bool, Any]] = [(False, "not tried")] * rdd.partitions
        together = self.before is None
        if together:
            answers = self._attempt(kind, rdd, range(rdd.partitions))
        for partition in range(rdd.partitions):
            for attempt in range(int(together), TASK_TRIES):
                if answers[partition][0]:
                    break
                if self.before is not None:
                    self.before(kind, partition, attempt)
                answers[partition : partition + 1] = self._attempt(kind, rdd, [partition])
            ended, why = answers[partition]
            if not ended:
                raise JobFailed(f"task {partition} of {kind} died {TASK_TRIES} times, the last one: {why}")
        return [list(rows) for _, rows in answers]

    def _attempt(self, kind: str, rdd: Rdd, partitions: Sequence[int]) -> list[tuple[bool, Any]]:
        for shuffle in rdd.needs:
            shuffle.materialise()
        hosts = [self.place(kind, one, rdd.homes[one] if rdd.homes else None) for one in partitions]
        return forked(*(partial(_on_host, host, rdd.compute, one) for host, one in zip(hosts, partitions, strict=True)))


def _on_host(host: str, compute: Callable[[int], list[Any]], partition: int) -> list[Any]:
    os.environ[HOST_VARIABLE] = host
    return compute(partition)


class Rdd:
    """The few methods of Spark's RDD that stages use."""

    def __init__(
        self,
        hosts: Hosts,
        partitions: int,
        compute: Callable[[int], list[Any]],
        homes: list[str] | None = None,
        needs: tuple[Shuffle, ...] = (),
    ) -> None:
        self.hosts, self.partitions, self.compute = hosts, partitions, compute
        self.homes, self.needs = homes, needs

    def mapPartitions(self, change: Callable[[Iterator[Any]], Iterable[Any]]) -> Rdd:
        inner = self.compute
        return Rdd(self.hosts, self.partitions, lambda i: list(change(iter(inner(i)))), self.homes, self.needs)

    def map(self, change: Callable[[Any], Any]) -> Rdd:
        return self.mapPartitions(lambda rows: [change(row) for row in rows])

    def flatMap(self, change: Callable[[Any], Iterable[Any]]) -> Rdd:
        return self.mapPartitions(lambda rows: [new for row in rows for new in change(row)])

    def partitionBy(self, partitions: int, owner: Callable[[Any], int]) -> Rdd:
        shuffle = Shuffle(self, owner)
        self.hosts.shuffles = [shuffle]
        return Rdd(self.hosts, partitions, shuffle.fetch, None, (shuffle,))

    def zip(self, other: Rdd) -> Rdd:
        mine, theirs = self.compute, other.compute
        return Rdd(
            self.hosts,
            self.partitions,
            lambda i: list(zip(mine(i), theirs(i), strict=True)),
            self.homes,
            self.needs + other.needs,
        )

    def collect(self) -> list[Any]:
        kind = "reduce" if self.needs else "job"
        return [row for rows in self.hosts.run(kind, self) for row in rows]

    def foreach(self, act: Callable[[Any], Any]) -> None:
        self.mapPartitions(lambda rows: [act(row) and None for row in rows]).collect()


class Shuffle:
    """Map outputs; made when somebody needs them and they are not there."""

    def __init__(self, source: Rdd, owner: Callable[[Any], int]) -> None:
        self.source, self.owner = source, owner
        self.outputs: list[list[Any]] | None = None

    def materialise(self) -> None:
        if self.outputs is None:
            self.outputs = self.source.hosts.run("map", self.source)

    def fetch(self, partition: int) -> list[Any]:
        assert self.outputs is not None
        return [row for output in self.outputs for row in output if self.owner(row[0]) == partition]


class _Context:
    """What the engine asks of a SparkContext."""

    _jsc: Any

    def __init__(self) -> None:
        self._jsc = self

    def union(self, rdds: list[Rdd]) -> Rdd:
        """The partitions of all, one after the other, each where it was."""
        parts = [(rdd, partition) for rdd in rdds for partition in range(rdd.partitions)]

        def compute(partition: int) -> list[Any]:
            rdd, inner = parts[partition]
            return rdd.compute(inner)

        homes = [rdd.homes[inner] if rdd.homes else min(rdd.hosts.slots) for rdd, inner in parts]
        needs = tuple(shuffle for rdd in rdds for shuffle in rdd.needs)
        return Rdd(rdds[0].hosts, len(parts), compute, homes, needs)

    def sc(self) -> _Context:
        return self

    def isStopped(self) -> bool:
        return False


class Rig:
    """One query over its checkpoint, with as many drivers as it takes.

    ``settings`` are run options and either those of `Pipeline.single` or a whole ``pipeline``.
    """

    def __init__(self, root: Path, hosts: Hosts, patch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.root, self.hosts = root, hosts
        self.checkpoint = root / "checkpoint"
        self.segments = root / "segments"
        self.settings = settings
        self.engine: Coordinator | None = None
        self.delivered: list[int] = []
        #: when Spark plans the next batch, in epoch seconds
        self.now = 0.0
        #: the operator whose stage was started last
        self.stage = ""
        patch.setattr(stages, "anchor", hosts.anchor)
        patch.setattr(stages, "mailed", hosts.mailed)
        patch.setattr(group, "slots_by_host", lambda sc: dict(hosts.slots))
        patch.setattr(engine, "driver_host", lambda sc: "driver")
        patch.setattr(engine, "run_stage", self._run_stage)
        patch.setattr("afspark.coordinator.batch_loop.time.sleep", lambda seconds: None)

    def _run_stage(self, sc: Any, config: OperatorConfig, *rest: Any) -> Any:
        self.stage = config.operator_name
        return stages.run_stage(sc, config, *rest)

    # --- the driver -----------------------------------------------------------------------------------------

    def start(self, **changes: Any) -> Coordinator:
        """A new driver on the checkpoint."""
        self.settings |= changes
        chosen = SUCCESSION | {k: v for k, v in self.settings.items() if k in RUN_OPTIONS}
        run = RunOptions(checkpoint=str(self.checkpoint), segments=str(self.segments), **chosen)
        rest = {key: value for key, value in self.settings.items() if key not in RUN_OPTIONS}
        pipeline = rest["pipeline"] if "pipeline" in rest else Pipeline.single(**rest)
        store = open_store(run.checkpoint)
        identity = claim(store.below("afspark"), pipeline.fingerprint(), pipeline.settings())
        self.engine = Coordinator(_Context(), pipeline, run, identity, store)  # type: ignore[arg-type]
        return self.engine

    @property
    def driver(self) -> Coordinator:
        assert self.engine is not None, "no driver was started"
        return self.engine

    @property
    def committed(self) -> int:
        """The last batch that Spark has committed."""
        done = self.checkpoint / "commits"
        return max((int(path.name) for path in done.glob("*")), default=-1) if done.exists() else -1

    def go(self, batches: int | None = None, deliver: Callable[[int], None] | None = None) -> None:
        """Runs batches until the input ends, or that many."""
        engine = self.engine or self.start()
        while batches is None or batches > 0:
            batch = self.committed + 1
            if not self._plan(engine, batch):
                return
            engine.run(batch, None, deliver or self.delivered.append)
            _write(self.checkpoint / "commits" / str(batch), "v1\n{}")
            batches = None if batches is None else batches - 1

    def end(self, deliver: Callable[[int], None] | None = None) -> None:
        """Ends the stream, as `Query.end` does when Spark's own query has stopped."""
        (self.engine or self.start()).end(deliver or self.delivered.append)

    def find_input(self) -> None:
        """Discovers what is there now, as Spark's sources would before the next batch."""
        for planner in self.driver.planners.values():
            planner.discover()

    def _plan(self, engine: Coordinator, batch: int) -> bool:
        """Writes what Spark writes before a batch: its time, and where every source will have been read to."""
        place = self.checkpoint / "offsets" / str(batch)
        if place.exists():
            return True
        before = self.checkpoint / "offsets" / str(batch - 1)
        reached = before.read_text().splitlines()[2:] if batch else [NO_OFFSET] * len(engine.pipeline.sources)
        lines = [f'{{"batchTimestampMs": {round(self.now * 1000)}}}']
        for line, planner in zip(reached, engine.planners.values(), strict=True):
            start = planner.initial() if line == NO_OFFSET else json.loads(line)
            end = planner.limit(start, planner.discover(), engine.options.batch_bytes)
            lines.append(line if end == start else json.dumps(end))
        if lines[1:] == reached:
            return False
        _write(place, "\n".join(["v1", *lines]))
        return True

    def drive_and_die(self, script: Callable[[], Any]) -> None:
        """Runs ``script`` in a driver process of its own, which must not live to its end."""
        self.engine = None
        ((ended, why),) = forked(script)
        assert (ended, why) == (False, KILLED), f"the driver was meant to be killed: {why}"

    # --- hosts and their losses -----------------------------------------------------------------------------

    def segment_folders(self) -> dict[tuple[str, int], Path]:
        """Resident state by operator and worker; of several the newest incarnation."""
        found: dict[tuple[str, int], tuple[int, Path]] = {}
        for path in self.segments.glob("*/*/*-[0-9]*"):
            present = examine(path)
            if path.name.startswith(".") or not isinstance(present, Present):
                continue
            owner = (present.identity.operator, present.identity.worker)
            found[owner] = max(found.get(owner, (-1, path)), (present.incarnation, path))
        return {owner: path for owner, (_, path) in found.items()}

    def lose(self, *workers: int, operator: str | None = None) -> None:
        """The segments of these workers are gone; without numbers those of all, of one operator or of every one."""
        lost = [
            path
            for (name, worker), path in self.segment_folders().items()
            if operator in (None, name) and (not workers or worker in workers)
        ]
        assert lost, "there was nothing to lose"
        for path in lost:
            shutil.rmtree(path)

    def objects(self, worker: int | None = None) -> list[Path]:
        """Backup objects, oldest first."""
        found = [path for path in (self.checkpoint / "afspark" / "objects").rglob("*") if path.is_file()]
        mine = [path for path in found if worker is None or path.name.startswith(f"{worker:05d}-")]
        return sorted(mine, key=lambda path: path.stat().st_mtime_ns)

    def records(self) -> list[Path]:
        found = (self.checkpoint / "afspark" / "epochs").glob("*/records/*")
        return sorted(found, key=lambda path: path.stat().st_mtime_ns)

    # --- what came of it; without a name of the last operator -----------------------------------------------

    def run_of(self, operator: str | None = None) -> OperatorRun:
        return self.driver.run_of(operator)

    @property
    def members(self) -> list[WorkerState]:
        return self.run_of().group.members

    @property
    def ledger(self) -> list[LedgerEntry]:
        return self.driver.ledger.entries()

    def bound(self, operator: str | None = None) -> float:
        return max(realised(self.run_of(operator)).values())

    def counts(self, operator: str | None = None) -> Counter[Any]:
        """The merged cells of an operator with a single table."""
        total: Counter[Any] = Counter()
        for share in self.cells(operator):
            for cells in share.values():
                total.update(cells)
        return total

    def cells(self, operator: str | None = None) -> list[dict[str, dict[Any, Any]]]:
        """Per worker the cells of its states, by name (``state@pane`` with windows)."""
        return self._everywhere(operator, partial(_read_cells, self.run_of(operator).node.operator))

    def sent(self, batch: int, operator: str | None = None, port: str = ALL) -> list[list[dict[str, Any]]]:
        """Per worker the items that one of the last two batches keeps on a port."""
        return self._everywhere(operator, partial(_read_items, batch, port))

    def windows(self, batch: int, operator: str | None = None) -> list[dict[tuple[Any, ...], dict[Any, Any]]]:
        """Per worker the cells that the batch has closed: (window, start, end, state) -> cells."""
        return self._everywhere(operator, partial(_read_windows, batch))

    def _everywhere(self, operator: str | None, read: Callable[[Residents, int], Any]) -> list[Any]:
        run = self.run_of(operator)
        return self.hosts.anchor(None, run.homes).map(partial(read, run.residents)).collect()


def _read_cells(operator: Operator, residents: Residents, worker: int) -> dict[str, dict[Any, Any]]:
    paned = residents.config.window is not None and not isinstance(residents.config.window, Decaying)
    panes = PaneStates(segment_of(residents, worker).columns, operator.states(), paned=paned)
    return {StateLabel(name, pane).text(): _plain(state.export()) for name, pane, state in panes.named()}


def _read_items(batch: int, port: str, residents: Residents, worker: int) -> list[dict[str, Any]]:
    packets = open_packets(kept_by(residents, worker, batch, port))
    return [row for packet in packets for row in packet.items.to_pylist()]


def _read_windows(batch: int, residents: Residents, worker: int) -> dict[tuple[Any, ...], dict[Any, Any]]:
    return {name: _plain(cells) for name, cells in open_parts(kept_by(residents, worker, batch, WINDOWS))}


def _plain(exported: pa.RecordBatch) -> dict[Any, Any]:
    """Cells by key; keys of a single column stand alone, and bytes are read as text."""
    return {
        tuple(map(_text, key)) if len(key) > 1 else _text(key[0]): value for key, value in cells_of(exported).items()
    }


def _text(part: Any) -> Any:
    return part.decode() if isinstance(part, bytes) else part


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
