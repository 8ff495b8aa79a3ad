"""Kills of workers, model servers and hosts at any step of a batch, with delays: what each consistency promises."""

from __future__ import annotations

from typing import Any

import pytest

import afspark as af
from afspark.model.consistency import ASP, BSP, SSP, Consistency
from tests.unit.exchange.step_troubles import (
    DIES_AFTER,
    DIES_BEFORE,
    KINDS,
    SERVER,
    Moment,
    Troubles,
    drawn_plan,
    trained_among,
)
from tests.unit.exchange.test_training import BATCHES, EXACT, logistic, trained

pytestmark = pytest.mark.some(2)


@pytest.fixture(scope="module")
def undisturbed() -> Any:
    return trained(logistic(BSP(), af.MiniBatch()))


@pytest.mark.some(2)
@pytest.mark.parametrize("tolerance", list(EXACT))
@pytest.mark.parametrize("seed", range(12))
def test_in_rounds_the_model_is_bit_for_bit_the_same_whenever_something_dies(
    undisturbed: Any, monkeypatch: pytest.MonkeyPatch, seed: int, tolerance: str
) -> None:
    troubles = Troubles(drawn_plan(seed))
    model, told, items = trained_among(monkeypatch, logistic(BSP(), EXACT[tolerance]), troubles)
    assert troubles.happened
    assert (model, told) == undisturbed
    assert items == [300] * BATCHES


@pytest.mark.some(1)
@pytest.mark.parametrize("consistency", [SSP(1), ASP()], ids=str)
@pytest.mark.parametrize("seed", range(8))
def test_whenever_something_dies_every_item_is_merged_once(
    monkeypatch: pytest.MonkeyPatch, seed: int, consistency: Consistency
) -> None:
    troubles = Troubles(drawn_plan(100 + seed))
    model, told, items = trained_among(monkeypatch, logistic(consistency, af.MiniBatch()), troubles)
    assert troubles.happened
    assert items == [300] * BATCHES
    assert told["items"] == 300 * BATCHES
    assert model[1] > 0 > model[2]


@pytest.mark.thorough
@pytest.mark.some(1)
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("kind", [DIES_BEFORE, DIES_AFTER, SERVER])
def test_every_step_of_a_batch_can_be_the_last_of_a_process(
    undisturbed: Any, monkeypatch: pytest.MonkeyPatch, kind: str, shards: int
) -> None:
    plan = {Moment(batch, batch % 2, batch): kind for batch in range(BATCHES)}
    troubles = Troubles(plan)
    model, told, _ = trained_among(monkeypatch, logistic(BSP(), af.MiniBatch(), shards=shards), troubles)
    assert len(troubles.happened) == BATCHES
    assert (model, told) == undisturbed


def test_all_kinds_of_trouble_are_drawn() -> None:
    assert {kind for seed in range(12) for kind in drawn_plan(seed).values()} == set(KINDS)
