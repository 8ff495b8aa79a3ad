"""Mistakes in the replay of batches that no durable record covers: each is planted in the real code, and found."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from afspark.coordinator import worker_state
from afspark.coordinator.record_writer import RecordWriter
from afspark.coordinator.recovery import discovery
from afspark.coordinator.recovery.replay import Replay
from afspark.coordinator.recovery.replay_check import ReplayCheck
from afspark.coordinator.worker_group import WorkerGroup
from afspark.coordinator.worker_state import DurableState, WorkerState
from afspark.protocol.reports import TaskReport
from afspark.task import worker
from tests.simulation import memory
from tests.simulation.planted import likely_first
from tests.simulation.schedule import draw
from tests.simulation.simulation import simulate
from tests.simulation.test_planted_mistakes import MOST, Plant, found_by


def _given_back(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Changes what a lost worker is given back."""
    real = WorkerGroup._durable

    def durable(self: WorkerGroup, member: WorkerState) -> DurableState | None:
        found = real(self, member)
        return found and change(found, member)

    patch.setattr(WorkerGroup, "_durable", durable)


def newest_backups_restored(patch: pytest.MonkeyPatch) -> None:
    """A lost worker is given the newest backups that it has told of, durable or not."""
    patch.setattr(WorkerGroup, "_durable", lambda self, member: None)


def replay_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A lost worker goes on from the durable state as if that were of the last batch."""
    _given_back(patch, lambda found, member: replace(found, version=member.version))


def replayed_twice(patch: pytest.MonkeyPatch) -> None:
    """The backups that are restored hold batches which are replayed on top of them."""
    _given_back(patch, lambda found, member: replace(found, chain=member.chain, previous=member.previous))


def swept_too_early(patch: pytest.MonkeyPatch) -> None:
    """Reports and outputs go with the batch after theirs, whether a record covers it or not."""
    patch.setattr(memory, "kept_from", lambda last, covered, before: max(before, last - 1))


def record_before_its_backups(patch: pytest.MonkeyPatch) -> None:
    """A record is written although backups that it names are still on their way."""
    real = RecordWriter.hear
    patch.setattr(RecordWriter, "hear", lambda self, pending: real(self, ()))


def records_offered_before_a_loss_written_after_it(patch: pytest.MonkeyPatch) -> None:
    """That a record *under way* ends before a loss is declared, `tests/unit/runtime/test_replay.py` sees."""
    patch.setattr(RecordWriter, "stop", RecordWriter.wait)


def record_of_no_barrier(patch: pytest.MonkeyPatch) -> None:
    """A record is written of a batch that workers have applied without a backup, for an earlier driver."""
    patch.setattr(TaskReport, "covers", property(lambda self: True))


def forgotten_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """What was offered counts as durable."""
    real = RecordWriter.offer

    def offer(self: RecordWriter, record: Any, pending: Iterable[str]) -> None:
        real(self, record, pending)
        self.covered = self.covered.by(record)

    patch.setattr(RecordWriter, "offer", offer)


def repeated_answer_says_nothing_of_the_spool(patch: pytest.MonkeyPatch) -> None:
    """Whoever has applied a batch already uploads nothing, and nobody hears that backups wait."""
    patch.setattr(worker._Task, "_waiting", lambda self, home: ())


def backups_at_rest_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A lost worker is restored without what was backed up after its last batch."""
    patch.setattr(worker_state, "chain_to_restore", lambda record: (record.chain, record.previous))


def backups_at_rest_forgotten_by_drivers(patch: pytest.MonkeyPatch) -> None:
    """A state that was restored from them goes on as if it had been restored without them."""
    real = discovery._chains
    patch.setattr(discovery, "_chains", lambda record, *, survives: real(record, survives=True))


def punctuation_of_today(patch: pytest.MonkeyPatch) -> None:
    """A past batch is replayed with the time and the punctuation of the batch at work."""
    patch.setattr(WorkerGroup, "at", lambda self, batch: nullcontext())


def input_of_today(patch: pytest.MonkeyPatch) -> None:
    """A past batch is replayed with the items of the batch at work."""
    real = Replay._replay

    def replay(self: Replay, run: Any, runs: Any, batch: Any) -> bool:
        past, self._past = self._past, dict.fromkeys(self._past, self._past[max(self._past)])
        try:
            return real(self, run, runs, batch)
        finally:
            self._past = past

    patch.setattr(Replay, "_replay", replay)


def effects_of_another_batch(patch: pytest.MonkeyPatch) -> None:
    """What an earlier driver has recorded of a batch is compared with what the next one does."""
    real = ReplayCheck.recall

    def recall(self: ReplayCheck, record: Any, done: Any) -> None:
        real(self, record, {batch + 1: effects for batch, effects in done.items()})

    patch.setattr(ReplayCheck, "recall", recall)


MISTAKES: list[Plant] = [
    newest_backups_restored,
    replay_forgotten,
    replayed_twice,
    swept_too_early,
    record_before_its_backups,
    records_offered_before_a_loss_written_after_it,
    record_of_no_barrier,
    forgotten_before_it_is_durable,
    repeated_answer_says_nothing_of_the_spool,
    backups_at_rest_forgotten,
    backups_at_rest_forgotten_by_drivers,
    punctuation_of_today,
    input_of_today,
    effects_of_another_batch,
]


@pytest.mark.some(5)
@pytest.mark.parametrize("plant", MISTAKES, ids=lambda plant: plant.__name__)
def test_a_mistake_in_replay_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        fitting = (seed for seed in range(MOST) if draw(seed).lag or draw(seed).tolerance.replays)
        seed = found_by(likely_first(plant, fitting))
    assert seed is not None, f"{MOST} schedules did not notice: {plant.__doc__ or plant.__name__}"
    simulate(seed)
