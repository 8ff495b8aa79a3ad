"""What a user can ask a query about errors: bounds, thresholds, losses, bad items."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from afspark.coordinator.adapting.control_loop import decisions_of
from afspark.coordinator.batch_loop import Coordinator
from afspark.coordinator.recovery.upstream import upstream_losses
from afspark.coordinator.snapshots import described
from afspark.coordinator.told_bounds import in_force, told
from afspark.errors import UsageError
from afspark.store import LedgerEntry
from afspark.store.control_log import ControlLog
from afspark.store.epochs import newest_record


class Accounts:
    """The part of a query that answers for its errors; its batches are run by ``_engine``."""

    _engine: Coordinator

    def bounds(self, operator: str | None = None) -> dict[str, float]:
        """Per state: how far failures of this operator can have moved it at most. 0 before any.

        That includes pushed items that it lost. What losses of other operators have changed in what it received is not
        in it: `upstream_losses` names them. Infinite if no bound covers one of those.
        """
        if not self._engine.runs:
            return {}
        return told(self._engine.operator(operator))

    def upstream_losses(self, operator: str | None = None) -> list[str]:
        """The operators whose losses may have changed what this one received; `bounds` leaves that out.

        It is exact, or within its bound, about what it received, and not about what it would have received without
        failures, if any is listed. An operator is among its own if what it sends comes back to it as feedback.
        """
        return upstream_losses(self._engine.operator(operator)) if self._engine.runs else []

    def convergence(self, operator: str | None = None, *, norm: float | None = None) -> dict[str, Any]:
        """How the model of an operator converges that others train, since the driver was started.

        ``merges``, ``items``, ``log_loss`` (mean of all items, each predicted before it was learned from), ``l1`` of
        the last change, ``seconds`` since the first batch was begun; ``regret`` beside ``regret_bound`` and whether
        that ``held`` (None: theorem 1 says nothing of the learner); ``curve``: of every merge seconds, norm, items and
        sum of losses; ``batches``: of every batch seconds and the norm of what it has changed as a whole, which can be
        compared between consistencies, where a merge is a round or one worker's step.
        With ``norm`` also ``seconds_to_norm``: how long until changes were no larger, and stayed so; None if they are
        not. UsageError if nobody trains a model for this operator.
        """
        found = self._engine.operator(operator).convergence
        if found is None:
            raise UsageError(
                "No model is trained there.", remedy="Name the operator that has the model, such as 'global'."
            )
        shown = {**found.to_json(), "curve": found.curve(), "batches": found.by_batch()}
        return shown if norm is None else {**shown, "seconds_to_norm": found.seconds_to(norm)}

    def exchanges(self) -> dict[str, Any]:
        """When workers that train a model pushed and pulled in the last batch, by operator that trains.

        ``pushes``: worker, process, step, and when it was taken; ``pulls``: worker, process, step, when it was asked
        for and answered, and the version. Of the server of the first shard, in seconds since 1970; operators whose
        server is gone are left out.
        """
        return self._engine._stages.model_events()

    def tolerance(self) -> list[dict[str, Any]]:
        """Thresholds θ, l and γ in force per worker, and why."""
        return [entry for run in self._engine.runs if not run.node.internal for entry in in_force(run)]

    def ledger(self) -> list[dict[str, Any]]:
        """Every loss of this query since its checkpoint was made, oldest first.

        ``internal``: of a node that the runtime has put in front of operators to take pushed items. ``taken``: the most
        that it can have taken from each state, infinite if no bound covers it. ``recovery_seconds``: how long the lost
        worker took to load its backups (``restore_seconds``) and to apply batches again (``replay_seconds``).
        ``gap_batches``, ``gap_items``: what nobody replays for it, under a scheme with ``gap=True``; not what it had
        lost before.
        ``gap_seconds``: from the declared loss, ``at``, to the end of the batch with which it was back, on ``host``.
        ``steps``: seconds from the failure (of the kind ``failure``) to the first batch applied, by steps and together
        (``seconds``), beside what was ``estimated`` before; None for what nobody can tell. ``pause``: seconds besides
        those in which the driver knew and nobody needed the worker, as between two batches.
        """
        internal = {node.name for node in self._engine.pipeline.nodes if node.internal}
        return [
            {
                "operator": self._title(entry.loss.operator),
                "internal": entry.loss.operator in internal,
                "worker": entry.loss.worker,
                "batch": entry.loss.batch,
                "incarnation": entry.loss.incarnation,
                "cause": entry.loss.cause,
                "counted": entry.loss.counted,
                "theta": dict(entry.loss.theta),
                "failures": entry.loss.failures,
                "taken": _taken(entry),
                "items": entry.loss.items,
                "gap_batches": entry.loss.gap_batches,
                "gap_items": entry.loss.gap_items,
                "thresholds": entry.loss.thresholds.to_json() if entry.loss.thresholds else {},
                "at": entry.loss.at,
                "recovery_seconds": entry.recovery.all_seconds if entry.recovery else None,
                "restore_seconds": entry.recovery.seconds if entry.recovery else None,
                "restored_cells": entry.recovery.restored_cells if entry.recovery else None,
                "replayed_batches": entry.recovery.replayed if entry.recovery else None,
                "replay_seconds": entry.recovery.replay_seconds if entry.recovery else None,
                "gap_seconds": entry.recovery.gap_seconds if entry.recovery else None,
                "host": entry.recovery.host if entry.recovery else None,
                "steps": _steps(entry, "measured"),
                "estimated": _steps(entry, "estimated"),
                "pause": entry.recovery.account.get("pause") if entry.recovery else None,
                "failure": entry.recovery.account.get("kind") if entry.recovery else None,
                "damaged": list(entry.recovery.damaged) if entry.recovery else [],
                "differed": entry.recovery.differed if entry.recovery else False,
                "covered": entry.covered,
            }
            for entry in self._engine.ledger.entries()
        ]

    def estimates(self, operator: str | None = None) -> list[dict[str, Any]]:
        """How long each worker of an operator would take to recover from a failure, under all schemes.

        Of each worker what is ``in_force``, the ``limit`` of `Adaptive` (None under another tolerance), and
        ``candidates``: ``seconds`` from the failure to the next batch applied (None if a step is ``unknown``), the
        steps of that (``estimate``), and what the scheme costs beyond the primary. With `Adaptive` as the controller
        sees them, at the worst moment between two checkpoints ``interval`` seconds apart; otherwise as of now.
        Empty before the first batch.
        """
        return self._engine.control.estimates(self._engine.operator(operator)) if self._engine.runs else []

    def protections(self, operator: str | None = None) -> dict[int, str]:
        """What protects each worker of an operator now: the name of a scheme; default: the last operator's."""
        found = self._engine.operator(operator).protections() if self._engine.runs else {}
        return {worker: str(one.protection) for worker, one in found.items()}

    def decisions(self) -> list[dict[str, Any]]:
        """What the controller has changed, oldest first, over all drivers of the query: when (``at``), of which worker,
        ``from`` and ``to`` which scheme, the ``candidates`` with estimate and cost, and the ``reason`` in words.
        """
        if self._engine.runs:
            found = self._engine.control.decisions()
        else:
            # A driver that has not looked for its workers yet knows of none.
            found = [one.to_json() for one in decisions_of(ControlLog(self._engine.store).read()[0])]
        return [{**one, "operator": self._title(one["operator"])} for one in found]

    def snapshots(self) -> list[dict[str, Any]]:
        """The newest snapshots, oldest first, over all drivers of the query; empty if none had `BarrierSnapshot`.

        Of each: its number, ``barrier`` (the batch that it ended with), ``stage``, when it was started (its workers had
        applied that batch) and completed (seconds since 1970), ``parts`` (objects), ``full`` (how many of them are full
        images), ``bytes``, why it was ``abandoned`` if it was, and the barriers that were ``skipped`` after it, with
        the reason. Only a complete one is ever used.
        """
        if self._engine.runs:
            return self._engine.commits.snapshots.described()
        # A driver that has not looked for its workers yet knows of none.
        record = newest_record(self._engine.store)
        return described(record.snapshots) if record else []

    def item_losses(self) -> list[dict[str, Any]]:
        """Items that producers were promised to keep and that failures have taken, oldest first.

        Those that several operators would have read are listed for each of them.
        """
        pipeline = self._engine.pipeline
        return [
            {**asdict(loss), "operator": reader.title, "items": loss.items}
            for loss in self._engine.item_losses.entries()
            for reader in pipeline.readers(pipeline.node(loss.operator))
        ]

    def bad_items(self, operator: str | None = None) -> list[dict[str, Any]]:
        """Items that operators could not take and that are kept in quarantine, oldest first; default: of all."""
        ids = {title: name for name, title in self._engine.pipeline.titles.items()}
        found = self._engine.quarantine.items(None if operator is None else ids.get(operator, operator))
        return [{**asdict(item), "operator": self._title(item.operator)} for item in found]

    def _title(self, operator: str) -> str:
        """What the user calls the operator of that id."""
        return self._engine.pipeline.titles.get(operator, operator)


def _steps(entry: LedgerEntry, which: str) -> dict[str, float | None] | None:
    """The seconds of a recovery by steps, as they were measured or estimated; None if nobody has timed it."""
    account = entry.recovery.account if entry.recovery else {}
    return dict(account[which]) if account else None


def _taken(entry: LedgerEntry) -> dict[str, float]:
    failure = entry.loss.counted_failure
    taken = failure.told() if failure else {}
    return dict.fromkeys(taken, math.inf) if entry.covered is False else taken
