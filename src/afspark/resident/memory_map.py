"""Files as memory. `mmap.mmap` keeps a descriptor for each mapping; here none stays open, so panes may be many."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import weakref
from pathlib import Path

import numpy as np
import numpy.typing as npt

from afspark.errors import NoSpace

#: what is written is seen by all processes; all pages at once cost a fraction of one page fault each
SHARED = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
#: whatever is written stays in this process
PRIVATE = mmap.MAP_PRIVATE

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


def map_file(file: int, size: int, flags: int, path: str | Path) -> npt.NDArray[np.uint8]:
    """The first ``size`` bytes of an open file, mapped until the last array over them is gone.

    Raises `NoSpace` if the process may not map any more, else `OSError`. ``path`` only serves messages.
    """
    address = _LIBC.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, file, 0)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise _too_many(path, size) if number == errno.ENOMEM else OSError(number, os.strerror(number), str(path))
    memory = (ctypes.c_uint8 * size).from_address(address)
    # Arrays may be in use to the very end of the process, which unmaps them anyway.
    weakref.finalize(memory, _LIBC.munmap, address, size).atexit = False
    return np.frombuffer(memoryview(memory), np.uint8)


def _too_many(path: str | Path, size: int) -> NoSpace:
    # Nothing large is read or made here: the process may be unable to get any more memory.
    try:
        limit = int(Path("/proc/sys/vm/max_map_count").read_text())
    except OSError:
        limit = 0
    return NoSpace(
        f"{path} cannot be mapped: a process may have {limit} mappings (vm.max_map_count), and every pane needs some.",
        remedy="Raise that limit with sysctl, and the one of memory (ulimit -v) if there is one, or have fewer"
        " windows open at once.",
        path=str(path),
        wanted=size,
        limit=limit,
    )
