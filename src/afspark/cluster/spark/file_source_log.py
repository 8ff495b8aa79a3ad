"""Which files belonged to a batch of Spark's own file source, by the log that it keeps in the checkpoint. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

#: The only field of the file source's offsets.
LOG_OFFSET = "logOffset"


def file_range(before: Any, after: Any) -> range:
    """The entries of the log that a batch has read, by the source's offsets before and after it; none for others."""
    if not isinstance(after, dict) or set(after) != {LOG_OFFSET}:
        return range(0)
    first = before[LOG_OFFSET] if isinstance(before, dict) and LOG_OFFSET in before else -1
    return range(first + 1, after[LOG_OFFSET] + 1)


def paths_between(logs: Iterable[bytes], wanted: Sequence[int]) -> list[str]:
    """The paths, as URIs, of the wanted entries in the files of the log. Compacted files repeat what others have.

    >>> paths_between([b'v1\\n{"path":"file:///a","timestamp":1,"batchId":3}'], range(3, 4))
    ['file:///a']
    """
    found: set[str] = set()
    for log in logs:
        # The first line is the version of the format.
        for line in log.splitlines()[1:]:
            entry = json.loads(line)
            if entry["batchId"] in wanted:
                found.add(entry["path"])
    return sorted(found)
