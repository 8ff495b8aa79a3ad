"""The injector: faults as a rewrite of the plan, and a plan that nothing is done to is the same plan."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import afspark as af
from afspark.graph.injector import BurstLoss, Duplication, Inlet, Reordering, Span, StreamFault
from afspark.lab.application import Application
from afspark.lab.trial_query import trial_query
from tests.unit.lab.small_pipelines import Latest, Pass, diamond, recorded, rows, two_operators

pytestmark = pytest.mark.some(3)

ROWS = 600


def outputs(application: Application, faults: dict[Inlet, StreamFault]) -> tuple[list[pa.Table | None], list[str]]:
    """What each batch gives out, and the states at the end."""
    pipeline = application.instrumented(faults)
    with trial_query(pipeline, application.sink(pipeline), application.mode) as query:
        given = [query.advance() for _ in range(ROWS // 100)]
        return given, [query.state_digest(name) for name in application.stateful]


@pytest.fixture(params=[two_operators, diamond])
def application(request: pytest.FixtureRequest, tmp_path: Path) -> Application:
    return Application.built(request.param, [recorded(tmp_path, rows(ROWS))])


def test_injectors_that_drop_nothing_change_no_byte(application: Application) -> None:
    plain = outputs(application, {})
    assert outputs(application, {inlet: StreamFault() for inlet in application.inlets()}) == plain
    assert outputs(application, {inlet: BurstLoss((Span(10**9, 5),) * 4) for inlet in application.inlets()}) == plain


def test_injectors_are_no_operators_of_the_user(application: Application) -> None:
    faults = {inlet: StreamFault() for inlet in application.inlets()}
    plain, injected = application.instrumented({}), application.instrumented(faults)
    assert injected.fingerprint() == plain.fingerprint()
    assert [node.name for node in injected.operators] == [node.name for node in plain.operators]
    assert len(injected.nodes) == len(plain.nodes) + len(faults)


@pytest.mark.parametrize("keyed", [True, False])
def test_what_workers_read_themselves_keeps_its_place(tmp_path: Path, keyed: bool) -> None:
    """Items of operators come before those of sources that a worker reads itself, with and without injectors."""

    def pipeline(stream):
        sent = stream.apply(Pass(), name="zeta", workers=2)
        return stream.union(sent).apply(Latest(), name="latest", workers=2, keyed=keyed)

    application = Application.built(pipeline, [recorded(tmp_path, rows(ROWS))])
    faults = {inlet: StreamFault() for inlet in application.inlets()}
    assert outputs(application, faults) == outputs(application, {})


class Router(af.Operator):
    """Sends odd rows to one operator alone."""

    def process(self, items, states):
        self.context.outbox.send(items.slice(0, 10), to="one")
        return items.slice(10, 5)


def test_items_for_one_operator_pass_its_injector_alone(tmp_path: Path) -> None:
    def pipeline(stream):
        router = stream.apply(Router(), name="router", workers=1)
        one, two = (router.apply(Pass(), name=name, workers=1) for name in ("one", "two"))
        return one.union(two).apply(Latest(), name="latest", workers=1)

    application = Application.built(pipeline, [recorded(tmp_path, rows(ROWS), pieces=1)])
    plain = outputs(application, {})
    assert plain[0][0] is not None and plain[0][0].num_rows == 10 + 5 + 5
    assert outputs(application, {inlet: StreamFault() for inlet in application.inlets()}) == plain


def test_punctuation_and_feedback_pass(tmp_path: Path) -> None:
    def pipeline(stream):
        counted = stream.apply(Pass(), name="first", workers=2).apply(
            af.HeavyHitters(keys=("group",), weight="id", threshold=1),
            name="hitters",
            workers=2,
            window=af.Hopping(150, column="id"),
        )
        return counted.writeStream.outputMode("append")

    application = Application.built(pipeline, [recorded(tmp_path, rows(ROWS))])
    plain = outputs(application, {})
    assert any(table is not None for table in plain[0])
    assert outputs(application, {inlet: StreamFault() for inlet in application.inlets()}) == plain


def ids(tables: list[pa.Table | None]) -> list[int]:
    return [row for table in tables if table is not None for row in table["id"].to_pylist()]


def passing(tmp_path: Path) -> Application:
    pipeline = partial(lambda stream: stream.apply(Pass(), name="pass", workers=1))
    return Application.built(pipeline, [recorded(tmp_path, rows(ROWS), pieces=3)])


def test_a_burst_is_lost_across_batches(tmp_path: Path) -> None:
    given, _ = outputs(passing(tmp_path), {Inlet("pass"): BurstLoss((Span(150, 200),))})
    assert ids(given) == [*range(150), *range(350, ROWS)]


def test_a_span_comes_twice(tmp_path: Path) -> None:
    given, _ = outputs(passing(tmp_path), {Inlet("pass"): Duplication((Span(40, 20),))})
    assert sorted(ids(given)) == sorted([*range(ROWS), *range(40, 60)])


def test_a_span_comes_in_another_order_which_the_seed_decides(tmp_path: Path) -> None:
    application = passing(tmp_path)
    given = [ids(outputs(application, {Inlet("pass"): Reordering((Span(0, 30),), seed)})[0]) for seed in (1, 1, 2)]
    assert given[0] == given[1] != given[2]
    assert sorted(given[0]) == list(range(ROWS)) != given[0]
    assert given[0][30:] == list(range(30, ROWS))


def test_a_loss_of_one_of_several_inputs_leaves_the_other(tmp_path: Path) -> None:
    application = Application.built(diamond, [recorded(tmp_path, rows(ROWS), pieces=2)])
    nothing = {inlet: StreamFault() for inlet in application.inlets()}
    lost = nothing | {Inlet("latest", 1): BurstLoss((Span(0, 10**6),))}
    given, plain = outputs(application, lost)[0], outputs(application, {})[0]
    # Every row comes once from the left, and every even one from the right as well.
    assert len(ids(plain)) == ROWS + ROWS // 2
    assert len(ids(given)) == ROWS
