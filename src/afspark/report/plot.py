"""The demo's picture: what each tolerance costs and what it keeps, side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afspark.report.document import RunReport
from afspark.report.figure_style import GRID, INK, MUTED
from afspark.report.wording import bytes_text, number_text


@dataclass(frozen=True)
class Contender:
    """One run in the picture."""

    name: str
    detail: str
    color: str
    report: RunReport

    @property
    def observed(self) -> float:
        """Largest error of any result; the run must have been verified."""
        assert self.report.observed is not None
        return self.report.observed["state"]


def save_plot(path: str | Path, contenders: Sequence[Contender], *, title: str, subtitle: str) -> None:
    """Draws throughput, backups and errors of all ``contenders`` into a PNG file."""
    # Agg by name: no window system is needed, and nothing of the user's is changed.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.6), dpi=130, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 3)
    figure.subplots_adjust(left=0.17, right=0.985, top=0.72, bottom=0.12, wspace=0.14)
    figure.text(0.015, 0.93, title, fontsize=16, fontweight="bold", color=INK)
    figure.text(0.015, 0.865, subtitle, fontsize=10.5, color=MUTED)
    _bars(
        axes[0],
        contenders,
        "Throughput",
        "MB/s, failures included",
        lambda one: one.report.mb_per_second,
        lambda one: f"{one.report.mb_per_second:,.0f} MB/s",
    )
    _bars(
        axes[1],
        contenders,
        "Backups written",
        "cells, logarithmic",
        lambda one: one.report.backups["cells"],
        lambda one: (
            f"{number_text(one.report.backups['cells'])}\n{bytes_text(one.report.backups['bytes'])}"
            if one.report.backups["cells"]
            else "none"
        ),
        logarithmic=True,
    )
    _bars(
        axes[2],
        contenders,
        "Largest error of a count",
        "logarithmic; the line is what was promised",
        lambda one: one.observed,
        _error_label,
        logarithmic=True,
        end=lambda one: one.report.promised or 0.0,
    )
    _promises(axes[2], contenders)
    axes[0].set_yticks(range(len(contenders)), [""] * len(contenders))
    for place, one in enumerate(contenders):
        _name(axes[0], place, one)
    for axis in axes[1:]:
        axis.set_yticks([])
    figure.savefig(path)


def _bars(
    axis: Any,
    contenders: Sequence[Contender],
    title: str,
    subtitle: str,
    value: Callable[[Contender], float],
    label: Callable[[Contender], str],
    *,
    logarithmic: bool = False,
    end: Callable[[Contender], float] = lambda one: 0.0,
) -> None:
    """Horizontal bars with a label behind each, or behind ``end`` where that is farther right."""
    values = [value(one) for one in contenders]
    axis.barh(range(len(contenders)), values, color=[one.color for one in contenders], height=0.52, zorder=2)
    axis.set_title(title, loc="left", fontsize=12.5, fontweight="bold", color=INK, pad=24)
    axis.text(0, 1.035, subtitle, transform=axis.transAxes, fontsize=9.5, color=MUTED)
    top = max([*values, *map(end, contenders), 1.0])
    if logarithmic:
        # Zero has its place at the left edge, and labels need room behind the longest bar.
        powers = max(2, math.ceil(math.log10(top)))
        axis.set_xscale("symlog", linthresh=1)
        axis.set_xlim(0, 10.0 ** (1.8 * powers))
        axis.set_xticks([0, *(10.0**power for power in range(2, powers + 1, 2))])
        axis.minorticks_off()
    else:
        axis.set_xlim(0, top * 1.35)
    for place, one in enumerate(contenders):
        axis.annotate(
            label(one),
            (max(values[place], end(one)), place),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            fontsize=10.5,
            color=INK,
            linespacing=1.35,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
            zorder=3,
        )
    axis.set_ylim(len(contenders) - 0.5, -0.5)
    axis.set_axisbelow(True)
    axis.grid(axis="x", color=GRID, zorder=0)
    axis.tick_params(length=0, labelcolor=MUTED, labelsize=9)
    for side in ("top", "right", "bottom"):
        axis.spines[side].set_visible(False)
    axis.spines["left"].set_color(MUTED)


def _promises(axis: Any, contenders: Sequence[Contender]) -> None:
    for place, one in enumerate(contenders):
        if one.report.promised:
            axis.plot([one.report.promised] * 2, [place - 0.36, place + 0.36], color=INK, linewidth=2, zorder=4)


def _error_label(one: Contender) -> str:
    observed = number_text(one.observed)
    promised = one.report.promised
    if promised is None:
        return f"{observed}\nno promise"
    return f"{observed}\npromised: at most {number_text(promised)}" if promised else f"{observed}\npromised: 0"


def _name(axis: Any, place: int, one: Contender) -> None:
    where = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "ha": "right"}
    axis.annotate(one.name, (0, place), xytext=(-10, 6), va="center", fontsize=11.5, fontweight="bold", **where)
    axis.annotate(one.detail, (0, place), xytext=(-10, -9), va="center", fontsize=9, color=MUTED, **where)
