"""The bookkeeping of what is unacknowledged, against a set of numbers."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.push.producer.unacked import Unacked
from afspark.push.wire.batches import no_rows
from afspark.push.wire.messages import PunctuationMark
from afspark.push.wire.push_errors import UnknownLane, WireError
from tests.unit.push.fake_receiver import SCHEMA

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 2), st.integers(1, 20)),
        st.tuples(st.just("mark"), st.integers(0, 2), st.just(1)),
        st.tuples(st.just("acknowledge"), st.integers(0, 2), st.integers(0, 100)),
    ),
    max_size=40,
)


@given(STEPS)
def test_what_is_lost_is_what_was_not_acknowledged(steps: list[tuple[str, int, int]]) -> None:
    unacked = Unacked()
    rows, marks = 0, 0
    kept: dict[tuple[int, int], int | None] = {}  # (lane, number) -> row, None for a punctuation
    ends = {0: 0, 1: 0, 2: 0}
    for what, lane, size in steps:
        if what == "acknowledge":
            end = ends[lane] * size // 100
            unacked.acknowledge(lane, end)
            kept = {key: row for key, row in kept.items() if key[0] != lane or key[1] >= end}
            continue
        if what == "mark":
            unacked.admit(lane, no_rows(SCHEMA), 0, PunctuationMark(time=marks))
            kept[lane, ends[lane]] = None
            marks += 1
        else:
            batch = pa.record_batch([pa.array(range(rows, rows + size), pa.int64())], schema=SCHEMA)
            unacked.admit(lane, batch, batch.nbytes)
            kept |= {(lane, ends[lane] + place): rows + place for place in range(size)}
            rows += size
        ends[lane] += size
    lost = unacked.lost()
    assert {(lane, number) for lane, (start, end) in lost.lanes.items() for number in range(start, end)} == set(kept)
    held = sorted(row for row in kept.values() if row is not None)
    assert [row for start, end in lost.rows for row in range(start, end)] == held
    assert (lost.items, lost.punctuations, unacked.items) == (len(held), len(kept) - len(held), len(kept))
    pending = unacked.pending(range(3))
    assert [row for piece in pending if piece.rows for row in piece.batch["n"].to_pylist()] == held
    assert unacked.bytes == sum(piece.size for piece in pending)
    assert unacked.rows == rows


def test_an_acknowledgement_of_the_unsent_is_an_error() -> None:
    with pytest.raises(WireError):
        Unacked().acknowledge(0, 1)


def test_a_lane_that_is_gone() -> None:
    unacked = Unacked()
    unacked.admit(4, no_rows(SCHEMA), 0, PunctuationMark(end=True))
    with pytest.raises(UnknownLane) as caught:
        unacked.pending([0, 1])
    assert caught.value.lane == 4
