"""Plots of schemes over a day, and of the parts of a day under each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afspark.report.figure_style import INK, MUTED, empty_figure, plain_axis, save_figure

#: From the fastest to the cheapest; barrier snapshots are the controller's own.
ORDER = (
    "active-replication",
    "active-standby",
    "hot-standby",
    "cold-standby",
    "deployed",
    "passive-replication",
    "snapshot",
)
_COLORS = ("#7f2704", "#d95f02", "#f0a868", "#c7dcef", "#7fb3d9", "#1f77b4", "#6b7280")
_SCHEME = "scheme"


@dataclass(frozen=True)
class DrawnDay:
    """Values over the seconds of a day: several ``lines`` by their names, and the scheme. ``marks``: failures."""

    seconds: Sequence[float]
    lines: Mapping[str, Sequence[float]]
    schemes: Sequence[str]
    marks: Sequence[float] = ()


def controller_days(
    path: Path, day: DrawnDay, shares: Mapping[str, Mapping[str, Mapping[str, float]]], *, title: str, subtitle: str
) -> None:
    """The day above; below it a panel for each of ``shares``, with a bar for each limit, of the parts of time under
    each scheme.
    """
    figure = empty_figure((12.5, 10.5), title, subtitle)
    width = len(shares)
    mosaic = [*([name] * width for name in (*day.lines, _SCHEME)), list(shares)]
    heights = [1.0] * (len(day.lines) + 1) + [2.0]
    axes: dict[str, Any] = figure.subplot_mosaic(mosaic, height_ratios=heights)
    for name, axis in axes.items():
        plain_axis(axis)
        axis.set_title(name, loc="left", fontsize=11, color=INK)
    _draw_day(axes, day)
    for name, bars in shares.items():
        _draw_shares(axes[name], bars)
    axes[next(iter(shares))].set_ylabel("time under each scheme, %", color=MUTED)
    handles = {
        label: one for name in shares for one, label in zip(*axes[name].get_legend_handles_labels(), strict=True)
    }
    names = [name for name in ORDER if name in handles]
    place = {"loc": "outside lower center", "ncols": len(ORDER), "frameon": False, "fontsize": 9}
    figure.legend([handles[name] for name in names], names, **place)
    save_figure(figure, path)


def _draw_day(axes: Mapping[str, Any], day: DrawnDay) -> None:
    for name, values in day.lines.items():
        axes[name].plot(day.seconds, values, color=_COLORS[5], linewidth=1.3)
        axes[name].set_ylim(bottom=0)
    used = [name for name in ORDER if name in day.schemes]
    axis = axes[_SCHEME]
    places = [used.index(name) for name in day.schemes]
    axis.step(day.seconds, places, where="post", color=_COLORS[1], linewidth=1.6)
    axis.set_yticks(range(len(used)), used)
    axis.invert_yaxis()
    axis.set_xlabel("seconds of the day", color=MUTED)
    for name in (*day.lines, _SCHEME):
        axes[name].set_xlim(min(day.seconds), max(day.seconds))
        for mark in day.marks:
            axes[name].axvline(mark, color=_COLORS[0], linewidth=0.8, linestyle=":")


def _draw_shares(axis: Any, bars: Mapping[str, Mapping[str, float]]) -> None:
    below = [0.0] * len(bars)
    for color, scheme in zip(_COLORS, ORDER, strict=True):
        parts = [100 * one.get(scheme, 0.0) for one in bars.values()]
        if any(parts):
            axis.bar(range(len(bars)), parts, 0.8, bottom=below, color=color, label=scheme, zorder=2)
            below = [before + part for before, part in zip(below, parts, strict=True)]
    axis.set_xticks(range(len(bars)), list(bars))
    axis.set_xlabel("limit for recovery, s", color=MUTED)
