"""One run: producers push numbered items, processes are killed at seeded moments, and every item is accounted for.

The driver hosts the receiver and the real engine; Spark's part is played by forked processes
(`tests/unit/runtime/sparkless.py`). The state counts every item by its number, so that what is missing and what came
twice can be told exactly; and what users are told of it has to cover it, and to be within what they were promised.
"""

from __future__ import annotations

import json
import logging
import math
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import afspark as af
from afspark.coordinator.receivers.receivers import recorded_lanes
from afspark.coordinator.told_bounds import told
from afspark.graph.pipeline import Pipeline
from afspark.sources import Pushed
from afspark.store import Throttle
from tests.soak.zygote import Zygote, children_of
from tests.unit.runtime.sparkless import Hosts, Rig

SCHEMA = pa.schema([("item", pa.int64()), ("at", pa.float64())])
WORKERS = 2
#: numbers of a producer's items begin at its own multiple of this
RANGE = 1 << 32
DEADLINE_SECONDS = 120.0
#: how long producers take to send
SECONDS = 2.0
#: items of a producer that belong to the same window
PANE = 8_000
#: how many items that came twice a failure names
MOST_TOLD = 20


#: who dies, and how often: a host is a worker's processes with their folders, a system is a driver and all hosts
VICTIMS = {"driver": 0.2, "worker": 0.1, "host": 0.35, "folder": 0.1, "producer": 0.1, "system": 0.15}


class Tally(af.Operator):
    """Counts every item by its number, and the punctuation of producers."""

    alpha = 1.0

    def __init__(self, *, windowed: bool = False) -> None:
        self.windowed = windowed

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"seen": af.HashTable(key="int64", value="int64", divergence="manhattan")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["seen"].add(items.column("item"), 1)

    def on_punctuation(self, punctuation: af.Punctuation, states: Mapping[str, Any]) -> None:
        if not (punctuation.last or self.windowed):
            states["seen"].add(pa.array([-1 - int(punctuation.end)]), 1)


@dataclass(frozen=True)
class Plan:
    """What a seed stands for."""

    seed: int
    tolerance: af.Tolerance
    items: int
    producers: int
    #: (seconds after the start, who dies)
    kills: tuple[tuple[float, str], ...]
    #: seconds that every request to the store takes
    latency: float = 0.0
    windowed: bool = False
    #: seconds from one file to the next when a folder is lost: nobody removes one at once
    pause: float = 0.0

    @property
    def theta(self) -> float:
        return self.tolerance.theta if isinstance(self.tolerance, af.Approximate) else 0.0

    @classmethod
    def of(cls, seed: int) -> Plan:
        draw = np.random.default_rng(seed)
        limit = int(draw.choice([0, 200, 2_000, 20_000]))
        theta = float(draw.choice([0, 50, 2_000, 30_000]))
        unacked = float(draw.choice([0, 4_000, 1_000_000]))
        tolerances: list[af.Tolerance] = [
            af.Approximate(theta, items=limit, unacked=unacked),
            af.Approximate(theta, items_seconds=float(draw.choice([0.05, 0.5])), unacked=4_000),
            af.MiniBatch(),
            af.UpstreamBackup(),
            af.UpstreamBackup(log_items=True),
            af.MiniBatch(unacked=4_000),
        ]
        tolerance = tolerances[int(draw.choice(6, p=[0.5, 0.12, 0.08, 0.1, 0.12, 0.08]))]
        moments = np.sort(draw.uniform(0.1, SECONDS + 0.3, int(draw.integers(1, 6))))
        victims = draw.choice(
            ["driver", "worker", "host", "folder", "producer", "system"],
            len(moments),
            p=[0.2, 0.1, 0.35, 0.1, 0.1, 0.15],
        )
        return cls(
            seed=seed,
            tolerance=tolerance,
            items=int(draw.integers(20_000, 60_000)),
            producers=2,
            kills=tuple((float(at), str(who)) for at, who in zip(moments, victims, strict=True)),
            latency=float(draw.choice([0.0, 0.0, 0.02, 0.05])),
            windowed=bool(draw.random() < 0.4),
            pause=float(draw.choice([0.0, 0.0005, 0.003])),
        )


