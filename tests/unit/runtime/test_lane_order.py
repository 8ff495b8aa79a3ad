"""Pushed items that are applied once more come in the portions and the order of the first time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import afspark as af
from afspark.coordinator.receivers.past_positions import PastPositions
from afspark.coordinator.told_bounds import told
from afspark.push.producer.producer import Producer
from afspark.push.wire.messages import PunctuationMark
from afspark.push.wire.worker_messages import BackupNumber
from afspark.resident import process_cache
from afspark.store import open_store
from afspark.store.lane_order import LaneOrder
from afspark.store.position_log import BatchEnd, PositionLog
from afspark.task.first_order import FirstOrder, LanePiece, Portion
from afspark.task.intake import Intake, Start
from afspark.task.step_progress import StepProgress
from tests.unit.runtime.test_retained_items import SCHEMA, A, B, KeptLane, ManualClock, Query, ends, free_port

ORDER: LaneOrder = (((A, 6), (B, 1), (A, 7)), ((B, 3), (A, 8)))


def items(producer: str, first: int, end: int) -> LanePiece:
    return LanePiece(producer, first, pa.record_batch({"n": range(first, end)}, schema=SCHEMA))


def numbers(portion: Portion | None) -> list[tuple[str, list[int]]]:
    """The batches of a portion, each with its producer."""
    assert portion is not None
    both = zip(portion.items, portion.origins, strict=True)
    return [(producer, batch.column(0).to_pylist()) for batch, (producer, _) in both]


def test_a_portion_comes_when_all_of_it_is_there_cut_as_it_was() -> None:
    again = FirstOrder(ORDER, {A: 8, B: 3})
    again.put([items(A, 4, 5), items(A, 5, 8)])
    assert again.next({A: 8}) is None
    again.put([items(B, 0, 3)])
    assert numbers(again.next({A: 8, B: 3})) == [(A, [4, 5]), (B, [0]), (A, [6])]
    assert numbers(again.next({A: 8, B: 3})) == [(B, [1, 2]), (A, [7])]
    assert again.next({A: 8, B: 3}) is None


def test_punctuation_keeps_its_place() -> None:
    mark = PunctuationMark(time=1.0)
    again = FirstOrder((((A, 2), (B, 1), (A, 3)),), {A: 3, B: 1})
    again.put([items(A, 0, 2), LanePiece(A, 2, punctuation=mark), items(B, 0, 1)])
    portion = again.next({A: 3, B: 1})
    assert numbers(portion) == [(A, [0, 1]), (B, [0])]
    assert portion is not None and portion.punctuation == ((2, mark),)


def test_what_is_missing_holds_nothing_up_once_it_is_given_up() -> None:
    again = FirstOrder(ORDER, {A: 8, B: 3})
    again.put([items(A, 4, 8)])
    assert numbers(again.next({A: 8, B: 3})) == [(A, [4, 5]), (A, [6])]
    assert numbers(again.next({A: 8, B: 3})) == [(A, [7])]


def test_without_an_order_items_come_as_they_are_sent() -> None:
    """A release that did not know of orders has written the positions."""
    again = FirstOrder((), {A: 8})
    again.put([items(A, 4, 6)])
    assert numbers(again.next({A: 6})) == [(A, [4, 5])]
    assert again.next({A: 6}) is None


def taken(entries: Sequence[tuple[str, int, int]], order: LaneOrder) -> list[list[tuple[str, list[int]]]]:
    """The portions of a batch that is applied once more."""
    lane = KeptLane(ManualClock(), list(entries))
    intake = Intake(lane, seconds=1.0, clock=lane.clock, released={A: 2}, until={A: 8, B: 3}, order=order)
    intake.resume(StepProgress(positions={A: 4}), Start(durable=BackupNumber(5, -1, 0)))
    found = []
    while (portion := intake.portion()) is not None:
        if portion != Portion():
            found.append(numbers(portion))
    assert intake.unsent == () and intake.positions == {A: 8, B: 3}
    return found


@pytest.mark.parametrize("entries", [[(B, 0, 9), (A, 2, 9)], [(A, 2, 3), (A, 5, 6), (B, 0, 2), (B, 2, 7)]], ids=str)
def test_whoever_sends_them_again_in_whatever_order(entries: list[tuple[str, int, int]]) -> None:
    assert taken(entries, ORDER) == [[(A, [4, 5]), (B, [0]), (A, [6])], [(B, [1, 2]), (A, [7])]]


def test_the_order_is_known_to_every_driver(tmp_path: Path) -> None:
    log = PositionLog(open_store(str(tmp_path)))
    log.write(5, "00000001-00000000000000aa", BatchEnd(ends(a=8), orders={"": {0: ORDER}}))
    past = PastPositions()
    past.begin(4, ends(a=4), log.read(5, 5))
    assert past.order_of("", 0, 5) == ORDER
    past.note(6, BatchEnd(ends(a=9)))
    past.release(6)
    assert past.order_of("", 0, 5) == past.order_of("", 0, 6) == ()


class Chain(af.Operator):
    """A number that depends on all items and on their order."""

    approximable = "it depends on the order of items"

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"count": af.HashTable(key="int64", value="int64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        table = states["count"]
        for number in items.column("n").to_pylist():
            before = dict(zip(*(column.to_pylist() for column in table.export().columns), strict=True)).get(0, 0)
            table.add(pa.array([0]), (before * 31 + number) % 1_000_003 - before)


def await_pending(query: Query, items: int) -> None:
    deadline = time.monotonic() + 60

    def pending() -> int:
        lanes = [lane for one in query.engine.receivers.stats().values() for lane in one["lanes"].values()]
        return sum(lane["pending_items"] for lane in lanes)

    while pending() < items:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_operator_for_which_the_order_matters_is_exact_after_everything_is_gone(tmp_path: Path) -> None:
    port = free_port()
    first = Query(tmp_path, af.BarrierSnapshot(batches=100), operator=Chain(), port=port)
    first.batch(0)
    producers = [Producer(first.address, name, SCHEMA, give_up=60) for name in ("one", "two", "three")]
    for number in range(12):
        producers[number % 3].send(pa.record_batch({"n": [number]}, schema=SCHEMA))
        await_pending(first, number + 1)
    first.batch(1)
    assert first.engine.items == 12
    first.close()
    shutil.rmtree(tmp_path / "segments")
    process_cache().clear()
    second = Query(tmp_path, af.BarrierSnapshot(batches=100), operator=Chain(), port=port)
    second.batch(2)
    for producer in producers:
        producer.abort()
    second.close()
    process_cache().clear()
    recoveries = [one.recovery for one in second.engine.ledger.entries() if one.recovery]
    assert max(one.replayed for one in recoveries) == 1
    assert told(second.engine.operator("count"))["count"] == 0
