"""What schemes take follows from what was measured of the primary."""

from __future__ import annotations

import pytest

from afspark.control import Protection, Quantity, Scheme, UnitHistory, Unreplicated, resources
from afspark.control.costs import RARELY, Resources
from afspark.policies import Costs
from tests.unit.control.measurements import NOW, history


def taken(protection: Protection, found: UnitHistory | None = None, interval: float | None = 4.0) -> Resources:
    return resources(protection, history() if found is None else found, now=NOW, interval=interval)


def test_active_replication_takes_as_much_again() -> None:
    found = taken(Scheme.ACTIVE_REPLICATION, history(sent=5e6, written=0.0, checkpoint_cpu=0.0))
    assert found == Resources(cpu=1.0, memory=1.0, network=1.0, hosts=1.0)


def test_active_standby_spares_what_it_does_not_send() -> None:
    plain = history(sent=1e7, written=0.0, checkpoint_cpu=0.0)
    assert taken(Scheme.ACTIVE_STANDBY, plain) == Resources(cpu=1.0, memory=1.0, network=0.5, hosts=1.0)


def test_a_hot_standby_takes_network_and_memory_instead_of_cpu() -> None:
    """10 MB change in a second: shipped, and stored rarely; 40 MB are in the queue before the next checkpoint."""
    found = taken(Scheme.HOT_STANDBY)
    assert found.network == pytest.approx((1e7 + 1e7 + 1e7) / 1e7)
    # 1 ns a byte: made twice, loaded once
    assert found.cpu == pytest.approx(3 * 0.01 / 0.5)
    assert found.memory == pytest.approx((2e9 + 4e7) / 2e9) and found.hosts == 1.0


def test_a_cold_standby_has_no_queue_and_receives_nothing() -> None:
    hot, cold = taken(Scheme.HOT_STANDBY), taken(Scheme.COLD_STANDBY)
    assert cold.network == pytest.approx(hot.network - 1.0) and cold.memory == 1.0
    assert cold.cpu == hot.cpu


def test_what_is_deployed_takes_a_place_and_its_static_data() -> None:
    found = taken(Scheme.DEPLOYED, history().add(Quantity.STATIC_SIZE, at=NOW, amount=2e9))
    assert (found.memory, found.hosts) == (0.5, 1.0)
    assert found.cpu == pytest.approx(0.01 / 0.5) and found.network == pytest.approx(1.0)


@pytest.mark.parametrize("protection", [Scheme.PASSIVE_REPLICATION, *Unreplicated])
def test_what_has_no_secondary_takes_its_checkpoints_alone(protection: Protection) -> None:
    found = taken(protection)
    assert (found.memory, found.hosts) == (0.0, 0.0)
    assert found.cpu == pytest.approx(0.02) and found.network == pytest.approx(1.0)


def test_frequent_checkpoints_cost_more_and_rare_ones_hold_no_more_than_the_state() -> None:
    network = [taken(Scheme.PASSIVE_REPLICATION, interval=one).network for one in (0.5, 1.0, 2.0, 64.0)]
    assert network == pytest.approx([2.0, 1.0, 1.0, 1.0])
    small = history(state=1e7)
    assert taken(Scheme.PASSIVE_REPLICATION, small, 64.0).network == pytest.approx(1 / 64)
    assert taken(Scheme.PASSIVE_REPLICATION, None, None).network == pytest.approx(1.0), "as often as there were any"


@pytest.mark.parametrize("protection", [*Scheme, *Unreplicated])
def test_before_anything_is_measured_processing_and_places_count(protection: Protection) -> None:
    found = taken(protection, UnitHistory())
    active = protection in (Scheme.ACTIVE_REPLICATION, Scheme.ACTIVE_STANDBY)
    placed = isinstance(protection, Scheme) and protection is not Scheme.PASSIVE_REPLICATION
    assert found == Resources(cpu=float(active), hosts=float(placed))


def test_of_what_the_primary_does_not_take_anything_is_a_whole_unit() -> None:
    quiet = history(received=0.0, sent=0.0)
    assert taken(Scheme.COLD_STANDBY, quiet).network == 1.0
    assert taken(Scheme.ACTIVE_STANDBY, history(received=0.0, written=0.0)).network == 0.0


def test_active_schemes_store_rarely() -> None:
    small = history(state=1e7)
    assert taken(Scheme.ACTIVE_REPLICATION, small, 1.0).network == pytest.approx(1.0 + 1 / RARELY)


def test_weights() -> None:
    found = Resources(cpu=1.0, memory=2.0, network=3.0, hosts=4.0)
    assert found.weighted(Costs()) == 1 + 3 + 40
    assert found.weighted(Costs(cpu=0, memory=1, network=0, hosts=0)) == 2.0
    assert found.to_json() == {"cpu": 1.0, "memory": 2.0, "network": 3.0, "hosts": 4.0}
