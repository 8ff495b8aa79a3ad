"""Where a starting driver finds its workers: what the record says, what the ledger adds, what survives on hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from afspark.cluster.cluster import Cluster, StageFailed
from afspark.coordinator.placement import spread
from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.coordinator.worker_state import WorkerState
from afspark.errors import CheckpointError, WorkerFailed
from afspark.numbers import FIRST_INCARNATION, NO_INCARNATION, Batch, Incarnation
from afspark.protocol.lifecycle import Hint
from afspark.protocol.operator_config import OperatorConfig
from afspark.resident import Survivor
from afspark.store import Chain, CommitRecord, CountedFailure, Loss, Rescaled, WorkerRecord, chain_to_restore
from afspark.task.task_environment import TaskEnvironment

SEARCH_TRIES = 5
_PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class RecordedWorkers:
    """An operator's workers at the end of ``batch``, as the newest readable record has them; -1: there is none."""

    batch: Batch = Batch(-1)  # noqa: RUF009 (a number)
    workers: Sequence[WorkerRecord] = ()
    rescaled: Rescaled | None = None
    #: no record can have them: they start with empty states
    anew: bool = False

    @classmethod
    def of(cls, record: CommitRecord | None, operator: str) -> RecordedWorkers:
        """Those of one operator in a record."""
        found = record.operators.get(operator) if record else None
        return cls(record.batch, found.workers, found.rescaled) if record and found else cls()

    def concerns(self, loss: Loss) -> bool:
        """Whether a loss is of one of these workers, and not of those there were when their number was another."""
        return self.rescaled is None or loss.incarnation >= self.rescaled.since

    def end_of(self, worker: int) -> str:
        """Why a worker of whom there is a record, and no state anywhere, has none."""
        found = next((one for one in self.workers if one.worker == worker), None)
        if found is None or found.host:
            return "its segment was gone when the driver started"
        if self.rescaled is not None and found.incarnation == self.rescaled.since:
            return f"there were {self.rescaled.workers} workers before, whose state it takes over"
        return "the query was started from a savepoint"


def find_survivors(cluster: Cluster, hosts: Sequence[str], config: OperatorConfig) -> list[Survivor]:
    """The query's states on all hosts; those that nobody can want any more are removed on the way.

    `WorkerFailed` if tasks that look for them fail again and again: what nobody has looked at is not empty.
    """
    heard: dict[str, list[Survivor]] = {}
    silent, failed = list(hosts), None
    for attempt in range(SEARCH_TRIES):
        if failed is not None:
            cluster.clock.sleep(attempt * _PAUSE_SECONDS)
            # Nor does a host keep a driver from starting that went away meanwhile.
            alive = cluster.slots_by_host()
            silent, failed = [host for host in silent if host in alive], None
        if not silent:
            break
        try:
            heard |= dict(cluster.try_on(dict(enumerate(silent)), partial(_look, config)))
        except StageFailed as error:
            failed = error
        # A task may end up on another host than it was meant for.
        silent = [host for host in silent if host not in heard]
    if failed is not None:
        raise WorkerFailed(
            f"Nobody could look for resident state on {', '.join(silent)}.",
            remedy="See the executors' logs, then start the query again.",
            hosts=silent,
        ) from failed
    return [survivor for survivors in heard.values() for survivor in survivors]


def own_survivors(cluster: Cluster, hosts: Sequence[str], config: OperatorConfig, *, backed_up: bool) -> list[Survivor]:
    """The states of the operator's workers on all hosts. Those from a time when there were more or fewer of them are
    removed; `CheckpointError` if they are not ``backed_up``.
    """
    own = [one for one in find_survivors(cluster, hosts, config) if one.operator == config.operator_name]
    others = [survivor for survivor in own if survivor.workers != config.workers]
    if others and not backed_up:
        raise CheckpointError(
            f"{config.operator_name!r} cannot go from {others[0].workers} workers to {config.workers}, because nothing"
            " of their state is backed up, as under Nothing().",
            remedy=f"Start it with {others[0].workers} workers, or with a new checkpoint.",
            operator=config.operator_name,
        )
    if others:
        places = sorted({survivor.host for survivor in others})
        cluster.run_on(dict(enumerate(places)), partial(_drop_others, config))
    return [survivor for survivor in own if survivor not in others]


