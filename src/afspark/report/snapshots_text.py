"""The history of snapshots for people."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from afspark.api.savepoints import FoundSavepoint
from afspark.report.summary import plain_table, text_cell, titled
from afspark.report.wording import bytes_text, number_text, seconds_text
from afspark.store.snapshot_history import SnapshotEntry

_SHOWN = 20


def snapshots_table(entries: Sequence[SnapshotEntry]) -> RenderableType:
    """The newest snapshots, oldest first."""
    table = plain_table()
    for name in ("number", "barrier", "started\n(UTC)", "took", "parts\n(full)", "bytes", "skipped\nafter it"):
        table.add_column(name, justify="right")
    for entry in entries[-_SHOWN:]:
        table.add_row(
            str(entry.number),
            f"batch {entry.barrier}",
            _clock_text(entry.started),
            "–" if entry.completed is None else seconds_text(entry.completed - entry.started),
            f"{entry.parts} ({entry.full})",
            bytes_text(entry.bytes),
            number_text(sum(one.barriers for one in entry.skipped)),
        )
    if len(entries) > _SHOWN:
        table.caption = f"{len(entries) - _SHOWN} earlier ones are left out; --json lists them all"
    # Below the table, where there is room for them.
    notes = [Text(f"  {entry.number}: {note}") for entry in entries[-_SHOWN:] if (note := _note(entry))]
    return Group(titled(f"Snapshots ({len(entries)})", table), *notes, *([Text()] if notes else []))


def savepoints_table(found: Sequence[FoundSavepoint]) -> RenderableType:
    """The savepoints that a checkpoint keeps under a name."""
    table = plain_table()
    for name in ("name", "barrier", "made\n(UTC)", "bytes", "note"):
        table.add_column(name, justify="left" if name in ("name", "note") else "right")
    for one in found:
        table.add_row(
            text_cell(one.name),
            "–" if one.batch is None else f"batch {one.batch}",
            "–" if one.created is None else _clock_text(one.created),
            bytes_text(one.bytes),
            text_cell(f"cannot be used: {one.trouble}" if one.trouble else ""),
        )
    return titled(f"Savepoints ({len(found)})", table)


def snapshot_text(entry: SnapshotEntry, now: float) -> str:
    """A complete snapshot in a few words."""
    return f"number {entry.number}, batch {entry.barrier}, {seconds_text(max(0.0, now - entry.started))} old"


def _note(entry: SnapshotEntry) -> str:
    notes = [f"abandoned: {entry.abandoned}"] if entry.abandoned else []
    for one in entry.skipped:
        which = f"barrier {one.first}" if one.barriers == 1 else f"barriers {one.first} to {one.last}"
        notes.append(f"{which} skipped: {one.why}")
    return "; ".join(notes)


def _clock_text(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))
