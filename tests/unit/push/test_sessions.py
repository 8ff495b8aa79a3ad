"""Names of sessions and receipts: only those with the key can make them, and the key outlives the receiver."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from afspark.errors import CheckpointError
from afspark.push.receiver.sessions import Sessions, session_key, start_and_number
from afspark.push.wire.push_errors import UnknownSession, Unproven
from tests.property.store.faulty_store import MemoryStore


def test_a_later_receiver_believes_what_an_earlier_one_has_given_out() -> None:
    store = MemoryStore()
    first, second = Sessions.open(store), Sessions.open(store)
    session = first.begin("sensor")
    producer = f"sensor/{session}"
    second.check("sensor", session)
    second.check_receipts(
        producer, {0: 57, 3: 4}, {0: first.receipt(producer, 0, 57), 3: first.receipt(producer, 3, 4)}
    )
    assert start_and_number(producer) == (first.start, 0)
    assert start_and_number(f"sensor/{first.begin('sensor')}") == (first.start, 1)
    assert start_and_number(f"sensor/{second.begin('sensor')}") == (second.start, 0)
    assert first.start != second.start


def test_nobody_else_can_make_a_session() -> None:
    ours, others = Sessions.open(MemoryStore()), Sessions.open(MemoryStore())
    session = ours.begin("sensor")
    made_up = [
        others.begin("sensor"),
        "00000000",
        "0" * 32,
        session[:-1],
        f"{session}0",
        session[:8] + "ffffffff" + session[16:],
    ]
    for name in made_up:
        with pytest.raises(UnknownSession):
            ours.check("sensor", name)
    with pytest.raises(UnknownSession):
        ours.check("another", session)


def test_a_receipt_is_good_for_one_session_lane_and_end() -> None:
    sessions = Sessions.open(MemoryStore())
    receipt = sessions.receipt("p/s", 0, 57)
    sessions.check_receipts("p/s", {0: 57}, {0: receipt})
    for producer, lane, end, shown in [
        ("p/s", 0, 58, {0: receipt}),
        ("p/s", 1, 57, {1: receipt}),
        ("q/s", 0, 57, {0: receipt}),
        ("p/s", 0, 57, {}),
        ("p/s", 0, 57, {0: ""}),
        ("p/s", 0, 10**15, {0: Sessions.open(MemoryStore()).receipt("p/s", 0, 10**15)}),
    ]:
        with pytest.raises(Unproven) as caught:
            sessions.check_receipts(producer, {lane: end}, shown)
        assert (caught.value.producer, caught.value.lane, caught.value.end) == (producer, lane, end)


def test_receivers_that_start_at_the_same_moment_have_different_numbers() -> None:
    store = MemoryStore()
    session_key(store)
    with ThreadPoolExecutor(4) as pool:
        starts = list(pool.map(lambda _: Sessions.open(store).start, range(40)))
    assert len(set(starts)) == 40
    assert len(store.list("tenures")) < 40, "only the highest has to be kept"


def test_a_damaged_key_is_not_replaced_in_silence() -> None:
    store = MemoryStore()
    session_key(store)
    (name,) = store.list("session-key")
    store.objects[name] = store.objects[name][:-3]
    with pytest.raises(CheckpointError) as caught:
        Sessions.open(store)
    assert caught.value.path.endswith(name)