def _drop_others(config: OperatorConfig, environment: TaskEnvironment, _: int) -> list[None]:
    environment.drop_others_in_number(config)
    return []


def _look(config: OperatorConfig, environment: TaskEnvironment, _: int) -> list[tuple[str, list[Survivor]]]:
    return [(environment.host, environment.survivors(config))]


def restore_workers(
    *,
    batch: Batch,
    newest: Batch | None = None,
    budget: ErrorBudget,
    slots: Mapping[str, int],
    taken: Sequence[str] = (),
    recorded: RecordedWorkers,
    losses: Sequence[Loss],
    survivors: Sequence[Survivor],
) -> tuple[list[WorkerState], list[int]]:
    """The members for ``batch`` and the workers among them whose state is gone without having been declared.

    Pure. A surviving segment is taken over if it is of the expected incarnation, not behind ``batch`` - 1 nor ahead of
    ``newest``, and can say what it has reported since ``batch``.
    Without a record (nothing is backed up) the newest survivor is the expected one. Workers that start anew lack
    nothing, and no survivor is one of them.
    """
    if recorded.anew:
        return _housed([_new(one, batch, losses, survivors) for one in range(budget.workers)], slots, taken), []
    by_worker = {record.worker: record for record in recorded.workers}
    members: list[WorkerState] = []
    undeclared: list[int] = []
    for worker in range(budget.workers):
        record = by_worker.get(worker)
        own_losses = [loss for loss in losses if loss.worker == worker and recorded.concerns(loss)]
        usable = [
            s
            for s in survivors
            if s.worker == worker
            and batch - 1 <= s.version <= max(batch, newest or batch)
            and (s.version < batch or s.kept_from < batch)
        ]
        expected = max([Incarnation(loss.incarnation + 1) for loss in own_losses], default=FIRST_INCARNATION)
        if record is not None:
            expected = max(expected, record.incarnation)
        elif not budget.tolerance.needs_records:
            expected = max([expected, *(s.incarnation for s in usable)])
        counted_failures = _counted_failures(record, own_losses, rescaled=recorded.rescaled is not None)
        own = record if record is not None and record.incarnation == expected else None
        untold = _told_before(budget, recorded.batch, own_losses) < batch
        lowered, raised = _changed(own, budget)
        home = next((s.host for s in usable if s.incarnation == expected and s.host in slots), "")
        survives = home != "" and own is not None
        chain, previous = _chains(record, survives=survives)
        # Under a policy without records batches have come since then, which took the worker further.
        outdated = recorded.batch < batch - 1
        saved = not survives and not outdated and _is_saved(record, own_losses)
        member = WorkerState.at(
            home,
            worker=worker,
            incarnation=expected,
            counted_failures=counted_failures,
            version=batch - 1,
            # Where nothing is backed up nobody knows. What it held would be lost with it, so a loss has to count.
            # One that survives has more than the backups that its own build on, whatever was backed up at rest.
            completed=own.completed or int(survives or outdated)
            if own
            else int(untold and not budget.tolerance.needs_records),
            saved=saved,
            chain=chain,
            previous=previous,
            waiting=own.waiting if own else 0,
            lost_items=sum(loss.items for loss in own_losses if record and loss.incarnation >= record.incarnation)
            + (own.untold or 0 if own else 0),
            # Under which limits an incarnation that no record knows has worked, nobody can tell.
            recheck=lowered or own is None,
            older_theta=own.theta if own and lowered else None,
            # A full image at rest has closed a hole, but not for a state that does not build on it.
            restart_chain=record is not None
            and (record.hole or (survives and any(backup.full for backup in record.at_rest))),
            raised=raised,
        )
        if member.home:
            # Whether its operator was told of a loss that no record knows of, its reports since then say.
            unheard = own is None and expected > 0 and budget.tolerance.needs_records and not saved
            unheard = unheard or (own is not None and own.untold is not None)
            member = replace(member, hint=Hint.RESUME, recovering=unheard)
        elif batch > 0 and own is not None:
            undeclared.append(worker)
        elif any(s.worker == worker and s.incarnation == expected and s not in usable for s in survivors):
            # It goes on from records that nobody can read any more.
            member = replace(member, hint=Hint.RECOVER, recovering=True)
            undeclared.append(worker)
        elif batch > 0 or expected > 0:
            member = replace(member, hint=Hint.RECOVER, recovering=not saved)
            if untold:
                undeclared.append(worker)
        if member.hint is not Hint.RESUME:
            # Of one that goes on nobody knows at which batch its last checkpoint was.
            member = replace(member, checkpointed=member.version)
        members.append(member)
    return _housed(members, slots, taken), undeclared


