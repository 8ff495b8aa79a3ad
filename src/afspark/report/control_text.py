"""Recoveries by their steps, and what the controller has decided, for people."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from afspark.report.summary import plain_table, text_cell, titled
from afspark.report.wording import seconds_text
from afspark.store import LedgerEntry

_SHOWN = 20


def recoveries_table(entries: Sequence[LedgerEntry]) -> RenderableType | None:
    """The recoveries that were timed, from the failure to the first batch applied; None if there are none."""
    timed = [entry for entry in entries if entry.recovery is not None and entry.recovery.account]
    if not timed:
        return None
    table = plain_table()
    names = ("batch", "worker", "failure", "detec-\ntion", "wait", "promo-\ntion", "deploy", "read", "wire", "replay")
    for name in (*names, "all", "esti-\nmated"):
        table.add_column(name, justify="left" if name == "failure" else "right")
    for entry in timed[-_SHOWN:]:
        assert entry.recovery is not None
        account: Mapping[str, Any] = entry.recovery.account
        steps = account["measured"]
        wire = max(steps["wire_send"] or 0.0, steps["wire_receive"] or 0.0)
        table.add_row(
            str(entry.loss.batch),
            text_cell(f"{entry.loss.operator}[{entry.loss.worker}]"),
            str(account["kind"]).replace("_", " "),
            *(seconds_text(steps[name]) for name in ("detection", "wait", "promotion", "deploy", "read")),
            seconds_text(wire),
            seconds_text(steps["replay"]),
            seconds_text(steps["seconds"]),
            seconds_text(account["estimated"]["seconds"]),
        )
    return titled(f"Recoveries by steps ({len(timed)})", table)


def decisions_table(decisions: Sequence[Mapping[str, Any]]) -> RenderableType:
    """What the controller has changed, oldest first."""
    table = plain_table()
    for name in ("when\n(UTC)", "worker", "from", "to", "reason"):
        table.add_column(name)
    for one in decisions[-_SHOWN:]:
        table.add_row(
            time.strftime("%H:%M:%S", time.gmtime(one["at"])),
            text_cell(f"{one['operator']}[{one['worker']}]"),
            one["from"] or "–",
            one["to"],
            text_cell(one["reason"]),
        )
    if len(decisions) > _SHOWN:
        table.caption = f"{len(decisions) - _SHOWN} earlier ones are left out; --json lists them all"
    return titled(f"Decisions of the controller ({len(decisions)})", table)
