"""The item log of one lane: immutable objects in the backup store, each the entries of one group commit.

An object's name begins with a number that grows, so the newest is known. It may be torn if its writer died; then
nothing in it was acknowledged and it is dropped. Any other object that cannot be read is reported as damaged.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from afspark.errors import CorruptObject, ObjectMissing
from afspark.push.receiver.lane_entries import LaneItems
from afspark.push.receiver.log_ownership import LogOwnership
from afspark.push.wire.messages import PunctuationMark
from afspark.push.wire.push_errors import Replaced, SchemaMismatch, WireError
from afspark.store import Store, seal, unseal

KIND = "items"

#: items of more bytes go into several objects: Arrow's offsets have 32 bits
OBJECT_BYTES = 512 << 20


@dataclass
class LoadedLog:
    """What a log held: (object, record, bytes) in the order written, and the objects that could not be read."""

    records: list[tuple[str, LaneItems, int]] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


class ItemLog:
    """Appends, loads and truncates. One writer at a time."""

    def __init__(self, store: Store, lane: int, schema: pa.Schema) -> None:
        self._store = store
        self._lane = lane
        self._folder = f"lane-{lane:05d}"
        self._schema = schema
        self._next = 0
        # A writer that was replaced and does not know it must not overwrite objects of its successor.
        self._token = secrets.token_hex(4)
        self._ownership = LogOwnership(store, lane)

    def append(self, records: Sequence[LaneItems]) -> list[str]:
        """Makes records durable; for each the name of its object. After a failure, append the same ones again.

        `Replaced` if another log has been loaded since this one: then nothing of it may be acknowledged.
        """
        names: list[str] = []
        number = self._next
        for group in _groups(records):
            name = f"{self._folder}/{number:012d}-{self._token}"
            self._store.put(name, self._seal(group))
            number += 1
            names += [name] * len(group)
        try:
            self._ownership.check()
        except Replaced:
            # Nobody was told that they are safe, and their producers send them again.
            self._store.delete(set(names))
            raise
        # Only now: the objects of a failed append are replaced by those of the next.
        self._next = number
        return names

    def load(self) -> LoadedLog:
        """Takes the log over from whoever wrote to it, reads all objects, and drops a torn newest one."""
        self._ownership.take()
        loaded = LoadedLog()
        names = [name for name in self._store.list(self._folder) if _number(name) is not None]
        for name in names:
            self._next = max(self._next, (_number(name) or 0) + 1)
            try:
                loaded.records += (
                    (name, record, nbytes) for record, nbytes in self._unseal(self._store.get(name), name)
                )
            except ObjectMissing:
                continue
            except CorruptObject:
                (loaded.torn if name == names[-1] else loaded.damaged).append(name)
        self._store.delete(loaded.torn)
        return loaded

    def delete(self, names: Iterable[str]) -> None:
        self._store.delete(names)

    def _seal(self, records: Sequence[LaneItems]) -> bytes:
        batches = [record.batch for record in records if record.batch is not None]
        images = {}
        if batches:
            images["items"] = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        meta = {"kind": KIND, "lane": self._lane, "entries": [_to_json(record) for record in records]}
        return seal(meta, images)

    def _unseal(self, data: bytes, name: str) -> Iterator[tuple[LaneItems, int]]:
        sealed = unseal(data, name)
        items = sealed.images.get("items")
        if items is not None and not items.schema.equals(self._schema):
            raise SchemaMismatch(
                f"The item log holds items of another schema: {items.schema.to_string()}.",
                remedy="Finish the old query with the old schema, or use a new checkpoint folder.",
                expected=self._schema.to_string(),
                found=items.schema.to_string(),
            )
        offset, found = 0, []
        try:
            if sealed.meta["kind"] != KIND or sealed.meta["lane"] != self._lane:
                raise ValueError("it belongs elsewhere")
            for producer, start, span, extra in sealed.meta["entries"]:
                punctuation = PunctuationMark.from_json(extra["punctuation"]) if "punctuation" in extra else None
                mark = bool(extra.get("mark"))
                batch = None
                if punctuation is None and not mark:
                    if items is None:
                        raise ValueError("its items are missing")
                    batch = items.slice(offset, span)
                    offset += span
                found.append(
                    (LaneItems(producer, start, span, batch, punctuation, mark), 0 if batch is None else batch.nbytes)
                )
            if offset != (0 if items is None else items.num_rows):
                raise ValueError("rows and entries differ")
        except (KeyError, TypeError, ValueError, AttributeError, WireError) as error:
            raise CorruptObject(f"Object {name} is damaged inside: {error}.", name=name) from error
        return iter(found)


def _to_json(record: LaneItems) -> list[Any]:
    extra: dict[str, Any] = {}
    if record.punctuation is not None:
        extra["punctuation"] = record.punctuation.to_json()
    if record.mark:
        extra["mark"] = True
    return [record.producer, record.start, record.span, extra]


def _groups(records: Sequence[LaneItems]) -> Iterator[Sequence[LaneItems]]:
    begin, size = 0, 0
    for place, record in enumerate(records):
        nbytes = 0 if record.batch is None else record.batch.nbytes
        if place > begin and size + nbytes > OBJECT_BYTES:
            yield records[begin:place]
            begin, size = place, 0
        size += nbytes
    if begin < len(records):
        yield records[begin:]


def _number(name: str) -> int | None:
    digits = name.rpartition("/")[2].partition("-")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else None