def _new(worker: int, batch: Batch, losses: Sequence[Loss], survivors: Sequence[Survivor]) -> WorkerState:
    """A worker that starts with an empty state, whatever one of the same number has left: the incarnations of that one
    are behind it, and the failures that were counted stay counted.
    """
    own = [loss for loss in losses if loss.worker == worker]
    before = [loss.incarnation + 1 for loss in own] + [one.incarnation for one in survivors if one.worker == worker]
    return WorkerState.at(
        "",
        worker=worker,
        incarnation=Incarnation(max(before, default=FIRST_INCARNATION) + 1),
        counted_failures=_counted_failures(None, own),
        version=batch - 1,
        checkpointed=batch - 1,
        # Nothing is lost with it, and nobody has to be told that it is new.
        saved=True,
    )


def _chains(record: WorkerRecord | None, *, survives: bool) -> tuple[Chain, Chain]:
    """The backups that those of a worker build on, and those before: a state that the record knows and that
    ``survives`` does not build on what was backed up at rest; one that was restored since does.
    """
    if record is None:
        return (), ()
    return (record.chain, record.previous) if survives else chain_to_restore(record)


def _is_saved(record: WorkerRecord | None, losses: Sequence[Loss]) -> bool:
    """Whether a worker has nothing that is not durable: the query was stopped after ``record``, and since then nobody
    was lost who had completed anything.
    """
    if record is None or record.completed or record.untold is not None:
        return False
    return not any(loss.counted for loss in losses if loss.incarnation >= record.incarnation)


def _told_before(budget: ErrorBudget, recorded: Batch, losses: Sequence[Loss]) -> Batch:
    """The batch before which nothing that a worker has applied is lost untold: a record has it, or a loss was declared.

    If the backups cannot be read that a lost worker is to be given back, its recovery tells. Where nothing is backed
    up, nobody looks for any: there a loss tells of all before it only if nothing limited what it took.
    """
    telling = [loss.batch for loss in losses if budget.tolerance.needs_records or not loss.limited]
    return max([Batch(recorded + 1), *telling])


def _housed(members: Sequence[WorkerState], slots: Mapping[str, int], taken: Sequence[str]) -> list[WorkerState]:
    """Replicas without a home get the slots that those with one, and whoever has ``taken`` some, leave free."""
    replicas = [replica for member in members for replica in member.replicas]
    taken = [*taken, *(replica.home for replica in replicas if replica.home)]
    homes = spread([replica.id for replica in replicas if not replica.home], slots, taken)
    housed = {member.worker: member for member in members}
    for replica, home in homes.items():
        housed[replica.worker] = housed[replica.worker].moved(replica, home)
    return list(housed.values())


def _counted_failures(
    record: WorkerRecord | None, losses: Sequence[Loss], *, rescaled: bool = False
) -> tuple[CountedFailure, ...]:
    """The counted failures: as the ledger says, or as the record and what came after it say if the ledger has gaps."""
    told = [loss.counted_failure for loss in losses if loss.counted_failure]
    if record is None:
        return tuple(told)
    later = [one.counted_failure for one in losses if one.counted_failure and one.incarnation >= record.incarnation]
    kept = [*record.counted_failures, *later]
    if rescaled:
        # What was taken over from other workers in number, the ledger tells of those.
        told = [*(one for one in record.counted_failures if one.incarnation == NO_INCARNATION), *told]
    return tuple(told if len(told) > len(kept) else kept)


def _changed(record: WorkerRecord | None, budget: ErrorBudget) -> tuple[bool, bool]:
    """Whether any limit is lower, or higher, than those the worker's last backup was made under: failures apart, which
    concern those that come after it.
    """
    if record is None:
        return False, False
    theta = budget.theta(record.counted_failures)
    both = [(most, record.theta.get(name, most)) for name, most in theta.items()]
    return any(now < then for now, then in both), any(now > then for now, then in both)
