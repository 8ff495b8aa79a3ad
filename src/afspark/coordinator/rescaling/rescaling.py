"""Starts a query with other numbers of workers than its checkpoint has.

The workers that there were come to rest first: all that they have is durable at the last batch that Spark has
committed, and what was lost is counted or replayed, as by any driver. Then their backups are divided among new ones.
One commit record hands over, at the same batch: until that is durable, nothing has changed, and from then on nobody
looks for the former workers any more. Whoever dies on the way leaves objects that no record names.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from afspark.cluster.cluster import Cluster, StageFailed
from afspark.cluster.remade_frame import PastFrames
from afspark.coordinator.batch_loop import Coordinator
from afspark.coordinator.changed_pipeline import starting_empty
from afspark.coordinator.configuring import operator_config
from afspark.coordinator.ending import is_intended
from afspark.coordinator.flushing import is_flushed
from afspark.coordinator.offsets import newest_of
from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.coordinator.rescaling.redivided import Handover
from afspark.coordinator.run_options import RunOptions
from afspark.errors import AfsparkError, CheckpointError, WorkerFailed, first_line
from afspark.graph.node import Node
from afspark.graph.pipeline import Pipeline
from afspark.graph.worker_numbers import NewNumber, new_numbers, refuse_numbers, with_lanes, with_workers
from afspark.numbers import Batch, PaneNumber
from afspark.store import CommitRecord, OperatorRecord, QueryIdentity, Store
from afspark.store.effect_log import EffectLog
from afspark.store.epochs import read_history
from afspark.store.naming import FOLDER
from afspark.task.redividing import Redivision, Written, join_shares, split_share, states_apart

LOG = logging.getLogger("afspark")

REST_SECONDS = 600.0
"""How long workers may take to make durable what is not."""


def numbers_found(checkpoint: Store) -> dict[str, int]:
    """How many workers each operator has in the newest record of a checkpoint; empty if it has none."""
    record = _newest(checkpoint)
    return {} if record is None else {name: len(operator.workers) for name, operator in record.operators.items()}


def fitted(pipeline: Pipeline, former: Mapping[str, int]) -> tuple[Pipeline, list[NewNumber]]:
    """The pipeline with as many lanes of pushed sources as there were, and its operators that have other numbers of
    workers than the ``former``: they are rescaled, or refused. Nothing is changed.
    """
    return with_lanes(pipeline, _lanes(pipeline, former)), new_numbers(pipeline, former)


def rescaled(
    cluster: Cluster,
    pipeline: Pipeline,
    options: RunOptions,
    identity: QueryIdentity,
    checkpoint: Store,
    past_frames: PastFrames | None = None,
    taken: Callable[[Coordinator], None] = lambda engine: None,
) -> Pipeline:
    """The pipeline that can run on the checkpoint: where it has other numbers of workers, these have the state now.

    `CheckpointError` if that cannot be. Nothing is changed before the end of it. ``taken`` is called as soon as no
    driver before can run batches any more, before anybody looks how far it has come.
    """
    former = numbers_found(checkpoint)
    pipeline, changes = fitted(pipeline, former)
    refuse_numbers(changes)
    others = [node for node in pipeline.nodes if former.get(node.name, node.workers) != node.workers]
    if not others:
        return pipeline
    if is_intended(checkpoint.below(FOLDER)):
        raise CheckpointError(
            "The stream of this checkpoint has been ended, so that its operators keep their workers.",
            remedy=f"Start with {', '.join(f'{one.former} for {one.operator!r}' for one in changes)}.",
        )
    engine = Coordinator(cluster, with_workers(pipeline, former), options, identity, checkpoint, past_frames)
    try:
        engine.take_lease()
        taken(engine)
        _Rescaling(cluster, engine, pipeline).run(others)
    finally:
        engine.close()
    for one in changes:
        LOG.info("%s.", one.text)
    return pipeline


class _Rescaling:
    """One handover. ``engine``: the driver of the query as it was."""

    def __init__(self, cluster: Cluster, engine: Coordinator, pipeline: Pipeline) -> None:
        self._cluster, self._engine, self._pipeline = cluster, engine, pipeline

    def run(self, nodes: Sequence[Node]) -> None:
        self._engine.check_unrecorded()
        record = self._rest()
        operators = dict(record.operators)
        for node in nodes:
            operators[node.name] = self._handed_over(node, record)
        # What an unfinished batch has done was done by others.
        EffectLog(self._engine.store).forget_after(record.batch)
        self._engine.log.write(replace(record, operators=operators))

    def _rest(self) -> CommitRecord:
        """The record of the last batch that Spark has committed, with backups of all that the workers had then."""
        engine = self._engine
        committed = newest_of(engine.checkpoint, "commits")
        batch = Batch(-1 if committed is None else committed)
        history = read_history(engine.store, batch)
        found = history.records[max(history.records)][1] if history.records else None
        if self._pipeline.pushed and (newest_of(engine.checkpoint, "offsets") or 0) > batch:
            raise self._not_stopped("a batch of pushed items was begun and not finished")
        if found is not None and found.batch == batch and not history.damaged and self._is_at_rest(found):
            engine.log.open_epoch(batch)
            return replace(found, epoch=engine.log.epoch)
        if self._pipeline.pushed:
            raise self._not_stopped("pushed items that are under way belong to the workers there were")
        engine.ready()
        record = engine.commits.at_rest(REST_SECONDS)
        if record is None or record.batch != batch:
            raise self._not_stopped("its last batches are in no record")
        return record

    def _is_at_rest(self, record: CommitRecord) -> bool:
        """Whether a query was stopped with this record, and nobody was lost or has started anew since."""
        operators = [node.name for node in self._pipeline.nodes if node.tolerance.needs_records]
        if starting_empty(self._engine.identity, record):
            # Of those the record has what was given up.
            return False
        return is_flushed(record, operators) and tuple(self._engine.ledger.heads) == record.ledger_heads

    def _not_stopped(self, why: str) -> CheckpointError:
        return CheckpointError(
            f"The number of workers cannot be changed, because {why}.",
            remedy="Start the query once more as it was and stop it; then change the number.",
        )

    def _handed_over(self, node: Node, record: CommitRecord) -> OperatorRecord:
        found = record.operators[node.name]
        self._refuse_holes(node, found)
        handover = Handover(former=found.workers, workers=node.workers, keyed=node.keyed)
        losses = [entry.loss for entry in self._engine.ledger.entries() if entry.loss.operator == node.name]
        incarnation = handover.incarnation(losses)
        written: list[Written] = []
        if node.operator.states() or node.feeds_back:
            engine = self._engine
            store, epoch = engine.store, engine.log.epoch
            config = operator_config(node, self._pipeline, engine.options, engine.identity, store=store, epoch=epoch)
            plan = Redivision(
                config=config,
                batch=record.batch,
                incarnation=incarnation,
                chains=handover.chains(),
                needed_from=_first_needed(node, found),
                apart=states_apart(node.operator) if node.keyed else frozenset(),
            )
            written = self._divided(node, handover, plan)
        before = ErrorBudget.of(self._engine.pipeline, self._engine.pipeline.node(node.name))
        now = ErrorBudget.of(self._pipeline, node)
        return handover.made(found, written, incarnation, before=before, now=now)

    def _divided(self, node: Node, handover: Handover, plan: Redivision) -> list[Written]:
        joined = handover.joined(parts_apart=bool(plan.apart), feeds_back=bool(node.feeds_back))
        answers: list[Written | AfsparkError] = []
        try:
            if node.keyed and set(node.operator.states()) - plan.apart:
                answers += self._cluster.try_on(self._places(plan.former), partial(split_share, plan))
            if joined:
                answers += self._cluster.try_on(self._places(len(joined)), partial(join_shares, plan, tuple(joined)))
        except StageFailed as error:
            raise WorkerFailed(
                f"The state of {node.name!r} could not be divided among {node.workers} workers: {first_line(error)}.",
                remedy="Nothing has changed. See the executors' logs, and start the query again.",
                operator=node.name,
            ) from error
        for answer in answers:
            if isinstance(answer, AfsparkError):
                raise answer
        # A task may have run more than once: any of its objects will do.
        unique = {(one.worker, one.number): one for one in answers if isinstance(one, Written)}
        return list(unique.values())

    def _places(self, tasks: int) -> dict[int, str]:
        """A host for each task, by their slots."""
        slots = sorted(self._cluster.slots_by_host().items())
        rounds = max((number for _, number in slots), default=0)
        hosts = [host for turn in range(rounds) for host, number in slots if turn < number]
        if not hosts:
            raise WorkerFailed("No host has an executor.", remedy="Start the query again when there is one.")
        return {task: hosts[task % len(hosts)] for task in range(tasks)}

    def _refuse_holes(self, node: Node, found: OperatorRecord) -> None:
        if any(worker.hole for worker in found.workers):
            raise CheckpointError(
                f"{node.name!r} cannot go from {len(found.workers)} workers to {node.workers}, because backups that"
                " others build on are unknown.",
                remedy=f"Start it with {len(found.workers)} workers for a batch, and change their number afterwards.",
                operator=node.name,
            )


def _newest(checkpoint: Store) -> CommitRecord | None:
    """The newest record of a batch that Spark has committed, or of one that ended the stream."""
    store = checkpoint.below(FOLDER)
    committed = newest_of(checkpoint, "commits")
    upto = sys.maxsize if is_intended(store) else -1 if committed is None else committed
    records = read_history(store, upto).records
    return records[max(records)][1] if records else None


def _lanes(pipeline: Pipeline, former: Mapping[str, int]) -> dict[str, int]:
    """How many lanes pushed sources have had: as many as workers of whoever took items off them."""
    found = {}
    for source in pipeline.pushed:
        readers = [node for node in pipeline.nodes if source in {edge.origin for edge in node.inputs}]
        known = [former[node.name] for node in readers if node.name in former]
        if known:
            found[source] = known[0]
    return found


def _first_needed(node: Node, found: OperatorRecord) -> PaneNumber | None:
    progress = found.window_progress
    if node.window is None or progress is None or progress.first_open is None or not node.window.has_panes:
        return None
    return PaneNumber(progress.first_open - node.window.panes + 1)
