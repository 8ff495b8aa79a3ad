"""The look of all figures: colours, axes without boxes, a title at the left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

INK, MUTED, GRID = "#222222", "#6b6b6b", "#e4e4e4"
COLORS = ("#6b7280", "#1f77b4", "#d95f02", "#7fb3d9", "#f0a868", "#7570b3", "#1b9e77")


def empty_figure(size: tuple[float, float], title: str, subtitle: str = "") -> Any:
    """A figure with a title and no panels yet."""
    # Agg by name: no window system is needed, and nothing of the user's is changed.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=110, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"{title}\n{subtitle}" if subtitle else title, fontsize=13, color=INK, x=0.01, ha="left")
    return figure


def plain_axis(axis: Any) -> None:
    """Leaves out what distracts from the lines of a panel."""
    axis.set_axisbelow(True)
    axis.grid(axis="y", color=GRID, zorder=0)
    axis.tick_params(length=0, labelcolor=MUTED, labelsize=9)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color(GRID)


def logarithmic(axis: Any) -> None:
    """Gives a panel a logarithmic scale, with numbers such as 0.6 and 20 beside it, also between powers of ten."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        def __call__(self, value: float, position: int | None = None) -> str:
            return f"{value:g}" if super().__call__(value, position) else ""

    axis.set_yscale("log")
    axis.yaxis.set_major_formatter(Plain())
    # All ticks have numbers within a decade, some of them up to two and a half.
    axis.yaxis.set_minor_formatter(Plain(minor_thresholds=(2.5, 1)))
    axis.tick_params(which="minor", length=0, labelcolor=MUTED, labelsize=9)


def styled_figure(
    size: tuple[float, float], title: str, subtitle: str = "", panels: int = 1, *, columns: int | None = None
) -> tuple[Any, Sequence[Any]]:
    """A figure and its panels, ``columns`` of them in a row, or all; places of the last row that nobody needs are
    left empty.
    """
    figure, across = empty_figure(size, title, subtitle), columns or panels
    axes = list(figure.subplots(-(-panels // across), across, squeeze=False).flat)
    for axis in axes[panels:]:
        axis.set_visible(False)
    for axis in axes[:panels]:
        plain_axis(axis)
    return figure, axes[:panels]


def save_figure(figure: Any, path: Path) -> None:
    """Writes a figure into a file, whose folder need not be there yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
