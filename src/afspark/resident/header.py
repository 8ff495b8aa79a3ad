"""The two small files that describe a segment, and how they are read without opening it.

``meta.json`` changes only if the checkpoint is moved, and is written last, so a folder without it is a creation that
never ended. ``header`` is one page of int64 slots that all processes map. One aligned 8-byte store to its word

    word = (version + 1) << 21 | step << 1 | mark

begins, ends or takes back a batch, or closes a step of one: a process killed at any moment leaves the word before
or after the change.
"""

from __future__ import annotations

import json
import mmap
import os
import secrets
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from afspark.errors import SegmentError
from afspark.numbers import NO_STEP, Batch, Fence, Incarnation, Step
from afspark.protocol.lifecycle import FORMAT_VERSION, MOST_STEPS, Absent, Foreign, Found, Identity, Present
from afspark.resident.kept_files import is_kept
from afspark.resident.manifest import ManifestSlots, is_whole, total_of
from afspark.resident.mapped_columns import is_column, reserve
from afspark.resident.open_folder import OpenFolder
from afspark.store.drivers import boot_id

META = "meta.json"
HEADER = "header"
COLUMNS = "columns"
HEADER_BYTES = 4096
MAGIC = int.from_bytes(b"afspark\0", "little")

SLOT_MAGIC = 0
SLOT_FORMAT = 1
SLOT_INCARNATION = 2
SLOT_WORD = 3
SLOT_CREATION = 4
SLOT_USED = 5
SLOT_OWNER = 6
SLOT_FENCE = 7
SLOT_BACKUPS = 9
SLOT_KEPT = 10
"""The oldest batch whose outputs are kept; reports are kept of those after it."""
SLOT_SECONDARY = 11
"""1 while it follows a primary on another host."""

COLUMN_FILES = ManifestSlots(total=8, changing=12, changes=13)
KEPT_FILES = ManifestSlots(total=14, changing=15, changes=16)
"""Which columns, and which files beside the header, there have to be."""

Slots = npt.NDArray[np.int64]

_LOOKS = 100
"""How often a segment is looked at whose task makes and removes files all the while."""

STEP_BITS = MOST_STEPS.bit_length()


def pack(version: Batch, marked: bool, step: Step = NO_STEP) -> int:
    """The header word for a version, the steps of the next batch that are closed, and the mark."""
    if not 0 <= step <= MOST_STEPS:
        # It would carry over into the version.
        raise SegmentError(f"A batch has 0 to {MOST_STEPS} steps, not {step}.", step=step, most=MOST_STEPS)
    return (version + 1) << (STEP_BITS + 1) | step << 1 | int(marked)


def unpack(word: int) -> tuple[Batch, bool]:
    """Version and mark of a header word."""
    return Batch((word >> (STEP_BITS + 1)) - 1), bool(word & 1)


def unpack_step(word: int) -> Step:
    """How many steps of the batch after the version are closed."""
    return Step((word >> 1) & MOST_STEPS)


@dataclass(frozen=True, kw_only=True)
class Meta:
    """What ``meta.json`` holds.

    ``creation`` is a random number that header and meta share. ``boot`` names the run of the operating
    system: on a disk, pages of a segment may have been lost when the machine went down, so it is void
    afterwards. ``checkpoint_seen``: the checkpoint was a folder visible from this host, so its absence
    later means something.
    """

    identity: Identity
    creation: int
    boot: str
    created: float
    checkpoint_seen: bool

    @classmethod
    def new(cls, identity: Identity) -> Meta:
        """The description of a segment created now, on this host."""
        return cls(
            identity=identity,
            creation=secrets.randbits(62),
            boot=boot_id(),
            created=time.time(),
            checkpoint_seen=_is_seen(identity.checkpoint),
        )

    def moved(self, checkpoint: str) -> Meta:
        """The same segment, with its checkpoint elsewhere."""
        identity = replace(self.identity, checkpoint=checkpoint)
        return replace(self, identity=identity, checkpoint_seen=_is_seen(checkpoint))


def _is_seen(checkpoint: str) -> bool:
    return bool(checkpoint) and Path(checkpoint).is_dir()


def write_meta(folder: OpenFolder, meta: Meta) -> None:
    folder.write(META, json.dumps(asdict(meta), indent=1).encode())


