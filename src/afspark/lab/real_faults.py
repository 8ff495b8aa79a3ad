"""Real faults: processes are killed, hosts are lost or stop for a while, the backup store is slow or away.

They befall a query in the one-process cluster, with real backups, records and recoveries, and are not emulated by an
injector: what is seen is what the policies of a pipeline let through.
"""

from __future__ import annotations

import threading
from abc import ABC
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from afspark.lab.trial_query import TrialQuery
from afspark.protocol.fault_plan import FaultPhase

#: On how many hosts a pipeline runs that real faults strike: a second copy lives on another one.
HOSTS = 2

FROZEN_BATCHES = 2
AWAY_SECONDS = 0.5
SLOW_SECONDS = 0.02


@dataclass(frozen=True)
class RealFault(ABC):
    """What happens to a query at the beginning of a batch."""

    kind: ClassVar[str]
    #: how many batches it lasts
    batches: ClassVar[int] = 1

    @contextmanager
    def striking(self, query: TrialQuery) -> Iterator[None]:
        """While this is entered, the query suffers the fault."""
        yield


class NoFault(RealFault):
    """Nothing happens."""

    kind = "none"
    batches = 0


@dataclass(frozen=True)
class OperatorFault(RealFault):
    """One that befalls the workers of an operator."""

    operator: str


class ProcessKilled(OperatorFault):
    """The process of the operator's first worker is killed while it applies a batch; its state stays on the host."""

    kind = "process killed"

    @contextmanager
    def striking(self, query: TrialQuery) -> Iterator[None]:
        query.kill_worker(self.operator, 0, FaultPhase.APPLYING)
        yield


class WorkersLost(OperatorFault):
    """All processes of the operator are killed while they apply a batch, and their states are lost."""

    kind = "workers lost"

    @contextmanager
    def striking(self, query: TrialQuery) -> Iterator[None]:
        for worker in range(len(query.homes(self.operator))):
            query.kill_worker(self.operator, worker, FaultPhase.APPLYING, lose_state=True)
        yield


class HostLost(OperatorFault):
    """The host of the operator's first worker is lost, with all that lives on it."""

    kind = "host lost"

    @contextmanager
    def striking(self, query: TrialQuery) -> Iterator[None]:
        query.lose_host(query.homes(self.operator)[0])
        yield


class HostFrozen(OperatorFault):
    """The host of the operator's first worker does not answer for some batches, and then goes on as it was."""

    kind = "host frozen"
    batches = FROZEN_BATCHES

    @contextmanager
    def striking(self, query: TrialQuery) -> Iterator[None]:
        host = query.homes(self.operator)[0]
        query.freeze_host(host)
        yield
        query.thaw_host(host)


class StoreSlow(RealFault):
    """Every request to the backup store takes longer, for some batches."""

    kind = "store slow"
    batches = 2

    @contextmanager
    def striking(self, query: TrialQuery) -> Iterator[None]:
        with query.slow_store(SLOW_SECONDS):
            yield


class StoreGone(RealFault):
    """The backup store is not there for a while, and then comes back."""

    kind = "store away"

    @contextmanager
    def striking(self, query: TrialQuery) -> Iterator[None]:
        back = query.take_store_away()
        timer = threading.Timer(AWAY_SECONDS, back)
        timer.start()
        try:
            yield
        finally:
            timer.join()


OPERATOR_FAULTS: tuple[Callable[[str], OperatorFault], ...] = (ProcessKilled, WorkersLost, HostLost, HostFrozen)
STORE_FAULTS: tuple[Callable[[], RealFault], ...] = (StoreSlow, StoreGone)
