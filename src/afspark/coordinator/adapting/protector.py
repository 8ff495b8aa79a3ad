"""The seam between the controller and the engine: what protects the workers of an operator, and what should."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from afspark.control import InForce, Protection, protection_under
from afspark.coordinator.operator_run import OperatorRun


class Protector(Protocol):
    """Protects the workers of one operator."""

    def protections(self) -> Mapping[int, InForce]:
        """What protects each worker now."""

    def protect(self, worker: int, protection: Protection, interval: float | None) -> None:
        """``protection`` with a checkpoint every ``interval`` seconds is wanted from now on. It is carried out by
        transitions at the next barriers; to say it twice changes nothing.
        """


class FixedProtection:
    """What the tolerance of an operator says, and nothing else."""

    def __init__(self, run: OperatorRun) -> None:
        self._run = run

    def protections(self) -> Mapping[int, InForce]:
        tolerance = self._run.node.tolerance
        interval = getattr(tolerance, "interval", None)
        found = InForce(protection=protection_under(tolerance), interval=interval, since=0.0)
        return {member.worker: found for member in self._run.group.members}

    def protect(self, worker: int, protection: Protection, interval: float | None) -> None:
        """Nothing: a tolerance that is fixed stays."""


def protector_of(run: OperatorRun) -> Protector:
    """The run itself, if its workers can change their schemes; otherwise what its tolerance says."""
    return run if run.group.secondaries.can_have_some else FixedProtection(run)
