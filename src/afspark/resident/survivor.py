"""A worker's state that a driver finds on a host when it starts."""

from __future__ import annotations

from dataclasses import dataclass

from afspark.numbers import Batch, Incarnation


@dataclass(frozen=True, kw_only=True)
class Survivor:
    """One worker's state as it was found. ``directory``: where it lies, if it is in files."""

    operator: str
    worker: int
    workers: int
    fingerprint: str
    incarnation: Incarnation
    version: Batch
    marked: bool
    host: str
    directory: str
    #: what it has reported is kept of the batches after this one
    kept_from: Batch
    #: it follows a primary on another host
    secondary: bool = False
