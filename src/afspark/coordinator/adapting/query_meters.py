"""The measurements of all units of a query, and the situations that are made of them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from afspark.control import MeasuredRecovery, Quantity, Situation, Unit, UnitHistory
from afspark.coordinator.adapting.detection import Detection
from afspark.coordinator.adapting.unit_meter import BatchFacts, Capture, UnitMeter
from afspark.coordinator.operator_run import OperatorRun
from afspark.numbers import Batch
from afspark.protocol.reports import TaskReport
from afspark.store import LedgerEntry

LOG = logging.getLogger("afspark")

_RECORDS = 32
"""How many batches tell what a record takes."""


class QueryMeters:
    """What is known of the units of one query. ``replayable``: whether what they have received can be had again;
    ``grace_seconds``: how long a host is waited for; ``detection``: what is known of failures.
    """

    def __init__(self, *, replayable: bool, grace_seconds: float = 0.0, detection: Detection | None = None) -> None:
        self._replayable, self._grace_seconds = replayable, grace_seconds
        self.detection = detection
        self._units: dict[Unit, UnitMeter] = {}
        #: what recoveries of any unit have told of the cluster
        self._shared = UnitHistory()
        self._records: deque[float] = deque(maxlen=_RECORDS)
        self._has_recorded = False

    # --- what is measured -----------------------------------------------------------------------------------

    def batch(self, run: OperatorRun, batch: Batch, applied: float) -> None:
        """Takes up the reports of ``batch``, which all workers had applied at a moment, in seconds since 1970."""
        for report in run.reports:
            meter, work = self._meter(Unit(run.name, report.worker)), report.work
            if not meter.is_new:
                _note_writing(meter, report, applied)
            meter.batch(
                BatchFacts(
                    batch=batch,
                    ended=applied,
                    stage=run.stage_seconds,
                    work=work.seconds + work.backup_seconds,
                    items=work.items,
                    received=work.bytes,
                    sent=work.sent,
                    cpu=work.cpu,
                )
            )
            if report.backups:
                chain = run.group.member(report.worker).chain
                meter.captured(
                    Capture(
                        batch=batch,
                        at=applied,
                        written=sum(ref.bytes for ref in report.backups),
                        size=sum(ref.bytes for ref in chain),
                        cpu=work.backup_cpu,
                    )
                )

    def recorded(self, seconds: float) -> None:
        """A batch waited so long for its record; that of the first one says little."""
        if self._has_recorded:
            self._records.append(seconds)
        self._has_recorded = True

    def covered(self, batch: Batch, at: float) -> None:
        """A durable record covers ``batch`` since a moment."""
        for meter in self._units.values():
            meter.covered(batch, at)

    def learn(self, recovered: Iterable[LedgerEntry]) -> None:
        """Takes up what recoveries have told of the next ones."""
        for entry in recovered:
            if entry.recovery is not None and entry.recovery.account:
                found = MeasuredRecovery.from_json(entry.recovery.account)
                meter = self._meter(found.unit)
                meter.history, self._shared = found.learned_by(meter.history), found.learned_by(self._shared)

    def step_taken(self, unit: Unit, step: Quantity, *, at: float, seconds: float, amount: float = 0.0) -> None:
        """A step of a recovery was taken without a failure, in a transition: what it took is known from now on."""
        self._meter(unit).add(step, at=at, seconds=seconds, amount=amount)
        self._shared = self._shared.add(step, at=at, seconds=seconds, amount=amount)

    # --- what follows ---------------------------------------------------------------------------------------

    def situation(self, run: OperatorRun, worker: int, now: float) -> Situation:
        """A unit as it is at a moment."""
        unit = Unit(run.name, worker)
        meter = self._meter(unit)
        deadlines = self.detection.deadlines() if self.detection is not None else {}
        expected = meter.expected(record_seconds=max(self._records, default=0.0), grace_seconds=self._grace_seconds)
        if deadlines and Quantity.PROMOTION in expected:
            # The other active replica is asked for its answer when the driver knows of the failure.
            takeover = max(deadlines.values()) + expected[Quantity.PROMOTION]
            expected = {**expected, Quantity.TAKEOVER: takeover}
        return Situation(
            unit=unit,
            history=meter.at(now).completed_by(self._shared),
            now=now,
            stateful=bool(run.node.operator.states()),
            replayable=self._replayable,
            elsewhere=run.node.tolerance.recovers_elsewhere,
            waiting=meter.waiting,
            behind=run.group.items_behind(worker),
            deadlines=deadlines,
            expected=expected,
        )

    # --- over restarts --------------------------------------------------------------------------------------

    def known(self, now: float) -> Callable[[], dict[str, Any]]:
        """What makes all of it JSON, as it is now: that may happen later, while more is measured."""
        shared, records = self._shared, list(self._records)
        units = {unit: meter.known(now) for unit, meter in sorted(self._units.items())}
        return lambda: {
            "shared": shared.to_json(),
            "records": records,
            "units": [{"operator": unit.operator, "worker": unit.worker, **known()} for unit, known in units.items()],
        }

    def take_up(self, found: Sequence[Mapping[str, Any]]) -> None:
        """Goes on with what earlier drivers have left."""
        for known in found:
            try:
                self._shared = self._shared.merged(UnitHistory.from_json(known["shared"]))
                self._records = deque(map(float, known["records"]), maxlen=_RECORDS)
                for one in known["units"]:
                    self._meter(Unit(one["operator"], one["worker"])).take_up(one)
            except (KeyError, TypeError, ValueError) as error:
                LOG.warning("Measurements of an earlier driver are not understood: %r", error)

    def _meter(self, unit: Unit) -> UnitMeter:
        if unit not in self._units:
            self._units[unit] = UnitMeter()
        return self._units[unit]


def _note_writing(meter: UnitMeter, report: TaskReport, at: float) -> None:
    """How fast the store has taken what there was to write."""
    work = report.work
    if work.uploaded:
        meter.add(Quantity.CHECKPOINT_WRITE, at=at, seconds=work.upload_seconds, amount=work.uploaded)
    elif report.backups and not report.pending:
        written = sum(ref.bytes for ref in report.backups)
        meter.add(Quantity.CHECKPOINT_WRITE, at=at, seconds=work.backup_seconds, amount=written)
