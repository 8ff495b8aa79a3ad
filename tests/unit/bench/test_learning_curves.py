"""What is read off the curves of models."""

from __future__ import annotations

import pytest

from afspark.bench.anomalous_clicks import MISSING, GappedClicks
from afspark.bench.learning_curves import (
    batch_excess,
    delay_in_merges,
    delay_of,
    part_of,
    seconds_to_loss,
    settled_norm,
    shared_loss,
)
from afspark.bench.training_runs import KilledWorkers, kills_after
from afspark.model.trajectory import windowed_losses
from afspark.protocol.fault_plan import FaultPhase
from afspark.sources import Clicks
from afspark.sources.chunks import NumberedChunk


def curve(norms: list[float], losses: list[float], *, slower: float = 1.0) -> list[list[float]]:
    return [[slower * (1 + at), norm, 10, 10 * loss] for at, (norm, loss) in enumerate(zip(norms, losses, strict=True))]


FALLING = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.5, 0.5, 0.5, 0.5]


def test_a_loss_is_reached_by_the_newest_items() -> None:
    assert seconds_to_loss(curve(FALLING, FALLING), 0.7) == 4
    assert seconds_to_loss(curve(FALLING, FALLING), 0.1) is None
    # Twenty merges: two are a tenth.
    assert windowed_losses(curve(FALLING * 2, FALLING * 2))[0] == (2.0, pytest.approx(0.95))


def test_the_same_loss_is_one_that_all_reach() -> None:
    worse = [loss + 0.1 for loss in FALLING]
    assert shared_loss([curve(FALLING, FALLING), curve(FALLING, worse)]) == pytest.approx(0.603)


def test_a_delay_is_read_at_the_norm_of_the_calm_run() -> None:
    calm = curve(FALLING, FALLING)
    assert settled_norm(calm) == 0.5
    assert delay_of(calm, calm) == 0.0
    assert delay_of(curve(FALLING, FALLING, slower=1.2), calm) == pytest.approx(0.2)
    assert delay_of(curve([1.0] * 10, FALLING), calm) is None
    assert delay_in_merges(curve(FALLING, FALLING, slower=1.2), calm) == 0.0
    later = [1.0, *FALLING[:-1]]
    assert delay_in_merges(curve(later, later), calm) == pytest.approx(1 / 6)


def test_a_single_change_that_is_a_little_larger_delays_nobody() -> None:
    norms = [1.0 / (1 + at) for at in range(100)]
    jagged = [norm * (1.02 if at == 97 else 1.0) for at, norm in enumerate(norms)]
    assert delay_of(curve(jagged, jagged), curve(norms, norms)) == 0.0


def test_what_a_batch_took_longer_is_a_part_of_the_calm_run() -> None:
    calm = curve(FALLING, FALLING)
    assert part_of(batch_excess([[1.0], [2.0], [4.5], [5.5], [6.5]], 2), calm) == pytest.approx(1.5 / 6)
    assert batch_excess([[1.0], [2.0], [4.5], [7.0], [8.0], [9.0]], 2) == pytest.approx(3.0)


def test_some_workers_are_killed_after_a_tenth() -> None:
    plan = kills_after(4, batch=2)
    assert isinstance(plan, KilledWorkers)
    assert [worker for worker in range(11) if plan.hits("local", worker)] == [0, 1, 2, 3]
    assert not plan.hits("global", 0)
    assert plan.fails_at(2, FaultPhase.APPLYING)
    assert not kills_after(0, batch=2).failures


def test_a_stretch_of_clicks_misses_a_feature() -> None:
    plain, gapped = Clicks(1 << 17, seed=1), GappedClicks(1 << 17, seed=1)
    found = []
    for index in range(4):
        chunk = NumberedChunk(index=index, units=1 << 15, bytes=0)
        (calm,), (items,) = plain.read(chunk), gapped.read(chunk)
        assert items.column("label").equals(calm.column("label"))
        values = items.column("features").flatten().to_numpy().reshape(-1, 11)
        found.append(bool((values[:, MISSING] == 0).all()))
    assert found == [False, False, True, False]
