"""Plots of the results page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from afspark.report.figure_style import COLORS, INK, MUTED, save_figure, styled_figure

#: Names in a row of a legend.
_ROW = 6


@dataclass(frozen=True)
class Curve:
    """A line over ``x``; ``worst`` spans a band to the worst seed."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    worst: Sequence[float] | None = None
    dashed: bool = False


def bars(
    path: Path,
    groups: Mapping[str, Mapping[str, float]],
    *,
    title: str,
    subtitle: str,
    colors: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """A group of bars for each name, the same bars in each, with their values on top. ``colors``: of some bars, by
    name.
    """
    figure, (axis,) = styled_figure((12.5, 4.8), title, subtitle)
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    width = 0.82 / len(names)
    for place, name in enumerate(names):
        x = [at + (place - (len(names) - 1) / 2) * width for at in range(len(groups))]
        y = [group.get(name, 0.0) for group in groups.values()]
        color = colors.get(name, COLORS[place % len(COLORS)])
        axis.bar(x, y, width * 0.92, color=color, label=name, zorder=2)
        for at, value in zip(x, y, strict=True):
            axis.text(at, value, f"{value:.2f}".rstrip("0").rstrip("."), ha="center", va="bottom", fontsize=7.5)
    axis.set_xticks(range(len(groups)), list(groups))
    axis.tick_params(axis="x", labelsize=10.5, labelcolor=INK)
    axis.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.08),
        ncols=len(names) if len(names) <= _ROW else -(-len(names) // 2),
        frameon=False,
        fontsize=9,
    )
    save_figure(figure, path)


def curves(
    path: Path, lines: Sequence[Curve], papers: Mapping[str, tuple[float, float]], *, title: str, label: str
) -> None:
    """Lines over the number of failures; right of them what the papers say, from none to ten failures."""
    figure, (ours, theirs) = styled_figure((12.5, 4.4), title, "", 2)
    for place, line in enumerate(lines):
        color = COLORS[place % len(COLORS)]
        ours.plot(
            line.x, line.y, color=color, label=line.name, linestyle="--" if line.dashed else "-", marker="o", ms=4
        )
        if line.worst is not None:
            ours.fill_between(line.x, line.y, line.worst, color=color, alpha=0.18, linewidth=0)
    for place, (name, ends) in enumerate(papers.items(), 1):
        theirs.plot((0, 10), ends, color=COLORS[place], label=name, marker="o", ms=4)
    ours.set_title("measured here", loc="left", fontsize=11, color=INK)
    theirs.set_title("AF-Stream, VLDB 2016", loc="left", fontsize=11, color=INK)
    for axis in (ours, theirs):
        axis.set_xlabel(label, color=MUTED)
        axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g} %")
        axis.legend(frameon=False, fontsize=9)
    save_figure(figure, path)


def grid(
    path: Path,
    panels: Mapping[str, Sequence[Curve]],
    *,
    title: str,
    subtitle: str,
    xlabel: str | Sequence[str],
    logx: bool = True,
    level: float | None = None,
) -> None:
    """A row of panels of lines; ``xlabel``: of all of them, or of each. With a ``level`` to compare with, a line is
    drawn there, and all panels show the same part of the scale around it; without one they begin at zero.
    """
    figure, axes = styled_figure((4.4 * len(panels), 4.4), title, subtitle, len(panels))
    labels = [xlabel] * len(panels) if isinstance(xlabel, str) else xlabel
    for axis, label, (name, lines) in zip(axes, labels, panels.items(), strict=True):
        for place, line in enumerate(lines):
            style: dict[str, Any] = {"linestyle": "--"} if line.dashed else {"marker": "o", "ms": 4}
            axis.plot(line.x, line.y, color=COLORS[place + 1], label=line.name, **style)
        if logx:
            axis.set_xscale("log")
            places = sorted({x for line in lines for x in line.x})
            axis.set_xticks(places, [f"{x:g}" if x < 1000 else f"{x:,.0f}" for x in places])
            axis.set_xticks([], minor=True)
        axis.set_title(name, loc="left", fontsize=11, color=INK)
        axis.set_xlabel(label, color=MUTED)
        if level is None:
            axis.set_ylim(0, 1.08 * max(y for line in lines for y in line.y) or 1)
        else:
            axis.axhline(level, color=MUTED, linewidth=1, zorder=1)
            axis.set_ylim(_around(level, [y for curves_ in panels.values() for one in curves_ for y in one.y]))
        if len(lines) > 1:
            axis.legend(frameon=False, fontsize=9)
    save_figure(figure, path)


def _around(level: float, values: Sequence[float]) -> tuple[float, float]:
    least, most = min(level, *values), max(level, *values)
    room = 0.08 * (most - least) or 0.01
    return least - room, most + room
