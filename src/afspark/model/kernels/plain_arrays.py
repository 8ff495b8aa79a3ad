"""Plain arrays, as kernels take them, from Arrow arrays and from whatever users pass to states.

Nothing is copied that has the right form already.
"""

from __future__ import annotations

import reprlib
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


def plain(what: str, given: Any) -> Array:
    """A numpy array of numbers from an Arrow array, a numpy array, a list or a scalar; nulls are an error."""
    if isinstance(given, pa.ChunkedArray | pa.Array):
        array = as_array(given)
        refuse_nulls(what, array)
        if not (pat.is_integer(array.type) or pat.is_floating(array.type) or pat.is_boolean(array.type)):
            raise UsageError(f"{what} of type {array.type} are not numbers.", got=str(array.type))
        result: Array = array.to_numpy(zero_copy_only=False)
        return result
    return np.asarray(given)


def refuse_nulls(what: str, array: pa.Array) -> None:
    if array.null_count:
        keys = what == "Keys"
        raise UsageError(
            f"{what} hold {array.null_count} null{'s' if array.null_count != 1 else ''}.",
            remedy=f"Drop or fill them first{', or declare the state with null_key=True' if keys else ''}.",
            nulls=array.null_count,
            keys=keys,
        )


def converted(what: str, array: Array, dtype: np.dtype[Any]) -> Array:
    """The same numbers in another type; ``UsageError`` if that could change them (floats to integers, uint64
    too large).
    """
    if array.dtype == dtype:
        return np.ascontiguousarray(array)
    if dtype.kind == "i":
        if array.size == 0:
            return np.zeros(array.shape, dtype)
        if array.dtype.kind not in "iub" or (array.dtype == np.uint64 and int(array.max()) >= 2**63):
            raise UsageError(
                f"{what} must fit int64, got {array.dtype}.", remedy="Cast them first.", got=str(array.dtype)
            )
    elif array.dtype.kind not in "iubf" or array.dtype.itemsize > 8:
        raise UsageError(f"{what} must be numbers, got {array.dtype}.", got=str(array.dtype))
    return np.ascontiguousarray(array, dtype)


def as_values(given: Any, dtype: np.dtype[Any], length: int) -> tuple[Array, int]:
    """Values for ``length`` cells and the step between them: 1, or 0 if one value serves all."""
    array = plain("Values", given)
    if array.ndim == 0:
        return converted("Values", array.reshape(1), dtype), 0
    array = converted("Values", array, dtype)
    if array.shape != (length,):
        raise UsageError(
            f"{length} cells need {length} values or one, got shape {array.shape}.",
            expected=length,
            got=array.shape,
        )
    return array, 1


def as_integer_keys(given: Any) -> Array:
    """Keys as contiguous int64."""
    array = plain("Keys", given)
    if array.ndim != 1:
        raise UsageError(f"Keys are a one-dimensional array, got shape {array.shape}.", got=array.shape)
    return converted("Keys", array, np.dtype(np.int64))


def as_byte_keys(given: Any) -> pa.Array:
    """Keys as a string or binary Arrow array without nulls."""
    if isinstance(given, str | bytes | pa.Scalar):
        # A text has a length too, and its letters would pass for keys.
        raise UsageError(
            f"Keys are a column, not {reprlib.repr(given)} alone.", remedy="Give a list, an Arrow or a numpy array."
        )
    if not isinstance(given, pa.ChunkedArray | pa.Array):
        try:
            given = pa.array(given, pa.binary() if len(given) == 0 else None)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as problem:
            raise UsageError(f"Keys must be strings or bytes: {problem}.", got=type(given).__name__) from problem
    array = as_array(given)
    refuse_nulls("Keys", array)
    if not is_bytes(array.type):
        raise UsageError(
            f"Keys must be strings or binary, got {array.type}.",
            remedy="Use key='int64' for integers.",
            got=str(array.type),
        )
    return array


def as_cells(given: Any) -> Array:
    """Flat cell numbers as a contiguous array; range is checked by the caller."""
    array = plain("Cell indices", given)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise UsageError(
            f"Cell indices are a one-dimensional array of integers, got {array.dtype}, shape {array.shape}.",
            got=str(array.dtype),
        )
    if array.dtype not in (np.dtype(np.int64), np.dtype(np.int32), np.dtype(np.uint32)):
        return converted("Cell indices", array, np.dtype(np.int64))
    return np.ascontiguousarray(array)
