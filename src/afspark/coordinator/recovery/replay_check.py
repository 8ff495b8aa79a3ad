"""Whether a replayed batch has done the same as the first time. Pure.

What a batch has done at a worker is known from its report, as digests, until a durable record covers the batch. What
batches have done under an earlier driver is known as far as that has recorded it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from afspark.coordinator.recovery.recorded_effects import READING, effects_and_reading, recorded_effects
from afspark.graph.node import Node
from afspark.graph.reach import reached_from, targets_of
from afspark.model.effect_digest import EffectDigest
from afspark.numbers import Batch
from afspark.protocol.parcels import NOTHING_KEPT
from afspark.protocol.ports import ALL, feedback_for, items_for
from afspark.protocol.reports import TaskReport
from afspark.store import CommitRecord
from afspark.store.effect_log import BatchEffects
from afspark.task.effects import ITEMS, PORT, WHOLE

#: How often a worker goes back at most, between two records, because others have made something else for it.
MOST_RETURNS = 3

_NOTHING = EffectDigest()


@dataclass(frozen=True)
class Difference:
    """A worker has made something else of a batch than the first time: ``labels`` say what of it."""

    operator: str
    worker: int
    batch: Batch
    labels: tuple[str, ...]

    @property
    def ports(self) -> tuple[str, ...]:
        """What it has sent that is different."""
        return tuple(label.removeprefix(PORT) for label in self.labels if label.startswith(PORT))

    def __str__(self) -> str:
        return f"worker {self.worker} of {self.operator!r} in batch {self.batch} ({', '.join(self.labels)})"


class ReplayCheck:
    """The effects of the batches that no durable record covers, and who has made something else of one of them."""

    def __init__(self, nodes: Sequence[Node], frames: Collection[str] = ()) -> None:
        self._nodes, self._frames = nodes, frames
        self._reports: dict[tuple[Batch, str, int], TaskReport] = {}
        #: what an earlier driver has recorded of their effects
        self._recorded: dict[tuple[Batch, str, int], Mapping[str, EffectDigest]] = {}
        self._produced: dict[tuple[Batch, str, int], Mapping[str, str]] = {}
        #: batches that operators have applied to a state which had lost something
        self._lossy: set[tuple[Batch, str]] = set()
        #: operators that have made something else, and the newest batch of which they have
        self._changed: dict[str, Batch] = {}
        #: how often operators have done so
        self._changes: Counter[str] = Counter()
        #: operators whose backups were not the whole state
        self._partial: set[str] = set()
        #: operators that were given another state than they had, and may have lost feedback which they had sent in the
        #: batch before the first one to be replayed
        self._approximated: set[str] = set()
        self._returns: Counter[tuple[str, int]] = Counter()
        #: operators of which others say that they have sent something else: by those that say so
        self._suspects: dict[str, set[str]] = {}
        self._covered = Batch(-1)
        #: the first batch that this driver has run
        self._first: Batch | None = None

    def run(self, batch: Batch) -> None:
        """This driver runs ``batch``."""
        self._first = batch if self._first is None else self._first

    def was_read_before(self, batch: Batch) -> bool:
        """Whether workers may have ``batch`` from an earlier driver: of a DataFrame that may be another reading."""
        return bool(self._frames) and (self._first is None or batch <= self._first)

    def note(self, operator: str, batch: Batch, reports: Iterable[TaskReport], *, whole: bool) -> None:
        """What workers say of a batch that they have applied now; ``whole``: to a state that had lost nothing."""
        for report in reports:
            self._reports[batch, operator, report.worker] = report
            self._produced[batch, operator, report.worker] = report.produced
        if not whole:
            self._lossy.add((batch, operator))

    def recall(self, record: CommitRecord | None, done: Mapping[Batch, BatchEffects]) -> None:
        """Takes up what batches since ``record`` have done under an earlier driver."""
        self._recorded = {
            (batch, operator, worker): effects
            for batch, by_operator in done.items()
            for operator, by_worker in by_operator.items()
            for worker, effects in by_worker.items()
        }
        operators = record.operators if record else {}
        self._partial = {name for name, one in operators.items() if not all(worker.is_whole for worker in one.workers)}

    def to_record(self, first: Batch, last: Batch) -> dict[Batch, BatchEffects]:
        """What of the batches from ``first`` to ``last`` is to be known beyond this driver; nothing where no operator
        is exact.
        """
        found: dict[Batch, dict[str, dict[int, Mapping[str, EffectDigest]]]] = {}
        if any(node.tolerance.exact for node in self._nodes):
            for (batch, operator, worker), report in self._reports.items():
                # Whoever replays it from an older record may lack nothing.
                if first <= batch <= last and (batch, operator) not in self._lossy:
                    effects = recorded_effects(report, self._frames)
                    found.setdefault(batch, {}).setdefault(operator, {})[worker] = effects
        return dict(found)

    def forget(self, covered: Batch) -> None:
        """A durable record covers ``covered`` and all batches before it; what was sent back in it is still to come."""
        if covered <= self._covered:
            return
        self._covered = covered
        self._reports = {key: one for key, one in self._reports.items() if key[0] > covered}
        self._recorded = {key: one for key, one in self._recorded.items() if key[0] > covered}
        self._lossy = {key for key in self._lossy if key[0] > covered}
        self._produced = {key: one for key, one in self._produced.items() if key[0] >= covered}
        self._changed = {name: batch for name, batch in self._changed.items() if batch > covered}
        self._returns.clear()
        self._approximated.clear()
        self._partial.clear()
        self._suspects.clear()

    def differences(self, operator: str, batch: Batch, reports: Iterable[TaskReport]) -> list[Difference]:
        """What is different now; where nobody knows what was the first time, nothing is."""
        found = []
        for report in reports:
            key = batch, operator, report.worker
            if key in self._reports:
                frames = self._frames if self.was_read_before(batch) else ()
                first, now = (effects_and_reading(one, frames) for one in (self._reports[key], report))
            elif key in self._recorded:
                first, now = dict(self._recorded[key]), recorded_effects(report, self._frames)
            else:
                continue
            if not first or not now:
                # It was told of a loss in one of both, and not in the other.
                self.changed(operator, batch)
                continue
            labels = {
                label for label in {*first, *now} if not first.get(label, _NOTHING).agrees(now.get(label, _NOTHING))
            }
            if WHOLE not in first or WHOLE not in now:
                # An approximate operator, or one that was: nobody compares more of it than what others were sent.
                labels = {label for label in labels if label in (ITEMS, READING) or self._is_sent(operator, label)}
            if labels > {READING}:
                # Spark has divided the rows of a DataFrame otherwise, and the worker has got another share of them.
                self.changed(operator, batch)
            if labels := labels - {READING}:
                found.append(Difference(operator, report.worker, batch, tuple(sorted(labels))))
        return found

    def is_to_blame(self, difference: Difference, *, exact: bool) -> bool:
        """Whether the operator itself is the reason, although it has promised to do the same again.

        One that is not ``exact``, or was not before, was given another state than it had, so that only the number of
        its items must be the same. One that others have sent something else was given other items, also where those had
        another state than before; and one that has made something else of a batch does so of those that follow.
        """
        name = difference.operator
        others = {*self._changed, *self._approximated}
        if name in self._changed or any(name in self.reached_from(one) for one in others):
            return False
        return (exact and name not in self._partial) or ITEMS in difference.labels

    def hear(self, operator: str, batch: Batch, report: TaskReport, *, exact: bool) -> None:
        """What a worker says that was asked to do something for ``batch``: it may have been given another state."""
        if report.damaged:
            self.changed(operator, batch)
        if report.restored is not None and not exact:
            self._approximated.add(operator)

    def suspect(self, operator: str, origin: str, batch: Batch, *, exact: bool) -> None:
        """Notes that ``operator`` has applied something else of ``batch`` than ``origin`` has sent now.

        Perhaps only in another order: what ``operator`` does when it has it applied again will tell.
        """
        if exact:
            self._suspects.setdefault(operator, set()).add(origin)
        else:
            self.changed(origin, batch)

    def suspects(self, operator: str) -> set[str]:
        """Who is the reason if an operator does something else: others, or itself."""
        return self._suspects.get(operator) or {operator}

    def changed(self, operator: str, batch: Batch) -> None:
        """Notes that an operator has made something else of a batch."""
        self._changed[operator] = max(batch, self._changed.get(operator, batch))
        self._changes[operator] += 1

    def changes_reaching(self, operator: str) -> int:
        """How often operators whose items or feedback can reach this one have made something else of a batch: what
        they had sent before may be something else now.
        """
        return sum(times for name, times in self._changes.items() if operator in self.reached_from(name))

    def may_go_back(self, operator: str, worker: int) -> bool:
        """Whether a worker goes back because of what others have changed; it is counted."""
        self._returns[operator, worker] += 1
        return self._returns[operator, worker] <= MOST_RETURNS

    def receivers(self, difference: Difference) -> dict[str, Batch]:
        """Who has had what is different now, and in which batch they have applied it."""
        found: dict[str, Batch] = {}
        for node in self._nodes:
            reads = any(edge.origin == difference.operator for edge in node.inputs)
            if feedback_for(node.name) in difference.ports:
                found[node.name] = Batch(difference.batch + 1)
            if reads and not {ALL, items_for(node.name)}.isdisjoint(difference.ports):
                found[node.name] = difference.batch
        return found

    def _is_sent(self, operator: str, label: str) -> bool:
        return bool(self.receivers(Difference(operator, 0, Batch(0), (label,))))

    def reached_from(self, operator: str) -> set[str]:
        """The operators that items or feedback of an operator can reach; itself only by way of others."""
        return reached_from(targets_of(self._nodes), operator)

    def feedback_kept(self, node: Node, batch: Batch) -> dict[str, str]:
        """Digests of the feedback that an operator meets in ``batch``, as its senders keep it now."""
        return {
            f"{operator}<{worker}": produced.get(feedback_for(node.name), NOTHING_KEPT)
            for (sent, operator, worker), produced in self._produced.items()
            if sent == batch - 1 and any(one.name == operator and node.name in one.feeds_back for one in self._nodes)
        }


def others_applied(reports: Iterable[TaskReport], kept: Mapping[str, str]) -> dict[int, set[str]]:
    """The workers that have applied something else than is ``kept`` for them now, and what: map partitions."""
    found = {
        report.worker: {label for label, digest in report.consumed.items() if kept.get(label, digest) != digest}
        for report in reports
    }
    return {worker: labels for worker, labels in found.items() if labels}


def origin_of(label: str) -> str:
    """The operator that a map partition belongs to."""
    return label.rsplit("<" if "<" in label else ":", 1)[0]
