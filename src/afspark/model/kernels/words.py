"""Splitting text into words and counting them in one pass over the raw bytes.

A word is a run of bytes without ASCII white space (space, tab, newline, vertical tab, form feed, carriage
return); the end of a row ends a word too. Bytes are not decoded, so any encoding, and none, will do.

Counts live in a small table of two parts. The index is an open-addressing array of 64-bit slots: upper half
of the hash and number of the entry. Entries are dense in order of first sight, four 64-bit fields each: so
frequent words, which come early, share few cache lines, and the order of the result depends on the input
alone, never on how the table grew. Entry 0 is not used: 0 marks a free slot.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numba import njit

from afspark.errors import InputError
from afspark.model.kernels.hashing import Secret, mix, new_secret, secret_bytes
from afspark.model.kernels.memory import equal_bytes, load64, load_tail, prefetch
from afspark.model.kernels.plain_arrays import as_array, byte_buffers, read_only

SCHEMA = pa.schema([("word", pa.binary()), ("count", pa.int64())])

# Fields of an entry: the word's first eight bytes (zero-padded), its last eight if it is longer than eight,
# the count, and in one field the place of its bytes in the heap (upper half) and its length (lower half).
_FIELDS = 4
_HEAD, _TAIL, _COUNT, _PLACE = range(_FIELDS)
# Where a pass stands, so that it can go on after the table has grown.
_ROW, _POSITION, _WORDS, _ENTRIES, _HEAP = range(5)
_MAX_HEAP = 2**31 - 1
_SLOTS_PER_ENTRY = 2
_ROUND = 256

_ONES = np.uint64(0x0101010101010101)
_HIGHS = np.uint64(0x8080808080808080)
_LOWS = np.uint64(0x7F7F7F7F7F7F7F7F)
_SPACES = np.uint64(0x2020202020202020)
_FROM_TAB = np.uint64(0x7777777777777777)  # 0x80 - 9 in every byte
_PAST_RETURN = np.uint64(0x7272727272727272)  # 0x80 - 14 in every byte
_LOW32 = np.uint64(0xFFFFFFFF)
_EIGHT, _SIXTEEN = np.uint64(8), np.uint64(16)
_NONE, _ONE, _S7, _S32, _S56 = np.uint64(0), np.uint64(1), np.uint64(7), np.uint64(32), np.uint64(56)


@njit(cache=True, nogil=True, inline="always")
def white(word):  # type: ignore[no-untyped-def]
    """The top bit of each of the eight bytes of ``word`` that is white space; no carry crosses a byte."""
    low = word & _LOWS
    control = (low + _FROM_TAB) & ~(low + _PAST_RETURN) & ~word
    blank = word ^ _SPACES
    space = ~(((blank & _LOWS) + _LOWS) | blank)
    return (control | space) & _HIGHS


@njit(cache=True, nogil=True, inline="always")
def eight_bytes(data, position):  # type: ignore[no-untyped-def]
    """Eight bytes from ``position`` (< len(data)), zeros past the end of ``data``."""
    if position + 8 <= len(data):
        return load64(data, position)
    return load_tail(data, len(data), len(data) - position)


@njit(cache=True, nogil=True, inline="always")
def white_until(word, left):  # type: ignore[no-untyped-def]
    """Like ``white``, counting the bytes from ``left`` (> 0) on as white space."""
    found = white(word)
    if left < 8:
        found |= _HIGHS << np.uint64(8 * left)
    return found


@njit(cache=True, nogil=True)
def end_of_word(data, position, stop):  # type: ignore[no-untyped-def]
    """First position at or after ``position`` that is white space or ``stop``."""
    while position < stop:
        found = white_until(eight_bytes(data, position), stop - position)
        if found != _NONE:
            inside = ((found & (~found + _ONE)) >> _S7) - _ONE
            return position + np.int64(((inside & _ONES) * _ONES) >> _S56)
        position += 8
    return stop


@njit(cache=True, nogil=True)
def split_words(data, starts, stops, state, seed, factor, scratch):  # type: ignore[no-untyped-def]
    """Take the next words of rows ``data[starts[i]:stops[i]]`` into ``scratch``, move ``state``; how many."""
    hashes, heads, tails, lengths, positions, rows = scratch
    row, position = state[_ROW], state[_POSITION]
    taken = 0
    while row < len(starts):
        stop = stops[row]
        position = max(position, starts[row])
        while position < stop:
            head = eight_bytes(data, position)
            found = white_until(head, stop - position)
            if found != _NONE:
                inside = ((found & (~found + _ONE)) >> _S7) - _ONE
                length = ((inside & _ONES) * _ONES) >> _S56
                if length == _NONE:
                    position += 1
                    continue
                head &= inside
                # secret_bytes for up to eight bytes, on the word already in a register.
                h = mix(seed ^ (length * factor) ^ head)
                tail = _NONE
            else:
                after = end_of_word(data, position + 8, stop)
                length = np.uint64(after - position)
                tail = load64(data, after - 8) if length > _EIGHT else _NONE
                h = secret_bytes(data, position, after, seed, factor)
            if taken == len(hashes):
                state[_ROW], state[_POSITION] = row, position
                return taken
            hashes[taken] = h
            heads[taken] = head
            tails[taken] = tail
            lengths[taken] = length
            positions[taken] = np.uint64(position)
            rows[taken] = np.uint64(row)
            taken += 1
            # What follows a word is white space or the end of the row.
            position += np.int64(length) + 1
        # The byte at a row's end may begin the next row.
        position = 0
        row += 1
    state[_ROW], state[_POSITION] = row, 0
    return taken


@njit(cache=True, nogil=True)
def tally_words(data, scratch, taken, state, index, entries, heap):  # type: ignore[no-untyped-def]
    """Count the first ``taken`` words of ``scratch``; returns how many were counted before room ran out.

    The table is far larger than the cache and words come in no order, so the lines to be read are asked for
    two rounds ahead.
    """
    hashes, heads, tails, lengths, positions, _ = scratch
    mask = np.uint64(len(index) - 1)
    room = len(index) // _SLOTS_PER_ENTRY
    used, filled = state[_ENTRIES], state[_HEAP]
    for k in range(taken):
        prefetch(index, np.int64(hashes[k] & mask))
    for k in range(taken):
        prefetch(entries, np.int64(index[hashes[k] & mask] & _LOW32) * _FIELDS)
    counted = taken
    for k in range(taken):
        h, head, tail, length = hashes[k], heads[k], tails[k], lengths[k]
        position = np.int64(positions[k])
        slot = h & mask
        while True:
            held = index[slot]
            if held == _NONE:
                break
            if (held ^ h) >> _S32 == _NONE:
                entry = np.int64(held & _LOW32) * _FIELDS
                place = entries[entry + _PLACE]
                differ = (entries[entry + _HEAD] ^ head) | (entries[entry + _TAIL] ^ tail) | ((place & _LOW32) ^ length)
                # Head and tail are the whole of a word of up to sixteen bytes.
                if differ == _NONE and (
                    length <= _SIXTEEN or equal_bytes(data, position, heap, np.int64(place >> _S32), np.int64(length))
                ):
                    entries[entry + _COUNT] += _ONE
                    break
            slot = (slot + _ONE) & mask
        if held == _NONE:
            if used >= room or filled + np.int64(length) > len(heap):
                counted = k
                break
            used += 1
            entry = used * _FIELDS
            entries[entry + _HEAD] = head
            entries[entry + _TAIL] = tail
            entries[entry + _COUNT] = _ONE
            entries[entry + _PLACE] = (np.uint64(filled) << _S32) | length
            for i in range(np.int64(length)):
                heap[filled + i] = data[position + i]
            filled += np.int64(length)
            index[slot] = (h & ~_LOW32) | np.uint64(used)
    state[_WORDS] += counted
    state[_ENTRIES], state[_HEAP] = used, filled
    return counted


@njit(cache=True, nogil=True)
def count_words(data, starts, stops, state, seed, factor, scratch, index, entries, heap):  # type: ignore[no-untyped-def]
    """Count the words of rows ``data[starts[i]:stops[i]]`` from where ``state`` is; True when all is done.

    False means that a new word found no room; nothing of it was counted. Call again with a larger table.
    """
    while True:
        taken = split_words(data, starts, stops, state, seed, factor, scratch)
        if taken == 0:
            state[_ROW] = 0
            return True
        counted = tally_words(data, scratch, taken, state, index, entries, heap)
        if counted < taken:
            state[_ROW] = np.int64(scratch[5][counted])
            state[_POSITION] = np.int64(scratch[4][counted])
            return False


@njit(cache=True, nogil=True)
def index_entries(index, entries, used, heap, seed, factor):  # type: ignore[no-untyped-def]
    """Enter entries 1 to ``used`` into an empty ``index``."""
    mask = np.uint64(len(index) - 1)
    for number in range(1, used + 1):
        place = entries[number * _FIELDS + _PLACE]
        start = np.int64(place >> _S32)
        h = secret_bytes(heap, start, start + np.int64(place & _LOW32), seed, factor)
        slot = h & mask
        while index[slot] != _NONE:
            slot = (slot + _ONE) & mask
        index[slot] = (h & ~_LOW32) | np.uint64(number)


@njit(cache=True, nogil=True)
def fold_case(data, out):  # type: ignore[no-untyped-def]
    """Copy bytes with ASCII A-Z made lower case."""
    for i in range(len(data)):
        byte = data[i]
        out[i] = byte | np.uint8(32) if np.uint8(byte - np.uint8(65)) < np.uint8(26) else byte


class WordCounter:
    """Counts words over many Arrow arrays.

    ``items`` is the number of words counted in the counter's whole life. The table takes 50 to 100 bytes per
    distinct word beyond the words' bytes. With ``lower`` the ASCII letters A-Z count as a-z.

    >>> counter = WordCounter()
    >>> counter.count(pa.array(["to be or", "not to be"]))
    >>> counter.finish().to_pylist()[0]
    {'word': b'to', 'count': 2}
    """

    def __init__(self, *, lower: bool = False, room: int = 32_768) -> None:
        self._lower = lower
        self._secret = Secret.of(new_secret())
        slots = 1 << (max(8, room) * _SLOTS_PER_ENTRY - 1).bit_length()
        self._index = np.zeros(slots, np.uint64)
        self._entries = np.empty((slots // _SLOTS_PER_ENTRY + 1) * _FIELDS, np.uint64)
        self._heap = np.empty(slots * 4, np.uint8)
        self._scratch = tuple(np.empty(_ROUND, np.uint64) for _ in range(6))
        self._state = np.zeros(5, np.int64)

    @property
    def items(self) -> int:
        return int(self._state[_WORDS])

    @property
    def distinct(self) -> int:
        """Number of different words since the last ``finish``."""
        return int(self._state[_ENTRIES])

    def count(self, array: pa.Array | pa.ChunkedArray) -> None:
        """Add the words of a string or binary array of any width. A null row has no words.

        Raises InputError if the distinct words since the last ``finish`` outgrow 2 GiB, the most one Arrow
        binary array holds; call ``finish`` more often then.
        """
        array = as_array(array)
        if len(array) == 0:
            return
        offsets, data = byte_buffers(array)
        offsets = offsets.astype(np.int64)
        starts, stops = offsets[:-1], offsets[1:]
        if array.null_count:
            stops = np.where(array.is_valid().to_numpy(zero_copy_only=False), stops, starts)
        if self._lower:
            first, last = int(offsets[0]), int(offsets[-1])
            folded = np.empty(last - first, np.uint8)
            fold_case(data[first:last], folded)
            data, starts, stops = read_only(folded), starts - first, stops - first
        table = (self._index, self._entries, self._heap)
        while not count_words(data, starts, stops, self._state, *self._secret, self._scratch, *table):
            row, position = int(self._state[_ROW]), int(self._state[_POSITION])
            self._grow(end_of_word(data, position, int(stops[row])) - position)
            table = (self._index, self._entries, self._heap)

    def finish(self) -> pa.RecordBatch:
        """Words with counts, in order of first sight; empties the table."""
        used = self.distinct
        entries = self._entries[_FIELDS : (used + 1) * _FIELDS].reshape(used, _FIELDS)
        offsets = np.empty(used + 1, np.int32)
        offsets[:-1] = entries[:, _PLACE] >> _S32
        offsets[-1] = self._state[_HEAP]
        heap = self._heap[: int(self._state[_HEAP])].copy()
        words = pa.Array.from_buffers(pa.binary(), used, [None, pa.py_buffer(offsets), pa.py_buffer(heap)])
        counts = pa.array(entries[:, _COUNT].astype(np.int64))
        self._index.fill(0)
        self._state[_ENTRIES] = self._state[_HEAP] = 0
        return pa.record_batch([words, counts], schema=SCHEMA)

    def _grow(self, length: int) -> None:
        """Make room for one more word of ``length`` bytes."""
        used, filled = self.distinct, int(self._state[_HEAP])
        if filled + length > _MAX_HEAP:
            self._state[_ROW] = self._state[_POSITION] = 0
            raise InputError(
                "More than 2 GiB of distinct words came in one batch.",
                remedy="Is the input text? If so, take less input per batch.",
                path=None,
            )
        if filled + length > len(self._heap):
            heap = np.empty(min(_MAX_HEAP, max(2 * len(self._heap), filled + length)), np.uint8)
            heap[:filled] = self._heap[:filled]
            self._heap = heap
        if used >= len(self._index) // _SLOTS_PER_ENTRY:
            slots = 4 * len(self._index)
            entries = np.empty((slots // _SLOTS_PER_ENTRY + 1) * _FIELDS, np.uint64)
            entries[: (used + 1) * _FIELDS] = self._entries[: (used + 1) * _FIELDS]
            self._entries = entries
            self._index = np.zeros(slots, np.uint64)
            index_entries(self._index, entries, used, self._heap, *self._secret)
