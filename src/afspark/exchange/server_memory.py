"""How much of a model a server can hold."""

from __future__ import annotations

from pathlib import Path

#: The largest shard: what is sent at once has to stay below 2 GiB, 12 bytes a cell.
MOST_SHARD_CELLS = 2**27
#: Bytes a cell that a server takes: the model before and after a batch, the one that is merged into, what merging
#: notes of each cell, and an answer on its way.
CELL_BYTES = 56

_MEMORY = Path("/proc/meminfo")


def free_bytes(told: str | None = None) -> int | None:
    """What processes of this machine can still take without swapping; None where nobody says.

    >>> free_bytes("MemTotal: 9 kB\\nMemAvailable:   4 kB\\n")
    4096
    """
    if told is None:
        told = _MEMORY.read_text() if _MEMORY.exists() else ""
    for line in told.splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return 1024 * int(value.split()[0])
    return None


def shards_for(cells: int) -> int:
    """The least number of shards that a model of so many cells needs.

    >>> shards_for(1000), shards_for(2**27 + 1)
    (1, 2)
    """
    return -(-cells // MOST_SHARD_CELLS)
