"""Pictures of models that converge: norms and losses over merges or seconds, and who has pushed and pulled when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afspark.model.trajectory import windowed_losses
from afspark.report.figure_style import COLORS, INK, MUTED, logarithmic, save_figure, styled_figure

NORM, LOSS = "L1 norm of the change", "loss of an item"
#: More pushes and pulls would be one black bar.
MOST_EVENTS = 2000


@dataclass(frozen=True)
class NormLine:
    """The norms of a model's changes over ``x``, or other figures of it."""

    name: str
    x: Sequence[float]
    norms: Sequence[float]


def save_norms(
    path: Path,
    panels: Mapping[str, Sequence[NormLine]],
    *,
    title: str,
    subtitle: str = "",
    xlabel: str | Mapping[str, str] = "merges",
    ylabel: str | Mapping[str, str] = NORM,
    notes: Mapping[str, str] | None = None,
    exchanges: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Draws the lines of every panel, norms on a logarithmic scale; a note stands below the name of its panel.
    ``xlabel``, ``ylabel``: of all of them, or by panel. ``exchanges``: panels behind the others of who has pushed and
    pulled when, as `Query.exchanges` tells it of one operator.
    """
    shown = {name: events for name, events in (exchanges or {}).items() if events["pulls"]}
    count = len(panels) + len(shown)
    columns = min(2, count)
    height = 3.9 * -(-count // columns) + 0.8
    figure, axes = styled_figure((6.2 * columns, height), title, subtitle, count, columns=columns)
    for axis, (name, lines) in zip(axes, panels.items(), strict=False):
        for place, line in enumerate(lines):
            color = COLORS[place % len(COLORS)]
            axis.plot(line.x, line.norms, color=color, label=line.name, linewidth=1.4)
        label = ylabel if isinstance(ylabel, str) else ylabel[name]
        if label == NORM:
            logarithmic(axis)
        note = (notes or {}).get(name, "")
        axis.set_title(f"{name}\n{note}" if note else name, loc="left", fontsize=10.5, color=INK)
        axis.set_xlabel(xlabel if isinstance(xlabel, str) else xlabel[name], color=MUTED)
        axis.set_ylabel(label, color=MUTED)
        if any(line.name for line in lines):
            axis.legend(frameon=False, fontsize=8.5)
    for axis, (name, events) in zip(axes[len(panels) :], shown.items(), strict=True):
        _draw_exchange(axis, name, events)
    save_figure(figure, path)


def save_convergence(path: Path, found: Mapping[str, Any], exchange: Mapping[str, Any] | None, *, title: str) -> None:
    """Draws what `Query.convergence` tells of one model, and `Query.exchanges` of those who train it."""
    curve = found["curve"]
    seconds = [point[0] for point in curve]
    losses = windowed_losses(curve)
    panels = {
        "changes of the model": [NormLine("", seconds, [point[1] for point in curve])],
        "what the newest tenth of the items cost": [
            NormLine("", [at for at, _ in losses], [loss for _, loss in losses])
        ],
    }
    save_norms(
        path,
        panels,
        title=title,
        xlabel="seconds",
        ylabel=dict(zip(panels, (NORM, LOSS), strict=True)),
        exchanges={} if exchange is None else {"the last batch": exchange},
    )


def _draw_exchange(axis: Any, name: str, events: Mapping[str, Any]) -> None:
    """A row for each process: when it has pushed, and from when to when it waited for a model."""
    pulls, pushes = events["pulls"][:MOST_EVENTS], events["pushes"][:MOST_EVENTS]
    who = sorted({(one[0], one[1]) for one in [*pulls, *pushes]})
    rows = {one: len(who) - place for place, one in enumerate(who)}
    began = min(one[3] for one in pulls)
    axis.hlines(
        [rows[one[0], one[1]] for one in pulls],
        [one[3] - began for one in pulls],
        [one[4] - began for one in pulls],
        color=COLORS[3],
        linewidth=5,
        label="waits for a model",
    )
    places = [rows[one[0], one[1]] for one in pushes]
    axis.plot([one[3] - began for one in pushes], places, "|", color=COLORS[2], ms=9, mew=1.2, label="pushes")
    axis.set_yticks(list(rows.values()), [f"worker {worker}, process {process}" for worker, process in rows])
    axis.tick_params(axis="y", labelsize=7.5)
    axis.set_title(name, loc="left", fontsize=10.5, color=INK)
    axis.set_xlabel("seconds since the first pull", color=MUTED)
    axis.legend(frameon=False, fontsize=8.5, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
