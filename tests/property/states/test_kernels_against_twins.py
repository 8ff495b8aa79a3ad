"""Each kernel against its plain twin."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from afspark.model.kernels import cell_kernels as cells
from afspark.model.kernels import matrix_kernels as matrix
from afspark.model.kernels import table_kernels as table
from afspark.model.kernels.hashing import Secret
from afspark.model.kernels.plain_arrays import byte_buffers
from tests.twins import cells_twin as cell_twin
from tests.twins import matrix_twin
from tests.twins.table_twin import Numbering

INT64 = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-1000, 1000)
ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True)
SIZE = 9
CELL_LISTS = st.lists(st.integers(0, SIZE - 1), max_size=30)


def integers(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, np.int64)


def pairs_of(element: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(st.tuples(element, element), max_size=600)


@settings(deadline=None)
@given(st.one_of(pairs_of(INT64), pairs_of(SMALL)))
def test_distances_of_integers(pairs: list[tuple[int, int]]) -> None:
    values, shadows = integers([a for a, _ in pairs]), integers([b for _, b in pairs])
    check_distances(values, shadows)


@settings(deadline=None)
@given(pairs_of(ANY_FLOAT))
def test_distances_of_floats(pairs: list[tuple[float, float]]) -> None:
    values, shadows = np.array([a for a, _ in pairs], float), np.array([b for _, b in pairs], float)
    check_distances(values, shadows)


def check_distances(values: np.ndarray, shadows: np.ndarray) -> None:
    expected = cell_twin.distances(values, shadows)
    got = np.empty(len(values))
    everything = np.arange(len(values), dtype=np.uint32)
    cells.distances(everything, values, shadows, got)
    assert got.tolist() == expected.tolist()
    gone = cell_twin.key_changes(values, shadows)
    cells.key_changes(everything, values, shadows, got)
    assert got.tolist() == gone.tolist()
    assert cells.count_key_changes(values, shadows) == gone.sum()
    olds = values[::-1].copy()
    gained = cell_twin.living(values, shadows) - cell_twin.living(olds, shadows)
    before = cell_twin.key_changes(olds, shadows).sum()
    assert cells.fold_keys(everything, olds, values, shadows, True) == (before, gone.sum(), gained)
    assert cells.fold_keys(everything, olds, values, shadows, False) == (before, gone.sum(), 0)
    largest = max(expected.tolist(), default=0.0)
    assert cells.largest_distance(values, shadows) == largest
    assert cells.fold_max(everything, olds, values, shadows, True) == (0.0, largest, gained)
    assert cells.fold_max(everything, olds, values, shadows, False) == (0.0, largest, 0)
    assert cells.fold_sums(False, everything, olds, values, shadows, True)[2] == gained
    assert cells.fold_sums(False, everything, olds, values, shadows, False)[2] == 0
    with np.errstate(over="ignore"):
        squares = expected * expected
    cells.squared_distances(everything, values, shadows, got)
    assert got.tolist() == squares.tolist()
    for squared, terms in ((False, expected), (True, squares)):
        try:
            total = math.fsum(terms)
        except OverflowError:
            total = math.inf
        for summed in (
            cells.total_distance(squared, values, shadows),
            cells.fold_sums(squared, everything, shadows, values, shadows, False)[1],
        ):
            assert summed == total or math.isclose(summed, total, rel_tol=1e-12)


@settings(deadline=None)
@given(CELL_LISTS, CELL_LISTS)
def test_journal_takes_each_cell_once(first: list[int], second: list[int]) -> None:
    values, stamps = np.arange(SIZE, dtype=np.int64) * 10, np.zeros(SIZE, np.uint32)
    journal, olds = np.zeros(SIZE, np.uint32), np.zeros(SIZE, np.int64)
    count = cells.journal_cells(integers(first), values, stamps, 7, journal, olds, 0)
    expected = cell_twin.first_touches(integers(first), integers([]))
    assert journal[:count].tolist() == expected.tolist()
    more = cells.journal_cells(integers(second), values, stamps, 7, journal, olds, count)
    assert journal[count:more].tolist() == cell_twin.first_touches(integers(second), expected).tolist()
    assert olds[:more].tolist() == values[journal[:more]].tolist()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, SIZE - 1), st.one_of(SMALL, INT64)), max_size=30))
def test_adding_and_putting(updates: list[tuple[int, int]]) -> None:
    at, amounts = integers([cell for cell, _ in updates]), integers([amount for _, amount in updates])
    start = np.arange(SIZE, dtype=np.int64)
    values = start.copy()
    assert cells.add_integers(at, amounts, 1, values) == cell_twin.overflows(start, at, amounts)
    assert values.tolist() == cell_twin.added(start, at, amounts).tolist()
    floats = start.astype(float)
    cells.add_floats(at, amounts.astype(float), 1, floats)
    assert floats.tolist() == cell_twin.added(start.astype(float), at, amounts.astype(float)).tolist()
    values = start.copy()
    cells.put_cells(at, amounts, 1, values)
    assert values.tolist() == cell_twin.put(start, at, amounts).tolist()
    values = start.copy()
    cells.add_integers(at, integers([3]), 0, values)
    assert values.tolist() == cell_twin.added(start, at, np.full(len(at), 3)).tolist()


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), max_size=200), st.integers(0, 20000))
def test_choice_of_the_largest(weights: list[int], budget: int) -> None:
    """Whole weights: their sums are exact in any order, so kernel and twin must choose the very same ones."""
    check_choice(np.array(weights, float), float(budget))


@settings(deadline=None)
@given(st.lists(st.floats(0, allow_infinity=True), max_size=60), st.floats(0, 1e300))
def test_choice_of_any_floats(weights: list[float], budget: float) -> None:
    given_weights = np.array(weights, float)
    chosen = np.zeros(len(weights), np.bool_)
    number = cells.choose_largest(given_weights, budget, chosen)
    assert number == chosen.sum()
    kept, taken = given_weights[~chosen], given_weights[chosen]
    assert kept.sum() <= budget * (1 + 1e-12)
    if number:
        assert taken.min() >= max(kept, default=0.0)
        assert kept.sum() + taken.min() > budget * (1 - 1e-12)


def check_choice(weights: np.ndarray, budget: float) -> None:
    chosen = np.ones(len(weights), np.bool_)
    cells.choose_largest(weights, budget, chosen)
    assert chosen.tolist() == cell_twin.choose_largest(weights, budget).tolist()


@settings(deadline=None)
@given(st.lists(st.sampled_from([0, 0, 1, -5]), min_size=1, max_size=SIZE), st.sets(st.integers(0, SIZE - 1)))
def test_dense_updates(deltas: list[int], touched: set[int]) -> None:
    start = SIZE - len(deltas)
    values = np.arange(SIZE, dtype=np.int64)
    stamps = np.array([7 if cell in touched else 3 for cell in range(SIZE)], np.uint32)
    expected = matrix_twin.touched_by(integers(deltas), start, stamps, 7)
    journal, olds = np.zeros(SIZE + 1, np.uint32), np.zeros(SIZE + 1, np.int64)
    count = matrix.journal_span(integers(deltas), start, values, stamps, 7, journal, olds, 1)
    assert journal[1:count].tolist() == expected
    assert olds[1:count].tolist() == values[expected].tolist()
    assert all(stamps[cell] == 7 for cell in expected)
    after = matrix_twin.added(values, integers(deltas), start)
    floats = values.astype(float)
    assert not matrix.add_span_integers(integers(deltas), start, values)
    matrix.add_span_floats(np.array(deltas, float), start, floats)
    assert values.tolist() == floats.tolist() == after.tolist()


KEYS = st.lists(st.integers(0, 60), max_size=60)
SECRETS = st.integers(1, 2**63 - 1).map(Secret.of)


@settings(deadline=None)
@given(KEYS, KEYS, KEYS, SECRETS)
def test_numbering_of_integers(known: list[int], undone: list[int], asked: list[int], secret: Secret) -> None:
    index, place = np.zeros(128, np.uint32), (*secret, np.uint64(64 - 7))
    entry_keys, twin = np.zeros(64, np.int64), Numbering()
    entries = 0
    for keys in (known, undone):
        before, ids = entries, np.empty(len(keys), np.uint32)
        position, entries = table.locate_integers(integers(keys), 0, index, *place, entry_keys, entries, 64, ids)
        assert (position, ids.tolist()) == (len(keys), twin.locate(keys))
        assert entries == len(twin)
    rebuilt = np.zeros(128, np.uint32)
    table.index_integers(entry_keys, entries, rebuilt, *place)
    assert rebuilt.tolist() == index.tolist()
    table.erase_from(index, before)
    twin.erase_from(before)
    found = np.empty(len(asked), np.uint32)
    table.find_integers(integers(asked), index, *place, entry_keys, found)
    assert [None if n == table.ABSENT else n for n in found.tolist()] == twin.find(asked)


@settings(deadline=None)
@given(KEYS, KEYS, KEYS, SECRETS, st.booleans())
def test_numbering_of_bytes(
    known: list[int], undone: list[int], asked: list[int], secret: Secret, collide: bool
) -> None:
    """Also with hashes that all collide: bytes decide, not hashes."""
    index, place = np.zeros(128, np.uint32), (secret.factor, np.uint64(64 - 7))
    entry_hashes, entry_offsets = np.zeros(64, np.uint64), np.zeros(65, np.int32)
    heap, twin, entries = np.zeros(4096, np.uint8), Numbering(), 0

    def prepared(numbers: list[int]) -> tuple[list[bytes], np.ndarray, np.ndarray, np.ndarray]:
        words = [b"x" * (number % 19) + bytes([number]) for number in numbers]
        array = pa.array(words, pa.binary())
        hashes = np.zeros(len(words), np.uint64)
        if not collide:
            table.secret_spans(*byte_buffers(array), *secret, hashes)
        return words, *byte_buffers(array), hashes

    for numbers in (known, undone):
        words, offsets, data, hashes = prepared(numbers)
        before, ids = entries, np.empty(len(words), np.uint32)
        position, entries = table.locate_bytes(
            offsets, data, hashes, 0, index, *place, entry_hashes, entry_offsets, heap, entries, 64, ids
        )
        assert (position, ids.tolist()) == (len(words), twin.locate(words))
    everything = np.arange(entries, dtype=np.uint32)
    starts = np.empty(entries + 1, np.int32)
    content = np.empty(table.gather_offsets(everything, entry_offsets, starts), np.uint8)
    table.gather_bytes(everything, entry_offsets, heap, starts, content)
    assert [content[a:b].tobytes() for a, b in pairwise(starts)] == twin.keys
    rebuilt = np.zeros(128, np.uint32)
    table.index_hashes(entry_hashes, entries, rebuilt, *place)
    assert rebuilt.tolist() == index.tolist()
    table.erase_from(index, before)
    twin.erase_from(before)
    words, offsets, data, hashes = prepared(asked)
    found = np.empty(len(words), np.uint32)
    table.find_bytes(offsets, data, hashes, index, *place, entry_hashes, entry_offsets, heap, found)
    assert [None if n == table.ABSENT else n for n in found.tolist()] == twin.find(words)
