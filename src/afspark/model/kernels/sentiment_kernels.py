"""Words of texts, looked up as they are found: which keywords a text has, and how friendly its words are.

A word is a run of ASCII letters, digits and underscores, and of letters outside of ASCII. An apostrophe between two of
them belongs to it (U+2019 as well, which counts as the plain one); symbols, punctuation and emoji end it. ASCII
capitals are folded. Words are told apart by a hash of 64 bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit

from afspark.model.kernels.hashing import mix
from afspark.model.kernels.plain_arrays import Array, as_array, byte_buffers, read_only

STEPS = 1024
"""Scores are multiples of 1/1024, so that their sums are exact in whatever order they are added."""
REACH = 3
"""How many words a negation turns round."""
TURNED = -0.74
LEVEL = 15.0
"""Sum s of a text's words gives the score s / √(s² + 15)."""

_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_TAG, _ONE = np.uint64(0x9E3779B97F4A7C15), np.uint64(1)
_QUOTE, _CURLY = np.uint8(0x27), (np.uint8(0xE2), np.uint8(0x80), np.uint8(0x99))
_HASH_SIGN = np.uint8(0x23)
_FAR = 1 << 30


def _widths() -> Array:
    """By first byte: 0 if it is part of a word, else how many bytes to pass over."""
    widths = np.zeros(256, np.uint8)
    widths[:128] = 1
    for first, last in (b"09", b"az", b"AZ", b"__"):
        widths[first : last + 1] = 0
    # U+0080 to U+00BF, U+2000 to U+2FFF and all beyond U+FFFF: no letters, apart from scripts that nobody tweets in.
    widths[0xC2], widths[0xE2], widths[0xF0:] = 2, 3, 4
    return read_only(widths)


def _folded() -> Array:
    folded = np.arange(256, dtype=np.uint64)
    folded[65:91] += 32
    return read_only(folded)


_WIDTHS, _FOLDED = _widths(), _folded()


@njit(cache=True, nogil=True)
def next_word(data, at, end):  # type: ignore[no-untyped-def]
    """Where the next word in ``data[at:end]`` ends, its hash (0: there is none), and whether a # stands before it."""
    tagged = False
    while at < end and _WIDTHS[data[at]] > 0:
        tagged = data[at] == _HASH_SIGN
        at += np.int64(_WIDTHS[data[at]])
    if at >= end:
        return end, np.uint64(0), False
    found = _BASIS
    while at < end:
        byte = data[at]
        if _WIDTHS[byte] == 0:
            found = (found ^ _FOLDED[byte]) * _PRIME
            at += 1
            continue
        width = 0
        if byte == _QUOTE:
            width = 1
        elif byte == _CURLY[0] and at + 2 < end and data[at + 1] == _CURLY[1] and data[at + 2] == _CURLY[2]:
            width = 3
        if width == 0 or at + width >= end or _WIDTHS[data[at + width]] > 0:
            break
        found = (found ^ np.uint64(_QUOTE)) * _PRIME
        at += width
    return at, mix(found) | _ONE, tagged


@njit(cache=True, nogil=True)
def tagged_hash(found):  # type: ignore[no-untyped-def]
    """The hash of a word with its #."""
    return mix(found ^ _TAG) | _ONE


@njit(cache=True, nogil=True, inline="always")
def find_slot(hashes, found):  # type: ignore[no-untyped-def]
    """The slot of a hash in an open-addressing table, -1 if it is not there."""
    mask = np.uint64(len(hashes) - 1)
    slot = found >> np.uint64(32) & mask
    while hashes[slot] != 0:
        if hashes[slot] == found:
            return np.int64(slot)
        slot = (slot + _ONE) & mask
    return np.int64(-1)


@njit(cache=True, nogil=True)
def fill_slots(found, hashes, places):  # type: ignore[no-untyped-def]
    """Puts the hashes into the table; ``places`` has the position of each. Of equal ones the first stays."""
    mask = np.uint64(len(hashes) - 1)
    for i in range(len(found)):
        slot = found[i] >> np.uint64(32) & mask
        while hashes[slot] != 0 and hashes[slot] != found[i]:
            slot = (slot + _ONE) & mask
        if hashes[slot] == 0:
            hashes[slot], places[slot] = found[i], i


