"""Finds the history a new epoch continues.

A driver's records are read only through the newest epoch, by (number, token). Its start object names the
records of earlier epochs that were its past, and each of its own records repeats that list. So an older
driver that is still alive can write what it likes: nothing names it.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import Any

from afspark.store.base import Store
from afspark.store.claims import Claims
from afspark.store.commits import CommitRecord
from afspark.store.format import Sealed, seal
from afspark.store.naming import DRIVER, EPOCHS, GUARD, EpochEntry, EpochId
from afspark.store.reading import Damage, read_sealed


@dataclass
class History:
    """The records of the newest usable epoch, by batch: their names and contents."""

    records: dict[int, tuple[str, CommitRecord]] = field(default_factory=dict)
    present: frozenset[EpochId] = frozenset()
    damaged: list[Damage] = field(default_factory=list)


def epoch_claims(store: Store) -> Claims[EpochId]:
    """The epochs that drivers have opened and nobody has swept."""
    return Claims(store, EPOCHS, EpochId, who="drivers", entry=DRIVER, guard=GUARD)


def seal_start(epoch: EpochId, visible: list[str]) -> bytes:
    meta = {"kind": "epoch", "epoch": str(epoch), "visible": visible, "created": time.time()}
    return seal(meta, {})


def seal_record(record: CommitRecord, visible: list[str]) -> bytes:
    return seal({"kind": "commit", "record": record.to_json(), "visible": visible}, {})


def read_history(store: Store, upto: int) -> History:
    """Records with batch <= ``upto`` that the newest usable epoch sees; one listing."""
    entries = _entries(store)
    names = {entry.name for entry in entries}
    history = History(present=frozenset(entry.epoch for entry in entries))
    for epoch in sorted(history.present, reverse=True):
        own = sorted(
            (entry for entry in entries if entry.epoch == epoch and entry.batch is not None),
            key=lambda entry: (entry.batch, entry.attempt),
        )
        visible = _visible(store, epoch, own, names, history.damaged)
        if visible is not None:
            past = [EpochEntry.parse(name) for name in visible]
            _read_records(store, [entry for entry in past if entry], own, names, upto, history)
            return history
    return history


def newest_batch(store: Store) -> int | None:
    """The highest batch with a record that a new epoch would continue; None if there is none."""
    return max(read_history(store, sys.maxsize).records, default=None)


def newest_record(store: Store) -> CommitRecord | None:
    """The record that a new epoch would continue; None if there is none."""
    records = read_history(store, sys.maxsize).records
    return records[max(records)][1] if records else None


def _entries(store: Store) -> list[EpochEntry]:
    return [entry for name in store.list(EPOCHS) if (entry := EpochEntry.parse(name))]


def _visible(
    store: Store, epoch: EpochId, own: list[EpochEntry], names: set[str], damaged: list[Damage]
) -> list[str] | None:
    """The earlier records an epoch sees; None if it left nothing sound behind.

    An epoch with a damaged start is still usable through its own records, which repeat the list. One without
    records committed nothing, so the epoch before it is the newest.
    """
    start = f"{EPOCHS}/{epoch}/start"
    for name in [*([start] if start in names else []), *(entry.name for entry in reversed(own))]:
        found = _interpret(read_sealed(store, [name])[0], name)
        if not isinstance(found, Damage):
            return list(found[0])
        if name == start:
            damaged.append(found)
    damaged += [Damage(entry.name, "corrupt", "no sound record in this epoch") for entry in own]
    return None


def _read_records(
    store: Store, past: list[EpochEntry], own: list[EpochEntry], names: set[str], upto: int, history: History
) -> None:
    """Fills the history. Of one batch, own records win over past ones and later attempts over earlier."""
    wanted = [entry for entry in (*past, *own) if entry.batch is not None and entry.batch <= upto]
    # Old records may have been pruned after the list was written; the newest of the past only if this
    # epoch has records that make up for it.
    absent = [entry for entry in wanted if entry.name not in names]
    wanted = [entry for entry in wanted if entry.name in names]
    damaged: dict[int, list[Damage]] = {}
    for entry, sealed in zip(wanted, read_sealed(store, [entry.name for entry in wanted]), strict=True):
        batch = entry.batch if entry.batch is not None else -1
        found = _interpret(sealed, entry.name)
        if isinstance(found, Damage) or found[1] is None:
            reason = found if isinstance(found, Damage) else Damage(entry.name, "foreign", "not a commit record")
            damaged.setdefault(batch, []).append(reason)
        else:
            history.records[batch] = (entry.name, found[1])
            damaged.pop(batch, None)  # A failed attempt that was repeated with success is no loss.
    history.damaged += [item for items in damaged.values() for item in items]
    if absent and not any(batch >= (absent[-1].batch or 0) for batch in history.records):
        history.damaged.append(Damage(absent[-1].name, "missing", "named as the newest record of the past"))


def _interpret(found: Sealed | Damage, name: str) -> tuple[list[str], CommitRecord | None] | Damage:
    """(visible, record) of a start object (no record) or a commit record that is what its name says."""
    if isinstance(found, Damage):
        return found
    try:
        meta: dict[str, Any] = found.meta
        entry = EpochEntry.parse(name)
        if meta["kind"] == "epoch":
            said: tuple[Any, Any] = (meta["epoch"], None)
            record = None
        else:
            record = CommitRecord.from_json(meta["record"])
            said = (record.epoch, record.batch)
        if entry is None or said != (str(entry.epoch), entry.batch):
            return Damage(name, "foreign", f"it speaks of {said}")
        return [str(item) for item in meta["visible"]], record
    except (KeyError, TypeError, ValueError) as error:
        return Damage(name, "foreign", f"not understood: {error!r}")
