"""Plots of schemes over a day, and of the parts of a day under each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afspark.bench.scheme_colors import SCHEME_COLORS
from afspark.report.figure_style import INK, MUTED, empty_figure, plain_axis, save_figure

_LINE, _TRACK = "#1f77b4", "#222222"
_SCHEME = "scheme that was decided"
#: Panels of parts of time in a row.
_ACROSS = 2


@dataclass(frozen=True)
class DrawnDay:
    """Values over the seconds of a day: several ``lines`` by their names; and which scheme was decided when, which may be
    before the day.
    """

    length: float
    seconds: Sequence[float]
    lines: Mapping[str, Sequence[float]]
    decided: Sequence[tuple[float, str]]


def controller_days(
    path: Path, day: DrawnDay, shares: Mapping[str, Mapping[str, Mapping[str, float]]], *, title: str, subtitle: str
) -> None:
    """The day above; below it a panel for each of ``shares``, with a bar for each limit, of the parts of time under
    each scheme.
    """
    names = list(shares)
    rows = [names[at : at + _ACROSS] for at in range(0, len(names), _ACROSS)]
    figure = empty_figure((12.5, 6.5 + 3.8 * len(rows)), title, subtitle)
    mosaic = [
        *([name] * _ACROSS for name in (*day.lines, _SCHEME)),
        *(row + ["."] * (_ACROSS - len(row)) for row in rows),
    ]
    heights = [1.0] * (len(day.lines) + 1) + [2.0] * len(rows)
    axes: dict[str, Any] = figure.subplot_mosaic(mosaic, height_ratios=heights)
    for name, axis in axes.items():
        plain_axis(axis)
        axis.set_title(name, loc="left", fontsize=11, color=INK)
    _draw_day(axes, day)
    for name, bars in shares.items():
        _draw_shares(axes[name], bars)
    for row in rows:
        axes[row[0]].set_ylabel("time under each scheme, %", color=MUTED)
    handles = {
        label: one for name in shares for one, label in zip(*axes[name].get_legend_handles_labels(), strict=True)
    }
    used = [name for name in SCHEME_COLORS if name in handles]
    place = {"loc": "outside lower center", "ncols": len(SCHEME_COLORS), "frameon": False, "fontsize": 10}
    figure.legend([handles[name] for name in used], used, **place)
    save_figure(figure, path)


def _draw_day(axes: Mapping[str, Any], day: DrawnDay) -> None:
    for name, values in day.lines.items():
        axes[name].plot(day.seconds, values, color=_LINE, linewidth=1.3)
        axes[name].set_ylim(bottom=0)
    spans = track(day)
    used = [name for name in SCHEME_COLORS if name in {scheme for _, scheme in spans}]
    axis = axes[_SCHEME]
    places = [used.index(scheme) for _, scheme in spans]
    seconds = [at for at, _ in spans]
    axis.step([*seconds, day.length], [*places, *places[-1:]], where="post", color=_TRACK, linewidth=1.0)
    for at, end, place in zip(seconds, [*seconds[1:], day.length], places, strict=True):
        axis.hlines(place, at, end, color=SCHEME_COLORS[used[place]], linewidth=5)
    axis.set_yticks(range(len(used)), used)
    axis.invert_yaxis()
    axis.set_xlabel("seconds of the day", color=MUTED)
    for name in (*day.lines, _SCHEME):
        axes[name].set_xlim(0, day.length)


def track(day: DrawnDay) -> list[tuple[float, str]]:
    """What was decided in the day, beginning with what holds when it begins."""
    before = [scheme for at, scheme in day.decided if at <= 0]
    return [*((0.0, scheme) for scheme in before[-1:]), *(one for one in day.decided if one[0] > 0)]


def _draw_shares(axis: Any, bars: Mapping[str, Mapping[str, float]]) -> None:
    below = [0.0] * len(bars)
    for scheme, color in SCHEME_COLORS.items():
        parts = [100 * one.get(scheme, 0.0) for one in bars.values()]
        if any(parts):
            axis.bar(range(len(bars)), parts, 0.8, bottom=below, color=color, label=scheme, zorder=2)
            below = [before + part for before, part in zip(below, parts, strict=True)]
    axis.set_xticks(range(len(bars)), list(bars))
    axis.set_xlabel("limit for recovery, s", color=MUTED)
