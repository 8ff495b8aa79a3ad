"""Workers that train one model, in steps of some items and while a batch is under way.

    items -> local (n workers) <==> model servers -> global (a worker for each shard)

A local worker learns from its share of a batch in steps of ``iteration`` items. After each it pushes what it has
learned to the servers of the model and pulls what others have made of it; how long it waits for that is the
`Consistency`. When the batch ends, the global operator takes the model from the servers into its state, which its
tolerance protects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from afspark.algorithms.progressive import UNIT, Progress
from afspark.errors import OperatorMisuse, UsageError
from afspark.model.consistency import BSP, Consistency
from afspark.model.kernels.logistic import Lesson
from afspark.model.kernels.plain_arrays import read_only
from afspark.model.learner import Learned, Learner, check_learned, check_learner
from afspark.model.onbad import BAD_LIMIT, SKIP, STOP, check_on_bad
from afspark.model.operator import Operator, Share, WorkerContext
from afspark.model.states import Own, StateSpec, Vector
from afspark.model.training import DRIVER, Exchange, Merge, MergedModel, Training

LOCAL, GLOBAL = "local", "global"
#: How long a worker waits for others before a batch is begun anew.
WAIT_SECONDS = 60.0


class LocalTraining(Operator):
    """Learns from its share of the items with others. Its state is what it has counted; the model is the servers'."""

    #: it sends nothing but to the servers
    sends_by_state = True

    def __init__(
        self,
        learner: Learner,
        *,
        model: str,
        iteration: int,
        consistency: Consistency,
        wait_seconds: float = WAIT_SECONDS,
        on_bad: str = SKIP,
        servers: str = DRIVER,
    ) -> None:
        check_learner(learner)
        self.learner, self.on_bad = learner, check_on_bad(on_bad)
        #: everything but the number of cells, which is known once the stream is
        self._training = Training(
            model=model,
            cells=1,
            iteration=iteration,
            consistency=consistency,
            wait_seconds=wait_seconds,
            servers=servers,
        )

    @property
    def training(self) -> Training:  # type: ignore[override]
        return replace(self._training, cells=self.learner.cells, convex=self.learner.convex)

    @property
    def alpha(self) -> float | None:  # type: ignore[override]
        return UNIT

    def states(self) -> Mapping[str, StateSpec]:
        return {"progress": Own(Progress)}

    def check(self, schema: pa.Schema | None) -> None:
        self.learner.check(schema)

    def begin(self, states: Mapping[str, Any], context: WorkerContext) -> None:
        self._exchange: Exchange = context.exchange
        self._model: Any = None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        iteration = self._training.iteration
        self._waiting.append(items)
        self._rows += items.num_rows
        while self._rows >= iteration:
            self._step(self._take(iteration), states["progress"].own)

    def finish(self, states: Mapping[str, Any]) -> None:
        if self._rows:
            self._step(self._take(self._rows), states["progress"].own)
        self._pull()
        self._exchange.finish()
        self.context.metrics |= {"learned": states["progress"].own.items, "differing": self._exchange.differing}

    def _pull(self) -> None:
        if self._model is None:
            self._model = np.zeros(self.learner.cells)
            cells = self._exchange.pull()
            self._model[cells.index] = cells.values

    def _step(self, items: pa.RecordBatch, progress: Progress) -> None:
        self._pull()
        learned = self._learn(items, progress.items)
        check_learned(learned, cells=self.learner.cells, rows=items.num_rows)
        if learned.skipped and self.on_bad == STOP:
            raise UsageError(
                f"{learned.skipped} of {items.num_rows} rows have missing, undefined or unknown values.",
                remedy="Repair them, or use on_bad='skip' to count and skip such rows.",
                rows=learned.skipped,
            )
        progress.skipped += learned.skipped
        facts = learned.facts
        if not facts.items:
            return
        cells = self._exchange.push(learned.change, facts)
        self._model[cells.index] = cells.values
        progress.learned(facts.items, Lesson(learned.positives, facts.correct, facts.loss, 0))

    def _learn(self, items: pa.RecordBatch, seen: int) -> Learned:
        """What a step of items teaches at the model as it is here, which learners leave alone."""
        try:
            return self.learner.learn(read_only(self._model.view()), items, seen)
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            raise OperatorMisuse(
                "A learner changes an array that it was given: the model, or items.",
                remedy="Have it work on a copy, and give the changes of the model back.",
            ) from error

    def _take(self, rows: int) -> pa.RecordBatch:
        """The first rows of those that wait."""
        taken: list[pa.RecordBatch] = []
        self._rows -= rows
        while rows:
            first = self._waiting[0]
            if first.num_rows <= rows:
                taken.append(self._waiting.pop(0))
                rows -= first.num_rows
            else:
                taken.append(first.slice(0, rows))
                self._waiting[0] = first.slice(rows)
                rows = 0
        return taken[0] if len(taken) == 1 else pa.concat_batches(taken)

    def results(self, shares: Sequence[Share]) -> pa.Table:
        return Progress.together(shares, "progress").table()

    def fingerprint(self) -> dict[str, Any]:
        return super().fingerprint() | {"learner": dict(self.learner.described()), "training": self.training.to_json()}


