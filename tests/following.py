"""A tolerance whose workers have secondaries that follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from afspark.policies import BarrierSnapshot


@dataclass(frozen=True)
class Following(BarrierSnapshot):
    """Barriers, and a second copy that follows between them."""

    has_secondaries: ClassVar[bool] = True
