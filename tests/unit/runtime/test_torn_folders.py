"""A folder of resident state that is removed file by file, in whatever order, while tasks are at work on it.

Nobody removes a folder at once: for a while some of its files are gone and others are there. A task must not take what
is left for the whole, nor make anew what is gone: its state is lost, and restored from backups that are sound.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from afspark.bounds import Place
from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.model.state_label import StateLabel
from afspark.model.states import HashTable
from afspark.model.windows import Hopping
from afspark.numbers import PaneNumber
from afspark.policies import MiniBatch
from afspark.protocol.fault_plan import FaultPhase
from afspark.protocol.reports import Status, TaskReport
from afspark.push.wire.worker_messages import NO_BACKUP
from afspark.resident import process_cache
from afspark.store import ObjectRef, load_chain, open_store
from tests.unit.runtime.environments import written_at_once
from tests.unit.runtime.test_losses_in_a_tick import Approximating
from tests.unit.runtime.test_steps import A, Died, FakeLane, GatedStore

#: what tasks ask of the system
CALLS = ("open", "stat", "fstat", "listdir", "scandir", "unlink", "replace", "rename", "posix_fallocate")
#: columns of a pane grow with every other portion; a page holds 512 cells
PORTIONS = [list(range(start, start + 300)) for start in range(0, 2400, 300)]
PANE = 1200
#: how many calls a batch takes
MOST_CALLS = 160


class Exact(Approximating):
    """A worker that may lose nothing."""

    @property
    def budget(self) -> ErrorBudget:
        states = {"seen": HashTable(key="int64", value="int64")}
        return ErrorBudget(tolerance=MiniBatch(), states=states, place=Place(workers=1), window=self.window)

    def counts(self, backups: Sequence[ObjectRef]) -> dict[str, dict[int, int]]:
        """What a worker is restored with that has lost everything, by state."""
        newest = max((place for place, backup in enumerate(backups) if backup.full), default=0)
        loaded = load_chain(self.store, backups[newest:])
        assert not loaded.damaged
        found: dict[str, dict[int, int]] = {}
        for label, images in loaded.images.items():
            for image in images:
                pairs = dict(zip(image.column("key").to_pylist(), image.column("value").to_pylist(), strict=True))
                found.setdefault(str(label), {}).update(pairs)
        return found


class Removal:
    """Removes files of a folder in an order of its own, a few with each call to the system from a certain one on.

    Like ``rm -r`` it removes what it has listed, and nothing of a folder that takes the place of the first.
    """

    def __init__(self, folder: Path, draw: random.Random) -> None:
        self._folder, self._draw = folder, draw
        self._begins = draw.randrange(1, MOST_CALLS)
        self._parts = draw.choice([["columns"], [".", "columns"]])
        self._share = draw.choice([0.1, 0.5, 1.0])
        self._pace = draw.choice([0.02, 0.2, 2.0])
        self._left: list[tuple[int, str]] | None = None
        self._busy = False
        self.calls = self.removed = 0

    def __call__(self) -> None:
        if self._busy:
            return
        self.calls += 1
        self._busy = True
        try:
            if self._left is None and self.calls >= self._begins and (self._folder / "columns").exists():
                self._left = self._listed()
            for _ in range(int(self._pace + self._draw.random())):
                self._remove_one()
        finally:
            self._busy = False

    def _listed(self) -> list[tuple[int, str]]:
        places = [os.open(self._folder / part, os.O_RDONLY) for part in self._parts]
        files = [(place, name) for place in places for name in sorted(os.listdir(place)) if name != "columns"]
        self._draw.shuffle(files)
        return files[: max(1, int(len(files) * self._share))]

    def _remove_one(self) -> None:
        if self._left:
            place, name = self._left.pop()
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=place)
                self.removed += 1


@contextmanager
def before_calls(act: Callable[[], None]) -> Iterator[None]:
    """Has something done before every call to the system."""
    given = {name: getattr(os, name) for name in CALLS}

    def acting(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            act()
            return given[name](*arguments, **named)

        return call

    for name in CALLS:
        setattr(os, name, acting(name))
    try:
        yield
    finally:
        for name, call in given.items():
            setattr(os, name, call)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Exact]:
    store = GatedStore(open_store(str(tmp_path / "store")))
    place = tmp_path / "segments" / "q" / "tally-0"
    yield Exact(store, place, exact=True, writes=written_at_once, window=Hopping(PANE, column="n"))
    process_cache().clear()


def applied(bench: Exact, lane: FakeLane, draw: random.Random) -> TaskReport:
    """The batch, during which a process may die, and the receiver with it."""
    steps, dies_in, forgets = 0, draw.choice([0, 2, 4]), draw.random() < 0.5

    def probe(phase: FaultPhase) -> None:
        nonlocal steps
        steps += phase is FaultPhase.BACKING_UP
        if steps == dies_in and phase is FaultPhase.BACKING_UP:
            raise Died

    for _ in range(12):
        try:
            report = bench.attempt(lane, probe)
        except Died:
            process_cache().clear()
            if forgets:
                lane.confirmed, lane.durable = 0, NO_BACKUP
            continue
        if report.status is Status.APPLIED:
            return report
    raise AssertionError(report)


FEW = range(60)
MANY = range(60, 400)


@pytest.mark.parametrize("seed", [*FEW, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in MANY)])
def test_whichever_files_go_first_each_item_counts_once(bench: Exact, seed: int) -> None:
    draw = random.Random(seed)
    removal, lane = Removal(bench.place, draw), FakeLane(PORTIONS)
    with before_calls(removal):
        report = applied(bench, lane, draw)
    assert report.positions is not None and not report.damaged and bench.told == 0.0
    expected: dict[str, dict[int, int]] = {}
    for item in range(report.positions[A]):
        expected.setdefault(str(StateLabel("seen", PaneNumber(item // PANE))), {})[item] = 1
    assert bench.counts(report.backups) == expected
