"""Memory access that Python has no words for: unaligned eight-byte loads from byte arrays, and prefetching."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

if sys.byteorder != "little":
    raise ImportError("afspark needs a little-endian machine: hashes and backups are defined on little-endian words")


@intrinsic
def load64(typing_context: Any, data: Any, position: Any) -> Any:
    """``data[position:position + 8]`` as a little-endian uint64.

    ``data`` is a contiguous uint8 array. Nothing is checked: the caller owns the bounds.
    """
    signature = types.uint64(data, types.int64)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = cgutils.gep_inbounds(builder, array.data, arguments[1])
        word = ir.IntType(64)
        return builder.load(builder.bitcast(address, word.as_pointer()), align=1)

    return signature, codegen


@intrinsic
def prefetch(typing_context: Any, data: Any, position: Any) -> Any:
    """Ask for the cache line of ``data[position]`` (contiguous array); a hint that needs no bounds."""
    signature = types.void(data, types.int64)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(builder.gep(array.data, [arguments[1]]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(function, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return signature, codegen


@njit(cache=True, nogil=True, inline="always")
def load_tail(data, stop, count):  # type: ignore[no-untyped-def]
    """The last ``count`` (1..7) bytes before ``stop``, zero-padded to a little-endian uint64."""
    if stop >= 8:
        # Reading backwards stays inside the array whatever follows it.
        return load64(data, stop - 8) >> np.uint64(64 - 8 * count)
    word = np.uint64(0)
    for i in range(count):
        word |= np.uint64(data[stop - count + i]) << np.uint64(8 * i)
    return word


@njit(cache=True, nogil=True, inline="always")
def equal_bytes(left, left_start, right, right_start, length):  # type: ignore[no-untyped-def]
    """Whether two byte ranges of the same length hold the same bytes."""
    words = length >> 3
    for i in range(words):
        if load64(left, left_start + 8 * i) != load64(right, right_start + 8 * i):
            return False
    rest = length & 7
    if rest == 0:
        return True
    return load_tail(left, left_start + length, rest) == load_tail(right, right_start + length, rest)
