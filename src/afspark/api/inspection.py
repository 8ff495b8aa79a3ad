"""What a checkpoint, and the resident state on this machine, say about a query. Reads only, needs no Spark."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from afspark.api.savepoints import FoundSavepoint, found_savepoints
from afspark.coordinator.adapting.control_loop import decisions_of
from afspark.coordinator.offsets import newest_of
from afspark.coordinator.recovery.upstream import changes_what_is_sent
from afspark.coordinator.savepoint_copying import origin_of
from afspark.errors import AfsparkError, SegmentError, UsageError
from afspark.graph.reach import reached_from
from afspark.model.states import Own, StateSpec
from afspark.model.windows import WindowProgress
from afspark.numbers import Batch
from afspark.resident.peek import Peek, peek
from afspark.resident.segment_root import SegmentRoot, default_base
from afspark.store import (
    CommitRecord,
    Damage,
    Ledger,
    LedgerEntry,
    ObjectRef,
    OperatorRecord,
    Store,
    StreamEnd,
    WorkerRecord,
    chain_to_restore,
    open_store,
)
from afspark.store.control_log import ControlLog
from afspark.store.divided_store import whole_checkpoint
from afspark.store.epochs import History, read_history
from afspark.store.identity import require_identity
from afspark.store.itemlosses import ItemLosses
from afspark.store.naming import FOLDER, parse_object_name
from afspark.store.quarantine import BadItem, Count, Quarantine
from afspark.store.reading import read_sealed
from afspark.store.snapshot_history import SnapshotEntry

_TRIES = 3


@dataclass(frozen=True, kw_only=True)
class Resident:
    """A worker's segment on this machine; ``current`` if it is of the incarnation that the record names."""

    host: str
    current: bool
    peek: Peek


@dataclass(frozen=True, kw_only=True)
class WorkerInspection:
    """One worker: as of the newest record, and its resident state if that is here."""

    worker: int
    record: WorkerRecord | None = None
    #: batch of the newest backup in the chain
    last_backup: int | None = None
    #: panes that counted failures affect
    affected: tuple[int, ...] = ()
    residents: tuple[Resident, ...] = ()

    @property
    def backups(self) -> tuple[ObjectRef, ...]:
        """What a restore reads, in this order."""
        return chain_to_restore(self.record)[0] if self.record else ()

    @property
    def backup_bytes(self) -> int:
        return sum(ref.bytes for ref in self.backups)

    @property
    def backup_cells(self) -> int:
        return sum(ref.cells for ref in self.backups)


