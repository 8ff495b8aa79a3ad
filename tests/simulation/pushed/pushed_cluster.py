"""The cluster of a world with producers and receivers: backups take their time, and receivers are part of the world."""

from __future__ import annotations

from afspark.store import Store
from tests.simulation.cluster import SimulatedCluster, SimulatedEnvironment
from tests.simulation.pushed.wire import PushedClock, SlowWrite, simulated_environment
from tests.simulation.pushed.world import PushedWorld


class PushedEnvironment(SimulatedEnvironment):
    """Whoever waits lets others act."""

    clock = PushedClock()

    def start_write(self, store: Store, name: str, data: bytes) -> SlowWrite:
        return SlowWrite(store, name, data)


class PushedCluster(SimulatedCluster):
    """``receiver_environment``: receivers answer in the process of whoever calls."""

    def __init__(self, around: PushedWorld) -> None:
        super().__init__(around, PushedEnvironment())
        self.receiver_environment = simulated_environment()
