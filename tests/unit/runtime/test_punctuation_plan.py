"""In which order punctuation and items meet an operator."""

from __future__ import annotations

from afspark.model.windows import Punctuation
from afspark.protocol.parcels import Packet, Parcel, pack_packets
from afspark.protocol.punctuation_plan import Step, punctuation_plans
from afspark.task.feed import Feed
from tests.unit.runtime.items import numbered


def end(operator: str, window: int) -> Punctuation:
    return Punctuation(operator, window, float(window), float(window + 1))


def test_own_windows_end_before_what_comes_from_upstream() -> None:
    made = punctuation_plans({"a": [], "b": ["a"]}, {"a": [end("a", 1), end("a", 2)], "b": [end("b", 7)]})
    assert made["a"] == (Step(end("a", 1), True), Step(end("a", 2), True))
    assert made["b"] == (
        Step(end("b", 7), True),
        Step(end("a", 1), False, {"a": 0}),
        Step(end("a", 2), False, {"a": 1}),
    )


def test_a_punctuation_on_two_ways_is_met_once_after_both() -> None:
    inputs = {"a": [], "left": ["a"], "right": ["a"], "join": ["left", "right"]}
    made = punctuation_plans(inputs, {"a": [end("a", 1)], "right": [end("right", 5)]})
    assert made["join"] == (
        Step(end("a", 1), False, {"left": 0, "right": 1}),
        Step(end("right", 5), False, {"right": 0}),
    )


def test_items_come_before_the_punctuation_they_were_sent_before() -> None:
    parcels = [
        Parcel(
            origin="a",
            partition=part,
            payload=pack_packets([Packet(numbered(10 * part + step), step) for step in range(3)]),
        )
        for part in range(2)
    ]
    feed = Feed((), parcels)
    first = [packet.items[0][0].as_py() for _, packet in feed.before(Step(end("a", 1), False, {"a": 0}))]
    second = [packet.items[0][0].as_py() for _, packet in feed.before(Step(end("a", 2), False, {"a": 1}))]
    rest = [packet.items[0][0].as_py() for _, given in feed.rest() for packet in given]
    assert (first, second, rest) == ([0, 10], [1, 11], [2, 12])


def test_other_origins_wait_for_the_end() -> None:
    parcel = Parcel(origin="b", partition=0, payload=pack_packets([Packet(numbered(1), 0)]))
    feed = Feed((), [parcel])
    assert list(feed.before(Step(end("a", 1), False, {"a": 5}))) == []
    assert [origin for origin, _ in feed.rest()] == ["b"]
