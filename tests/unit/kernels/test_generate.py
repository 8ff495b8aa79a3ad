"""Generated input: a pure function of its key, and shaped as promised."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.model.kernels.generate import (
    PAYLOADS,
    SLOT,
    block_key,
    fill_alias,
    fill_packets,
    fill_visits,
    fill_words,
    random_numbers,
    spell_words,
    zipf_cells,
)
from tests.twins.hashing_twin import combine, hash_int64, mix

GOLDEN = 0x9E3779B97F4A7C15
MASK = 2**64 - 1
GOLDEN_TEXT = "7bb79508b93b6a92"
GOLDEN_PACKETS = "bad6897dbe60b50b"


def plain_rank(random: int, cells: list[int]) -> int:
    column = (random >> 32) * len(cells) >> 32
    return column if random & 0xFFFFFFFF < cells[column] & 0xFFFFFFFF else cells[column] >> 32


def plain_text(length: int, key: int, cells: list[int], spelling: list[bytes]) -> bytes:
    """The definition of ``fill_words``, word by word."""
    out, counter, left = b"", key, 10
    while len(out) + SLOT < length:
        counter = counter + GOLDEN & MASK
        random = mix(counter)
        out += spelling[plain_rank(random, cells)] + b" "
        left -= 1
        if left == 0:
            out, left = out[:-1] + b"\n", 8 + (random >> 8 & 3)
    return (out + b" " * (length - len(out)))[: length - 1] + b"\n"


def vocabulary(count: int) -> list[bytes]:
    slots = spell_words(count).view(np.uint8).reshape(count, SLOT)
    return [bytes(slot[: slot[-1] - 1]) for slot in slots]


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=40))
def test_an_alias_table_gives_every_rank_its_share(weights):
    cells = np.empty(len(weights), np.uint64)
    fill_alias(np.array(weights), cells)
    own = (cells & np.uint64(0xFFFFFFFF)).astype(float) / 2**32
    shares = own.copy()
    np.add.at(shares, (cells >> np.uint64(32)).astype(int), 1 - own)
    assert shares / len(weights) == pytest.approx(np.array(weights) / sum(weights), abs=1e-8)


@given(seed=st.integers(-(2**63), 2**63 - 1), length=st.integers(1, 3000))
def test_text_equals_its_definition(seed, length):
    out = np.empty(length, np.uint8)
    key, cells = block_key(seed, 3), zipf_cells(500, 1.07)
    assert int(key) == combine(hash_int64(seed), hash_int64(3))
    fill_words(out, key, cells, spell_words(500))
    assert out.tobytes() == plain_text(length, int(key), cells.tolist(), vocabulary(500))


@pytest.mark.parametrize("count", [1, 26, 1000, 100_000])
def test_words_are_different_and_free_of_white_space(count):
    words = vocabulary(count)
    assert len(set(words)) == count
    assert all(word.isalpha() and 1 <= len(word) <= 14 for word in words)


def test_frequent_words_are_short():
    words = vocabulary(200_000)
    lengths = np.array([len(word) for word in words])
    weights = np.arange(1, len(words) + 1) ** -1.07
    assert 3.5 < np.average(lengths, weights=weights) < 6
    assert lengths[:20].mean() < lengths[1000:2000].mean() < lengths[-1000:].mean()


def test_golden_text_and_packets():
    text = np.empty(1 << 16, np.uint8)
    fill_words(text, block_key(1, 2), zipf_cells(10_000, 1.07), spell_words(10_000))
    columns = [np.empty(4096, np.int64) for _ in range(3)]
    fill_packets(block_key(1, 2), block_key(1, -1), zipf_cells(10_000, 1.1), *columns)
    assert hashlib.blake2b(text.tobytes(), digest_size=8).hexdigest() == GOLDEN_TEXT
    assert hashlib.blake2b(np.stack(columns).tobytes(), digest_size=8).hexdigest() == GOLDEN_PACKETS


def test_packets_equal_their_definition():
    key, network, cells = 11, 12, zipf_cells(50, 1.1)
    source, target, size = (np.empty(300, np.int64) for _ in range(3))
    fill_packets(np.uint64(key), np.uint64(network), cells, source, target, size)
    counter = key
    for i in range(300):
        pair = plain_rank(mix(counter + GOLDEN & MASK), cells.tolist())
        counter = counter + 2 * GOLDEN & MASK
        assert source[i] == mix(network + (pair >> 2) * GOLDEN + 0x5851F42D4C957F2D & MASK) >> 32
        assert target[i] == mix(network + pair * GOLDEN + 0x14057B7EF767814F & MASK) >> 32
        assert size[i] == PAYLOADS[mix(counter) & 4095]


def test_visits_equal_their_definition():
    key, network, cells, shared = 11, 12, zipf_cells(50, 0.7), 2**63
    for stream in (0, 1):
        host, second, size = (np.empty(300, np.int64) for _ in range(3))
        fill_visits(np.uint64(key), np.uint64(network), cells, np.uint64(shared), stream, 1000, 100, host, second, size)
        counter = key
        for i in range(300):
            rank = plain_rank(mix(counter + GOLDEN & MASK), cells.tolist())
            counter = counter + 2 * GOLDEN & MASK
            address = mix(network + rank * GOLDEN + 0x14057B7EF767814F & MASK)
            if address >= shared:
                address = mix(address + (stream + 1) * 0x5851F42D4C957F2D & MASK)
            assert host[i] == mix(address) >> 32
            assert second[i] == (1000 + i) // 100
            assert size[i] == PAYLOADS[mix(counter) & 4095]


@given(key=st.integers(0, MASK), rows=st.integers(0, 5), columns=st.integers(1, 4))
def test_random_numbers_are_those_of_the_twin(key: int, rows: int, columns: int) -> None:
    found = random_numbers(np.uint64(key), rows, columns)
    assert found.ravel().tolist() == [mix(key + (place + 1) * GOLDEN & MASK) for place in range(rows * columns)]
    assert found.shape == (rows, columns)
