"""The workers of an operator over its batches: where they live, and what they are asked to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from afspark.cluster.cluster import Cluster
from afspark.coordinator.placement import spread
from afspark.coordinator.recovery.discovery import RecordedWorkers, own_survivors, restore_workers
from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.coordinator.recovery.gaps import AppliedBatches, without_replay
from afspark.coordinator.recovery.recoveries import Recoveries
from afspark.coordinator.recovery.recovery_timings import RecoveryTimings
from afspark.coordinator.recovery.verdicts import Verdict, judge
from afspark.coordinator.replicas.secondary_group import SecondaryGroup
from afspark.coordinator.replicas.unit_scheme import Evidence
from afspark.coordinator.worker_state import Covered, DurableState, WorkerState
from afspark.errors import CheckpointError, WorkerFailed
from afspark.numbers import Batch, Fence
from afspark.policies import BackupPlan, Tolerance
from afspark.protocol.batch_times import BatchTime
from afspark.protocol.lifecycle import Hint
from afspark.protocol.losses import LossEvidence
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.punctuation_plan import PunctuationPlan
from afspark.protocol.replicas import ReplicaId
from afspark.protocol.reports import Status, TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.resident import Survivor
from afspark.store import CommitRecord, Ledger, LedgerEntry


class WorkerGroup:
    """The workers of one operator. What becomes of a lost one is in `recovery`."""

    def __init__(
        self,
        cluster: Cluster,
        config: OperatorConfig,
        budget: ErrorBudget,
        ledger: Ledger,
        *,
        host_grace_seconds: float,
        fence: Fence,
        neighbours: Sequence[str] = (),
    ) -> None:
        self.cluster, self.config, self.budget, self.ledger = cluster, config, budget, ledger
        self.host_grace_seconds = host_grace_seconds
        #: hosts on which something else takes a slot for good, once for each
        self.neighbours = list(neighbours)
        self._members: dict[int, WorkerState] = {}
        #: what the batch at work means for windows and punctuation
        self.batch_time = BatchTime()
        self.punctuation_plan: PunctuationPlan = ()
        timings = RecoveryTimings(config.operator_name, cluster.clock, cluster.slots_by_host)
        self.recoveries = Recoveries(config, budget, ledger, timings)
        self._fence = fence
        #: whether a worker has to replay anything of what this driver has found done
        self.lacks_batches = False
        self._meanings: dict[Batch, tuple[BatchTime, PunctuationPlan]] = {}
        #: called before a loss is declared or a state refused
        self.before_loss: Callable[[], None] = lambda: None
        #: whether lost workers apply again what no durable record covers
        self.replays = False
        self.covered = Covered()
        #: up to which batch a worker has left some out
        self.left_out = Batch(-1)
        #: what the batch at work means with what came in it, once all workers have applied it
        self._ended: BatchTime | None = None
        self._applied = AppliedBatches()
        #: whether requests are made for a batch of the past
        self.past = False
        #: whether the batch at work ends with a state of the whole query that can be recovered
        self.barrier = True
        now = cluster.clock.time()
        self.secondaries = SecondaryGroup(config.operator_name, budget.tolerance, config.workers, now)

    @property
    def members(self) -> list[WorkerState]:
        """The workers, by their numbers."""
        return [self._members[worker] for worker in sorted(self._members)]

    def member(self, worker: int) -> WorkerState:
        return self._members[worker]

    def budget_of(self, worker: int) -> ErrorBudget:
        """What one worker may lose: an approximate tolerance may have been chosen for it alone."""
        chosen = self.secondaries.approximation(worker)
        return self.budget if chosen is None else replace(self.budget, tolerance=chosen)

    def want(self, worker: int, tolerance: Tolerance, seen: Evidence) -> None:
        """From now on ``worker`` is to be protected by ``tolerance``."""
        member = self.member(worker)
        before = self.budget_of(worker).theta(member.counted_failures)
        self.secondaries.want(worker, tolerance, seen, self.cluster.clock.time())
        now = self.budget_of(worker).theta(member.counted_failures)
        self._members[worker] = member.with_limits(before, now)

    @property
    def homes(self) -> dict[int, str]:
        return {member.worker: member.home for member in self.members}

    def gather(
        self, batch: Batch, record: CommitRecord | None, damaged: Sequence[str], newest: Batch, *, anew: bool = False
    ) -> None:
        """Finds the workers again, or makes new ones, so that ``batch`` can run next. They may have come to ``newest``.

        ``damaged`` names what was passed over to reach ``record``: what is recovered from an older record than
        the last one is not covered by any bound, and the ledger says so. ``anew``: they start with empty states.
        """
        recorded = RecordedWorkers(anew=True) if anew else RecordedWorkers.of(record, self.config.operator_name)
        slots, survivors = self._survivors(recorded, newest)
        self.secondaries.adopt([] if anew else survivors, batch)
        primaries = [survivor for survivor in survivors if anew or not survivor.secondary]
        members, undeclared = self._restored(batch, newest, recorded, slots, primaries)
        if damaged:
            # Backups between the record found and the last one are unknown: no chain may go on with a hole in it.
            members = [replace(member, restart_chain=True) for member in members]
        self._members = {member.worker: member for member in members}
        behind = any(one.version < newest - 1 for one in primaries)
        self.lacks_batches = behind or any(member.hint is not Hint.RESUME for member in members)
        self.recoveries.take_up(self._members, damaged)
        for worker in undeclared:
            self._declare(self.member(worker), batch, recorded.end_of(worker))
        for survivor in survivors:
            self._leave(survivor.worker, survivor.host)

    def outlives_records(self, first: Batch, batch: Batch, record: CommitRecord | None) -> bool:
        """Whether every worker has its state for ``batch``, nobody was lost since ``first``, and some cannot say what
        they have reported since: nothing was backed up then. A replay from there on would give these states up.
        """
        if any(loss.batch >= first for loss in self.recoveries.losses):
            return False
        recorded = RecordedWorkers.of(record, self.config.operator_name)
        slots, survivors = self._survivors(recorded, batch)
        primaries = [survivor for survivor in survivors if not survivor.secondary]
        members, _ = self._restored(batch, batch, recorded, slots, primaries)
        given_up = any(survivor.version >= first and survivor.kept_from >= first for survivor in primaries)
        return given_up and all(member.hint is Hint.RESUME for member in members)

    def _survivors(self, recorded: RecordedWorkers, batch: Batch) -> tuple[dict[str, int], list[Survivor]]:
        """The slots of all hosts, and the operator's states there; ``batch`` is to run next."""
        # Those of a savepoint live nowhere.
        slots = self._with_hosts({one.host for one in recorded.workers if one.host})
        # Before the first batch is committed there is nothing that could be lost, nor is there of what is given up.
        backed_up = bool(recorded.workers) or recorded.anew or batch <= 0
        return slots, own_survivors(self.cluster, sorted(slots), self.config, backed_up=backed_up)

    def _restored(
        self,
        batch: Batch,
        newest: Batch,
        recorded: RecordedWorkers,
        slots: Mapping[str, int],
        survivors: Sequence[Survivor],
    ) -> tuple[list[WorkerState], list[int]]:
        return restore_workers(
            batch=batch,
            newest=newest,
            budget=self.budget,
            slots=slots,
            taken=self.neighbours,
            recorded=recorded,
            losses=self.recoveries.losses,
            survivors=survivors,
        )

    def _with_hosts(self, wanted: set[str]) -> dict[str, int]:
        """The slots of all hosts, once those where workers lived have an executor, or stay away for too long."""
        clock = self.cluster.clock
        deadline = clock.monotonic() + self.host_grace_seconds
        while not wanted <= (slots := self.cluster.slots_by_host()).keys() and clock.monotonic() < deadline:
            clock.sleep(0.1)
        return slots

    def await_hosts(self, batch: Batch) -> None:
        """Waits for homes without executor; where none comes back, the workers are declared lost. Those that can be had
        again elsewhere are declared lost at once. If no host has an executor any more, nobody is: WorkerFailed.
        """
        deadline = self.cluster.clock.monotonic() + self.host_grace_seconds
        while away := [member for member in self.members if member.home not in (slots := self.cluster.slots_by_host())]:
            for member in away:
                self.recoveries.timings.away(member.worker)
            if self.cluster.clock.monotonic() >= deadline:
                if not slots:
                    raise WorkerFailed(
                        f"No host has had an executor for {self.host_grace_seconds:g} s.",
                        remedy="Start the query again when there is one, or set hostGraceSeconds; nothing is lost.",
                        batch=batch,
                    )
                for member in away:
                    self._declare(member, batch, f"host {member.home} is gone")
                break
            if elsewhere := [one for one in away if slots and not self._is_worth_waiting_for(one, slots)]:
                for member in elsewhere:
                    self._declare(member, batch, f"host {member.home} is away")
                continue
            self.cluster.clock.sleep(0.1)

    def _is_worth_waiting_for(self, member: WorkerState, slots: Mapping[str, int]) -> bool:
        """Whether the host of a worker, which is away, could bring back something better than there is elsewhere."""
        if self.secondaries.can_replace(member, self.covered, slots):
            return False
        return not self.secondaries.recovers_elsewhere(member.worker)

    def requests(self, batch: Batch) -> list[TaskRequest]:
        """What the workers are asked to do in ``batch``."""
        return [self.request(member, batch) for member in self.members]

    def requests_to_follow(self, batch: Batch, reports: Iterable[TaskReport]) -> dict[int, TaskRequest]:
        """What brings a copy of a worker through ``batch`` as it came through it itself, by worker: whoever was told of
        a loss in it may have changed its state then.
        """
        requests = {}
        for report in reports:
            member = self.member(report.worker)
            loss = self.budget_of(member.worker).last_loss(member.counted_failures) if report.told else None
            items = member.lost_items if report.told else 0
            requests[member.worker] = replace(self.request(member, batch), lost=loss, lost_items=items)
        return requests

    def request(self, member: WorkerState, batch: Batch) -> TaskRequest:
        """What one worker is asked to do in ``batch``."""
        if member.hint in (Hint.CREATE, Hint.RECOVER) and member.version != batch - 1:
            raise WorkerFailed(
                f"Worker {member.worker} would be restored for batch {batch} from what it had after {member.version}.",
                remedy="This is a defect of afspark; please report it.",
                worker=member.worker,
                batch=batch,
            )
        return replace(
            member.request(
                batch,
                self.budget_of(member.worker),
                self._fence,
                self.batch_time,
                barrier=self.barrier,
                past=self.past,
            ),
            punctuation_plan=self.punctuation_plan,
            covered=self._covered(batch),
            shipping=None if self.past else self.secondaries.shipping(member),
        )

    def items_behind(self, worker: int) -> int:
        """The items that a secondary which processes everything has yet to come to, but for those of the last batch,
        which it may be at work on; 0 if there is none. What a record covers it need not come to.
        """
        reached = self.secondaries.reached(worker)
        return 0 if reached is None else self._applied.items_of(worker, reached, self.member(worker).version - 1)

    def evidence(self, batch: Batch) -> Evidence:
        """What is known at the end of ``batch`` of how far schemes are carried out."""
        return Evidence(batch=batch, covered=self.covered.batch)

    def _covered(self, batch: Batch) -> Batch | None:
        """The newest batch with a durable record, if the one before ``batch`` has none."""
        if not self.replays:
            return None
        return min(Batch(batch - 1), self.covered.batch)

    @property
    def restores_exactly(self) -> bool:
        """Whether a lost worker is given back what it had: under its policy, and under that of the durable record."""
        record = self.covered.record
        found = record.operators.get(self.config.operator_name) if record else None
        # Where newer records could not be read, it is given less than it had.
        known = self.covered.is_whole
        return self.config.exact and known and (found is None or all(one.is_whole for one in found.workers))

    def remember(self, batch: Batch) -> None:
        """Notes what ``batch``, which begins, means for windows and punctuation: it may be replayed."""
        self._meanings[batch] = (self.batch_time, self.punctuation_plan)
        self._ended = None

    def cover(self, covered: Covered) -> None:
        """A lost worker will be given back what ``covered`` names."""
        self.covered = covered
        self._meanings = {batch: meaning for batch, meaning in self._meanings.items() if batch > covered.batch}
        self._applied.forget(covered.batch)

    @contextmanager
    def at(self, batch: Batch) -> Iterator[None]:
        """Within it, requests are made for a batch of the past."""
        now = self.batch_time, self.punctuation_plan, self.barrier, self.past
        self.batch_time, self.punctuation_plan = self._meanings[batch]
        # A snapshot of the past would come too late for anybody.
        self.barrier, self.past = False, True
        try:
            yield
        finally:
            self.batch_time, self.punctuation_plan, self.barrier, self.past = now

    def go_back(self, batch: Batch, *, everybody: bool = False) -> None:
        """Takes all workers that lack nothing before ``batch``, or ``everybody``, back to what the record names."""
        for member in self.members:
            if everybody or member.version == batch - 1:
                self._declare(member, batch, "everybody goes back to the last snapshot", goes_back=True)

    def go_back_alone(self, worker: int, batch: Batch, why: str) -> None:
        """Takes one worker back to what the durable record names."""
        why = f"it goes back to the last record, because {why}"
        self._declare(self.member(worker), batch, why, goes_back=True)

    def without_queued(self, batch: Batch) -> None:
        """The items of ``batch`` that wait beside workers are used no more; those of other batches are."""
        for worker, member in self._members.items():
            queued = {one: changes for one, changes in member.queued.items() if one != batch}
            self._members[worker] = replace(member, queued=queued)

    def replayed(self, batch: Batch, reports: Sequence[TaskReport], seconds: float) -> None:
        """After the workers that lacked a past ``batch`` have applied it."""
        for report in reports:
            member = self.member(report.worker)
            if member.version < batch:
                applied = member.applied(report, self.budget_of(report.worker), self.batch_time)
                self._members[report.worker] = replace(applied, recovering=member.recovering)
                self.recoveries.replayed(report, seconds)

    @property
    def fence(self) -> Fence:
        """That of requests made now."""
        return self._fence

    def raise_fence(self) -> None:
        """No task sent before may do anything any more."""
        self._fence = Fence(self._fence + 1)

    def last_requests(self, batch: Batch) -> list[TaskRequest]:
        """Requests like those of ``batch``, for whoever speaks on behalf of its workers."""
        return [
            member.request(batch, self.budget_of(member.worker), self._fence, self.batch_time)
            for member in self.members
        ]

    def requests_at_rest(self, batch: Batch) -> list[TaskRequest]:
        """Requests for workers that have applied ``batch`` to back up all that no backup holds."""
        covered = self._covered(batch)
        return [
            replace(request, covered=covered, backup=self._flush_plan(member, batch))
            for member, request in zip(self.members, self.last_requests(batch), strict=True)
        ]

    def _flush_plan(self, member: WorkerState, batch: Batch) -> BackupPlan:
        budget = self.budget_of(member.worker)
        return budget.flush_plan(batch, full=member.restart_chain or budget.compaction.due(member.chain))

    def take_back(self, batch: Batch) -> list[TaskRequest]:
        """Requests that undo ``batch``. The fence rises before and after: no late task may mix the two."""
        self.raise_fence()
        requests = [replace(request, hint=Hint.ROLLBACK) for request in self.requests(batch)]
        self.raise_fence()
        return requests

    def are_done(self, reports: Mapping[ReplicaId, TaskReport]) -> bool:
        """Whether every worker has applied what it was asked to."""
        ids = [member.primary.id for member in self.members]
        return all(one in reports and reports[one].status is Status.APPLIED for one in ids)

    def act_on(self, batch: Batch, reports: Mapping[ReplicaId, TaskReport]) -> bool:
        """Acts on the reports of a try; True if every worker has applied the batch."""
        self.recoveries.hear(reports.values())
        if self.are_done(reports):
            return True
        replicas = [(member, member.primary) for member in self.members]
        alive = self.cluster.slots_by_host()
        done = True
        for member, replica in replicas:
            report = reports.get(replica.id)
            verdict = judge(replica, report, alive)
            done = done and verdict is Verdict.DONE
            if report is None:
                continue
            if verdict is Verdict.FAIL and report.error is not None:
                report.error.fields.update(batch=batch, worker=member.worker)
                raise report.error
            if verdict is Verdict.REFUSE:
                # Workers refuse a driver that has been followed by another one: then that is what has to be said.
                self.before_loss()
                raise CheckpointError(
                    f"The resident state of worker {member.worker} contradicts batch {batch} ({report.detail}).",
                    remedy="Use the checkpoint this state belongs to, or start with a new one.",
                    worker=member.worker,
                    batch=batch,
                )
            if verdict is Verdict.LOST:
                self._declare(member, batch, f"its segment is {report.detail}", report.trace)
        return done

    def advance(self, reports: Sequence[TaskReport]) -> None:
        """Moves on to the next batch, after all workers applied this one."""
        for report in reports:
            member = self.member(report.worker)
            budget = self.budget_of(report.worker)
            applied = member.applied(report, budget, self.batch_time, replays=self.replays)
            self._applied.note(applied.version, report)
            # A batch of the past tells nobody, nor does what a secondary had applied before it was promoted.
            untold = member.recovering and not report.told
            self._members[report.worker] = replace(applied, recovering=untold)
        self._ended = self.batch_time.ended(self.config.window, [one.panes for one in reports if one.panes is not None])
        self.recoveries.gap = ()

    def rest(self, batch: Batch, reports: Sequence[TaskReport]) -> None:
        """Notes that all workers have their state for ``batch``, which they have not applied yet."""
        self._members = {worker: replace(member, hint=Hint.RESUME) for worker, member in self._members.items()}
        self.complete(batch, reports)

    def complete(self, batch: Batch, reports: Sequence[TaskReport]) -> list[LedgerEntry]:
        """Completes the recoveries among the workers, once all have their state and before anybody is told a bound."""
        return self.recoveries.complete(batch, reports, self.batch_time, now=self.cluster.clock.time())

    def _declare(
        self,
        member: WorkerState,
        batch: Batch,
        cause: str,
        trace: LossEvidence | None = None,
        *,
        goes_back: bool = False,
    ) -> None:
        """Declares a loss. The worker's next incarnation is its secondary, if it has one that can take its place;
        otherwise it stays where it was if there is still an executor. ``goes_back``: it is given the durable state.
        """
        self.before_loss()
        self.lacks_batches = True
        if goes_back:
            self.recoveries.timings.dropped(member.worker)
        else:
            # While it is still known what protected it.
            self.recoveries.timings.declared(member.worker, member.home)
        slots = self.cluster.slots_by_host()
        prepared = self.secondaries.prepared_home(member, slots)
        secondary = self.secondaries.replacement(member, self.covered, batch, slots)
        declare = partial(
            self.recoveries.declare,
            member,
            batch,
            cause,
            budget=self.budget_of(member.worker),
            batch_time=self._time_of_loss,
            trace=trace,
        )
        if secondary is None or goes_back:
            home = (None if goes_back else prepared) or self._home_after(member, slots)
            self._members[member.worker] = declare(home=home, durable=self._gone_on_from(member, self._durable(member)))
        else:
            # What was sent to either of them before must do nothing any more.
            self.raise_fence()
            state = self._gone_on_from(member, secondary.state())
            successor = declare(home=secondary.home, durable=state)
            self._members[member.worker] = successor.promoted(secondary.queued, secondary.completing)
        self._leave(member.worker, member.home)
        if secondary is not None:
            self._leave(member.worker, secondary.home)

    def _leave(self, worker: int, home: str) -> None:
        """Notes that what a worker has left at ``home`` is nobody's, unless it lives there."""
        if (now := self.member(worker)).home != home:
            self.secondaries.leave(worker, home, now.incarnation)

    def _gone_on_from(self, member: WorkerState, state: DurableState | None) -> DurableState | None:
        """``state`` as what a lost worker goes on from, which its policy may have it do without a replay."""
        if state is None or not self.budget.tolerance.leaves_gap:
            return state
        found = without_replay(member, state, self._applied, self.budget.states)
        self._applied.leave_out(member.worker, range(state.version + 1, found.version + 1))
        if found.gap_batches:
            self.left_out = max(self.left_out, Batch(found.version))
        return found

    def _home_after(self, member: WorkerState, slots: Mapping[str, int]) -> str:
        """Where a lost worker lives next."""
        primary = member.primary
        if not slots:
            # There is no host at all: whoever asks it next waits for one.
            return primary.home
        if primary.home in slots and self.secondaries.moves(member.worker) and len(slots) > 1:
            slots = {host: number for host, number in slots.items() if host != primary.home}
        if primary.home in slots:
            return primary.home
        staying = [other.home for other in self.members if other.worker != member.worker]
        return spread([primary.id], slots, [*staying, *self.neighbours])[primary.id]

    @property
    def _time_of_loss(self) -> BatchTime:
        """What a lost worker lacks for good it lacked when its durable state was backed up, if the rest is replayed."""
        if self.budget.tolerance.leaves_gap:
            # Of the batch at work all is left out, if it was applied before the loss.
            return self._ended or self.batch_time
        batch_time, _ = self._meanings.get(Batch(self.covered.batch + 1), (self.batch_time, ()))
        return batch_time

    def _durable(self, member: WorkerState) -> DurableState | None:
        """What a lost worker is given back, if it is not the state after the last batch."""
        if not self.replays:
            return None
        return self.covered.state_of(self.config.operator_name, member.worker)
