"""Damage that was met when a state was restored, noted beside the state until its first batch is final.

The process that met it may die before it can report, and what it has applied may be taken back and applied again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from afspark.numbers import Batch
from afspark.resident.storage import StateStorage


def note_damage(storage: StateStorage, batch: Batch, damaged: Sequence[str]) -> None:
    storage.note(json.dumps({"batch": batch, "damaged": list(damaged)}))


def noted_damage(storage: StateStorage, batch: Batch | None = None) -> tuple[str, ...]:
    """What was noted for ``batch``; what belongs to an earlier one has been reported, and its record is written.

    Without a batch what was ever noted: no record covers what a secondary lacks.
    """
    noted = json.loads(storage.noted() or "{}")
    return tuple(noted["damaged"]) if noted and batch in (None, noted["batch"]) else ()
