"""The figures of a benchmark run as tables."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table


def print_all(document: dict[str, Any], console: Console) -> None:
    """Prints what the document holds."""
    for suite in ("tolerance", "native"):
        for algorithm, part in document.get(suite, {}).items():
            console.print(_contest(f"{suite}: {algorithm}", part["figures"]))
            ratios = part.get("ratios") or {key: value for key, value in part.items() if key != "figures"}
            console.print(_ratios(ratios))
    for name, parts in document.get("profile", {}).items():
        console.print(_rows(f"a batch of {name}, ms", [parts]))
    if "upkeep" in document:
        console.print(_rows("divergence upkeep", document["upkeep"]))
    for store, part in document.get("push", {}).items():
        if store == "half load":
            console.print(_rows("pushed at half load", part))
        else:
            rates = {name: figures["items_per_second"]["median"] for name, figures in part["figures"].items()}
            console.print(_rows(f"pushed items a second, {store}", [rates]))
            console.print(_ratios(part["ratios"]))
    state = document.get("state")
    if state:
        for kind, rows in state["cost_by_size"].items():
            console.print(_rows(f"state stage, 200,000 items, {kind} keys", rows))
        console.print(_rows("recovery of one worker", state["recovery"]))


def _contest(title: str, figures: dict[str, Any]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("contender")
    for column in ("MB/s", "least", "most", "s/batch", "results s"):
        table.add_column(column, justify="right")
    for name, values in figures.items():
        rate = values["mb_per_second"]
        results = values.get("results_seconds", {"median": 0.0})["median"]
        table.add_row(
            name,
            f"{rate['median']:.1f}",
            f"{rate['least']:.1f}",
            f"{rate['most']:.1f}",
            f"{values['seconds_per_batch']['median']:.3f}",
            f"{results:.2f}",
        )
    return table


def _ratios(ratios: dict[str, float]) -> Table:
    table = Table(show_header=False, box=None)
    for name, value in ratios.items():
        table.add_row(name, f"{value:.3f}")
    return table


def _rows(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in rows[0]:
        table.add_column(column.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    return table


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
