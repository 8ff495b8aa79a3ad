"""A finished run as tables for people."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from afspark.report.document import RunReport, plain_json
from afspark.report.wording import bytes_text, counted, number_text, seconds_text
from afspark.store.request_counts import described

_SHOWN_LOSSES = 20
_TITLES = {
    "wordcount": "Most frequent words",
    "heavy-hitters": "Heavy hitters",
    "grep": "Matching lines",
    "join": "Joined pairs",
    "regression": "Largest weights",
    "sentiment": "Windows with most texts",
    "smartgrid": "Newest predictions for houses, in watts",
    "bargain": "Largest gains, in dollars",
}
_AMOUNTS = {"count", "estimate", "bound", "exact", "low", "high", "pairs", "samples", "lost"} | {
    *("texts", "score", "mean", "load", "past", "prediction"),
    *("ask_price", "ask_size", "average", "gain", "weight"),
}
_UNITS = {
    "wordcount": "words",
    "heavy-hitters": "packets",
    "grep": "lines",
    "join": "packets",
    "sentiment": "texts",
    "smartgrid": "readings",
    "bargain": "events",
}


def console(*, stderr: bool = False) -> Console:
    """A console that keeps its tables whole where the output is no terminal; COLUMNS says how wide they may be."""
    found = Console(stderr=stderr, highlight=False)
    known = found.is_terminal or "COLUMNS" in os.environ
    return found if known else Console(stderr=stderr, highlight=False, width=110)


def summary(report: RunReport) -> RenderableType:
    """All tables of a run."""
    parts: list[RenderableType] = [run_table(report)]
    if report.top:
        parts.insert(0, results_table(report))
    if report.ledger:
        parts.append(losses_table(report))
    if report.hosts is not None and (report.hosts["kills"] or report.hosts["wanted"]):
        parts.append(kills_table(report.hosts))
    return Group(*parts)


def results_table(report: RunReport) -> RenderableType:
    """The largest results, one column for each of theirs."""
    names = list(report.top[0])
    shown = f"{len(report.top)} of {number_text(report.results)}" if len(report.top) < report.results else "all"
    title = _TITLES.get(report.algorithm, "Results")
    table = plain_table()
    for name in names:
        table.add_column(name, justify="right" if isinstance(report.top[0][name], int | float) else "left")
    for row in report.top:
        table.add_row(*(_cell(name, row[name]) for name in names))
    return titled(f"{title} ({shown})", table)


def run_table(report: RunReport) -> RenderableType:
    """What went in, what it cost, and how far the results can be from exact ones."""
    table = plain_table(show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for name, text in _facts(report):
        table.add_row(name, text)
    return titled("Run", table)


def losses_table(report: RunReport) -> RenderableType:
    """Every loss of a worker's state and how it was made good."""
    table = plain_table()
    for name in ("batch", "worker", "threshold\nin force", "restore\n+ replay", "cells\nrestored"):
        table.add_column(name, justify="right")
    table.add_column("counted")
    table.add_column("cause")
    for entry in report.ledger[:_SHOWN_LOSSES]:
        table.add_row(
            str(entry["batch"]),
            text_cell(f"{entry['operator']}[{entry['worker']}]"),
            number_text(entry["theta"].get(report.main_state)),
            seconds_text(entry["recovery_seconds"]),
            number_text(entry["restored_cells"]),
            "yes" if entry["counted"] else "no",
            str(entry["cause"]),
        )
    if len(report.ledger) > _SHOWN_LOSSES:
        table.caption = f"… and {len(report.ledger) - _SHOWN_LOSSES} more; --json lists them all"
    return titled(f"Recoveries ({len(report.ledger)})", table)


