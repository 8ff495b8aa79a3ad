"""What belongs to a savepoint: the query at a barrier, and nothing that came after it.

The state, window progress, positions and counted failures are in the record of the barrier and the backups that it
names; losses, lost items and bad items up to then are in objects of their own; the sources' lists of chunks only grow,
so that later entries do no harm. Of Spark it has the offsets and commits of the barrier, and what its sources keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from afspark.coordinator.changed_pipeline import starting_empty
from afspark.coordinator.offsets import newest_of
from afspark.errors import CheckpointError, ObjectMissing, UsageError
from afspark.numbers import Batch
from afspark.store import (
    CommitRecord,
    Damage,
    OperatorRecord,
    QueryIdentity,
    Store,
    StreamEnd,
    WorkerRecord,
    chain_to_restore,
)
from afspark.store.claims import TURNS
from afspark.store.control_log import CONTROL
from afspark.store.drivers import Driver, Notice
from afspark.store.effect_log import EFFECTS
from afspark.store.epochs import seal_record, seal_start
from afspark.store.itemlosses import ITEM_LOSSES
from afspark.store.naming import (
    EPOCHS,
    FOLDER,
    IDENTITY,
    LEDGER,
    OBJECTS,
    ORIGIN,
    PLACE,
    REQUESTS,
    SAVEPOINT,
    EpochId,
    driver_name,
    record_name,
    start_name,
)
from afspark.store.quarantine import QUARANTINE
from afspark.store.reading import read_sealed
from afspark.store.spark_files import PLANNED, STATE

SPARK_STATE = STATE
_ENDING = "ending"
_TURNS = f"{EPOCHS}{TURNS}"
_LEFT_OUT = {
    *(IDENTITY, PLACE, SAVEPOINT, ORIGIN, REQUESTS, EPOCHS, OBJECTS, LEDGER, EFFECTS, CONTROL, PLANNED),
    *(_ENDING, _TURNS),
}
"""What is made anew, is chosen object by object, or says nothing of the barrier."""
_BY_BATCH = {ITEM_LOSSES, QUARANTINE}
"""What is in objects whose names begin with the batch."""


@dataclass(frozen=True)
class SavepointPart:
    """An object of a savepoint: with ``data``, or as the checkpoint has it; then a backup has a checksum at its end."""

    name: str
    data: bytes | None = None
    checksum: str | None = None


def refuse_what_cannot_be_saved(identity: QueryIdentity, record: CommitRecord | None, path: str) -> CommitRecord:
    """The record; `UsageError` if nothing can be started from it."""
    sources: Mapping[str, Mapping[str, object]] = identity.settings.get("sources", {})
    pushed = [name for name, source in sources.items() if source.get("kind") == "pushed"]
    if pushed:
        raise UsageError(
            "A query with pushed items has no savepoints: nobody could send again what comes after one.",
            remedy="Go on from its checkpoint instead.",
            path=path,
        )
    if record is None:
        raise UsageError(
            f"There is nothing in {path} yet that a query could be started from: it has no commit record.",
            remedy="Its first batch writes one, if there is any input; with the tolerance Nothing there is none.",
            path=path,
        )
    if record.end is not StreamEnd.OPEN:
        raise UsageError(
            f"The stream in {path} has been ended: nothing can follow.", remedy="Start a new query.", path=path
        )
    if starting_empty(identity, record):
        raise UsageError(
            f"The pipeline in {path} was changed, and no commit record was written since.",
            remedy="Try again after the next batch.",
            path=path,
        )
    return record


def parts_of(checkpoint: Store, record: CommitRecord) -> Iterator[SavepointPart]:
    """All that a query needs to go on after the batch of ``record``, apart from its identity."""
    yield from _of_spark(checkpoint, record.batch)
    store = checkpoint.below(FOLDER)
    yield from (_below(part) for part in _made(record))
    for ref in _references(record):
        yield _below(SavepointPart(ref[0], checksum=ref[1]))
    for name in _ledger_before(store, record.ledger_heads):
        yield _below(SavepointPart(name))
    yield from (_below(part) for part in _measured(store))
    for name in store.list(""):
        room = name.partition("/")[0]
        if room in _LEFT_OUT or (room in _BY_BATCH and not _is_upto(name, record.batch)):
            continue
        yield _below(SavepointPart(name))


def _of_spark(checkpoint: Store, batch: Batch) -> Iterator[SavepointPart]:
    committed = newest_of(checkpoint, "commits")
    if committed is None or committed < batch:
        raise CheckpointError(f"Spark has not committed batch {batch} yet.", remedy="Try again.", batch=batch)
    # It reads the batch before the last one, too, when it starts.
    for number in range(max(0, batch - 1), batch + 1):
        yield from (SavepointPart(f"{folder}/{number}") for folder in ("offsets", "commits"))
    for folder in ("sources", SPARK_STATE):
        yield from (SavepointPart(name) for name in checkpoint.list(folder))


def _made(record: CommitRecord) -> Iterator[SavepointPart]:
    """The epoch of the record, with nothing in it but that record: whoever starts from it opens a later one."""
    epoch = EpochId.parse(record.epoch)
    assert epoch is not None
    notice = Notice(driver=Driver.here(), seconds=0.0, ended=True)
    yield SavepointPart(driver_name(record.epoch), notice.to_bytes())
    yield SavepointPart(start_name(record.epoch), seal_start(epoch, []))
    yield SavepointPart(record_name(record.epoch, record.batch, 0), seal_record(_homeless(record), []))


def _homeless(record: CommitRecord) -> CommitRecord:
    """The record of a query whose workers live nowhere, and whose history is that of one snapshot."""
    return replace(
        record,
        operators={name: _homeless_operator(operator) for name, operator in record.operators.items()},
        snapshots=tuple(entry for entry in record.snapshots if entry.barrier == record.batch),
    )


def _homeless_operator(operator: OperatorRecord) -> OperatorRecord:
    return replace(operator, workers=tuple(map(_homeless_worker, operator.workers)))


def _homeless_worker(worker: WorkerRecord) -> WorkerRecord:
    # Where the backups are the whole state nothing is lost with it; elsewhere that is counted as any other loss.
    chain, previous = chain_to_restore(worker)
    completed = 0 if worker.is_whole else worker.completed
    return replace(worker, host="", completed=completed, chain=chain, previous=previous, at_rest=())


def _references(record: CommitRecord) -> list[tuple[str, str]]:
    workers = [worker for operator in record.operators.values() for worker in operator.workers]
    return sorted({(ref.name, ref.checksum) for one in workers for ref in one.objects()})


def _ledger_before(store: Store, heads: tuple[str, ...]) -> list[str]:
    """The entries that the record knows of. One that is damaged stays behind, and is missed as it is here."""
    known: set[str] = set()
    following = list(heads)
    while following:
        found = dict(zip(following, read_sealed(store, following), strict=True))
        known |= {name for name, sealed in found.items() if not isinstance(sealed, Damage)}
        before = {
            str(name)
            for sealed in found.values()
            if not isinstance(sealed, Damage)
            for name in sealed.meta.get("after", ())
        }
        following = sorted(before - known - found.keys())
    return sorted(known)


def _measured(store: Store) -> Iterator[SavepointPart]:
    """What was measured and decided: as of now, because a driver at work replaces it."""
    for name in store.list(CONTROL):
        with suppress(ObjectMissing):
            yield SavepointPart(name, store.get(name))


def _is_upto(name: str, batch: Batch) -> bool:
    number = name.rsplit("/", 1)[-1].partition("-")[0]
    return number.isdigit() and int(number) <= batch


def _below(part: SavepointPart) -> SavepointPart:
    return replace(part, name=f"{FOLDER}/{part.name}")
