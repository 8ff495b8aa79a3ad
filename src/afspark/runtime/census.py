"""Where a starting driver finds its workers: what the record says, what the ledger adds, what survives on hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark import SparkContext

from afspark.runtime.host import spark_host
from afspark.runtime.lifecycle import Hint
from afspark.runtime.placement import spread
from afspark.runtime.roster import Member
from afspark.runtime.segment import SegmentRoot, Survivor
from afspark.runtime.stages import run_on_workers
from afspark.runtime.terms import Strike, Terms
from afspark.store import Loss, WorkerRecord

CENSUS_TRIES = 5


def take_census(
    sc: SparkContext, *, hosts: Sequence[str], query_id: str, segments: str | None, driver_host: str
) -> list[Survivor]:
    """The query's segments on all hosts; those that nobody can want any more are removed on the way."""

    def look(_: int) -> list[tuple[str, list[Survivor]]]:
        host = spark_host(driver_host)
        root = SegmentRoot(segments, host)
        root.clean()
        return [(host, root.census(query_id))]

    heard: dict[str, list[Survivor]] = {}
    for _ in range(CENSUS_TRIES):
        # A task may end up on another host than it was meant for; what nobody has looked at is not empty.
        silent = [host for host in hosts if host not in heard]
        if not silent:
            break
        heard |= dict(run_on_workers(sc, silent, look))
    return [survivor for survivors in heard.values() for survivor in survivors]


def muster(
    *,
    batch: int,
    terms: Terms,
    slots: Mapping[str, int],
    taken: Sequence[str] = (),
    records: Sequence[WorkerRecord] | None,
    losses: Sequence[Loss],
    survivors: Sequence[Survivor],
) -> tuple[list[Member], list[int]]:
    """The members for ``batch`` and the workers among them whose state is gone without having been declared.

    Pure. A surviving segment is taken over if it is of the expected incarnation and one batch back at most.
    Without records (nothing is backed up) the newest survivor is the expected one.
    """
    by_worker = {record.worker: record for record in records or ()}
    members: list[Member] = []
    undeclared: list[int] = []
    for worker in range(terms.workers):
        record = by_worker.get(worker)
        own_losses = [loss for loss in losses if loss.worker == worker]
        usable = [s for s in survivors if s.worker == worker and s.version in (batch - 1, batch)]
        expected = max([loss.incarnation + 1 for loss in own_losses], default=0)
        if record is not None:
            expected = max(expected, record.incarnation)
        elif not terms.tolerance.recovers:
            expected = max([expected, *(s.incarnation for s in usable)])
        strikes = _strikes(record, own_losses)
        own = record if record is not None and record.incarnation == expected else None
        lowered, raised = _changed(own, terms)
        member = Member(
            worker=worker,
            home=next((s.host for s in usable if s.incarnation == expected and s.host in slots), ""),
            incarnation=expected,
            strikes=strikes,
            completed=_completed(batch, terms, record, own_losses, expected, usable),
            chain=record.chain if record else (),
            previous=record.previous if record else (),
            waiting=own.waiting if own else 0,
            lost_items=sum(loss.items for loss in own_losses if record and loss.incarnation >= record.incarnation),
            # Under which limits an incarnation that no record knows has worked, nobody can tell.
            recheck=lowered or own is None,
            older_theta=own.theta if own and lowered else None,
            raised=raised,
        )
        if member.home:
            member = replace(member, hint=Hint.RESUME)
        elif batch > 0 and record is not None and record.incarnation == expected:
            undeclared.append(worker)
        elif batch > 0 or expected > 0:
            member = replace(member, hint=Hint.RECOVER)
            if record is None and not own_losses:
                undeclared.append(worker)
        members.append(member)
    return _housed(members, slots, taken), undeclared


def _completed(
    batch: int,
    terms: Terms,
    record: WorkerRecord | None,
    losses: Sequence[Loss],
    expected: int,
    usable: Sequence[Survivor],
) -> int:
    """Batches that the expected incarnation has completed, as far as is known."""
    if record is not None:
        return record.completed if record.incarnation == expected else 0
    # Without records nobody knows. What it held would be lost with it, so a loss has to count.
    held = not losses or any(survivor.incarnation == expected for survivor in usable)
    return int(batch > 0 and held and not terms.tolerance.recovers)


def _housed(members: Sequence[Member], slots: Mapping[str, int], taken: Sequence[str]) -> list[Member]:
    """Members without a home get the slots that those with one, and whoever has ``taken`` some, leave free."""
    taken = [*taken, *(member.home for member in members if member.home)]
    homes = spread([member.worker for member in members if not member.home], dict(slots), taken)
    return [replace(member, home=homes.get(member.worker, member.home)) for member in members]


def _strikes(record: WorkerRecord | None, losses: Sequence[Loss]) -> tuple[Strike, ...]:
    """The counted failures: as the ledger says, or as the record and what came after it say if the ledger has gaps."""
    told = [Strike.from_json(loss.strike) for loss in losses if loss.counted]
    if record is None:
        return tuple(told)
    later = [loss.strike for loss in losses if loss.counted and loss.incarnation >= record.incarnation]
    kept = [Strike.from_json(strike) for strike in (*record.strikes, *later)]
    return tuple(told if len(told) > len(kept) else kept)


def _changed(record: WorkerRecord | None, terms: Terms) -> tuple[bool, bool]:
    """Whether any limit is lower, or higher, than those the worker's last backup was made under: failures apart, which
    concern those that come after it.
    """
    if record is None:
        return False, False
    theta = terms.theta([Strike.from_json(strike) for strike in record.strikes])
    both = [(most, record.theta.get(name, most)) for name, most in theta.items()]
    return any(now < then for now, then in both), any(now > then for now, then in both)