def kills_table(hosts: Mapping[str, Any]) -> RenderableType:
    """The hosts that were killed, and how long their workers were away, from the kill on."""
    table = plain_table()
    for name in ("after", "batches\ndone", "host", "back\nafter", "workers\nlost", "secondaries\npromoted"):
        table.add_column(name, justify="right")
    for name in ("loss declared\nafter", "recovered\nafter"):
        table.add_column(name, justify="right")
    for kill in hosts["kills"]:
        losses = kill["losses"]
        table.add_row(
            seconds_text(kill["after_seconds"]),
            str(kill["batches"]),
            kill["host"],
            seconds_text(kill["away_seconds"]),
            str(len(losses)),
            str(sum(loss["promoted"] for loss in losses)),
            seconds_text(max((loss["detection_seconds"] for loss in losses), default=None)),
            seconds_text(max((loss["recovered_seconds"] or 0.0 for loss in losses), default=None)),
        )
    done = len(hosts["kills"])
    if done < hosts["wanted"]:
        table.caption = "the stream was over before the others; a larger input leaves hosts time to come back"
    return titled(f"Killed hosts ({done}{'' if done == hosts['wanted'] else ' of {}'.format(hosts['wanted'])})", table)


def _facts(report: RunReport) -> Sequence[tuple[str, str]]:
    unit = _UNITS.get(report.algorithm, "items")
    backups = report.backups
    facts = [
        (
            "input",
            f"{number_text(report.items)} {unit}, {bytes_text(report.bytes)}, "
            f"{counted(report.batches, 'batch', 'batches')}",
        ),
        ("time", seconds_text(report.seconds)),
        ("throughput", f"{report.mb_per_second:,.1f} MB/s, {number_text(round(report.items_per_second))} {unit}/s"),
        ("resident state", f"{counted(report.state['cells'], 'cell')}, {bytes_text(report.state['bytes'])}"),
        (
            "backups written",
            f"{counted(backups['count'], 'object')}, {counted(backups['cells'], 'cell')}, "
            f"{bytes_text(backups['bytes'])}",
        ),
        *_requests(report),
        ("error promised", f"at most {number_text(report.promised)}" if report.promised is not None else "nothing"),
        ("… after these failures", f"at most {number_text(report.realised.get(report.main_state, 0.0))}"),
    ]
    if report.observed is not None:
        facts.append(("error observed", number_text(report.observed["state"])))
    if report.learned is not None:
        facts = [*facts[:-2], *_learning(report)] if report.observed is None else [*facts[:-3], *_learning(report)]
    facts += _gaps(report)
    if report.accuracy is not None and "precision" in report.accuracy:
        found = report.accuracy
        facts.append(("precision, recall", f"{found['precision']:.4f}, {found['recall']:.4f}"))
    if report.skipped is not None:
        facts.append(("rows skipped", number_text(report.skipped)))
    if report.late:
        facts.append(("too late for their windows", number_text(report.late)))
    facts += _comparison(report)
    return facts


def _requests(report: RunReport) -> Sequence[tuple[str, str]]:
    if not report.batches or not any(report.requests.values()):
        return []
    a_batch = sum(report.requests.values()) / report.batches
    return [("requests to the store", f"{described(report.requests)}; {a_batch:.1f} a batch")]


def _gaps(report: RunReport) -> Sequence[tuple[str, str]]:
    """What nobody has replayed, if that was asked for."""
    if not report.settings.get("gap"):
        return []
    left_out = [entry for entry in report.ledger if entry["gap_batches"]]
    batches = counted(sum(entry["gap_batches"] for entry in left_out), "batch", "batches")
    workers = counted(len({(entry["operator"], entry["worker"]) for entry in left_out}), "worker")
    items = counted(sum(entry["gap_items"] for entry in left_out), "item")
    return [("left out, not replayed", f"{batches} of {workers}, {items}" if left_out else "nothing")]