class GlobalModel(Operator):
    """Has the model that the workers of another operator train.

    Sends one row for every merge: ``batch``, ``merge``, ``l1`` (of the change of the model, or of its shard),
    ``items``, ``prediction_rate`` and ``log_loss`` of the items behind it: how the model converges. With several shards
    each sends rows of its own, told apart by ``shard``, and its merges are of the same items as those of the others, in
    the same order under `BSP` alone. Results: ``index``, ``feature`` and ``weight`` of all cells but zeros.
    """

    def __init__(self, learner: Learner, *, shards: int = 1) -> None:
        given: object = shards
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise UsageError(f"shards must be a whole number of at least 1, not {shards!r}.", shards=shards)
        self.learner, self.shards = learner, shards

    @property
    def alpha(self) -> float | None:  # type: ignore[override]
        return self.learner.reach

    def states(self) -> Mapping[str, StateSpec]:
        width = -(-self.learner.cells // self.shards)
        return {"model": Vector(size=width, value="float64", divergence="euclidean")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        """Nothing is sent to it."""

    def finish(self, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        merged: MergedModel | None = self.context.exchange
        if merged is None:
            return None
        cells = merged.changes()
        moved = float(np.abs(cells.values - states["model"].values[cells.index]).sum())
        states["model"].put_at(cells.index, cells.values)
        merges = merged.merges()
        items = sum(one.facts.items for one in merges)
        # Times are told beside the rows, not in them: a replay must send what was sent before.
        self.context.metrics |= {
            "merges": len(merges),
            "l1": merges[-1].norm if merges else 0.0,
            "batch_l1": moved,
            "log_loss": sum(one.facts.loss for one in merges) / items if items else None,
            "length": float(np.linalg.norm(states["model"].values)),
            "began": merged.began(),
            "curve": [[one.at, one.norm, one.facts.items, one.facts.loss, *one.by] for one in merges],
        }
        return curve(merges, self.context.batch, self.context.worker)

    def results(self, shares: Sequence[Share]) -> pa.Table:
        width = -(-self.learner.cells // self.shards)
        parts = [share.cells["model"] for share in shares]
        index = np.concatenate(
            [one.column("index").to_numpy() + share.worker * width for share, one in zip(shares, parts, strict=True)]
        )
        weight = pa.chunked_array([one.column("value") for one in parts]).combine_chunks()
        return pa.table({"index": pa.array(index), "feature": self.learner.names(index), "weight": weight})

    def fingerprint(self) -> dict[str, Any]:
        return super().fingerprint() | {"learner": dict(self.learner.described())}


def curve(merges: Sequence[Merge], batch: int, shard: int) -> pa.RecordBatch | None:
    """A row for every merge of a batch in a shard."""
    if not merges:
        return None
    facts = [one.facts for one in merges]
    return pa.record_batch(
        {
            "batch": pa.array([batch] * len(merges), pa.int64()),
            "merge": pa.array(range(len(merges)), pa.int64()),
            "l1": pa.array([one.norm for one in merges], pa.float64()),
            "items": pa.array([one.items for one in facts], pa.int64()),
            "prediction_rate": pa.array([one.correct / one.items for one in facts], pa.float64()),
            "log_loss": pa.array([one.loss / one.items for one in facts], pa.float64()),
            "shard": pa.array([shard] * len(merges), pa.int64()),
        }
    )


def train(  # noqa: PLR0913 - the settings of a model and of its pipeline
    stream: Any,
    learner: Learner,
    *,
    iteration: int,
    consistency: Consistency | None = None,
    workers: int = 2,
    shards: int = 1,
    tolerance: Any = None,
    model_tolerance: Any = None,
    wait_seconds: float = WAIT_SECONDS,
    on_bad: str = SKIP,
    bad_limit: int = BAD_LIMIT,
    servers: str = DRIVER,
    local: str = LOCAL,
    name: str = GLOBAL,
) -> Any:
    """Has so many workers train the learner's model together; gives the stream of the operator that has it.

    ``iteration``: items of a worker's step; ``shards``: workers that have a part of the model each. ``tolerance`` is
    that of the workers, ``model_tolerance`` that of the model (by default the same). ``servers``: whether model servers
    are beside the "driver", or on hosts of "executors". ``on_bad`` and ``bad_limit`` are those of any operator, for
    items on which the learner raises.
    """
    if not hasattr(stream, "apply"):
        raise UsageError(
            f"{type(stream).__name__} is no stream to learn from.",
            remedy="Make one of a streaming DataFrame: af.read_stream(spark).frame(df).",
        )
    operator = LocalTraining(
        learner,
        model=name,
        iteration=iteration,
        consistency=consistency or BSP(),
        wait_seconds=wait_seconds,
        on_bad=on_bad,
        servers=servers,
    )
    trained = stream.apply(operator, name=local, workers=workers, tolerance=tolerance, bad_limit=bad_limit)
    model = GlobalModel(operator.learner, shards=shards)
    return trained.apply(model, name=name, workers=shards, tolerance=model_tolerance or tolerance, feeds_back=[local])
