"""Checkpoints of queries that were given none, and what is done with their resident state."""

from __future__ import annotations

import atexit
import logging
import tempfile

from afspark.api.query import Query
from afspark.resident.segment_root import remove_states

logger = logging.getLogger(__name__)

#: Those of this process.
_made: set[str] = set()


def new_temporary() -> str:
    """A folder for a query that was given none; a warning says where it is."""
    checkpoint = tempfile.mkdtemp(prefix="afspark-checkpoint-")
    _made.add(checkpoint)
    logger.warning(
        "No checkpointLocation is given: the checkpoint is %s, and only a query with"
        " option('checkpointLocation', %r) can go on from it.",
        checkpoint,
        checkpoint,
    )
    return checkpoint


def is_temporary(checkpoint: str) -> bool:
    """Whether nobody has named this checkpoint."""
    return checkpoint in _made


def remove_at_exit(query: Query, segments: str | None, query_id: str) -> None:
    """When this process ends, nothing of the query stays in the memory of this machine, if it has ended well: then its
    checkpoint has all of it.
    """

    def remove() -> None:
        if query.ended_well:
            remove_states(segments, query_id)

    atexit.register(remove)
