"""The whole engine without a JVM: Spark's part is played by forked processes that can be killed for real.

A task runs in a process of its own on a named host and is tried again when the process dies, as Spark does.
Shuffle outputs are kept until somebody forgets them. The micro-batch loop writes offsets before a batch and its
commit after it, so a driver killed anywhere is continued by the next one from the same checkpoint.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
from py4j.protocol import Py4JJavaError

from afspark.errors import AfsparkError
from afspark.model.operator import Operator
from afspark.runtime import engine, stages, workforce
from afspark.runtime.engine import Engine
from afspark.runtime.host import HOST_VARIABLE, spark_host
from afspark.runtime.pipeline import Pipeline, RunOptions
from afspark.runtime.assurance import realised
from afspark.runtime.segment import SegmentRoot, process_cache
from afspark.store import claim, open_store

TASK_TRIES = 4


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


def forked(task: Callable[[], Any]) -> tuple[bool, Any]:
    """(True, result) of ``task`` in a process of its own; (False, why) if it was killed or raised."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            answer = pickle.dumps((True, task()))
        except BaseException:  # noqa: BLE001 (told to the parent; this process must not go on)
            answer = pickle.dumps((False, traceback.format_exc()))
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(answer)
        sys.stdout.flush()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(answer) if answer else (False, "killed")


@dataclass
class Hosts:
    """The executors of a pretended cluster, and hooks into its scheduling."""

    slots: dict[str, int] = field(default_factory=lambda: {"a": 1, "b": 1})
    #: called in the driver before each attempt of a task: (kind of job, partition, attempt)
    before: Callable[[str, int, int], None] | None = None
    #: where a task runs instead of its home: partition -> host
    astray: dict[int, str] = field(default_factory=dict)
    shuffles: list[Shuffle] = field(default_factory=list)

    def anchor(self, sc: Any, homes: Iterable[str]) -> Rdd:
        homes = list(homes)
        return Rdd(self, len(homes), lambda i: [i], homes)

    def place(self, partition: int, home: str | None) -> str:
        host = self.astray.pop(partition, home)
        return host if host in self.slots else min(self.slots)

    def forget_outputs(self) -> None:
        """All executors that hold map outputs are gone."""
        for shuffle in self.shuffles:
            shuffle.outputs = None

    def run(self, kind: str, rdd: Rdd, partition: int) -> list[Any]:
        rows: Any = None
        for attempt in range(TASK_TRIES):
            if self.before is not None:
                self.before(kind, partition, attempt)
            for shuffle in rdd.needs:
                shuffle.materialise()
            host = self.place(partition, rdd.homes[partition] if rdd.homes else None)
            ended, rows = forked(partial(_on_host, host, rdd.compute, partition))
            if ended:
                return list(rows)
        raise JobFailed(f"task {partition} of {kind} died {TASK_TRIES} times, the last one: {rows}")


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
        return [row for i in range(self.partitions) for row in self.hosts.run(kind, self, i)]

    def foreach(self, act: Callable[[Any], Any]) -> None:
        self.mapPartitions(lambda rows: [act(row) and None for row in rows]).collect()


class Shuffle:
    """Map outputs; made when somebody needs them and they are not there."""

    def __init__(self, source: Rdd, owner: Callable[[Any], int]) -> None:
        self.source, self.owner = source, owner
        self.outputs: list[list[Any]] | None = None

    def materialise(self) -> None:
        if self.outputs is None:
            self.outputs = [self.source.hosts.run("map", self.source, i) for i in range(self.source.partitions)]

    def fetch(self, partition: int) -> list[Any]:
        assert self.outputs is not None
        return [row for output in self.outputs for row in output if self.owner(row[0]) == partition]


class _Context:
    """What the engine asks of a SparkContext."""

    _jsc: Any

    def __init__(self) -> None:
        self._jsc = self

    def sc(self) -> _Context:
        return self

    def isStopped(self) -> bool:
        return False


