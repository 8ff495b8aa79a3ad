"""The end of a stream in the checkpoint: that it is intended, and which batches it has taken."""

from __future__ import annotations

from afspark.coordinator.offsets import newest_of
from afspark.errors import CheckpointError, StoreError
from afspark.numbers import Batch
from afspark.store import Store, StreamEnd, seal, unseal
from afspark.store.epochs import newest_batch, read_history

#: Folder of the store that holds something once the stream is being ended.
ENDING = "ending"


def is_intended(store: Store) -> bool:
    """Whether somebody has begun to end the stream."""
    return bool(store.list(ENDING))


def intended(store: Store, batch: Batch, now: float) -> float:
    """Makes the end durable before it begins: from here on Spark must not run a batch of that number.

    Returns the time of all batches that end the stream: that of the first attempt.
    """
    written = store.list(ENDING)
    for name in sorted(written):
        try:
            return float(unseal(store.get(name)).meta["time"])
        except StoreError:
            continue  # a driver died while it wrote this one, so nothing followed from it
    store.put(f"{ENDING}/{len(written):04d}", seal({"kind": "ending", "batch": batch, "time": now}, {}))
    return now


class StreamEnding:
    """What a driver knows of the end of its stream: once somebody has begun it, no batch may follow."""

    def __init__(self, checkpoint: Store, store: Store) -> None:
        self._checkpoint, self._store = checkpoint, store
        self._intended: bool | None = None

    @property
    def is_intended(self) -> bool:
        if self._intended is None:
            self._intended = is_intended(self._store)
        return self._intended

    def refuse_if_unfinished(self) -> None:
        """`CheckpointError` if Spark has a batch to finish first. Once the end is intended it may have begun one, but
        nobody has run it.
        """
        if not self.is_intended:
            refuse_if_unfinished(self._checkpoint)

    def begin(self, batch: Batch, now: float) -> float:
        """Makes the end durable before it begins; the time of its batches."""
        self._intended = True
        return intended(self._store, batch, now)


def ending_batch(store: Store) -> int | None:
    """The newest batch, if it was one that ended the stream."""
    newest = newest_batch(store)
    if newest is None:
        return None
    found = read_history(store, newest).records.get(newest)
    return newest if found is not None and found[1].end is not StreamEnd.OPEN else None


def refuse_if_unfinished(checkpoint: Store) -> None:
    """A batch that Spark has begun must be finished by Spark, or its number would mean two things."""
    begun, committed = newest_of(checkpoint, "offsets"), newest_of(checkpoint, "commits")
    if begun is not None and (committed is None or begun > committed):
        raise CheckpointError(
            f"Batch {begun} was begun and not finished.",
            remedy="Start the query again, let it end, and then end the stream.",
            batch=begun,
        )


def refuse_if_rewound(store: Store, batch: Batch) -> None:
    """Raises CheckpointError unless Spark's part of the checkpoint and ours are of one age: or batches would be applied
    again.
    """
    newest = newest_batch(store)
    if newest is not None and newest > batch:
        raise CheckpointError(
            f"Spark wants to run batch {batch}, but the checkpoint has records up to batch {newest}.",
            remedy="Restore the checkpoint folder as a whole, or start with a new one.",
            batch=batch,
            newest=newest,
        )
