"""Keys that somebody has chosen so that the stable hash puts them all in one place: tables stay as fast as ever.

Nothing is timed: what an insertion costs is how many taken slots follow each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from afspark.model.kernels.hashing import GOLDEN, hash_strings
from afspark.model.kernels.sketch import SeenKeys, update_and_find
from afspark.model.kernels.words import WordCounter
from afspark.model.states import HashTable, HeapColumns, Set
from afspark.model.states.scalars import Scalars, Slot
from tests.twins import hashing_twin as twin

MASK = 2**64 - 1
NUMBER = 20_000
#: At five eighths full the longest of 20,000 random runs has about a hundred slots.
LONGEST = 1_000


def inverse(factor: int) -> int:
    return pow(factor, -1, 2**64)


def unshifted(x: int, bits: int) -> int:
    """The number that ``x ^ (x >> bits)`` came from."""
    result = x
    for _ in range(64 // bits):
        result = x ^ (result >> bits)
    return result


def unmixed(h: int) -> int:
    h = unshifted(h, 31) * inverse(0x94D049BB133111EB) & MASK
    h = unshifted(h, 27) * inverse(0xBF58476D1CE4E5B9) & MASK
    return unshifted(h, 30)


def integer_with(h: int) -> int:
    """The int64 with this stable hash."""
    key = (unmixed(h) - int(GOLDEN)) & MASK
    return key - 2**64 if key >> 63 else key


def neighbours() -> np.ndarray[Any, Any]:
    """Integers whose stable hashes times the golden ratio are 0, 1, 2 ..."""
    return np.array([integer_with(number * inverse(int(GOLDEN)) & MASK) for number in range(NUMBER)], np.int64)


def equal_hashes() -> pa.Array:
    """Words of sixteen letters that all have one stable hash: the second half undoes the first."""
    state = int(GOLDEN) ^ (16 * 0xBF58476D1CE4E5B9 & MASK)
    words = []
    number = 0
    while len(words) < NUMBER:
        number += 1
        first = b"%08x" % number
        h = (state ^ int.from_bytes(first, "little")) * int(GOLDEN) & MASK
        second = (h ^ (h >> 32)).to_bytes(8, "little")
        if not set(second) & set(b" \t\n\v\f\r"):
            words.append(first + second)
    return pa.array(words, pa.binary())


def flips() -> pa.Array:
    """Words that differ in the uppermost bits of pairs of words: such differences cancel out in many hashes."""
    rows = np.full((NUMBER, 32), 0x61, np.uint8).view(np.uint64).reshape(NUMBER, 4)
    rows = np.tile(rows, (1, 8))
    for bit in range(15):
        chosen = (np.arange(NUMBER) >> bit) & 1 == 1
        rows[chosen, 2 * bit] ^= np.uint64(1 << 63)
        rows[chosen, 2 * bit + 1] ^= np.uint64((1 << 63) | (1 << 31))
    return pa.array([row.tobytes() for row in rows], pa.binary())


def longest_run(table: np.ndarray[Any, Any]) -> int:
    """How many taken slots follow each other at most."""
    free = np.flatnonzero(table == 0)
    assert len(free)
    return int(np.diff(np.append(free, free[0] + len(table))).max()) - 1


def test_what_is_tried_here_is_an_attack() -> None:
    assert [twin.hash_int64(int(key)) * int(GOLDEN) & MASK for key in neighbours()[:9]] == list(range(9))
    for words in (equal_hashes(), flips()):
        assert len(set(hash_strings(words).tolist())) == 1 and len(set(words.to_pylist())) == NUMBER


@pytest.mark.parametrize(
    ("spec", "keys"),
    [
        (HashTable(key="int64"), neighbours),
        (Set(key="int64"), neighbours),
        (HashTable(), equal_hashes),
        (HashTable(), flips),
        (Set(), flips),
    ],
    ids=["table of integers", "set of integers", "equal hashes", "flips", "set of flips"],
)
def test_chosen_keys_do_not_crowd(spec: Any, keys: Callable[[], Any]) -> None:
    columns, chosen = HeapColumns(), keys()
    state = spec.open(columns, "t")
    state.begin()
    state.add(chosen) if isinstance(spec, Set) else state.add(chosen, 1)
    (index,) = (array for name, array in columns.arrays().items() if ".index." in name)
    assert np.count_nonzero(index) == NUMBER and longest_run(index) < LONGEST
    if "t.hash" in columns.names():
        assert len(set(columns.arrays()["t.hash"][:NUMBER].tolist())) == NUMBER


@pytest.mark.parametrize("keys", [equal_hashes, flips])
def test_chosen_words_do_not_crowd(keys: Callable[[], pa.Array]) -> None:
    words, counter = keys(), WordCounter()
    counter.count(words)
    assert counter.distinct == NUMBER and longest_run(counter._index) < LONGEST
    assert counter.finish().column("word").to_pylist() == words.to_pylist()


def test_chosen_hashes_of_heavy_keys_do_not_crowd() -> None:
    seen = SeenKeys()
    hashes = (np.arange(1, NUMBER + 1, dtype=np.uint64)) << np.uint64(24)
    found = update_and_find(np.zeros((2, 64), np.int64), hashes, 1, 0.0, seen)
    assert found.tolist() == list(range(NUMBER)) and longest_run(seen.table) < LONGEST


def test_a_secret_stays_with_its_table_and_is_no_other_s() -> None:
    def secret(columns: HeapColumns, name: str = "t") -> int:
        return Scalars(columns, name)[Slot.SECRET]

    columns = HeapColumns()
    table, other = HashTable(key="int64").open(columns, "t"), HashTable(key="int64").open(columns, "u")
    first = secret(columns)
    assert first not in (0, secret(columns, "u"))
    for state in (table, other):
        state.begin()
        state.add(np.arange(10_000), 1)
        state.issue(0.0)
        state.acknowledge()
    again = HashTable(key="int64").open(columns.copy(), "t")
    assert again.get(np.arange(10_000)).sum() == 10_000
    table.begin()
    table.remove(np.arange(9_000))
    table.issue(0.0)
    table.acknowledge()
    table.rebuild()
    assert secret(columns) == first and table.get(np.arange(10_000)).sum() == 1_000
    restored = HeapColumns()
    HashTable(key="int64").open(restored, "t").restore([table.export()])
    assert secret(restored) not in (0, first)
