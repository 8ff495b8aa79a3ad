"""Resident state that vanishes while its process lives: a declared loss at whatever moment, never the user's fault."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from afspark.algorithms import WordCount
from afspark.cluster.local.local_environment import LocalEnvironment
from afspark.errors import OperatorFailed, WorkerFailed
from afspark.policies import Approximate, MiniBatch, Tolerance
from afspark.protocol.fault_plan import FaultPhase
from afspark.protocol.lifecycle import Identity
from afspark.protocol.operator_config import OperatorConfig
from afspark.resident import Segment, SegmentAddress
from afspark.resident.mapped_columns import MappedColumns
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.sparkless import Rig
from tests.unit.runtime.test_engine_failures import worst
from tests.unit.runtime.test_engine_placement import promised

BATCH = 3


def all_of_it(directory: Path) -> None:
    shutil.rmtree(directory)


def its_columns(directory: Path) -> None:
    shutil.rmtree(directory / "columns")


def a_column(directory: Path) -> None:
    max((directory / "columns").iterdir()).unlink()


def once(rig: Rig, vanish: Callable[[Path], None]) -> Callable[[Path], None]:
    """Takes the first segment that it is asked about in the batch, over all processes."""

    def act(directory: Path) -> None:
        if rig.committed == BATCH - 1 and directory.exists():
            with suppress(FileExistsError):
                (rig.root / "vanished").touch(exist_ok=False)
                vanish(directory)

    return act


def check(rig: Rig, truth: Any, tolerance: Tolerance) -> None:
    rig.go()
    assert (rig.root / "vanished").exists()
    error = worst(truth, rig.counts())
    assert error <= rig.bound() <= promised(tolerance)
    (entry,) = rig.ledger
    assert entry.loss.counted and entry.recovery is not None and entry.recovery.covered


@pytest.mark.parametrize("tolerance", [MiniBatch(), Approximate(400.0)], ids=lambda one: one.name)
@pytest.mark.parametrize("vanish", [all_of_it, its_columns, a_column])
def test_between_two_batches(make_rig: MakeRig, vanish: Callable[[Path], None], tolerance: Tolerance) -> None:
    rig, truth = make_rig(tolerance=tolerance)
    rig.go(BATCH)
    once(rig, vanish)(rig.segment_folders()["operator", 0])
    check(rig, truth, tolerance)


@pytest.mark.parametrize("phase", [FaultPhase.BETWEEN, FaultPhase.APPLYING, FaultPhase.BACKING_UP])
def test_at_every_phase_of_a_batch(make_rig: MakeRig, phase: FaultPhase) -> None:
    rig, truth = make_rig(keyed=phase is FaultPhase.APPLYING)
    act = once(rig, all_of_it)

    class Unsafe(LocalEnvironment):
        def probe(self, config: OperatorConfig, worker: int, batch: int, found: FaultPhase) -> None:
            if found is phase:
                act(self.address(config, worker).directory)

    rig.hosts.on_host = lambda host: Unsafe(name=host)
    check(rig, truth, MiniBatch())


@dataclass(frozen=True)
class Address(SegmentAddress):
    """Where segments of another class are."""

    kind: type[Segment] = Segment

    @contextmanager
    def create(self, identity: Identity, incarnation: int, *, secondary: bool = False) -> Iterator[Segment]:
        made = self.kind.create(self.directory, identity, incarnation, restoring=True, secondary=secondary)
        with closing(made) as segment:
            yield segment

    def open(self) -> Segment | None:
        return self.kind.open(self.directory)


def unsafe_segment(part: str, act: Callable[[Path], None]) -> type[Segment]:
    """Segments that ``act`` is asked about before their method is used; "columns": before a column is opened."""

    class Columns(MappedColumns):
        def open(self, *arguments: Any) -> Any:
            act(self._folder.path.parent)
            return super().open(*arguments)

    class WithColumns(Segment):
        def __init__(self, directory: Path, meta: Any) -> None:
            super().__init__(directory, meta)
            self.columns.__class__ = Columns

    def use(segment: Segment, *arguments: Any, **named: Any) -> Any:
        act(segment.directory)
        return getattr(Segment, part)(segment, *arguments, **named)

    return WithColumns if part == "columns" else type("WithMethod", (Segment,), {part: use})


@pytest.mark.parametrize("part", ["begin", "finish", "keep", "_write", "_sweep", "_store", "columns"])
def test_before_every_use_of_its_files(make_rig: MakeRig, part: str) -> None:
    rig, truth = make_rig(keyed=True, emits=True)
    kind = unsafe_segment(part, once(rig, all_of_it))

    class Unsafe(LocalEnvironment):
        def address(self, config: OperatorConfig, worker: int) -> SegmentAddress:
            return Address(self._directory(config, worker), config.checkpoint, kind)

    rig.hosts.on_host = lambda host: Unsafe(name=host)
    check(rig, truth, MiniBatch())


def test_before_the_sink_reads_what_it_kept(make_rig: MakeRig) -> None:
    """Nothing to read must not pass for nothing to say."""
    rig, truth = make_rig(keyed=True, emits=True)
    act = once(rig, all_of_it)
    seen: list[int] = []

    def deliver(batch: int) -> None:
        act(rig.segment_folders()["operator", 0])
        seen.append(sum(len(rows) for rows in rig.sent(batch, port="rows")))

    rig.go(deliver=deliver)
    assert rig.counts() == truth
    assert all(seen) and len(seen) == rig.committed + 1


@pytest.mark.parametrize("batch", [0, BATCH], ids=["in its first batch", "in the batch of its recovery"])
def test_before_the_sink_reads_what_an_incarnation_of_this_batch_kept(make_rig: MakeRig, batch: int) -> None:
    """Such a loss leaves no entry in the ledger: the incarnation had completed nothing."""
    rig, truth = make_rig(keyed=True, emits=True)
    lost, seen = [], []

    def deliver(number: int) -> None:
        if number == batch and not lost:
            lost.append(number)
            all_of_it(rig.segment_folders()["operator", 0])
        seen.append(sum(len(rows) for rows in rig.sent(number, port="rows")))

    rig.go(batch, deliver=deliver)
    if batch:
        all_of_it(rig.segment_folders()["operator", 0])
    rig.go(deliver=deliver)
    assert rig.counts() == truth and rig.bound() == 0.0
    assert lost and all(seen) and len(seen) == rig.committed + 1
    assert len(rig.ledger) == bool(batch)


class Clumsy(WordCount):
    """Looks for a file of its own."""

    def process(self, items: Any, states: Any) -> None:
        Path("/nonexistent/of-the-user").read_text()


def test_what_the_user_does_not_find_is_the_users_error(make_rig: MakeRig) -> None:
    rig, _ = make_rig(operator=Clumsy())
    with pytest.raises(OperatorFailed, match="of-the-user"):
        rig.go()


def test_a_folder_that_cannot_be_used_is_named(make_rig: MakeRig) -> None:
    rig, _ = make_rig()
    rig.segments.write_text("a file where the folder should be")
    with pytest.raises(WorkerFailed, match=str(rig.segments)):
        rig.go()
