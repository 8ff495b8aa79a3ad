"""The stable hash of keys, and the secret one of tables.

Values of the stable hash are part of the contract between processes and with stored backups: they never depend on
the machine, the run, or the width of the Arrow type (int32 5 and int64 5 hash alike). Golden tests fix them.

A byte string is read as little-endian 64-bit words, the last one padded with zeros; the length enters the
seed, so padding is unambiguous. Every word is folded in by a bijection, and the result is finalised so that
all output bits depend on all input bits. It does not resist an adversary: whoever sends keys can make them all alike.

Open-addressing tables therefore place keys by a hash under a secret of their own (`new_secret`), so that no choice of
keys makes their probe paths long. There every word is mixed fully, because a difference must not pass through with
certainty, and the slot is the upper part of a product with a secret odd number.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from numba import njit

from afspark.errors import UsageError
from afspark.model.kernels.memory import load64, load_tail
from afspark.model.kernels.plain_arrays import Array, as_array, byte_buffers, is_bytes, read_only

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)
NULL_HASH = np.uint64(0x6C62272E07BB0142)
"""The hash of a null in any column."""

_S27, _S30, _S31, _S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)


@njit(cache=True, nogil=True, inline="always")
def mix(h):  # type: ignore[no-untyped-def]
    """Bijection on 64 bits in which every output bit depends on every input bit."""
    h ^= h >> _S30
    h *= FIRST
    h ^= h >> _S27
    h *= SECOND
    return h ^ (h >> _S31)


@njit(cache=True, nogil=True)
def hash_bytes(data, start, stop):  # type: ignore[no-untyped-def]
    """Hash of ``data[start:stop]`` (contiguous uint8, 0 <= start <= stop <= len, unchecked) as uint64."""
    start = np.int64(start)
    stop = np.int64(stop)
    length = stop - start
    h = GOLDEN ^ (np.uint64(length) * FIRST)
    position = start
    while position + 8 <= stop:
        h = (h ^ load64(data, position)) * GOLDEN
        h ^= h >> _S32
        position += 8
    if position < stop:
        h = (h ^ load_tail(data, stop, stop - position)) * GOLDEN
        h ^= h >> _S32
    return mix(h)


@njit(cache=True, nogil=True, inline="always")
def hash_int64(x):  # type: ignore[no-untyped-def]
    """Hash of one integer as uint64. Narrower integers hash as the int64 of the same value."""
    return mix(np.uint64(x) + GOLDEN)


@njit(cache=True, nogil=True, inline="always")
def secret_int64(x, seed):  # type: ignore[no-untyped-def]
    """Hash of one integer under a secret."""
    return mix(np.uint64(x) ^ seed)


@njit(cache=True, nogil=True)
def secret_bytes(data, start, stop, seed, factor):  # type: ignore[no-untyped-def]
    """Hash of ``data[start:stop]`` (as for `hash_bytes`) under a secret."""
    start = np.int64(start)
    stop = np.int64(stop)
    h = seed ^ (np.uint64(stop - start) * factor)
    position = start
    while position + 8 <= stop:
        h = mix(h ^ load64(data, position))
        position += 8
    if position < stop:
        h = mix(h ^ load_tail(data, stop, stop - position))
    return h


@njit(cache=True, nogil=True)
def hash_spans(offsets, data, out):  # type: ignore[no-untyped-def]
    """``out[i] = hash_bytes(data, offsets[i], offsets[i + 1])``."""
    for i in range(len(out)):
        out[i] = hash_bytes(data, offsets[i], offsets[i + 1])


@njit(cache=True, nogil=True)
def hash_integers(values, out):  # type: ignore[no-untyped-def]
    """``out[i] = hash_int64(values[i])`` for an int64 array."""
    for i in range(len(out)):
        out[i] = hash_int64(values[i])


@njit(cache=True, nogil=True)
def combine_hashes(left, right):  # type: ignore[no-untyped-def]
    """Folds the hash of a further column into ``left``, in place. Order matters."""
    for i in range(len(left)):
        left[i] = mix(left[i] * GOLDEN + right[i])


class Secret(NamedTuple):
    """What a table's hashes depend on: a number, and an odd factor made from it."""

    seed: np.uint64
    factor: np.uint64

    @classmethod
    def of(cls, number: int) -> Secret:
        seed = np.uint64(number & (2**64 - 1))
        with np.errstate(over="ignore"):
            return cls(seed, np.uint64(mix(seed + GOLDEN)) | np.uint64(1))


