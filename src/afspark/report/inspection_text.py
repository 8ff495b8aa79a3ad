"""A checkpoint as tables for people."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from afspark.api.inspection import Inspection, OperatorInspection, Resident, WorkerInspection
from afspark.report.control_text import decisions_table, recoveries_table
from afspark.report.snapshots_text import savepoints_table, snapshot_text, snapshots_table
from afspark.report.summary import plain_table, text_cell, titled
from afspark.report.wording import bytes_text, number_text, seconds_text
from afspark.store.snapshot_history import newest_complete

_SHOWN = 20


def inspection(found: Inspection, operators: Sequence[OperatorInspection], *, bad: bool = False) -> RenderableType:
    """All tables, with those of ``operators`` only; with ``bad`` it also says if no bad items are kept."""
    parts: list[RenderableType] = [_query(found)]
    for operator in operators:
        parts.append(_workers(operator))
        parts += _bad(operator)
        if any(worker.residents for worker in operator.workers):
            parts.append(_states(operator))
        parts += _cells(operator)
    if found.snapshots:
        parts.append(snapshots_table(found.snapshots))
    if found.savepoints:
        parts.append(savepoints_table(found.savepoints))
    if found.ledger:
        parts.append(_ledger(found))
        recoveries = recoveries_table(found.ledger)
        parts += [recoveries] if recoveries is not None else []
    if found.decisions:
        parts.append(decisions_table(found.decisions))
    if found.bad_items:
        parts.append(_quarantine(found))
    elif bad:
        parts.append(Text("No items are in quarantine.\n"))
    if found.damaged:
        parts.append(_damage(found))
    return Group(*parts)


def _query(found: Inspection) -> RenderableType:
    table = plain_table(show_header=False)
    table.add_column(style="bold")
    table.add_column()
    newest = newest_complete(found.snapshots)
    batch = "none yet" if found.batch is None else f"{found.batch} (epoch {found.epoch})"
    spark = "none yet" if found.spark_batch is None else str(found.spark_batch)
    facts = [
        ("checkpoint", found.path),
        ("query", found.query_id),
        ("created", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(found.created))),
        ("newest record", f"batch {batch}" if found.batch is not None else batch),
        ("committed by Spark", f"batch {spark}" if found.spark_batch is not None else spark),
        *([("started from", f"savepoint {found.started_from}")] if found.started_from else []),
        *([("newest snapshot", snapshot_text(newest, time.time()))] if newest else []),
        ("input so far", f"{number_text(found.items)} items, {bytes_text(found.bytes)}"),
        ("stream", "ended" if found.ended else "open"),
        ("resident state", f"looked for in {found.segments}" if found.segments else "none on this machine"),
        ("damage", _damage_text(found)),
    ]
    for name, text in facts:
        table.add_row(name, text_cell(text))
    return titled("Query", table)


def _damage_text(found: Inspection) -> str:
    if found.damaged:
        return f"{len(found.damaged)} found"
    return "none, all objects read" if found.verified else "none seen; --verify reads all objects"


def _workers(operator: OperatorInspection) -> RenderableType:
    table = plain_table()
    # Two tables of few columns: one with all of them is wider than most terminals.
    since = "batches since\nloss or stop"
    names = ("worker", "host", "incar-\nnation", since, "failures", "threshold", "affected\npanes")
    for name in names:
        table.add_column(name, justify="left" if name == "host" else "right")
    for worker in operator.workers:
        table.add_row(str(worker.worker), *_worker_row(worker))
    title = f"Operator {operator.name}: {_operator_text(operator)}"
    return Group(titled(title, table), *_bounds(operator), *_windows(operator), _backups(operator))


def _worker_row(worker: WorkerInspection) -> list[Text | str]:
    record = worker.record
    if record is None:
        return ["–"] * 6
    many = len(record.theta) > 1
    theta = "\n".join(
        f"{name} {number_text(value)}" if many else number_text(value) for name, value in record.theta.items()
    )
    return [
        text_cell(record.host or "–"),
        str(record.incarnation),
        number_text(record.completed),
        number_text(record.failures),
        theta,
        _panes_text(worker.affected) or "–",
    ]


def _backups(operator: OperatorInspection) -> RenderableType:
    table = plain_table()
    for name in ("worker", "backups\n(full)", "bytes", "cells", "last\nbackup", "feedback\nwaiting"):
        table.add_column(name, justify="right")
    for worker in operator.workers:
        table.add_row(
            str(worker.worker),
            f"{len(worker.backups)} ({sum(ref.full for ref in worker.backups)})",
            bytes_text(worker.backup_bytes),
            number_text(worker.backup_cells),
            "–" if worker.last_backup is None else f"batch {worker.last_backup}",
            number_text(worker.record.waiting if worker.record else None),
        )
    return titled(f"Backups of {operator.name}", table)


def _operator_text(operator: OperatorInspection) -> str:
    settings = operator.settings
    window = settings.get("window")
    parts = [
        str(settings.get("operator", {}).get("operator", "?")),
        "keyed" if settings.get("keyed") else "local shares",
        f"window {', '.join(f'{key}={value}' for key, value in window.items())}" if window else "no window",
    ]
    return ", ".join(parts)


def _bounds(operator: OperatorInspection) -> list[RenderableType]:
    if operator.bounds is None:
        return []
    parts = [
        f"{name} by anything (no bound holds)" if math.isinf(bound) else f"{name} by at most {number_text(bound)}"
        for name, bound in operator.bounds.items()
    ]
    most = number_text(operator.lost_items)
    lost = f"; receivers that died can have lost up to {most} pushed items" if operator.lost_items else ""
    names = ", ".join(operator.upstream)
    upstream = f"; that leaves out what losses of {names} have changed in what it received" if names else ""
    return [Text(f"  failures can have changed {', '.join(parts) or 'no state'}{lost}{upstream}\n")]


def _windows(operator: OperatorInspection) -> list[RenderableType]:
    progress = operator.window_progress
    if progress is None:
        return []
    return [
        Text(
            f"  windows: first open pane {number_text(progress.first_open)}, with items "
            f"{_panes_text(tuple(sorted(progress.touched))) or 'none'}; {number_text(operator.late)} items late, "
            f"{number_text(operator.unplaced)} without a usable time\n"
        )
    ]


def _bad(operator: OperatorInspection) -> list[RenderableType]:
    if not operator.bad:
        return []
    counts = ", ".join(
        f"{number_text(count.items)} of {count.source or 'the source'} ({count.kind})" for count in operator.bad
    )
    return [Text(f"  bad items, left out: {counts}\n")]


def _quarantine(found: Inspection) -> RenderableType:
    table = plain_table()
    for name in ("batch", "operator", "source", "producer", "number", "place", "error", "row"):
        table.add_column(name, justify="right" if name in ("batch", "number") else "left")
    for item in found.bad_items[-_SHOWN:]:
        texts = (item.operator, item.source, item.producer, item.number, item.place, item.error, dict(item.row))
        table.add_row(str(item.batch), *(text_cell("–" if text in (None, "") else text) for text in texts))
    if len(found.bad_items) > _SHOWN:
        table.caption = f"{len(found.bad_items) - _SHOWN} earlier ones are left out; --json lists them all"
    return titled(f"Items in quarantine ({len(found.bad_items)})", table)


def _states(operator: OperatorInspection) -> RenderableType:
    table = plain_table()
    for name in ("worker", "host", "applied\nbatch", "state", "pane", "bytes", "cells", "divergence\nnow", "note"):
        table.add_column(name, justify="left" if name in ("host", "state", "note") else "right")
    for worker in operator.workers:
        for resident in worker.residents:
            peek = resident.peek
            first: list[Text | str] = [str(worker.worker), text_cell(resident.host), str(peek.version)]
            if not peek.states:
                table.add_row(*first, "–", "–", "–", "–", "–", text_cell(_note(resident)))
            for view in peek.states[:_SHOWN]:
                table.add_row(
                    *first,
                    text_cell(view.state),
                    "–" if view.pane is None else str(view.pane),
                    bytes_text(view.bytes),
                    number_text(view.cells),
                    number_text(view.divergence),
                    text_cell(_note(resident)),
                )
    return titled(f"Resident state of {operator.name}", table)


def _note(resident: Resident) -> str:
    notes = [resident.peek.trouble] if resident.peek.trouble else []
    if resident.peek.marked:
        notes.append(f"batch {resident.peek.version + 1} half applied")
    if not resident.current:
        notes.append(f"outdated incarnation {resident.peek.incarnation}")
    return ", ".join(notes)


def _cells(operator: OperatorInspection) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for worker in operator.workers:
        for view in (view for resident in worker.residents for view in resident.peek.states if view.largest):
            table = plain_table()
            for name in view.largest[0]:
                table.add_column(name)
            for row in view.largest:
                table.add_row(*(text_cell(value) for value in row.values()))
            pane = "" if view.pane is None else f", pane {view.pane}"
            parts.append(titled(f"Largest cells of {operator.name}, worker {worker.worker}, {view.state}{pane}", table))
    return parts


def _ledger(found: Inspection) -> RenderableType:
    table, known = plain_table(), {operator.name for operator in found.operators}
    for name in ("batch", "operator", "worker", "counted", "restore\n+ replay", "cells\nrestored", "covered", "cause"):
        table.add_column(name, justify="left" if name in ("operator", "cause") else "right")
    for entry in found.ledger[-_SHOWN:]:
        loss, recovery = entry.loss, entry.recovery
        table.add_row(
            str(loss.batch),
            text_cell(loss.operator if loss.operator in known else f"({loss.operator})"),
            "all" if loss.worker < 0 else str(loss.worker),
            "yes" if loss.counted else "no",
            seconds_text(recovery.all_seconds) if recovery else "open",
            number_text(recovery.restored_cells if recovery else None),
            {None: "–", True: "yes", False: "no"}[entry.covered],
            text_cell(loss.cause),
        )
    if len(found.ledger) > _SHOWN:
        table.caption = f"{len(found.ledger) - _SHOWN} earlier ones are left out; --json lists them all"
    return titled(f"Ledger of losses ({len(found.ledger)})", table)


def _damage(found: Inspection) -> RenderableType:
    table = plain_table()
    for name in ("what", "reason"):
        table.add_column(name)
    for damage in found.damaged:
        table.add_row(text_cell(damage.name), damage.reason)
    return titled(f"Damaged ({len(found.damaged)})", table)


def _panes_text(panes: Sequence[int]) -> str:
    shown = ", ".join(str(pane) for pane in panes[:6])
    return f"{shown}, … {panes[-1]}" if len(panes) > 6 else shown
