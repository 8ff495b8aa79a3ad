"""Which worker reads which chunks of a batch."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from afspark.sources.chunks import Chunk


def share(chunks: Sequence[Chunk], workers: int) -> list[list[Chunk]]:
    """Split ``chunks`` into one list per worker, balanced by bytes, in source order inside each list.

    Deterministic: the same arguments give the same split in every process. The heaviest chunks are placed
    first, each on the worker with the least so far, so two shares differ by at most one chunk's bytes.

    >>> [[c.bytes for c in s] for s in share([Chunk(bytes=b) for b in (3, 9, 5, 2)], 2)]
    [[9], [3, 5, 2]]
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    placed: list[list[int]] = [[] for _ in range(workers)]
    loads = [(0, worker) for worker in range(workers)]
    for at in sorted(range(len(chunks)), key=lambda i: (-chunks[i].bytes, i)):
        load, worker = loads[0]
        placed[worker].append(at)
        heapq.heapreplace(loads, (load + chunks[at].bytes, worker))
    return [[chunks[at] for at in sorted(indices)] for indices in placed]
