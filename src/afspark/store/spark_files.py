"""Spark's own part of a checkpoint: which names it has, and how it is kept where Spark itself cannot write.

Spark notes what belongs to a batch before it runs it (``offsets/<batch>``), and that it is done (``commits/<batch>``),
always before it notes the next one. Its sources may keep files of their own (``sources/…``), and stateful DataFrames
keep state (``state/…``), which its executors write.

Where Spark has no connector for the store, it writes these files to a folder of the driver. Of every batch the driver
then puts one object into the store before anything is done with the batch: its offsets, the commit of the batch before,
and the files of sources that are new. From these objects the folder can be made again, on any host. Like records they
are below the epoch of the driver that wrote them, and of one batch the newest driver's counts: an older one that is
still alive changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from afspark.errors import CheckpointError
from afspark.numbers import Batch
from afspark.store.base import Store
from afspark.store.batch_log import BatchLog

PLANNED = "planned"
METADATA, OFFSETS, COMMITS, SOURCES, STATE = "metadata", "offsets", "commits", "sources", "state"
FOLDERS = (OFFSETS, COMMITS, SOURCES, STATE)

BARE_COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'
"""What a commit says of a batch whose watermark nobody needs."""

Files = dict[str, bytes]
"""Files of Spark's part, by name."""


def is_sparks(name: str) -> bool:
    """Whether an object of a checkpoint belongs to Spark's part.

    >>> is_sparks("offsets/3"), is_sparks("metadata"), is_sparks("afspark/identity")
    (True, True, False)
    """
    return name == METADATA or name.partition("/")[0] in FOLDERS


def numbers(names: Iterable[str]) -> list[int]:
    """The batches in a listing of offsets or commits, without the hidden files of file systems."""
    return [int(last) for name in names if (last := name.rsplit("/", 1)[-1]).isdigit()]


@dataclass(frozen=True)
class PlannedBatch:
    """What Spark has noted of a batch, and of the one before it. ``commit``: of the batch itself, once it is done."""

    metadata: str
    offsets: str
    before: str | None = None
    commit: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: Batch, files: Store, known: Iterable[str]) -> PlannedBatch:
        """The batch as Spark's files have it; ``known``: files of sources that are kept already."""
        names = [name for name in files.list(SOURCES) if not name.rsplit("/", 1)[-1].startswith(".")]
        past = set(known)
        return cls(
            metadata=_text(files, METADATA) or "",
            offsets=files.get(f"{OFFSETS}/{batch}").decode(),
            before=_text(files, f"{COMMITS}/{batch - 1}"),
            commit=_text(files, f"{COMMITS}/{batch}"),
            sources={name: files.get(name).decode() for name in names if name not in past},
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "metadata": self.metadata,
            "offsets": self.offsets,
            "before": self.before,
            "commit": self.commit,
            "sources": dict(self.sources),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> PlannedBatch:
        return cls(found["metadata"], found["offsets"], found["before"], found["commit"], dict(found["sources"]))


class PlannedBatches(BatchLog):
    """The batches that Spark has planned, as one query keeps them in its store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, PLANNED)

    def write(self, batch: Batch, epoch: str, planned: PlannedBatch) -> None:
        """Makes durable what belongs to a batch."""
        self.put(batch, epoch, {"planned": planned.to_json()})

    def read(self) -> dict[Batch, PlannedBatch]:
        """All that is known, by batch; what the newest driver says counts. One listing.

        `CheckpointError` if the newest batch cannot be read: workers may have applied it, and Spark would make another
        one of that number.
        """
        entries = self.entries()
        found = {batch: PlannedBatch.from_json(meta["planned"]) for batch, meta in self.contents(entries)}
        newest = max((entry.batch for entry in entries), default=None)
        if newest is not None and newest not in found:
            name = next(entry.name for entry in entries if entry.batch == newest)
            raise CheckpointError(
                f"What belongs to batch {newest} cannot be read: {name} is damaged.",
                remedy="Restore it from a copy, or start with a new checkpoint.",
                batch=newest,
                name=name,
            )
        return found


def files_of(planned: Mapping[Batch, PlannedBatch]) -> Files:
    """Spark's part of the checkpoint as it was when the newest of these batches was planned, or done.

    That the next batch was planned says that one is done.
    """
    files: Files = {}
    for batch in sorted(planned):
        one = planned[batch]
        files[METADATA] = one.metadata.encode()
        files[f"{OFFSETS}/{batch}"] = one.offsets.encode()
        if batch > 0 and (one.before is not None or Batch(batch - 1) in planned):
            files[f"{COMMITS}/{batch - 1}"] = BARE_COMMIT if one.before is None else one.before.encode()
        if one.commit is not None:
            files[f"{COMMITS}/{batch}"] = one.commit.encode()
        files |= {name: text.encode() for name, text in one.sources.items()}
    return files


def own_files(store: Store, known: Mapping[str, bytes]) -> Files:
    """What Spark itself has left in ``store``, but for its state; ``known`` is not read again. One listing a folder."""
    names = [name for folder in (OFFSETS, COMMITS, SOURCES) for name in store.list(folder)]
    if names and store.has(METADATA):
        names.append(METADATA)
    return {name: known[name] if name in known else store.get(name) for name in names}


def spark_files(own: Mapping[str, bytes], planned: Mapping[Batch, PlannedBatch]) -> Files:
    """Spark's part of a checkpoint, of what Spark itself has left there and what drivers have copied.

    Spark may have got a connector since, or lost it. What has the newest batch counts; of the same batch, the copy.
    """
    copied = files_of(planned)
    return {**own, **(copied if _newest(copied) >= _newest(own) else {})}


def _newest(files: Iterable[str]) -> int:
    return max(numbers(name for name in files if name.startswith(f"{OFFSETS}/")), default=-1)


def _text(files: Store, name: str) -> str | None:
    return files.get(name).decode() if files.has(name) else None