@njit(cache=True, nogil=True)
def fill_scores(offsets, data, hashes, places, values, negates, out):  # type: ignore[no-untyped-def]
    """``out[i]``: the score of text i, in [-1, 1]."""
    for row in range(len(out)):
        at, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        total, since = 0.0, _FAR
        while True:
            at, found, _ = next_word(data, at, end)
            if found == 0:
                break
            since += 1
            slot = find_slot(hashes, found)
            if slot >= 0:
                word = places[slot]
                total += values[word] * (TURNED if since <= REACH else 1.0)
                if negates[word]:
                    since = 0
        out[row] = np.rint(STEPS * total / math.sqrt(total * total + LEVEL)) / STEPS


@njit(cache=True, nogil=True)
def fill_matches(offsets, data, hashes, places, stamps, rows, words):  # type: ignore[no-untyped-def]
    """Pairs of a text and a word of the table that it has, each once, by text; returns their number."""
    count = 0
    for row in range(len(offsets) - 1):
        at, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        while True:
            at, found, tagged = next_word(data, at, end)
            if found == 0:
                break
            for looked in range(2 if tagged else 1):
                slot = find_slot(hashes, tagged_hash(found) if looked else found)
                if slot >= 0 and stamps[places[slot]] != row:
                    stamps[places[slot]] = row
                    rows[count], words[count] = row, places[slot]
                    count += 1
    return count


class WordTable(NamedTuple):
    """An open-addressing table of hashes, with the number of the word in each slot."""

    hashes: Array
    places: Array
    words: int


def word_hash(word: str) -> int | None:
    """The hash of a word, with its # if it has one; None if the text is not exactly one word.

    >>> word_hash("Don't") == word_hash("don\\u2019t"), word_hash("two words"), word_hash("#a") == word_hash("a")
    (True, None, False)
    """
    data = read_only(np.frombuffer(word.encode(), np.uint8).copy())
    at, found, tagged = next_word(data, np.int64(0), np.int64(len(data)))
    plain = word.removeprefix("#")
    if not found or at != len(data) or _WIDTHS[plain.encode()[0]] > 0:
        return None
    return int(tagged_hash(np.uint64(found)) if tagged else found)


def word_table(words: Sequence[str]) -> WordTable:
    """The table of these words, each of which has a hash."""
    found = np.array([word_hash(word) for word in words], np.uint64)
    size = 1 << max(4, (2 * len(found)).bit_length())
    table = WordTable(np.zeros(size, np.uint64), np.zeros(size, np.int32), len(found))
    fill_slots(found, table.hashes, table.places)
    return table


def score_texts(texts: pa.Array, table: WordTable, values: Array, negates: Array) -> Array:
    """The score of each text (null: 0), from the values of the table's words and which of them are negations."""
    texts = as_array(texts)
    out = np.zeros(len(texts))
    fill_scores(*byte_buffers(texts), table.hashes, table.places, values, negates, out)
    if texts.null_count:
        out[texts.is_null().to_numpy(zero_copy_only=False)] = 0.0
    return out


def match_words(texts: pa.Array, table: WordTable) -> tuple[Array, Array]:
    """Which texts (no nulls) have which words of the table: pairs of row and word, in the order of the texts."""
    texts = as_array(texts)
    offsets, data = byte_buffers(texts)
    # A word has a byte at least, and another one before the next; with its # it may be found twice.
    room = min(int(offsets[-1] - offsets[0]) + len(texts), table.words * len(texts))
    rows, words = np.empty(room, np.int32), np.empty(room, np.int32)
    stamps = np.full(table.words, -1, np.int64)
    count = fill_matches(offsets, data, table.hashes, table.places, stamps, rows, words)
    return rows[:count], words[:count]
