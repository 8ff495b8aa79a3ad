"""The replicas of a worker's state: a primary, and at most one secondary, which lives on another host."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, order=True)
class ReplicaId:
    """Which replica of which worker; requests and reports are matched by it."""

    worker: int
    index: int = 0


class ReplicaRole(Enum):
    """What a replica is for."""

    PRIMARY = "primary"  # applies batches, backs up, and is what results are read from
    SECONDARY = "secondary"  # follows the primary on another host, and takes its place if that is lost


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One copy of a worker's state, and the host that it lives on ("" before it has got one)."""

    worker: int
    index: int = 0
    role: ReplicaRole = ReplicaRole.PRIMARY
    home: str

    @property
    def id(self) -> ReplicaId:
        return ReplicaId(self.worker, self.index)

    @property
    def is_primary(self) -> bool:
        return self.role is ReplicaRole.PRIMARY
