"""Online logistic regression: local workers learn item by item, a global worker averages their models.

    items -> local (n workers) -> global (1 worker)
               ^                     |
               +----- feedback ------+

A local worker predicts every item with its model before it learns from it, so the share predicted rightly is an
honest figure (progressive validation). The step is ``rate / sqrt(t)``, where t numbers the items *this worker* has
learned from, from 1. At the end of a batch it sends the cells it has changed; the global worker makes the average of
all models, weighted by the items behind them, and feeds it back. It replaces the local models at the start of the next
batch: bulk synchronous, with one merge a batch (AF-Stream, experiments 5 and 6 to 9).

What is promised under ``Approximate`` is theorem 1 of the extended paper: the regret per item goes to 0 as long as
failures grow slower than the root of the items. There is no bound on the final model: see docs/guarantees.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from afspark.algorithms.features import Features, ItemLearner
from afspark.algorithms.progressive import UNIT, Progress
from afspark.errors import UsageError
from afspark.model.kernels.logistic import Workspace
from afspark.model.kernels.plain_arrays import Array
from afspark.model.onbad import SKIP, STOP, check_on_bad
from afspark.model.operator import Operator, Share, WorkerContext
from afspark.model.states import Own, StateSpec, Vector

LOCAL, GLOBAL = "local", "global"

#: A model on its way: one row, however many cells it has. Without ``index`` the values are those of all cells.
MODEL = pa.schema(
    [
        ("items", pa.int64()),
        ("correct", pa.int64()),
        ("loss", pa.float64()),
        ("lost", pa.bool_()),
        ("index", pa.list_(pa.uint32())),
        ("value", pa.list_(pa.float64())),
    ]
)


class LocalRegression(Operator):
    """Learns from its share of the items. Sends its model when it has learned from ``merge_every`` items since.

    Divergence: the Euclidean distance of models; of the counts, the tenths of them that a backup lacks. Rows without a
    label or with missing features are counted and skipped, or stop the query (``on_bad="stop"``). Results: one row
    with ``items``, ``prediction_rate``, ``base_rate`` (of always saying the commoner label), ``log_loss`` (per item,
    natural logarithm) and ``skipped``.
    """

    rescalable = "the models of its workers cannot be added up"

    def __init__(
        self, features: Features | None = None, *, rate: float = 1.0, merge_every: int = 1, on_bad: str = SKIP
    ) -> None:
        if not 0 < rate < np.inf:
            raise UsageError(f"The learning rate must be a number above 0, not {rate}.", rate=rate)
        if merge_every < 1:
            raise UsageError(f"merge_every is a number of items, not {merge_every}.", merge_every=merge_every)
        self.features = features or Features()
        self.rate, self.merge_every, self.on_bad = rate, merge_every, check_on_bad(on_bad)
        self._recovered = False

    @property
    def alpha(self) -> float:  # type: ignore[override]
        """One step is at most rate · |x| long: the error of a prediction is below 1, and 1/√t at most 1."""
        return max(self.rate * self.features.reach, UNIT)

    def states(self) -> Mapping[str, StateSpec]:
        return {
            "model": Vector(size=self.features.cells, value="float64", divergence="euclidean"),
            "progress": Own(Progress),
        }

    def check(self, schema: pa.Schema | None) -> None:
        self.features = self.features.fitted(schema)

    def begin(self, states: Mapping[str, Any], context: WorkerContext) -> None:
        self._learner: ItemLearner | None = None

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        progress: Progress = states["progress"].own
        sound = self.features.sound(items)
        if sound.num_rows:
            if self._learner is None:
                self._learner = ItemLearner(self.features, states["model"].values, self.rate)
            labels = self.features.labels(sound)
            lesson = self._learner.learn(sound, labels, progress.items)
            progress.learned(len(labels) - lesson.bad, lesson)
        bad = items.num_rows - sound.num_rows + (lesson.bad if sound.num_rows else 0)
        if bad and self.on_bad == STOP:
            raise UsageError(
                f"{bad} of {items.num_rows} rows have missing, undefined or unknown values.",
                remedy="Repair them, or use on_bad='skip' to count and skip such rows.",
                rows=bad,
            )
        progress.skipped += bad

    def finish(self, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        if self._learner is None and not self._recovered:
            return None
        progress: Progress = states["progress"].own
        cells, values = self._learner.changes() if self._learner is not None else (np.zeros(0, np.uint32), np.zeros(0))
        states["model"].put_at(cells, values)
        if progress.unsent < self.merge_every and not self._recovered:
            progress.held = True
            return None
        if progress.held:
            # Cells that earlier batches have changed are not known any more.
            values = states["model"].values
            cells = np.arange(len(values), dtype=np.uint32)
        facts = progress.sent()
        return pack_model(cells, values, states["model"].values, lost=self._recovered, **facts)

    def on_feedback(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        """The merged model takes the place of the local one; what was not sent yet keeps its part of it."""
        model, unsent = states["model"], states["progress"].view.unsent
        for row in range(items.num_rows):
            cells, values = open_model(items, row)
            if unsent:
                own = unsent / (unsent + max(items.column("items")[row].as_py(), 1))
                values = own * model.values[cells] + (1.0 - own) * values
            model.put_at(cells, values)

    def on_recover(self, states: Mapping[str, Any], context: WorkerContext) -> None:
        # The next message asks for the whole model: cells that nobody changes again would stay behind otherwise.
        self._recovered = True

    def results(self, shares: Sequence[Share]) -> pa.Table:
        return Progress.together(shares, "progress").table()

    def fingerprint(self) -> dict[str, Any]:
        settings = {"rate": self.rate, "merge_every": self.merge_every}
        return super().fingerprint() | {"features": self.features.to_json()} | settings


class GlobalRegression(Operator):
    """Averages the models of the local workers and feeds the result back to the operator ``to``.

    Sends one row for every merge: ``batch``, ``items``, ``prediction_rate`` and ``log_loss`` of the items behind it:
    the learning curve. Results: ``index``, ``feature`` (None for hashed ones) and ``weight`` of all cells but zeros.
    """

    def __init__(self, features: Features, *, rate: float = 1.0, to: str = LOCAL) -> None:
        self.features, self.rate, self.to = features, rate, to
        self._whole = False

    @property
    def alpha(self) -> float:  # type: ignore[override]
        """The α of an item that a local worker has learned from: an average moves no further than its parts."""
        return max(self.rate * self.features.reach, UNIT)

    def states(self) -> Mapping[str, StateSpec]:
        return {"model": Vector(size=self.features.cells, value="float64", divergence="euclidean")}

    def begin(self, states: Mapping[str, Any], context: WorkerContext) -> None:
        self._models: list[pa.RecordBatch] = []

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        self._models += [items.slice(row, 1) for row in range(items.num_rows)]

    def finish(self, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        model = states["model"]
        total = sum(one.column("items")[0].as_py() for one in self._models)
        cells, values = np.zeros(0, np.uint32), np.zeros(0)
        if total:
            space = Workspace.begin(model.values, merging=True)
            for one in self._models:
                space.add_model(*open_model(one), one.column("items")[0].as_py() / total)
            cells, values = space.changes()
            space.end()
            model.put_at(cells, values)
        if self._whole or any(one.column("lost")[0].as_py() for one in self._models):
            cells, values = np.arange(len(model), dtype=np.uint32), np.array(model.values)
        if len(cells):
            self.context.outbox.feed_back(pack_model(cells, values, model.values, items=total), to=self.to)
        if not total:
            return None
        return pa.record_batch(
            {
                "batch": pa.array([self.context.batch], pa.int64()),
                "items": [total],
                "prediction_rate": [sum(one.column("correct")[0].as_py() for one in self._models) / total],
                "log_loss": [sum(one.column("loss")[0].as_py() for one in self._models) / total],
            }
        )

    def on_recover(self, states: Mapping[str, Any], context: WorkerContext) -> None:
        # A merged model that was lost on its way to the local workers is made good by the whole one.
        self._whole = context.lost_items > 0

    def results(self, shares: Sequence[Share]) -> pa.Table:
        (cells,) = (share.cells["model"] for share in shares)
        index = cells.column("index")
        names = self.features.names()
        # Hashed cells have no name.
        places = pa.array(index.to_numpy(), mask=index.to_numpy() >= len(names))
        feature = pa.array(names, pa.string()).take(places)
        return pa.table({"index": index, "feature": feature, "weight": cells.column("value")})

    def fingerprint(self) -> dict[str, Any]:
        return super().fingerprint() | {"features": self.features.to_json(), "to": self.to}


def logistic_regression(  # noqa: PLR0913 - the settings of a model and of its pipeline
    stream: Any,
    *,
    features: Features | None = None,
    rate: float = 1.0,
    merge_every: int = 1,
    on_bad: str = SKIP,
    workers: int = 2,
    tolerance: Any = None,
    local: str = LOCAL,
    name: str = GLOBAL,
) -> Any:
    """Composes local workers, a global worker and the feedback between them; gives the global worker's stream.

    ``stream`` is any stream or operator's output that has ``apply``. ``query.results("global")`` is the model,
    ``query.results("local")`` the prediction rate; a sink in append mode gets the learning curve. A tolerance should
    allow a few ``items``: a merged model is one item of feedback, and with none allowed each is backed up whole.
    """
    learner = LocalRegression(features, rate=rate, merge_every=merge_every, on_bad=on_bad)
    learned = stream.apply(learner, name=local, workers=workers, tolerance=tolerance)
    merger = GlobalRegression(learner.features, rate=rate, to=local)
    return learned.apply(merger, name=name, workers=1, tolerance=tolerance, feeds_back=[local])


def pack_model(
    cells: Array, values: Array, whole: Array, *, items: int, correct: int = 0, loss: float = 0.0, lost: bool = False
) -> pa.RecordBatch:
    """Changed cells and their values as one row, or all values of the model where that is shorter."""
    if 12 * len(cells) > 8 * len(whole):
        cells, values = cells[:0], np.array(whole)
    plain = [[items], [correct], [loss], [lost]]
    arrays = [pa.array(value, field.type) for value, field in zip(plain, MODEL, strict=False)]
    lists = [pa.ListArray.from_arrays(pa.array([0, len(part)], pa.int32()), pa.array(part)) for part in (cells, values)]
    return pa.record_batch([*arrays, *lists], schema=MODEL)


def open_model(models: pa.RecordBatch, row: int = 0) -> tuple[Array, Array]:
    """Cells and values of a row of ``pack_model``."""
    cells, values = (models.column(name)[row].values.to_numpy() for name in ("index", "value"))
    return (cells if len(cells) else np.arange(len(values), dtype=np.uint32)), values
