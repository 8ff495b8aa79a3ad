"""The whole engine without a JVM, on a local cluster. Tasks that are killed have a forked process of their own.

The micro-batch loop writes offsets before a batch and its
commit after it, so a driver killed anywhere is continued by the next one from the same checkpoint.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from afspark.clock import Clock, SystemClock
from afspark.cluster.local.local_cluster import LocalCluster
from afspark.cluster.local.processes import KILLED, Answer, Processes, forked
from afspark.cluster.remade_frame import PastFrames
from afspark.coordinator.batch_loop import Coordinator
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.rescaling.rescaling import rescaled
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
from afspark.protocol.reports import TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.resident import examine, process_cache
from afspark.resident.residents import Residents, kept_by, state_of
from afspark.store import LedgerEntry, Store, claim, open_store
from afspark.task.pane_states import PaneStates
from afspark.task.stage_inputs import StageInput, UserCode
from afspark.task.task_environment import TaskEnvironment

RUN_OPTIONS = {
    "batch_bytes",
    "faults",
    "host_grace_seconds",
    "max_replay_seconds",
    "offsets_kept",
    "quarantine_bytes",
    "record_seconds",
    "throttle",
    "takeover",
    "lease_seconds",
    "store_wait_seconds",
}
#: Drivers of one process stand for one after the other: the next one takes over, and waits for nobody.
SUCCESSION = {"host_grace_seconds": 0.0, "takeover": True, "lease_seconds": 0.0}
NO_OFFSET = "-"


#: whether a task is at work in the driver's own process
_in_driver = ContextVar("in_driver", default=False)


def called(*tasks: Callable[[], Any]) -> list[Answer]:
    """The tasks one after the other in this process, which forgets after each what it had open, as a new one would.

    To fork costs more than most tasks do; `Hosts.fork` has it done where tasks are killed.
    """
    answers: list[Answer] = []
    for task in tasks:
        before = _in_driver.set(True)
        try:
            answers.append((True, task()))
        except Exception:  # noqa: BLE001 - a process that ends so is one that died
            answers.append((False, traceback.format_exc()))
        finally:
            _in_driver.reset(before)
            process_cache().clear()
    return answers


def die() -> NoReturn:
    assert not _in_driver.get(), "a task that is to die needs Hosts.fork()"
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit


class Hurried(SystemClock):
    """Nobody waits for anything."""

    def sleep(self, seconds: float) -> None: ...


class Hosts(LocalCluster):
    """Two hosts with a worker each. ``stage``: the operator at work."""

    def __init__(
        self, slots: Mapping[str, int] | None = None, *, processes: Processes = called, clock: Clock | None = None
    ) -> None:
        super().__init__(slots or {"a": 1, "b": 1}, processes=processes, clock=clock or Hurried())
        self.stage = ""
        #: what tasks find on a host
        self.on_host: Callable[[str], TaskEnvironment] = super().environment

    def fork(self) -> None:
        """From now on every task has a process of its own, which can be killed."""
        self._processes = forked

    def environment(self, host: str) -> TaskEnvironment:
        return self.on_host(host)

    def run_stage(
        self, config: OperatorConfig, work: UserCode, requests: Sequence[TaskRequest], inputs: Sequence[StageInput]
    ) -> list[TaskReport]:
        self.stage = config.operator_name
        return super().run_stage(config, work, requests, inputs)


class Rig:
    """One query over its checkpoint, with as many drivers as it takes.

    ``settings`` are run options and either those of `Pipeline.single` or a whole ``pipeline``.
    """

    def __init__(self, root: Path, hosts: Hosts, **settings: Any) -> None:
        self.root, self.hosts = root, hosts
        self.checkpoint = root / "checkpoint"
        self.segments = root / "segments"
        self.settings = settings
        self.engine: Coordinator | None = None
        self.delivered: list[int] = []
        #: opens the checkpoint's store for the next driver
        self.open_store: Callable[[str], Store] = open_store
        #: when Spark plans the next batch, in epoch seconds
        self.now = 0.0
        self.past_frames: PastFrames | None = None

    @property
    def stage(self) -> str:
        """The operator whose stage was started last."""
        return self.hosts.stage

    # --- the driver -----------------------------------------------------------------------------------------

    def start(self, **changes: Any) -> Coordinator:
        """A new driver on the checkpoint."""
        self.settings |= changes
        run = self._options()
        if run.faults.failures:
            self.hosts.fork()
        pipeline, store = self.pipeline, self.open_store(run.checkpoint)
        identity = claim(store.below("afspark"), pipeline.fingerprint(), pipeline.settings())
        self.engine = Coordinator(self.hosts, pipeline, run, identity, store, self.past_frames)
        return self.engine

    def rescale(self, taken: Callable[[Coordinator], None] = lambda _: None, **changes: Any) -> Coordinator:
        """A new driver on the checkpoint, with other numbers of workers, as `StreamWriter.start` makes one."""
        self.settings |= changes
        run, store, pipeline = self._options(), self.open_store(str(self.checkpoint)), self.pipeline
        identity = claim(store.below("afspark"), pipeline.fingerprint(), pipeline.settings())
        pipeline = rescaled(self.hosts, pipeline, run, identity, store, self.past_frames, taken)
        self.engine = Coordinator(self.hosts, pipeline, run, identity, store, self.past_frames)
        return self.engine

    def _options(self) -> RunOptions:
        chosen = SUCCESSION | {k: v for k, v in self.settings.items() if k in RUN_OPTIONS}
        # Tests look at records after every batch, unless they say that those may be behind, or further apart.
        chosen = {"max_replay_seconds": 0.0, "record_seconds": 0.0} | chosen
        return RunOptions(checkpoint=str(self.checkpoint), segments=str(self.segments), **chosen)

    @property
    def pipeline(self) -> Pipeline:
        """What the next driver runs."""
        given = {key: value for key, value in self.settings.items() if key not in RUN_OPTIONS}
        made: Pipeline = given["pipeline"] if "pipeline" in given else Pipeline.single(**given)
        return made

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
            if not self._plan(batch):
                return
            engine.run(batch, self._frame(batch), deliver or self.delivered.append)
            _write(self.checkpoint / "commits" / str(batch), "v1\n{}")
            batches = None if batches is None else batches - 1

    def end(self, deliver: Callable[[int], None] | None = None) -> None:
        """Ends the stream, as `Query.end` does when Spark's own query has stopped."""
        (self.engine or self.start()).end(deliver or self.delivered.append)

    def find_input(self) -> None:
        """Discovers what is there now, as Spark's sources would before the next batch."""
        for planner in self.driver.planners.values():
            planner.discover()

    def _plan(self, batch: int) -> bool:
        """Writes what Spark writes before a batch: its time, and where every source will have been read to."""
        place = self.checkpoint / "offsets" / str(batch)
        if place.exists():
            return True
        reached = self._reached(batch)
        if reached is None:
            return False
        _write(place, "\n".join(["v1", f'{{"batchTimestampMs": {round(self.now * 1000)}}}', *reached]))
        return True

    def _reached(self, batch: int) -> list[str] | None:
        """Where every source will have been read to with a batch; None if there is nothing to read."""
        before = self.checkpoint / "offsets" / str(batch - 1)
        planners = self.driver.planners.values()
        reached = before.read_text().splitlines()[2:] if batch else [NO_OFFSET] * len(planners)
        lines = []
        for line, planner in zip(reached, planners, strict=True):
            start = planner.initial() if line == NO_OFFSET else json.loads(line)
            end = planner.limit(start, planner.discover(), self.driver.options.batch_bytes)
            lines.append(line if end == start else json.dumps(end))
        return None if lines == reached else lines

    def _frame(self, batch: int) -> Any:
        """The batch of a DataFrame that Spark hands over."""

    def drive_and_die(self, script: Callable[[], Any]) -> None:
        """Runs ``script`` in a driver process of its own, which must not live to its end."""
        self.engine = None
        ((ended, why),) = forked(script)
        assert (ended, why) == (False, KILLED), f"the driver was meant to be killed: {why}"

    # --- hosts and their losses -----------------------------------------------------------------------------

    def segment_folders(self) -> dict[tuple[str, int], Path]:
        """Resident state of primaries by operator and worker; of several the newest incarnation."""
        found: dict[tuple[str, int], tuple[int, Path]] = {}
        for path in self.segments.glob("*/*/*-[0-9]*"):
            present = examine(path)
            if path.name.startswith(".") or not isinstance(present, Present) or present.secondary:
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
            # An upload of the driver before may remove a file of its own meanwhile.
            while path.exists():
                shutil.rmtree(path, ignore_errors=True)

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

    def _everywhere(self, operator: str | None, read: Callable[[Residents, TaskEnvironment, int], Any]) -> list[Any]:
        run = self.run_of(operator)
        return self.hosts.run_on(run.homes, partial(_each, partial(read, run.residents)))


def _each(read: Callable[[TaskEnvironment, int], Any], here: TaskEnvironment, worker: int) -> list[Any]:
    return [read(here, worker)]


def _read_cells(
    operator: Operator, residents: Residents, here: TaskEnvironment, worker: int
) -> dict[str, dict[Any, Any]]:
    paned = residents.config.window is not None and not isinstance(residents.config.window, Decaying)
    panes = PaneStates(state_of(here, residents, worker).columns, operator.states(), paned=paned)
    return {StateLabel(name, pane).text(): _plain(state.export()) for name, pane, state in panes.named()}


def _read_items(
    batch: int, port: str, residents: Residents, here: TaskEnvironment, worker: int
) -> list[dict[str, Any]]:
    packets = open_packets(kept_by(here, residents, worker, batch, port))
    return [row for packet in packets for row in packet.items.to_pylist()]


def _read_windows(
    batch: int, residents: Residents, here: TaskEnvironment, worker: int
) -> dict[tuple[Any, ...], dict[Any, Any]]:
    return {name: _plain(cells) for name, cells in open_parts(kept_by(here, residents, worker, batch, WINDOWS))}


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
