"""Whatever object is damaged, the newest sound state before it is found and the damage is named."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.errors import CorruptObject
from afspark.store import ObjectRef, Store, extend, load_chain, seal, unseal
from afspark.store.compaction import Chain
from afspark.store.store_conformance import CHECKS, Check, survives_pickling
from tests.property.store.faulty_store import (
    Corrupt,
    Crash,
    Drop,
    Fault,
    FaultyStore,
    MemoryStore,
    Tear,
    corrupted,
)

FAULTS = st.one_of(
    st.builds(Tear, st.floats(0, 1, exclude_max=True)),
    st.just(Drop(silently=True)),
    st.builds(Corrupt, st.integers(0, 2**32)),
)


@pytest.mark.parametrize("check", [check for check in CHECKS if check is not survives_pickling])
def test_the_faulty_store_without_faults_is_a_store(check: Check) -> None:
    check(FaultyStore(MemoryStore()))


def test_faults_happen_as_planned() -> None:
    store = FaultyStore(MemoryStore(), {0: Tear(0.5), 1: Drop(), 2: Drop(silently=True), 3: Corrupt(7)})
    for name in ("torn", "dropped"):
        with pytest.raises(Crash):
            store.put(name, b"12345678")
    store.put("lost", b"12345678")
    store.put("changed", b"12345678")
    store.put("sound", b"12345678")
    assert store.list("") == ["changed", "sound", "torn"]
    assert store.get("torn") == b"1234"
    assert store.get("changed") == corrupted(b"12345678", 7) != b"12345678"


def _put(store: Store, number: int, full: bool) -> ObjectRef:
    batch = pa.record_batch({"value": pa.array([number] * 5, pa.int64())})
    data = seal({"number": number}, {"state": batch})
    with suppress(Crash):
        store.put(f"objects/{number}", data)
    return ObjectRef.of(f"objects/{number}", data, cells=5, full=full)


def _sound_before(chain: Chain, previous: Chain, broken: str) -> list[str]:
    names = [ref.name for ref in chain]
    if broken not in names:
        return names
    before = names[: names.index(broken)]
    return before or [ref.name for ref in previous]


@given(fulls=st.lists(st.booleans(), min_size=1, max_size=12), data=st.data(), fault=FAULTS)
def test_one_damaged_object(fulls: list[bool], data: st.DataObject, fault: Fault) -> None:
    number = data.draw(st.integers(0, len(fulls) - 1))
    store = FaultyStore(MemoryStore(), {number: fault})
    chain: Chain = ()
    previous: Chain = ()
    for index, full in enumerate(fulls):
        chain, previous = extend(chain, previous, _put(store, index, full))
    loaded = load_chain(store, chain, previous)
    broken = f"objects/{number}"
    assert [ref.name for ref in loaded.used] == _sound_before(chain, previous, broken)
    assert [f"objects/{meta['number']}" for meta in loaded.metas] == [ref.name for ref in loaded.used]
    values = [batch.column("value")[0].as_py() for batch in loaded.images.get("state", [])]
    assert values == [meta["number"] for meta in loaded.metas]
    concerned = broken in [ref.name for ref in chain]
    assert [item.name for item in loaded.damaged] == ([broken] if concerned else [])
    assert loaded.complete is not concerned


@given(
    numbers=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30),
    texts=st.dictionaries(st.text(max_size=10), st.floats(allow_nan=False), max_size=4),
)
def test_sealing_round_trip(numbers: list[int], texts: dict[str, float]) -> None:
    texts.pop("$float", None)
    batch = pa.record_batch({"n": pa.array(numbers, pa.int64()), "t": pa.array([str(n) for n in numbers], pa.string())})
    sealed = unseal(seal({"texts": texts}, {"s": batch, "again": batch}))
    assert sealed.meta == {"texts": texts}
    assert sealed.images["s"].equals(batch) and sealed.images["again"].equals(batch)


@given(seed=st.integers(0, 2**32), cut=st.one_of(st.none(), st.floats(0, 1, exclude_max=True)))
def test_any_change_is_found(seed: int, cut: float | None) -> None:
    data = seal({"a": [1, 2]}, {"s": pa.record_batch({"x": pa.array(range(20))})})
    damaged = corrupted(data, seed) if cut is None else data[: int(cut * len(data))]
    with pytest.raises(CorruptObject):
        unseal(damaged)


def test_every_single_byte_is_guarded() -> None:
    data = seal({"a": 1}, {"s": pa.record_batch({"x": pa.array([1, 2, 3])})})
    for place in range(len(data)):
        with pytest.raises(CorruptObject):
            unseal(data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :])
