from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from afspark.errors import SegmentError
from afspark.protocol.lifecycle import Identity
from afspark.resident import Segment, SegmentCache, process_cache


@pytest.fixture
def cache() -> SegmentCache:
    return SegmentCache(capacity=2)


def test_segments_stay_open(cache: SegmentCache, place: Path, identity: Identity) -> None:
    assert cache.get(place) is None
    Segment.create(place, identity, 0).close()
    segment = cache.get(place)
    assert segment is not None
    assert cache.get(place) is segment


def test_created_segment_is_kept(cache: SegmentCache, place: Path, identity: Identity) -> None:
    segment = cache.create(place, identity, 0, restoring=True)
    assert cache.get(place) is segment
    again = cache.create(place, identity, 1)
    assert cache.get(place) is again
    assert len(cache) == 1


def test_replaced_segment_is_opened_again(cache: SegmentCache, place: Path, identity: Identity) -> None:
    old = cache.create(place, identity, 0)
    Segment.create(place, identity, 1)
    new = cache.get(place)
    assert new is not None
    assert new is not old
    assert new.incarnation == 1


def test_destroyed_segment_is_let_go(cache: SegmentCache, place: Path, identity: Identity) -> None:
    cache.create(place, identity, 0)
    other = Segment.open(place)
    assert other is not None
    other.destroy()
    assert cache.get(place.with_name("another")) is None
    assert len(cache) == 0
    assert cache.get(place) is None


def test_bounded_by_last_use_and_never_closing_a_locked_one(
    cache: SegmentCache, place: Path, identity: Identity
) -> None:
    places = [place.with_name(f"count-{worker}") for worker in range(4)]
    segments = [cache.create(places[0], identity, 0), cache.create(places[1], identity, 0)]
    assert cache.get(places[0]) is segments[0]
    cache.create(places[2], identity, 0)
    assert len(cache) == 2
    with pytest.raises(SegmentError), segments[1].lock(0.0):
        pass
    with segments[0].lock(0.0):
        cache.create(places[3], replace(identity, worker=3), 0)
        assert cache.get(places[0]) is segments[0]
    assert len(cache) == 2


def test_clear(cache: SegmentCache, place: Path, identity: Identity) -> None:
    segment = cache.create(place, identity, 0)
    cache.clear()
    assert len(cache) == 0
    with pytest.raises(SegmentError), segment.lock(0.0):
        pass


def test_cache_of_the_process_is_not_that_of_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = process_cache()
    assert process_cache() is mine
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert process_cache() is not mine