class Rig:
    """One query over its checkpoint, with as many drivers as it takes."""

    def __init__(self, root: Path, hosts: Hosts, patch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.root, self.hosts = root, hosts
        self.checkpoint = root / "checkpoint"
        self.segments = root / "segments"
        self.settings = settings
        self.engine: Engine | None = None
        self.delivered: list[int] = []
        patch.setattr(stages, "anchor", hosts.anchor)
        patch.setattr(workforce, "slots_by_host", lambda sc: dict(hosts.slots))
        patch.setattr(engine, "driver_host", lambda sc: "driver")
        patch.setattr("afspark.runtime.engine.time.sleep", lambda seconds: None)

    # --- the driver -----------------------------------------------------------------------------------------

    def start(self, **changes: Any) -> Engine:
        """A new driver on the checkpoint."""
        self.settings |= changes
        options = {"batch_bytes", "faults", "host_grace_seconds"}
        chosen = {key: value for key, value in self.settings.items() if key in options}
        chosen.setdefault("host_grace_seconds", 0.0)
        run = RunOptions(checkpoint=str(self.checkpoint), segments=str(self.segments), **chosen)
        pipeline = Pipeline.single(**{key: value for key, value in self.settings.items() if key not in options})
        store = open_store(run.checkpoint)
        identity = claim(store.below("afspark"), pipeline.fingerprint(), pipeline.settings())
        self.engine = Engine(_Context(), pipeline, run, identity, store)  # type: ignore[arg-type]
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
            engine.run(batch, None, deliver or self.delivered.append)  # type: ignore[arg-type]
            _write(self.checkpoint / "commits" / str(batch), "v1\n{}")
            batches = None if batches is None else batches - 1

    def find_input(self) -> None:
        """Discovers what is there now, as Spark's source would before the next batch."""
        assert self.engine is not None and self.engine.planner is not None
        self.engine.planner.discover()

    def _plan(self, engine: Engine, batch: int) -> bool:
        place = self.checkpoint / "offsets" / str(batch)
        if place.exists():
            return True
        planner = engine.planner
        assert planner is not None
        before = self.checkpoint / "offsets" / str(batch - 1)
        start = json.loads(before.read_text().splitlines()[2]) if batch else planner.initial()
        end = planner.limit(start, planner.discover(), engine.options.batch_bytes)
        if end == start:
            return False
        _write(place, f"v1\n{{}}\n{json.dumps(end)}")
        return True

    def drive_and_die(self, script: Callable[[], Any]) -> None:
        """Runs ``script`` in a driver process of its own, which must not live to its end."""
        self.engine = None
        ended, why = forked(script)
        assert (ended, why) == (False, "killed"), "the driver was meant to be killed"

    # --- hosts and their losses -----------------------------------------------------------------------------

    def segment_folders(self) -> dict[int, Path]:
        """Resident state by worker."""
        found = self.segments.glob("*/*/*-[0-9]*")
        return {int(path.name.rpartition("-")[2]): path for path in found if not path.name.startswith(".")}

    def lose(self, *workers: int) -> None:
        """Their segments are gone."""
        folders = self.segment_folders()
        for worker in workers or folders:
            shutil.rmtree(folders[worker])

    def objects(self, worker: int | None = None) -> list[Path]:
        """Backup objects, oldest first."""
        found = [path for path in (self.checkpoint / "afspark" / "objects").rglob("*") if path.is_file()]
        mine = [path for path in found if worker is None or path.name.startswith(f"{worker:05d}-")]
        return sorted(mine, key=lambda path: path.stat().st_mtime_ns)

    def records(self) -> list[Path]:
        found = (self.checkpoint / "afspark" / "epochs").glob("*/records/*")
        return sorted(found, key=lambda path: path.stat().st_mtime_ns)

    # --- what came of it ------------------------------------------------------------------------------------

    @property
    def members(self) -> list[Any]:
        assert self.engine is not None and self.engine.workforce is not None
        return self.engine.workforce.members

    @property
    def ledger(self) -> list[Any]:
        assert self.engine is not None
        return self.engine.ledger.entries()

    def bound(self) -> float:
        assert self.engine is not None and self.engine.workforce is not None
        return max(realised(self.engine.crew()).values())

    def counts(self) -> Counter[str]:
        """The merged counts of all workers, read where they live."""
        assert self.engine is not None and self.engine.workforce is not None
        homes = [member.home for member in self.members]
        read = partial(_read_counts, self.engine.workforce.mission, self.engine.pipeline.nodes[0].operator)
        total: Counter[str] = Counter()
        for share in self.hosts.anchor(None, homes).map(read).collect():
            total.update(share)
        return total


def _read_counts(mission: Any, operator: Operator, worker: int) -> dict[str, int]:
    root = SegmentRoot(mission.segments, spark_host(mission.driver_host))
    segment = process_cache().get(root.directory(mission.query_id, mission.operator_name, worker))
    if segment is None:
        raise AfsparkError(f"worker {worker} has no state here")
    (name,) = operator.states()
    cells = operator.states()[name].open(segment.columns, name).export()
    keys = [key.decode() for key in cells.column("key").to_pylist()]
    return dict(zip(keys, cells.column("value").to_pylist(), strict=True))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
