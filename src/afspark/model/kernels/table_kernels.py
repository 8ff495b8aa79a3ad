"""Kernels of the hash table: an open-addressing index of entry numbers over dense arrays of keys.

``index[slot]`` is an entry number plus one, 0 if empty. Entries are inserted in ascending order at the first
empty slot of their probe path, also when the index is rebuilt; so a later entry never lies on the path of an
earlier one, and erasing the latest entries leaves the others reachable. ``seed`` and ``factor`` are the table's
`hashing.Secret`; hashes of byte strings are made with it beforehand (`secret_spans`).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from afspark.model.kernels.hashing import hash_bytes, secret_bytes, secret_int64
from afspark.model.kernels.memory import equal_bytes

ABSENT = np.uint32(0xFFFFFFFF)
"""Entry number of a key that is not in the table."""


@njit(cache=True, nogil=True, inline="always")
def first_slot(h, factor, shift):  # type: ignore[no-untyped-def]
    """Where the probe path of a hash starts: under a secret odd ``factor`` nobody knows which hashes are neighbours."""
    return (h * factor) >> shift


@njit(cache=True, nogil=True)
def locate_integers(keys, start, index, seed, factor, shift, entry_keys, entries, most, ids):  # type: ignore[no-untyped-def]
    """Entry numbers of ``keys[start:]`` into ``ids``, inserting absent keys while there are fewer than
    ``most`` entries.

    Returns the position of the first key that found no room (``len(keys)`` if all did), and the number of
    entries.
    """
    mask = np.uint64(len(index) - 1)
    for i in range(start, len(keys)):
        key = keys[i]
        slot = first_slot(secret_int64(key, seed), factor, shift)
        while True:
            found = index[slot]
            if found == 0:
                if entries >= most:
                    return i, entries
                entry_keys[entries] = key
                ids[i] = entries
                entries += 1
                index[slot] = entries
                break
            if entry_keys[found - np.uint32(1)] == key:
                ids[i] = found - np.uint32(1)
                break
            slot = (slot + np.uint64(1)) & mask
    return len(keys), entries


@njit(cache=True, nogil=True)
def find_integers(keys, index, seed, factor, shift, entry_keys, ids):  # type: ignore[no-untyped-def]
    """Entry numbers of the keys into ``ids``, ``ABSENT`` where there is none."""
    mask = np.uint64(len(index) - 1)
    for i in range(len(keys)):
        slot = first_slot(secret_int64(keys[i], seed), factor, shift)
        ids[i] = ABSENT
        while index[slot] != 0:
            entry = index[slot] - np.uint32(1)
            if entry_keys[entry] == keys[i]:
                ids[i] = entry
                break
            slot = (slot + np.uint64(1)) & mask


@njit(cache=True, nogil=True)
def secret_spans(offsets, data, seed, factor, out):  # type: ignore[no-untyped-def]
    """``out[i] = secret_bytes(data, offsets[i], offsets[i + 1], seed, factor)``."""
    for i in range(len(out)):
        out[i] = secret_bytes(data, offsets[i], offsets[i + 1], seed, factor)


@njit(cache=True, nogil=True)
def locate_bytes(  # type: ignore[no-untyped-def]
    offsets, data, hashes, start, index, factor, shift, entry_hashes, entry_offsets, heap, entries, most, ids
):
    """As ``locate_integers`` for byte strings, which also need room for their bytes in ``heap``."""
    mask = np.uint64(len(index) - 1)
    for i in range(start, len(hashes)):
        h = hashes[i]
        begin = np.int64(offsets[i])
        length = np.int64(offsets[i + 1]) - begin
        slot = first_slot(h, factor, shift)
        while True:
            found = index[slot]
            if found == 0:
                at = np.int64(entry_offsets[entries])
                if entries >= most or at + length > len(heap):
                    return i, entries
                for k in range(length):
                    heap[at + k] = data[begin + k]
                entry_hashes[entries] = h
                entry_offsets[entries + 1] = at + length
                ids[i] = entries
                entries += 1
                index[slot] = entries
                break
            entry = found - np.uint32(1)
            if entry_hashes[entry] == h:
                at = np.int64(entry_offsets[entry])
                if np.int64(entry_offsets[found]) - at == length and equal_bytes(heap, at, data, begin, length):
                    ids[i] = entry
                    break
            slot = (slot + np.uint64(1)) & mask
    return len(hashes), entries


@njit(cache=True, nogil=True)
def find_bytes(  # type: ignore[no-untyped-def]
    offsets, data, hashes, index, factor, shift, entry_hashes, entry_offsets, heap, ids
):
    """Entry numbers of byte strings into ``ids``, ``ABSENT`` where there is none."""
    mask = np.uint64(len(index) - 1)
    for i in range(len(hashes)):
        begin = np.int64(offsets[i])
        length = np.int64(offsets[i + 1]) - begin
        slot = first_slot(hashes[i], factor, shift)
        ids[i] = ABSENT
        while index[slot] != 0:
            entry = index[slot] - np.uint32(1)
            at = np.int64(entry_offsets[entry])
            if entry_hashes[entry] == hashes[i] and np.int64(entry_offsets[index[slot]]) - at == length:
                if equal_bytes(heap, at, data, begin, length):
                    ids[i] = entry
                    break
            slot = (slot + np.uint64(1)) & mask


@njit(cache=True, nogil=True)
def index_integers(entry_keys, entries, index, seed, factor, shift, without=-1):  # type: ignore[no-untyped-def]
    """Fills an empty index with the first ``entries`` entries, in their order; ``without`` one that has no key."""
    mask = np.uint64(len(index) - 1)
    for entry in range(entries):
        if entry == without:
            continue
        slot = first_slot(secret_int64(entry_keys[entry], seed), factor, shift)
        while index[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        index[slot] = entry + 1


@njit(cache=True, nogil=True)
def index_hashes(entry_hashes, entries, index, factor, shift, without=-1):  # type: ignore[no-untyped-def]
    """As ``index_integers``, from stored hashes."""
    mask = np.uint64(len(index) - 1)
    for entry in range(entries):
        if entry == without:
            continue
        slot = first_slot(entry_hashes[entry], factor, shift)
        while index[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        index[slot] = entry + 1


@njit(cache=True, nogil=True)
def erase_from(index, entries):  # type: ignore[no-untyped-def]
    """Empties the slots of entries with numbers >= ``entries``."""
    for slot in range(len(index)):
        if index[slot] > entries:
            index[slot] = 0


@njit(cache=True, nogil=True)
def gather_offsets(ids, entry_offsets, out):  # type: ignore[no-untyped-def]
    """Arrow offsets of the keys of some entries; returns their total length, which may be beyond int32."""
    total = np.int64(0)
    out[0] = 0
    for i in range(len(ids)):
        entry = np.int64(ids[i])
        total += np.int64(entry_offsets[entry + 1]) - np.int64(entry_offsets[entry])
        out[i + 1] = total
    return total


@njit(cache=True, nogil=True)
def gather_bytes(ids, entry_offsets, heap, offsets, out):  # type: ignore[no-untyped-def]
    """Copies the keys of some entries to the places that ``gather_offsets`` gave them."""
    for i in range(len(ids)):
        at = np.int64(entry_offsets[np.int64(ids[i])])
        begin = np.int64(offsets[i])
        for k in range(np.int64(offsets[i + 1]) - begin):
            out[begin + k] = heap[at + k]


@njit(cache=True, nogil=True)
def hash_entries(ids, entry_offsets, heap, out):  # type: ignore[no-untyped-def]
    """The stable hashes of the keys of some entries."""
    for i in range(len(out)):
        entry = np.int64(ids[i])
        out[i] = hash_bytes(heap, entry_offsets[entry], entry_offsets[entry + 1])


@njit(cache=True, nogil=True)
def values_or_zero(ids, values, out):  # type: ignore[no-untyped-def]
    """``out[i] = values[ids[i]]``, 0 for ``ABSENT``."""
    for i in range(len(ids)):
        out[i] = 0 if ids[i] == ABSENT else values[ids[i]]
