"""R and I before the advice of a study was followed and after, as a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from afspark.lab.findings import Findings
from afspark.report.figure_style import COLORS, INK, MUTED, save_figure, styled_figure

_HEIGHT = 0.36


def draw_improvements(findings: Findings, path: Path) -> None:
    """Two panels with a pair of bars for each operator: recovery time R, and impact I."""
    found = findings.improvements
    figure, axes = styled_figure(
        (11.0, 1.9 + 0.55 * len(found)),
        "Measured again under the advice",
        "before: the longest outage; after: real faults under the advised policies, and short outages of sources",
        2,
    )
    names = [one.operator for one in found]
    recoveries = [(one.before.local.recovery or 0, one.after.local.recovery or 0) for one in found]
    impacts = [(one.before.local.impact or 0.0, one.after.local.impact or 0.0) for one in found]
    _draw_pairs(axes[0], names, np.array(recoveries, float), "R: sections until the output is right again", "{:,.0f}")
    _draw_pairs(axes[1], names, np.array(impacts, float), "I: sum of squared errors", "{:,.2f}")
    # Above the panel: bars may reach any corner of it.
    axes[1].legend(frameon=False, fontsize=9, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
    save_figure(figure, path)


def _draw_pairs(axis: Any, names: list[str], pairs: np.ndarray[Any, Any], title: str, form: str) -> None:
    places = np.arange(len(names))
    for at, (label, color) in enumerate((("before", COLORS[0]), ("after", COLORS[2]))):
        y = places + (at - 0.5) * _HEIGHT
        axis.barh(y, pairs[:, at], _HEIGHT, color=color, label=label, zorder=3)
        for place, value in zip(y, pairs[:, at], strict=True):
            axis.annotate(
                form.format(value),
                (value, place),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
                color=MUTED,
            )
    axis.set_yticks(places, names)
    axis.invert_yaxis()
    axis.set_xlim(0, max(1.0, float(pairs.max())) * 1.15)
    axis.set_title(title, loc="left", fontsize=11, color=INK)