def _comparison(report: RunReport) -> Sequence[tuple[str, str]]:
    """What an exact recount says about lines or pairs."""
    found = report.accuracy or {}
    if report.algorithm == "grep" and found:
        same = "the same" if found["same"] else "NOT the same"
        return [("lines matched", f"{number_text(report.results)}, exactly {number_text(found['matched'])}, {same}")]
    if "outside" in found:
        compared = (
            f"{number_text(found['compared'])} with exact ones; {number_text(found['outside'])} outside their bounds"
        )
        facts = [("rows compared", compared)]
        if found.get("mean_error", math.nan) >= 0:
            quality = f"{number_text(found['mean_error'])} W off, of {number_text(found['mean_load'])} W"
            facts.append(("predictions for houses", quality))
        if "exact_gain" in found:
            gains = f"{number_text(found['gain'])} in all, exactly {number_text(found['exact_gain'])}"
            facts.append(("gains", gains))
        return facts
    if report.algorithm != "join":
        return []
    return [
        (
            f"exact {name}",
            f"{number_text(found[name])}; estimate off by {found[f'{name}_error']:.2%}, "
            f"{'inside' if found[f'{name}_inside'] else 'outside'} its interval",
        )
        for name in ("count", "sum", "average")
        if name in found
    ]


def _learning(report: RunReport) -> Sequence[tuple[str, str]]:
    """What is told of a learner: thresholds bound what a failure takes, not the model in the end."""
    found, accuracy = report.learned or {}, report.accuracy or {}
    facts = [("taken by failures", f"at most {number_text(report.realised.get(report.main_state, 0.0))} of the model")]
    if found.get("prediction_rate") is not None:
        rates = f"{found['prediction_rate']:.4f} (always the commoner label: {found['base_rate']:.4f})"
        facts += [("predicted rightly", rates), ("log loss", f"{found['log_loss']:.4f}")]
    facts.append(("rows skipped", number_text(found["skipped"])))
    facts += _converging(report.convergence or {})
    if report.observed is not None:
        distance = f"{report.observed['state']:.3g} from the model of length {accuracy['model_length']:.4g}"
        facts.append(("without failures", f"{accuracy['failure_free_rate']:.4f} predicted rightly; {distance}"))
    return facts


def _converging(found: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """How a model converges that workers train together."""
    if not found.get("merges"):
        return []
    facts = [
        ("last change of the model", f"{found['l1']:.3g} (L1), after {found['merges']:,} in {found['seconds']:.1f} s")
    ]
    if found["held"] is not None:
        verdict = "within" if found["held"] else "ABOVE"
        bound = found["regret_bound"] / found["items"]
        facts.append(("regret per item", f"{found['regret_per_item']:.4f}, {verdict} theorem 1's {bound:.4f}"))
    return facts


def _cell(name: str, value: Any) -> Text:
    if value is None:
        return Text("–")
    # Identifiers such as addresses are no amounts.
    if name in _AMOUNTS and isinstance(value, int | float):
        return Text(number_text(value))
    return text_cell(value)


def text_cell(value: Any) -> Text:
    """Input may hold anything: control characters must not reach the terminal, nor brackets count as markup."""
    return Text("".join(c if c.isprintable() else "\ufffd" for c in str(plain_json(value))))


def comparison_table(rows: Sequence[Mapping[str, Any]], title: str) -> RenderableType:
    """Rows with the same columns side by side; the first column is the name."""
    table = plain_table()
    for place, name in enumerate(rows[0]):
        table.add_column(name, justify="left" if place == 0 else "right", style="bold" if place == 0 else None)
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    return titled(title, table)


class WholeTable(Table):
    """Where there is no room for a heading or a cell it is broken, and never cut."""

    def add_column(self, *given: Any, **named: Any) -> None:
        super().add_column(*given, **{"overflow": "fold", **named})


def plain_table(*, show_header: bool = True) -> Table:
    """An empty table in the look of all tables."""
    return WholeTable(box=box.SIMPLE_HEAD, show_header=show_header, padding=(0, 1, 0, 0))


def titled(title: str, table: Table) -> RenderableType:
    """A table below its title."""
    # Not the table's own title, which would be broken to the table's width.
    return Group(Text(title, style="bold"), table)