@dataclass
class Outcome:
    """What came of it."""

    plan: Plan
    sent: dict[int, int]
    #: of which so many at least were acknowledged
    acked: dict[int, int]
    killed: set[int]
    missing: dict[int, int]
    #: each as a sentence: which item, and who has counted it
    twice: list[str]
    unknown: int
    punctuation_lost: int
    noted: int
    receivers_killed: int
    #: bounds: of everything, and by window
    told: float
    told_by_window: dict[int, float]
    missing_by_window: dict[int, int]

    def check(self) -> None:
        """Raises AssertionError, with all promises that are broken: one alone may mislead."""
        broken = list(self._broken())
        assert not broken, "\n  ".join(broken)

    def _broken(self) -> Iterator[str]:
        if self.twice:
            yield f"{len(self.twice)} items came twice: {'; '.join(self.twice[:MOST_TOLD])}"
        if self.unknown:
            yield f"{self.unknown} items came from nowhere"
        finished = sum(lost for producer, lost in self.missing.items() if producer not in self.killed)
        if not self.plan.theta:
            # Otherwise a lost state may have taken more, or the effect of a punctuation.
            if self.punctuation_lost and not self.plan.windowed:
                yield f"{self.punctuation_lost} punctuations were lost"
            if finished != self.noted:
                yield f"{finished} items are missing, the ledger says {self.noted}"
        promised = self.plan.tolerance.promise(Tally.alpha)
        yield from self._told_wrong(finished, self.told, None if self.plan.windowed else promised, "in all")
        for window, bound in self.told_by_window.items():
            yield from self._told_wrong(self.missing_by_window[window], bound, promised, f"in window {window}")
        yield from self._beyond_policy(finished)

    def _told_wrong(self, missing: int, told: float, promised: float | None, where: str) -> Iterator[str]:
        """Observed ≤ told ≤ promised."""
        if missing > told:
            yield f"{missing} items are missing {where}, {told} were told"
        if not math.isfinite(told):
            yield f"told {told} {where}, although every loss is covered"
        if promised is not None and told > promised:
            yield f"told {told} {where}, promised {promised}"

    def _beyond_policy(self, finished: int) -> Iterator[str]:
        tolerance = self.plan.tolerance
        if isinstance(tolerance, af.Approximate) and tolerance.items_seconds is None:
            most = tolerance.items + tolerance.theta
            if finished > most:
                yield f"{finished} items lost, {most} were allowed"
            for producer in self.killed:
                if self.missing[producer] > most + tolerance.unacked + BATCH:
                    yield f"{self.missing[producer]} items of the killed producer lost"
        if isinstance(tolerance, af.MiniBatch):
            if finished:
                yield f"{finished} items lost under an exact policy"
            for producer in self.killed:
                there = self.sent[producer] - self.missing[producer]
                if there < self.acked[producer]:
                    yield f"{self.acked[producer]} were acknowledged, {there} are there"


BATCH = 500


def run(seed: int, folder: Path) -> Outcome:
    """Carries out the plan of a seed in a fresh folder."""
    return _Run(Plan.of(seed), folder).go()


