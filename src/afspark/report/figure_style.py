"""The look of all figures: colours, axes without boxes, a title at the left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

INK, MUTED, GRID = "#222222", "#6b6b6b", "#e4e4e4"
COLORS = ("#6b7280", "#1f77b4", "#d95f02", "#7fb3d9", "#f0a868", "#7570b3", "#1b9e77", "#a6761d")


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
    axis.tick_params(which="both", length=0, labelcolor=MUTED, labelsize=9)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color(GRID)


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


def log_scale(axis: Any) -> None:
    """A logarithmic y axis with a few plain numbers in each power of ten, for what is drawn already."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_yscale("log")
    least, most = axis.get_ylim()
    wide = least > 0 and most > 10 * least
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if wide else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_locator(NullLocator())


def save_figure(figure: Any, path: Path) -> None:
    """Writes a figure into a file, whose folder need not be there yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
