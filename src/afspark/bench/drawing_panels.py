"""Plots of several panels: lines that may step or have a spread, medians side by side, and exchanges of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from afspark.report.convergence_plot import draw_exchange
from afspark.report.figure_style import INK, MUTED, log_scale, save_figure, styled_figure

Spread = Mapping[str, float]
_TITLE, _LABEL, _TICK = 12, 10.5, 10
_SHADE = "#f3e8d2"


class Panel(Protocol):
    """A part of a figure."""

    @property
    def title(self) -> str: ...

    def draw(self, axis: Any) -> None:
        """Draws everything but the title."""
        ...


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line over ``x``. ``steps``: each value holds until the next one comes. ``spread``: from the least to the most
    at every point. ``pause``: a part of ``x`` that is drawn thick at the bottom.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    color: str
    width: float = 1.6
    style: str = "-"
    alpha: float = 1.0
    steps: bool = False
    spread: Sequence[Spread] = ()
    pause: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class LinePanel:
    """Lines. ``ticks``: places of ``x`` by what stands there; ``shaded``: parts of ``x`` by what is special about them;
    ``marks``: moments, by what happened then.
    """

    title: str
    lines: Sequence[Line]
    xlabel: str
    ylabel: str
    log: bool = False
    from_zero: bool = False
    ticks: Mapping[float, str] = field(default_factory=dict)
    shaded: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    marks: Mapping[str, float] = field(default_factory=dict)
    legend: bool = True

    def draw(self, axis: Any) -> None:
        for name, (first, last) in self.shaded.items():
            axis.axvspan(first, last, color=_SHADE, linewidth=0, zorder=0)
            _note(axis, (first + last) / 2, name, "center")
        for name, at in self.marks.items():
            axis.axvline(at, color=MUTED, linewidth=1, linestyle=":", zorder=1)
            _note(axis, at, f" {name}", "left")
        for place, line in enumerate(self.lines):
            self._draw_line(axis, line, place)
        if self.log:
            log_scale(axis)
        if self.from_zero:
            axis.set_ylim(bottom=0)
        if self.ticks:
            axis.set_xticks(list(self.ticks), list(self.ticks.values()))
        _labels(axis, self.xlabel, self.ylabel)
        if self.legend:
            axis.legend(frameon=False, fontsize=_TICK)

    def _draw_line(self, axis: Any, line: Line, place: int) -> None:
        style: dict[str, Any] = {
            "color": line.color,
            "linewidth": line.width,
            "linestyle": line.style,
            "alpha": line.alpha,
        }
        if line.steps:
            axis.step(line.x, line.y, where="post", label=line.name, **style)
        elif line.spread:
            axis.errorbar(line.x, line.y, yerr=_errors(line.spread), label=line.name, fmt="o", ms=5, capsize=3, **style)
        else:
            axis.plot(line.x, line.y, label=line.name, **style)
        if line.pause is not None:
            height = 0.03 + 0.035 * place
            axis.hlines(height, *line.pause, color=line.color, linewidth=5, transform=axis.get_xaxis_transform())


@dataclass(frozen=True, kw_only=True)
class DotPanel:
    """Groups of medians with bars from the least to the most, side by side. ``level``: a line across all groups;
    ``aims``: by group where some names of it (``aimed``) should be.
    """

    title: str
    groups: Mapping[str, Mapping[str, Spread]]
    colors: Mapping[str, str]
    xlabel: str
    ylabel: str
    level: float | None = None
    aims: Mapping[str, float] = field(default_factory=dict)
    aimed: Sequence[str] = ()
    aim: str = ""
    legend: bool = False

    def draw(self, axis: Any) -> None:
        names = list(dict.fromkeys(name for group in self.groups.values() for name in group))
        width = min(0.84 / max(1, len(names) - 1), 0.2)
        offsets = {name: (place - (len(names) - 1) / 2) * width for place, name in enumerate(names)}
        for name in names:
            shown = {at: one[name] for at, one in enumerate(self.groups.values()) if name in one}
            axis.errorbar(
                [at + offsets[name] for at in shown],
                [one["median"] for one in shown.values()],
                yerr=_errors(list(shown.values())),
                fmt="o",
                ms=5.5,
                capsize=3,
                linewidth=1.4,
                color=self.colors[name],
                label=name,
                zorder=3,
            )
        if self.level is not None:
            axis.axhline(self.level, color=MUTED, linewidth=1, zorder=1)
        reach = [offsets[name] for name in self.aimed if name in offsets]
        for at, group in enumerate(self.groups):
            if group in self.aims and reach:
                ends = at + min(reach) - width / 2, at + max(reach) + width / 2
                axis.hlines(self.aims[group], *ends, color=INK, linewidth=1.2, label=self.aim if at == 0 else "")
            if at:
                axis.axvline(at - 0.5, color="#e4e4e4", linewidth=1, zorder=0)
        axis.set_xlim(-0.5, len(self.groups) - 0.5)
        axis.set_xticks(range(len(self.groups)), list(self.groups))
        _labels(axis, self.xlabel, self.ylabel)
        if self.level is None:
            axis.set_ylim(bottom=0)
        if self.legend:
            axis.legend(frameon=False, fontsize=_TICK)


@dataclass(frozen=True, kw_only=True)
class ExchangePanel:
    """Who has pushed and pulled when in a batch. ``seconds``: what is shown of it; None: all."""

    title: str
    events: Mapping[str, Any]
    seconds: float | None = None

    def draw(self, axis: Any) -> None:
        draw_exchange(axis, self.title, self.events)
        axis.tick_params(labelsize=_TICK)
        if self.seconds is not None:
            axis.set_xlim(-0.02 * self.seconds, 1.02 * self.seconds)


def exchange_seconds(events: Mapping[str, Any]) -> float:
    """From the first pull of a batch to the last answer or push."""
    ends = [one[4] for one in events["pulls"]] + [one[3] for one in events["pushes"]]
    return max(ends) - min(one[3] for one in events["pulls"])


def save_panels(
    path: Path, panels: Sequence[Panel], *, title: str, subtitle: str = "", columns: int = 2, legend: int = 0
) -> None:
    """The panels, so many in a row. ``legend``: one for all of them at the bottom, with so many columns; 0: none."""
    rows = -(-len(panels) // columns)
    figure, axes = styled_figure(
        (12.5, 3.7 * rows + 1.0), title, subtitle, len(panels), columns=min(columns, len(panels))
    )
    for axis, panel in zip(axes, panels, strict=True):
        axis.tick_params(which="both", labelsize=_TICK)
        panel.draw(axis)
        axis.set_title(panel.title, loc="left", fontsize=_TITLE, color=INK)
    if legend:
        handles: dict[str, Any] = {}
        for axis in axes:
            if axis.get_legend() is None:
                for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
                    handles.setdefault(name, handle)
        place = {"loc": "outside lower center", "ncols": legend, "frameon": False, "fontsize": _LABEL}
        figure.legend(list(handles.values()), list(handles), **place)
    save_figure(figure, path)


def _errors(spreads: Sequence[Spread]) -> list[list[float]]:
    return [
        [one["median"] - one["least"] for one in spreads],
        [one["most"] - one["median"] for one in spreads],
    ]


def _note(axis: Any, at: float, text: str, align: str) -> None:
    axis.text(at, 0.98, text, transform=axis.get_xaxis_transform(), ha=align, va="top", fontsize=9.5, color=MUTED)


def _labels(axis: Any, xlabel: str, ylabel: str) -> None:
    axis.set_xlabel(xlabel, color=MUTED, fontsize=_LABEL)
    axis.set_ylabel(ylabel, color=MUTED, fontsize=_LABEL)
