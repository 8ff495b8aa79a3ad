"""Zero-copy access to the buffers of Arrow arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from afspark.errors import UsageError

Array = np.ndarray[Any, Any]


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values of this type are byte strings when used as keys (text counts as its UTF-8 bytes)."""
    return bool(
        pat.is_string(kind)
        or pat.is_binary(kind)
        or pat.is_large_string(kind)
        or pat.is_large_binary(kind)
        or pat.is_string_view(kind)
        or pat.is_binary_view(kind)
        or pat.is_fixed_size_binary(kind)
    )


def byte_buffers(array: pa.Array) -> tuple[Array, Array]:
    """Offsets (length + 1, int32 or int64) and data bytes of a string or binary array.

    Slices are honoured: ``data[offsets[i]:offsets[i + 1]]`` is element i. The results borrow the array's
    memory and are read-only, except for views and fixed-size binary, which are converted first.
    """
    kind = array.type
    if not is_bytes(kind):
        raise UsageError(f"Expected string or binary values, got {kind}.", got=str(kind))
    if pat.is_string_view(kind) or pat.is_binary_view(kind) or pat.is_fixed_size_binary(kind):
        array = array.cast(pa.large_binary())
        kind = array.type
    width: type[np.signedinteger[Any]] = np.int32
    if pat.is_large_string(kind) or pat.is_large_binary(kind):
        width = np.int64
    _, offsets, data = array.buffers()
    if len(array) == 0:
        return read_only(np.zeros(1, width)), read_only(np.zeros(0, np.uint8))
    starts = np.frombuffer(offsets, dtype=width)[array.offset : array.offset + len(array) + 1]
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    return read_only(starts), read_only(content)


def read_only(values: Array) -> Array:
    """The same array; whoever owns its memory, kernels are then compiled for one kind of array only."""
    values.flags.writeable = False
    return values


def as_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One plain array: chunks joined, dictionaries and extension types unwrapped."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pat.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column