def write_header(directory: Path, meta: Meta, incarnation: Incarnation, version: Batch, *, secondary: bool) -> None:
    """Writes the first header of a segment that no other process can see yet."""
    path = directory / HEADER
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        reserve(file, path, HEADER_BYTES)
    finally:
        os.close(file)
    slots = np.zeros(HEADER_BYTES // 8, dtype=np.int64)
    slots[SLOT_MAGIC] = MAGIC
    slots[SLOT_FORMAT] = FORMAT_VERSION
    slots[SLOT_INCARNATION] = incarnation
    slots[SLOT_WORD] = pack(version, marked=False)
    slots[SLOT_KEPT] = version
    slots[SLOT_SECONDARY] = secondary
    slots[SLOT_CREATION] = meta.creation
    slots[SLOT_USED] = int(meta.created)
    with path.open("r+b") as stream:
        stream.write(slots.tobytes())


def map_header(file: int) -> Slots:
    """The header's slots in memory shared by all processes that map them."""
    return np.frombuffer(mmap.mmap(file, HEADER_BYTES), dtype=np.int64)


def examine(directory: Path) -> Found:
    """What lies in ``directory``, read without locking or mapping anything."""
    files = read(directory)
    if isinstance(files, Absent | Foreign):
        return files
    return describe(*files)


def describe(meta: Meta, slots: Slots) -> Present:
    """The segment's place in its life cycle."""
    version, marked = unpack(int(slots[SLOT_WORD]))
    return Present(
        meta.identity,
        Incarnation(int(slots[SLOT_INCARNATION])),
        version,
        marked,
        Fence(int(slots[SLOT_FENCE])),
        Batch(int(slots[SLOT_KEPT])),
        bool(slots[SLOT_SECONDARY]),
    )


def read(directory: Path) -> tuple[Meta, Slots] | Absent | Foreign:
    """Meta and a copy of the header of one sound segment, or why there is none."""
    try:
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return Absent()
    try:
        # Both from the same open folder: the one of that name may be replaced at any time.
        meta = _parse_meta(_read_bytes(folder, META))
        if not isinstance(meta, Meta):
            return meta
        found = _parse_header(_read_bytes(folder, HEADER), meta)
        return found if isinstance(found, Foreign) or _has_its_files(folder, found[1]) else Absent()
    except FileNotFoundError:
        return Absent()
    finally:
        os.close(folder)


def _has_its_files(folder: int, slots: Slots) -> bool:
    """False if somebody has removed one, and no task at work: that has changed the header as well."""
    for _ in range(_LOOKS):
        kept, columns = total_of(filter(is_kept, os.listdir(folder))), total_of(filter(is_column, _columns(folder)))
        if all(
            is_whole(found, *place.read(slots)[:2]) for found, place in ((kept, KEPT_FILES), (columns, COLUMN_FILES))
        ):
            return True
        before, slots = slots, np.frombuffer(_read_bytes(folder, HEADER), dtype=np.int64)
        if all(place.read(before) == place.read(slots) for place in (KEPT_FILES, COLUMN_FILES)):
            return False
    return True


def _columns(folder: int) -> list[str]:
    columns = os.open(COLUMNS, os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
    try:
        return os.listdir(columns)
    finally:
        os.close(columns)


def _parse_meta(data: bytes) -> Meta | Absent | Foreign:
    try:
        fields = json.loads(data)
        format_version = fields["identity"]["format_version"]
        if format_version != FORMAT_VERSION:
            return Foreign(f"format version {format_version}, expected {FORMAT_VERSION}")
        meta = Meta(**{**fields, "identity": Identity(**fields["identity"])})
    except (ValueError, TypeError, KeyError) as error:
        return Foreign(f"{META} cannot be read: {error}")
    return meta if meta.boot == boot_id() else Absent()


def _parse_header(data: bytes, meta: Meta) -> tuple[Meta, Slots] | Foreign:
    if len(data) != HEADER_BYTES:
        return Foreign(f"{HEADER} has {len(data)} bytes, expected {HEADER_BYTES}")
    slots = np.frombuffer(data, dtype=np.int64)
    if slots[SLOT_MAGIC] != MAGIC or slots[SLOT_FORMAT] != FORMAT_VERSION:
        return Foreign(f"{HEADER} is not that of a segment")
    if slots[SLOT_CREATION] != meta.creation:
        return Foreign(f"{HEADER} and {META} belong to different segments")
    return meta, slots


def _read_bytes(folder: int, name: str) -> bytes:
    with open(name, "rb", opener=lambda path, flags: os.open(path, flags, dir_fd=folder)) as stream:
        return stream.read()
