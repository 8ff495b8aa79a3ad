"""Pictures of a model that converges: norms and losses over seconds, and who has pushed and pulled when."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from afspark.model.trajectory import windowed_losses
from afspark.report.figure_style import COLORS, INK, MUTED, log_scale, save_figure, styled_figure

NORM, LOSS = "L1 norm of the change", "loss of an item"
#: More pushes and pulls would be one black bar.
MOST_EVENTS = 2000


def save_convergence(path: Path, found: Mapping[str, Any], exchange: Mapping[str, Any] | None, *, title: str) -> None:
    """Draws what `Query.convergence` tells of one model, and `Query.exchanges` of those who train it."""
    curve, events = found["curve"], exchange if exchange is not None and exchange["pulls"] else None
    count = 2 if events is None else 3
    figure, axes = styled_figure((12.4, 3.9 * -(-count // 2) + 0.8), title, "", count, columns=2)
    norms, losses = [(point[0], point[1]) for point in curve], windowed_losses(curve)
    panels = {"changes of the model": (norms, NORM), "what the newest tenth of the items cost": (losses, LOSS)}
    for axis, (name, (points, label)) in zip(axes, panels.items(), strict=False):
        axis.plot([x for x, _ in points], [y for _, y in points], color=COLORS[0], linewidth=1.4)
        axis.set_title(name, loc="left", fontsize=10.5, color=INK)
        axis.set_xlabel("seconds", color=MUTED)
        axis.set_ylabel(label, color=MUTED)
    log_scale(axes[0])
    if events is not None:
        draw_exchange(axes[2], "the last batch", events)
    save_figure(figure, path)


def draw_exchange(axis: Any, name: str, events: Mapping[str, Any]) -> None:
    """A row for each worker, or process of one: when it has pushed, and from when to when it waited for a model."""
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
    several = len({worker for worker, _ in who}) < len(who)
    names = [f"worker {worker}, process {process}" if several else f"worker {worker}" for worker, process in rows]
    axis.set_yticks(list(rows.values()), names)
    axis.set_title(name, loc="left", fontsize=10.5, color=INK)
    axis.set_xlabel("seconds since the first pull", color=MUTED)
    axis.legend(frameon=False, fontsize=9, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
