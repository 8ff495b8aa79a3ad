"""Digests of what a batch has changed: equal for copies that do the same, whatever the order of cells and sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from afspark.coordinator.recovery.recorded_effects import READING, recorded_effects
from afspark.model.effect_digest import EffectDigest, digest_of_rows
from afspark.model.kernels import digest_kernels as kernel
from afspark.model.kernels.hashing import GOLDEN
from afspark.model.states import HashTable, HeapColumns, State
from afspark.model.states.conformance import Subject
from afspark.protocol.reports import Status, TaskReport
from tests.twins import digest_twin as twin
from tests.unit.states.subjects import builtin_subjects


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("numbered", [False, True])
def test_kernels_do_as_their_twins(seed: int, numbered: bool) -> None:
    random = np.random.default_rng(seed)
    cells = random.permutation(60)[:40].astype(np.uint32)
    values = random.integers(-3, 3, 60)
    olds = np.where(random.random(40) < 0.3, values[cells], random.integers(-3, 3, 40))
    places = np.zeros(0, np.uint64) if numbered else random.integers(0, 2**63, 40).astype(np.uint64)
    known = [int(place) for place in places]
    count, total = kernel.digest_integers(cells, olds, values, places)
    assert (count, int(total)) == twin.digest_integers(cells, olds, values, known)
    floats, old_floats = values / 7, olds / 7
    floats[:2], old_floats[:2] = (np.nan, np.inf), (np.nan, 1.0)
    sums = kernel.digest_floats(cells, old_floats, floats, places)
    assert sums == pytest.approx(twin.digest_floats(cells, old_floats, floats, known), rel=1e-12, abs=0)
    hashes = random.integers(0, 2**63, 40).astype(np.uint64)
    assert int(kernel.digest_rows(hashes, np.uint64(seed))) == twin.digest_rows(hashes.tolist(), seed)
    assert kernel.weighted_sum(hashes, floats[:40]) == pytest.approx(
        twin.weighted_sum(hashes.tolist(), floats[:40].tolist()), rel=1e-12, abs=0
    )


@pytest.mark.parametrize("columns", range(1, 7))
def test_rows_of_words_have_one_digest_in_one_pass_or_several(columns: int) -> None:
    words = [np.random.default_rng(place).integers(0, 2**64, 50, np.uint64) for place in range(columns)]
    folded = [twin.fold_words(row) for row in zip(*(column.tolist() for column in words), strict=True)]
    hashes = np.full(50, GOLDEN)
    for column in words:
        kernel.fold_words(hashes, column)
    assert hashes.tolist() == folded
    assert int(kernel.digest_word_rows(tuple(words), np.uint64(3))) == twin.digest_rows(folded, 3)


def test_rows_with_and_without_nulls_are_digested_alike() -> None:
    """Which rows are hashed together depends on their order, and so does whether there is a null among them."""
    rows = pa.record_batch({"text": ["a", None, "c"], "n": pa.array([1, 2, None], pa.int32()), "day": [7, 8, 9]})
    whole = digest_of_rows([(0, rows)])
    assert whole == digest_of_rows([(0, rows.slice(row, 1)) for row in (2, 0, 1)])
    filled = rows.set_column(1, "n", pa.array([1, 2, 0], pa.int32()))
    assert not whole.agrees(digest_of_rows([(0, filled)]))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 31, 32, 33, 64, 1000])
def test_bytes_are_digested_as_by_the_twin(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    assert tuple(map(int, kernel.digest_bytes(np.frombuffer(data, np.uint8)))) == twin.digest_bytes(data)


def test_any_other_byte_and_any_other_length_has_another_digest() -> None:
    data = bytes(range(100))
    others = [data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :] for at in range(100) for bit in range(8)]
    others += [data[:size] for size in range(100)] + [data + b"\0", bytes(100), bytes(101), data[50:] + data[:50]]
    digests = {kernel.digest_bytes(np.frombuffer(one, np.uint8)) for one in [data, *others]}
    assert len(digests) == len(others) + 1


def _restored(subject: Subject, state: State) -> State:
    copy = subject.spec.open(HeapColumns(), "state")
    copy.restore([state.dump()])
    return copy


def _changed(subject: Subject, state: State, seed: int) -> EffectDigest:
    random = np.random.default_rng(seed)
    state.begin()
    for _ in range(3):
        subject.update(state, random)
    state.update_drift()
    return state.digest()


@pytest.mark.parametrize("subject", list(builtin_subjects()), ids=str)
def test_a_restored_state_that_does_the_same_has_the_same_digest(subject: Subject) -> None:
    state = subject.spec.open(HeapColumns(), "state")
    for seed in range(6):
        _changed(subject, state, seed)
        state.issue(0.0)
        state.acknowledge()
        copy = _restored(subject, state)
        before = _changed(subject, state, 100 + seed)
        assert _changed(subject, copy, 100 + seed).agrees(before)
        state.rollback()
        assert not _changed(subject, state, 200 + seed).agrees(before), "other updates"
        state.issue(0.0)
        state.acknowledge()


@pytest.mark.parametrize("value", ["int64", "float64"])
def test_other_new_keys_with_the_same_values_are_another_change(value: str) -> None:
    def added(keys: list[str]) -> EffectDigest:
        table = HashTable(value=value).open(HeapColumns(), "table")
        table.begin()
        table.add(keys, 1)
        return table.digest()

    assert added(["a", "b"]).agrees(added(["b", "a"]))
    assert not added(["a", "b"]).agrees(added(["a", "c"]))


def test_sums_in_another_order_are_no_difference() -> None:
    numbers = np.random.default_rng(1).normal(0, 1e6, 5000)

    def summed(values: Any) -> EffectDigest:
        table = HashTable(key="int64", value="float64").open(HeapColumns(), "table")
        table.begin()
        table.add(np.zeros(len(values), np.int64), values)
        return table.digest()

    one, other = summed(numbers), summed(numbers[::-1].copy())
    assert one.floats != other.floats and one.agrees(other)
    assert not one.agrees(summed(numbers + 0.01))


def test_rows_are_compared_without_their_order() -> None:
    rows = pa.record_batch({"key": ["a", "b", None], "n": [1, 2, 3], "x": [0.5, None, float("nan")]})
    whole = digest_of_rows([((0, None), rows)])
    turned = [((0, None), rows.slice(2, 1)), ((0, None), rows.slice(0, 2))]
    assert whole.agrees(digest_of_rows(turned)) and whole.count == 3
    assert not whole.agrees(digest_of_rows([((1, None), rows)])), "sent in another step"
    assert not whole.agrees(digest_of_rows([((0, None), rows.set_column(1, "n", pa.array([2, 1, 3])))]))
    assert not whole.agrees(digest_of_rows([((0, None), rows.set_column(2, "x", pa.array([0.5, 1.0, None])))]))
    assert EffectDigest.from_json(whole.to_json()) == whole


def _report(effects: dict[str, EffectDigest], consumed: dict[str, str] | None = None) -> TaskReport:
    return TaskReport(worker=0, status=Status.APPLIED, host="a", effects=effects, consumed=consumed or {})


def test_what_is_recorded_does_not_grow_with_the_panes_and_tells_them_apart() -> None:
    one, other, items = EffectDigest(1, 7), EffectDigest(2, 11), EffectDigest(3)
    found = recorded_effects(_report({"items": items, "state c@1": one, "state c@2": other}), ())
    assert found.keys() == {"items", "state c"} and found["state c"].count == 3
    swapped = recorded_effects(_report({"items": items, "state c@1": other, "state c@2": one}), ())
    assert not swapped["state c"].agrees(found["state c"])


def test_what_is_recorded_knows_how_rows_of_data_frames_were_divided() -> None:
    effects = {"items": EffectDigest(3)}
    two = recorded_effects(_report(effects, {":0": "a", ":1": "b", "first:0": "c"}), {""})
    three = recorded_effects(_report(effects, {":0": "a", ":1": "b", ":2": "d", "first:0": "e"}), {""})
    again = recorded_effects(_report(effects, {":1": "b", ":0": "a", "first:0": "e"}), {""})
    assert two == again and not two[READING].agrees(three[READING])


@pytest.mark.parametrize("value", ["int64", "float64"])
def test_a_change_of_another_key_is_another_digest(value: str) -> None:
    """Both keys had the same value before."""
    digests = []
    for key in (1, 2):
        state = HashTable(key="int64", value=value).open(HeapColumns(), "state")
        state.begin()
        state.put(np.array([1, 2]), np.array([5, 5]).astype(value))
        state.begin()
        state.put(np.array([key]), np.array([6]).astype(value))
        digests.append(state.digest())
    assert not digests[0].agrees(digests[1])


def test_the_greatest_floats_agree_with_themselves() -> None:
    rows = pa.record_batch({"x": [1.7e308, -1.7e308, 1.6e308, -1.6e308]})
    digest = digest_of_rows([(0, rows)])
    assert digest.agrees(digest) and all(map(np.isfinite, (*digest.floats, digest.size)))
