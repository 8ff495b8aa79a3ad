"""Trials end early only where whatever an operator can see of its states is golden, the order of cells included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import afspark as af
from afspark.lab.campaign_units import CampaignUnit, golden_of, unit_trial
from afspark.lab.study import Study
from afspark.model.states import HeapColumns

ROWS, LATE = 3_000, 2_000


class Ordered(af.Operator):
    """Sends the last one of the groups that it knows, but nothing of that before a late row."""

    def process(self, items, states):
        self.see(items.column("id").to_numpy(), items.column("group"), states)
        known = self.known(states).to_pylist()
        shown = np.where(items.column("id").to_numpy() < LATE, 0, known[-1])
        return pa.record_batch({"id": items.column("id"), "last": pa.array(shown.astype(float))})

    def see(self, ids, groups, states):
        states["known"].add(groups)

    def known(self, states):
        return states["known"].members()


class SetOrder(Ordered):
    def states(self):
        return {"known": af.Set(key="int64")}


class TableOrder(Ordered):
    def states(self):
        return {"known": af.HashTable(key="int64", value="int64")}

    def see(self, ids, groups, states):
        states["known"].put(groups, 1)

    def known(self, states):
        return states["known"].export().column("key")


class RemovedAndBack(SetOrder):
    """A group that was removed comes back to its place among the others."""

    def see(self, ids, groups, states):
        for group, times in ((90, (1_005, LATE)), (91, (1_150,))):
            if np.isin(ids, times).any():
                states["known"].add(pa.array([group]))
        if 1_200 in ids:
            states["known"].remove(pa.array([90]))
        states["known"].add(pa.array([1]))


def rows() -> pa.Table:
    ids = np.arange(ROWS)
    groups = np.where(np.isin(ids, (1_005, 1_080, 1_450)), 90, np.where(ids == 1_070, 91, ids % 3))
    return pa.table({"id": ids, "group": groups})


@pytest.mark.parametrize("operator", [SetOrder, TableOrder, RemovedAndBack])
def test_an_order_that_shows_later_is_a_difference(tmp_path: Path, operator: type[af.Operator]) -> None:
    study = Study(
        lambda stream: stream.apply(operator(), name="ordered", workers=1),
        rows(),
        score="sum:last",
        key="id",
        offsets=[1_000],
        outages=[50],
        repetitions=1,
        batch_items=100,
        processes=1,
        work=tmp_path,
    )
    plan, _ = study._planned(tmp_path)
    application, golden = plan.application(0), golden_of(plan, 0)
    short, whole = (
        unit_trial(plan, CampaignUnit(0, 0, 0), application, golden, 50, whole=one).whole() for one in (False, True)
    )
    assert not whole.slice(whole.num_rows - 1).equals(golden.output.slice(golden.output.num_rows - 1))
    assert short.equals(whole)


def test_an_arrangement_has_the_places_of_removed_keys() -> None:
    arranged = []
    for keys in ([7, 8], [8]):
        state = af.Set(key="int64").open(HeapColumns(), "set")
        state.begin()
        state.add(pa.array(keys))
        state.remove(pa.array([7]))
        assert state.members().to_pylist() == [8]
        arranged.append(state.arrangement())
    assert not arranged[0].equals(arranged[1])