def new_secret() -> int:
    """A number that nobody can guess, never 0, for `Secret.of`; it fits int64."""
    return secrets.randbelow(2**63 - 1) + 1


def hash_strings(array: pa.Array) -> Array:
    """uint64 hash of each element of a string or binary array (offsets and slices honoured); null:
    ``NULL_HASH``.
    """
    array = as_array(array)
    offsets, data = byte_buffers(array)
    out = np.empty(len(array), np.uint64)
    hash_spans(offsets, data, out)
    return _with_nulls(array, out)


def hash_columns(batch: pa.RecordBatch, names: Sequence[str]) -> Array:
    """uint64 hash of the tuple of the named columns of each row.

    Integers, floats, booleans, dates, times, durations, strings and binary are accepted, null is a value of
    its own. 0.0 and -0.0 hash alike, and so do all NaNs. Times hash as their count of the column's unit. With
    one name the result equals ``hash_strings`` or ``hash_int64`` of the column.
    """
    if not names:
        raise UsageError("A hash needs at least one column.", remedy="Name the key columns.")
    result = _hash_column(batch, names[0])
    for name in names[1:]:
        combine_hashes(result, _hash_column(batch, name))
    return result


def column_words(batch: pa.RecordBatch, name: str) -> Array:
    """uint64 word for each value: the integer that `hash_columns` hashes, or a text's hash; null: ``NULL_HASH``."""
    column = as_array(batch.column(name))
    if is_bytes(column.type):
        return read_only(hash_strings(column))
    words: Array = _integers(column, name).view(np.uint64)
    return read_only(_with_nulls(column, words.copy() if column.null_count else words))


def owners_of(hashes: Array, workers: int) -> Array:
    """The worker that owns each key of these hashes, where items are partitioned by key."""
    return (hashes >> _S32) % np.uint64(workers)


def _hash_column(batch: pa.RecordBatch, name: str) -> Array:
    if batch.schema.get_field_index(name) < 0:
        raise UsageError(
            f"There is no single column {name!r} to hash; the batch has {batch.schema.names}.",
            column=name,
            columns=list(batch.schema.names),
        )
    column = as_array(batch.column(name))
    if is_bytes(column.type):
        return hash_strings(column)
    out = np.empty(len(column), np.uint64)
    hash_integers(read_only(_integers(column, name)), out)
    return _with_nulls(column, out)


def _integers(column: pa.Array, name: str) -> Array:
    """The column as int64, nulls as anything."""
    kind = column.type
    if pat.is_int64(kind):
        return _plain(column, 0)
    if pat.is_null(kind):
        return np.zeros(len(column), np.int64)
    if pat.is_floating(kind):
        floats = _plain(column.cast(pa.float64()), 0.0) + 0.0
        floats[np.isnan(floats)] = np.nan
        return floats.view(np.int64)
    if pat.is_uint64(kind):
        return _plain(column, 0).view(np.int64)
    if pat.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pat.is_date32(kind) or pat.is_time32(kind):
        column = column.view(pa.int32())
    elif pat.is_date64(kind) or pat.is_time64(kind) or pat.is_timestamp(kind) or pat.is_duration(kind):
        column = column.view(pa.int64())
    elif not pat.is_integer(kind):
        raise UsageError(
            f"Column {name!r} of type {kind} cannot be a key.",
            remedy="Use integers, floats, booleans, dates, times, strings or binary.",
            column=name,
            got=str(kind),
        )
    return _plain(column.cast(pa.int64()), 0)


def _plain(column: pa.Array, filler: float) -> Array:
    if column.null_count:
        column = column.fill_null(filler)
    result: Array = column.to_numpy(zero_copy_only=False)
    return result


def _with_nulls(column: pa.Array, out: Array) -> Array:
    if column.null_count:
        out[column.is_null().to_numpy(zero_copy_only=False)] = NULL_HASH
    return out
