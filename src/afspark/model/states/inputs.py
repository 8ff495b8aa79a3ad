"""Checks and conversions of what users pass to states; nothing is copied that has the right form already."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from afspark.errors import UsageError
from afspark.model.kernels.arrow import as_array, is_bytes
from afspark.model.states.columns import Array


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
            f"{what} hold {array.null_count} nulls.",
            remedy=f"Drop or fill them first{', or declare the state with null_key=True' if keys else ''}.",
            nulls=array.null_count,
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
