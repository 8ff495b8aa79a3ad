"""The rig itself: whole pipelines in it, with several sources, windows, feedback and an end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from afspark.graph.node import SOURCE, Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.model.operator import Operator
from afspark.model.states import HashTable, Numeric, StateSpec
from afspark.model.windows import Hopping, Punctuation
from afspark.policies import MiniBatch
from afspark.sources import Source, TextFiles
from tests.unit.runtime.conftest import MakeRig, write_words
from tests.unit.runtime.sparkless import Rig


def words(lines: pa.RecordBatch) -> pa.RecordBatch:
    text = lines.column("value").cast(pa.large_string())
    return pa.record_batch({"word": pc.list_flatten(pc.utf8_split_whitespace(pc.utf8_trim_whitespace(text)))})


class Gate(Operator):
    """Lets everything pass; counts it, and what comes back."""

    def states(self) -> Mapping[str, StateSpec]:
        return {"passed": Numeric(), "returned": Numeric()}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        states["passed"].add(items.num_rows)
        return items

    def on_feedback(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["returned"].add(items.num_rows)


class Tally(Operator):
    """Counts words; sends one item back for every window that ends."""

    key = ("word",)

    def __init__(self, to: str | None = None) -> None:
        self.to = to

    def states(self) -> Mapping[str, StateSpec]:
        return {"counts": HashTable(key="string", value="int64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["counts"].add(items.column("word"), 1)

    def on_punctuation(self, punctuation: Punctuation, states: Mapping[str, Any]) -> None:
        if self.to is not None and not punctuation.last:
            self.context.outbox.feed_back(pa.record_batch({"window": [punctuation.window]}), to=self.to)


def number(rig: Rig, operator: str, state: str) -> int:
    return sum(sum(share[state].values()) for share in rig.cells(operator))


def test_two_sources_through_two_gates_meet_in_one_operator(make_rig: MakeRig, tmp_path: Path) -> None:
    truth = write_words(tmp_path / "other", 6)

    def pipeline(source: Source) -> Pipeline:
        return Pipeline(
            sources={SOURCE: source, "other": TextFiles(str(tmp_path / "other"), blocks=True)},
            nodes=(
                Node(name="left", operator=Gate(), inputs=(Edge(SOURCE, (words,)),)),
                Node(name="right", operator=Gate(), inputs=(Edge("other", (words,)),), workers=1),
                Node(name="both", operator=Tally(), inputs=(Edge("left"), Edge("right")), keyed=True),
            ),
        )

    rig, main = make_rig(batches=3, pipeline=pipeline)
    rig.go(1)
    assert rig.stage == "both"
    sent = Counter(row["word"] for gate in ("left", "right") for share in rig.sent(0, gate) for row in share)
    assert sent == rig.counts()
    rig.lose(1, operator="left")
    rig.lose(operator="both")
    assert set(rig.segment_folders()) == {("left", 0), ("right", 0)}
    rig.go()
    assert rig.committed == 2, "the shorter source has nothing for the last batch"
    assert rig.counts() == main + truth
    assert number(rig, "left", "passed") == main.total() and number(rig, "right", "passed") == truth.total()
    assert {(entry.loss.operator, entry.loss.worker) for entry in rig.ledger} == {("left", 1), ("both", 0), ("both", 1)}


def test_windows_close_by_the_rig_s_clock_and_at_the_end(make_rig: MakeRig) -> None:
    def pipeline(source: Source) -> Pipeline:
        window = Hopping(10, by="processing")
        return Pipeline(
            sources={SOURCE: source},
            nodes=(
                Node(name="gate", operator=Gate(), inputs=(Edge(SOURCE, (words,)),)),
                Node(
                    name="tally",
                    operator=Tally(to="gate"),
                    inputs=(Edge("gate"),),
                    window=window,
                    keyed=True,
                    tolerance=MiniBatch(),
                    feeds_back=("gate",),
                ),
            ),
        )

    rig, truth = make_rig(batches=4, pipeline=pipeline)
    closed: dict[float, Counter[str]] = {}

    def take(batch: int) -> None:
        for share in rig.windows(batch):
            for (_, start, _, state), cells in share.items():
                assert state == "counts"
                closed.setdefault(start, Counter()).update(cells)

    for rig.now in (3.0, 8.0, 12.0, 25.0):
        rig.go(1, deliver=take)
    assert sorted(closed) == [0, 10]
    assert closed[0]["all"] == truth["all"] // 2 and closed[10]["all"] == truth["all"] // 4
    # A window that has been closed goes with the next batch.
    assert [list(share) for share in rig.cells("tally")] == [["counts@1", "counts@2"]] * 2
    rig.start()
    rig.end(deliver=take)
    assert sorted(closed) == [0, 10, 20] and sum(closed.values(), Counter()) == truth
    # An item of each worker for each window, and nobody's by key: both gates get it.
    assert number(rig, "gate", "returned") == 2 * 2 * 3