class _Run:
    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        self.port = 0
        self.children: dict[str, int] = {}
        self.killed: set[int] = set()
        self.receivers_killed = 0
        self._draw = random.Random(plan.seed)

    def go(self) -> Outcome:
        self._drive()
        for number in range(self.plan.producers):
            # It may be killed before it has done anything.
            _publish(self.folder / f"sent-{number}", "0")
            _publish(self.folder / f"acked-{number}", "0")
            self._fork(f"producer-{number}", lambda number=number: produce(self.folder, self.plan, number))
        started = time.monotonic()
        for at, who in self.plan.kills:
            time.sleep(max(0.0, at - (time.monotonic() - started)))
            self._kill(who)
        for number in range(self.plan.producers):
            self._await(f"producer-{number}", started)
        (self.folder / "stop").touch()
        self._await("driver", started)
        return self._outcome()

    # --- processes ------------------------------------------------------------------------------------------

    def _fork(self, name: str, script: Callable[[], None]) -> None:
        pid = os.fork()
        if pid == 0:
            log = os.open(self.folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            logging.basicConfig(format="%(asctime)s %(process)d %(message)s")
            logging.getLogger("afspark").setLevel(logging.DEBUG)
            status = 0
            try:
                script()
            except BaseException:  # noqa: BLE001 (written to the log; this process must not go on)
                traceback.print_exc()
                status = 1
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        self.children[name] = pid

    def _drive(self) -> None:
        self._fork("driver", lambda: drive(self.folder, self.plan))

    def _kill(self, who: str) -> None:
        """Kills somebody, and says so among the words of the driver."""
        with (self.folder / "driver.log").open("a") as log:
            log.write(f"{time.strftime('%H:%M:%S')} killed: {who}\n")
        if who in ("worker", "host", "folder"):
            for child in children_of(self._zygote()) if who != "folder" else ():
                os.kill(child, signal.SIGKILL)
            if who != "worker":
                self._lose_segments()
            return
        if who == "producer":
            number = self.plan.seed % self.plan.producers
            pid = self.children.get(f"producer-{number}")
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                del self.children[f"producer-{number}"]
                self.killed.add(number)
            return
        zygote = self._zygote()
        os.kill(self.children["driver"], signal.SIGKILL)
        os.waitpid(self.children["driver"], 0)
        for pid in (*children_of(zygote), zygote):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.receivers_killed += 1
        if who == "system":
            self._lose_segments()
        self._drive()

    def _lose_segments(self) -> None:
        for path in (self.folder / "rig" / "segments").glob("*/*/*-[0-9]*"):
            with suppress(FileNotFoundError):
                self._lose_files(path)

    def _lose_files(self, segment: Path) -> None:
        """Removes the files of a segment in any order, and nothing of one that takes its place meanwhile."""
        with ExitStack() as opened:
            places = [os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in (segment, segment / "columns")]
            for place in places:
                opened.callback(os.close, place)
            files = [(place, name) for place in places for name in os.listdir(place) if name != "columns"]
            self._draw.shuffle(files)
            for place, name in files:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=place)
                time.sleep(self.plan.pause)

    def _zygote(self) -> int:
        path = self.folder / "zygote"
        return int(path.read_text()) if path.exists() and path.read_text() else 0

    def _await(self, name: str, started: float) -> None:
        pid = self.children.get(name)
        while pid is not None:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                assert status == 0, f"seed {self.plan.seed}: {name} ended with {status}:\n{self._logs(name)}"
                return
            if time.monotonic() - started > DEADLINE_SECONDS:
                for one in self.children.values():
                    try:
                        os.kill(one, signal.SIGKILL)
                    except ProcessLookupError:
                        continue
                raise AssertionError(f"seed {self.plan.seed}: {name} does not end:\n{self._logs(name)}")
            time.sleep(0.02)

    def _logs(self, name: str) -> str:
        """What a process has said at last, and what the driver has."""
        names = dict.fromkeys((name, "driver"))
        return "\n".join(f"{one}: {(self.folder / f'{one}.log').read_text()[-3000:]}" for one in names)

    # --- accounts -------------------------------------------------------------------------------------------

    def _outcome(self) -> Outcome:
        found = json.loads((self.folder / "result").read_text())
        seen = Counter[int]()
        for share in found["shares"]:
            for cells in share.values():
                seen.update({int(item): count for item, count in cells.items()})
        sent = {number: int((self.folder / f"sent-{number}").read_text()) for number in range(self.plan.producers)}
        missing = {
            number: sum(seen[number * RANGE + item] == 0 for item in range(total)) for number, total in sent.items()
        }
        by_window = Counter(
            item // PANE
            for number, total in sent.items()
            if number not in self.killed
            for item in range(total)
            if seen[number * RANGE + item] == 0
        )
        known = {number * RANGE + item for number, total in sent.items() for item in range(total)}
        marks = [-1 - (number + 1) for number in range(self.plan.producers) if number not in self.killed]
        return Outcome(
            plan=self.plan,
            sent=sent,
            acked={number: int((self.folder / f"acked-{number}").read_text()) for number in sent},
            killed=self.killed,
            missing=missing,
            twice=[
                _described(item, found["shares"]) for item, count in sorted(seen.items()) if item >= 0 and count > 1
            ],
            unknown=sum(count > 0 and item >= 0 and item not in known for item, count in seen.items()),
            punctuation_lost=sum(seen[mark] < WORKERS for mark in marks),
            noted=sum(
                loss["items"]
                for loss in found["losses"]
                if int(loss["producer"].partition("-")[2].partition("/")[0]) not in self.killed
            ),
            receivers_killed=self.receivers_killed,
            told=found["told"],
            told_by_window={int(window): told for window, told in found["told_by_window"].items()},
            missing_by_window=by_window,
        )


