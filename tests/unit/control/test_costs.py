"""What schemes take follows from what was measured of the primary."""

from __future__ import annotations

import pytest

from afspark.control import Protection, Quantity, Scheme, UnitHistory, Unreplicated, resources
from afspark.control.costs import RARELY, Resources
from afspark.policies import Costs
from tests.unit.control.measurements import NOW, history


def taken(protection: Protection, found: UnitHistory | None = None, interval: float | None = 4.0) -> Resources:
    return resources(protection, history() if found is None else found, now=NOW, interval=interval)


def shares(one: Resources) -> tuple[float, float, float, float]:
    return one.cpu, one.memory, one.network, one.hosts


@pytest.mark.parametrize("facts", [{}, {"sent": 5e6}, {"state": 1e5}, {"written": 0.0}, {"received": 0.0, "sent": 3.0}])
def test_active_replication_takes_as_much_again(facts: dict[str, float]) -> None:
    assert shares(taken(Scheme.ACTIVE_REPLICATION, history(**facts))) == pytest.approx((1.0, 1.0, 1.0, 1.0))


def test_active_standby_spares_what_it_does_not_send() -> None:
    plain = history(sent=1e7, written=0.0)
    assert shares(taken(Scheme.ACTIVE_STANDBY, plain)) == pytest.approx((1.0, 1.0, 0.5, 1.0))


def test_a_hot_standby_takes_network_and_memory_instead_of_cpu() -> None:
    """10 MB change in a second, and as much comes in: checkpoints are shipped and, rarely, stored; 40 MB are in the
    queue before the next one. The primary takes 20 MB/s, and 1 ns of CPU for each byte of a checkpoint.
    """
    found = taken(Scheme.HOT_STANDBY)
    assert found.network == pytest.approx((1e7 + 1e7 + 1e7) / 2e7)
    assert found.cpu == pytest.approx((0.01 + 2 * 0.01) / 0.51), "made twice, loaded once"
    assert found.memory == pytest.approx((2e9 + 4e7) / (2e9 + 1e7)) and found.hosts == 1.0


def test_a_cold_standby_has_no_queue_and_receives_nothing() -> None:
    hot, cold = taken(Scheme.HOT_STANDBY), taken(Scheme.COLD_STANDBY)
    assert cold.network == pytest.approx(hot.network - 0.5) and cold.cpu == hot.cpu
    assert cold.memory == pytest.approx(2e9 / 2.01e9)


def test_what_is_deployed_takes_a_place_and_its_static_data() -> None:
    found = taken(Scheme.DEPLOYED, history().add(Quantity.STATIC_SIZE, at=NOW, amount=2e9))
    assert shares(found) == pytest.approx((0.01 / 0.51, 2e9 / 4.01e9, 0.5, 1.0))


@pytest.mark.parametrize("protection", [Scheme.PASSIVE_REPLICATION, *Unreplicated])
def test_what_has_no_secondary_takes_its_checkpoints_alone(protection: Protection) -> None:
    assert shares(taken(protection)) == pytest.approx((0.01 / 0.51, 0.0, 0.5, 0.0))


def test_frequent_checkpoints_cost_more_and_rare_ones_hold_no_more_than_the_state() -> None:
    network = [taken(Scheme.PASSIVE_REPLICATION, interval=one).network for one in (0.5, 1.0, 2.0, 64.0)]
    assert network == pytest.approx([1.0, 0.5, 0.5, 0.5])
    rarely = 1e7 / RARELY
    assert taken(Scheme.PASSIVE_REPLICATION, history(state=1e7), RARELY).network == pytest.approx(
        rarely / (1e7 + rarely)
    )
    assert taken(Scheme.PASSIVE_REPLICATION, None, None).network == pytest.approx(0.5), "as often as there were any"


@pytest.mark.parametrize("written", [0.0, 5e-324, 1e7])
@pytest.mark.parametrize("protection", [*Scheme, *Unreplicated])
def test_an_idle_primary_makes_nothing_infinitely_dear(protection: Protection, written: float) -> None:
    idle = history(received=0.0, sent=0.0, cpu=1e-300, items=0.0, state=1e-300, written=written)
    assert max(shares(taken(protection, idle, 0.5))) < 1_000


@pytest.mark.parametrize("protection", [*Scheme, *Unreplicated])
def test_before_anything_is_measured_processing_and_places_count(protection: Protection) -> None:
    found = taken(protection, UnitHistory())
    active = protection in (Scheme.ACTIVE_REPLICATION, Scheme.ACTIVE_STANDBY)
    placed = isinstance(protection, Scheme) and protection is not Scheme.PASSIVE_REPLICATION
    assert found == Resources(cpu=float(active), hosts=float(placed))


def test_weights() -> None:
    found = Resources(cpu=1.0, memory=2.0, network=3.0, hosts=4.0)
    assert found.weighted(Costs()) == 1 + 3 + 40
    assert found.weighted(Costs(cpu=0, memory=1, network=0, hosts=0)) == 2.0
    assert found.to_json() == {"cpu": 1.0, "memory": 2.0, "network": 3.0, "hosts": 4.0}
