"""Batches of a DataFrame that were committed, and have to be read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from afspark.numbers import Batch


@dataclass(frozen=True)
class RemadeFrame:
    """A batch of a DataFrame, made again; ``frame`` is None if that is impossible.

    ``gone`` names what of its input is not there any more.
    """

    frame: Any
    gone: Sequence[str] = ()


class PastFrames(Protocol):
    """Makes batches of a DataFrame again that an earlier driver has run."""

    def remake(self, batch: Batch) -> RemadeFrame: ...