@dataclass(frozen=True, kw_only=True)
class OperatorInspection:
    """One operator: its settings as the checkpoint is bound to them, its windows and its workers."""

    name: str
    settings: Mapping[str, Any]
    #: None without windows or records
    window_progress: WindowProgress | None = None
    late: int = 0
    unplaced: int = 0
    #: items that the operator could not take, by source and kind of reason
    bad: tuple[Count, ...] = ()
    #: what failures can have changed each state by at most, as told with the newest record; infinite: no bound holds
    bounds: Mapping[str, float] | None = None
    #: pushed items that were acknowledged and lost
    lost_items: int = 0
    #: the operators whose losses may have changed what it received, which its bounds leave out
    upstream: tuple[str, ...] = ()
    workers: tuple[WorkerInspection, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """A query as its checkpoint shows it. ``batch`` and ``epoch`` are None while there is no record."""

    path: str
    query_id: str
    created: float
    sources: Mapping[str, Any]
    batch: Batch | None
    epoch: str | None
    #: the newest batch that Spark has committed
    spark_batch: int | None
    ended: bool
    items: int
    bytes: int
    operators: tuple[OperatorInspection, ...]
    ledger: tuple[LedgerEntry, ...]
    #: the folder that was searched for resident state
    segments: str | None
    #: what became of the newest snapshots, oldest first
    snapshots: tuple[SnapshotEntry, ...] = ()
    #: savepoints that the checkpoint keeps under a name, and the one that it was begun from
    savepoints: tuple[FoundSavepoint, ...] = ()
    started_from: str | None = None
    #: what the controller has changed, oldest first, as `Query.decisions` tells it
    decisions: tuple[Mapping[str, Any], ...] = ()
    verified: bool = False
    damaged: tuple[Damage, ...] = field(default=())
    #: what is kept in quarantine, if it was asked for
    bad_items: tuple[BadItem, ...] = ()

    def operator(self, name: str) -> OperatorInspection:
        """What was found of one operator; `UsageError` if there is none of that name."""
        for operator in self.operators:
            if operator.name == name:
                return operator
        raise UsageError(
            f"The checkpoint has no operator {name!r}.",
            remedy=f"It has {', '.join(operator.name for operator in self.operators)}.",
        )

    def to_json(self) -> dict[str, Any]:
        """Everything as plain containers; infinite thresholds stay infinite."""
        document = asdict(self)
        for operator, plain in zip(self.operators, document["operators"], strict=True):
            if operator.window_progress is not None:
                plain["window_progress"] = operator.window_progress.to_json()
        for entry, plain in zip(self.ledger, document["ledger"], strict=True):
            if entry.recovery is not None:
                plain["recovery"]["covered"] = entry.covered
        return document


def inspect(
    path: str | Path,
    *,
    verify: bool = False,
    segments: str | Path | None = None,
    cells: int = 0,
    bad: bool = False,
) -> Inspection:
    """Looks into the checkpoint at ``path`` (a folder or URI), whether its query runs, has ended or crashed.

    ``verify`` reads every object that the newest record names and checks it. ``segments`` is the folder for
    resident state (default: as for queries); ``cells`` of the largest cells of each resident state are shown.
    ``bad`` reads the items in quarantine.
    `UsageError` if there is no checkpoint, `CheckpointError` if it cannot be understood.

    Nothing is written. A segment is locked while it is read; one at work is shown as busy after half a second.
    """
    if segments is not None and not Path(segments).is_dir():
        raise UsageError(f"There is no folder {str(segments)!r}.", remedy="Name the folder that the query used.")
    checkpoint = open_store(path)
    store, identity = checkpoint.below(FOLDER), require_identity(checkpoint)
    history, damaged = _history(store, verify=verify)
    record = _newest(history)
    ledger = Ledger(store)
    ledger.expect(record.ledger_heads if record else ())
    item_losses = ItemLosses(store)
    item_losses.entries()
    operators: Mapping[str, Any] = identity.settings.get("operators", {})
    base = _base(segments)
    residents = _residents(base, identity.query_id, operators, record, cells) if base else {}
    control, unread = ControlLog(store).read()
    quarantine = Quarantine(store)
    bad_items = quarantine.items() if bad else []
    return Inspection(
        path=checkpoint.path,
        query_id=identity.query_id,
        created=identity.created,
        sources=identity.settings.get("sources", {}),
        batch=record.batch if record else None,
        epoch=record.epoch if record else None,
        spark_batch=newest_of(whole_checkpoint(checkpoint), "commits"),
        ended=record is not None and _has_ended(record),
        items=record.items if record else 0,
        bytes=record.bytes if record else 0,
        operators=tuple(
            _operator(name, found, record, residents, _later(name, operators, record, ledger.entries()))
            for name, found in operators.items()
        ),
        ledger=tuple(ledger.entries()),
        segments=str(base) if base else None,
        snapshots=record.snapshots if record else (),
        savepoints=tuple(found_savepoints(checkpoint)),
        started_from=origin_of(checkpoint),
        decisions=tuple(one.to_json() for one in decisions_of(control)),
        verified=verify,
        damaged=(*damaged, *ledger.damaged, *item_losses.damaged, *quarantine.damaged, *unread),
        bad_items=tuple(bad_items),
    )


def _history(store: Store, *, verify: bool) -> tuple[History, list[Damage]]:
    """The records and what is damaged. A running query deletes old ones meanwhile, so what is missing is
    looked for again before it counts.
    """
    history, damaged = History(), list[Damage]()
    for _ in range(_TRIES):
        history = read_history(store, sys.maxsize)
        damaged = [*history.damaged, *(_verify(store, _newest(history)) if verify else [])]
        if not any(damage.reason == "missing" for damage in damaged):
            break
    return history, damaged


def _newest(history: History) -> CommitRecord | None:
    return history.records[max(history.records)][1] if history.records else None


def _verify(store: Store, record: CommitRecord | None) -> list[Damage]:
    workers = [worker for found in record.operators.values() for worker in found.workers] if record else []
    damaged = []
    for worker in workers:
        # One worker's objects at a time: all of a query may not fit in memory.
        refs = worker.objects()
        for ref, found in zip(refs, read_sealed(store, [ref.name for ref in refs]), strict=True):
            if isinstance(found, Damage):
                damaged.append(found)
            elif found.checksum != ref.checksum:
                damaged.append(Damage(ref.name, "foreign", f"checksum {found.checksum}, expected {ref.checksum}"))
    return damaged


def _has_ended(record: CommitRecord) -> bool:
    """Whether every operator was told that the stream has ended, and no window is open that holds items."""
    windows = [operator.window_progress for operator in record.operators.values()]
    return record.end is StreamEnd.TOLD and not any(progress.touched for progress in windows if progress)


def _operator(
    name: str,
    settings: Mapping[str, Any],
    record: CommitRecord | None,
    residents: Mapping[tuple[str, int], Sequence[Resident]],
    later: LaterLosses,
) -> OperatorInspection:
    found = record.operators.get(name) if record else None
    told = found or OperatorRecord()
    known = {worker.worker: worker for worker in told.workers}
    # Those that the checkpoint began with may have been others in number.
    numbers = set(known) or set(range(int(settings.get("workers", 0))))
    return OperatorInspection(
        name=name,
        settings=settings,
        window_progress=told.window_progress,
        late=told.counters.late,
        unplaced=told.counters.unplaced,
        bad=told.counters.bad,
        bounds=None if found is None else dict.fromkeys(found.bounds, math.inf) if later.unknown else found.bounds,
        upstream=tuple(dict.fromkeys((*told.upstream, *later.upstream))),
        lost_items=told.lost_items,
        workers=tuple(
            _worker(number, known.get(number), residents.get((name, number), ())) for number in sorted(numbers)
        ),
    )


@dataclass(frozen=True)
class LaterLosses:
    """What losses since the newest record mean for an operator: whether none of its bounds holds any more, and whose of
    them may have changed what it received.
    """

    unknown: bool
    upstream: tuple[str, ...]


def _later(
    name: str, operators: Mapping[str, Any], record: CommitRecord | None, entries: Sequence[LedgerEntry]
) -> LaterLosses:
    targets = {
        one: {
            *found.get("feeds_back", ()),
            *(name for name, read in operators.items() if one in read.get("inputs", ())),
        }
        for one, found in operators.items()
    }
    senders = {one for one in operators if name in reached_from(targets, one)}
    later = [entry for entry in entries if record is not None and entry.loss.batch > record.batch]
    # What a node that is no user's operator has lost may concern anybody.
    unknown = [one.loss.operator for one in later if one.covered is False]
    changed = [one.loss.operator for one in later if changes_what_is_sent(one, by_state=True)]
    return LaterLosses(
        unknown=any(one in {name, *senders} or one not in operators for one in unknown),
        upstream=tuple(one for one in changed if one in senders),
    )


def _worker(number: int, record: WorkerRecord | None, residents: Sequence[Resident]) -> WorkerInspection:
    origins = [parse_object_name(ref.name) for ref in chain_to_restore(record)[0]] if record else []
    ranges = [failure.panes for failure in record.counted_failures if failure.panes] if record else []
    return WorkerInspection(
        worker=number,
        record=record,
        last_backup=max((origin.batch for origin in origins if origin), default=None),
        affected=tuple(sorted({pane for first, last in ranges for pane in range(first, last + 1)})),
        residents=tuple(residents),
    )


# --- resident state -----------------------------------------------------------------------------------------


def _base(segments: str | Path | None) -> Path | None:
    try:
        base = Path(segments) if segments is not None else default_base()
    except SegmentError:
        return None
    return base if base.is_dir() else None


def _residents(
    base: Path, query_id: str, operators: Mapping[str, Any], record: CommitRecord | None, cells: int
) -> dict[tuple[str, int], list[Resident]]:
    told = record.operators if record else {}
    known = {(name, one.worker): one for name, operator in told.items() for one in operator.workers}
    specs = {name: _specs(settings) for name, settings in operators.items()}
    found: dict[tuple[str, int], list[Resident]] = {}
    for folder in sorted(path for path in base.iterdir() if path.is_dir() and not path.name.startswith(".")):
        for survivor in SegmentRoot(base, unquote(folder.name)).survivors(query_id):
            owner = (survivor.operator, survivor.worker)
            committed = record.batch if record else -1
            seen = peek(Path(survivor.directory), specs.get(survivor.operator, {}), committed=committed, largest=cells)
            if seen is not None:
                worker = known.get(owner)
                current = worker is None or worker.incarnation <= seen.incarnation
                if worker is not None and worker.at_rest and not worker.hole and seen.version == committed:
                    seen = _at_rest(seen)
                found.setdefault(owner, []).append(Resident(host=survivor.host, current=current, peek=seen))
    return found


def _at_rest(seen: Peek) -> Peek:
    """With what was backed up after the last batch, on which the state itself does not build: it lacks nothing."""
    states = (view if view.divergence is None else replace(view, divergence=0.0) for view in seen.states)
    return replace(seen, states=tuple(states))


def _specs(settings: Mapping[str, Any]) -> dict[str, StateSpec]:
    """The states whose kinds are known in this process. Nothing is imported for it: a checkpoint may be anybody's."""
    specs = {}
    for name, document in settings.get("operator", {}).get("states", {}).items():
        if document.get("kind") == Own.kind and document.get("class", "").partition(":")[0] not in sys.modules:
            continue
        try:
            specs[name] = StateSpec.from_json(document)
        except (AfsparkError, ImportError, AttributeError, TypeError, ValueError, KeyError):
            continue
    return specs