def _described(item: int, shares: Sequence[Mapping[str, Mapping[str, int]]]) -> str:
    """Which item it is, and how often each worker has counted it in which of its states."""
    holders = [
        f"worker {worker} has it {cells[str(item)]} times in {state}"
        for worker, share in enumerate(shares)
        for state, cells in share.items()
        if str(item) in cells
    ]
    return f"item {item % RANGE} of producer {item // RANGE}, {', '.join(holders)}"


# --- the processes of a run ---------------------------------------------------------------------------------


def produce(folder: Path, plan: Plan, number: int) -> None:
    """Sends numbered items at a steady pace, then punctuation."""
    from afspark.push.producer.producer import Producer

    progress = folder / f"sent-{number}"
    address = _address(folder)
    with Producer(address, f"p-{number}", SCHEMA, batch_rows=BATCH, give_up=60.0) as producer:
        for start in range(0, plan.items, BATCH):
            size = min(BATCH, plan.items - start)
            _publish(progress, str(start + size))
            items = np.arange(start, start + size)
            batch = {"item": items + number * RANGE, "at": items.astype(np.float64)}
            producer.send(pa.record_batch(batch, schema=SCHEMA))
            _publish(folder / f"acked-{number}", str(producer.counters.acknowledged))
            time.sleep(SECONDS * BATCH / plan.items)
        producer.punctuate(time=float(number + 1))
        producer.flush(60.0)


def _address(folder: Path) -> str:
    path = folder / "address"
    while not path.exists() or not path.read_text():
        time.sleep(0.02)
    return path.read_text()


def drive(folder: Path, plan: Plan) -> None:
    """A driver: runs ticks until it is told to stop and nothing waits any more."""
    zygote = Zygote()
    (folder / "zygote").write_text(str(zygote.pid))
    known = folder / "address"
    port = int(known.read_text().rpartition(":")[2]) if known.exists() else 0
    source = Pushed.of(SCHEMA, lanes=WORKERS, tick_seconds=0.25, port=port)
    pipeline = Pipeline.single(
        source=source,
        operator=Tally(windowed=plan.windowed),
        name="tally",
        workers=WORKERS,
        tolerance=plan.tolerance,
        # Nothing closes before the end: what is there then can be looked at.
        window=af.Hopping(PANE, column="at", delay=1_000 * PANE) if plan.windowed else None,
    )
    throttle = Throttle(plan.latency) if plan.latency else None
    rig = Rig(folder / "rig", Hosts(processes=zygote.run), pipeline=pipeline, throttle=throttle)
    engine = rig.start()
    engine.receivers.open(recorded_lanes(engine.store))
    _publish(known, engine.receivers.addresses()[0])
    idle = 0
    while idle < 2:
        before = engine.items
        rig.go(1)
        waiting = any(
            lane["pending_entries"] for one in engine.receivers.stats().values() for lane in one["lanes"].values()
        )
        done = (folder / "stop").exists() and not waiting and engine.items == before
        idle = idle + 1 if done else 0
    shares, run = rig.cells(), rig.run_of()
    windows = range(plan.items // PANE + 1) if plan.windowed else ()
    told_by_window = {str(window): told(run, window)["seen"] for window in windows}
    losses = [{"producer": loss.producer, "items": loss.items} for loss in engine.item_losses.entries()]
    result = {
        "shares": shares,
        "losses": losses,
        "told": told(run)["seen"],
        "told_by_window": told_by_window,
    }
    _publish(folder / "result", json.dumps(result))
    engine.receivers.close()


def _publish(path: Path, text: str) -> None:
    hidden = path.with_suffix(".tmp")
    hidden.write_text(text)
    hidden.rename(path)
