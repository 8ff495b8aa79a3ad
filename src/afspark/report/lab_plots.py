"""The plots of a study: quality against outage and offset, local quality over the stream (the paper's figures 8-11)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from afspark.lab.findings import Findings, by_impact
from afspark.lab.metrics import LocalImpact, longest_outage, quality, quality_of_trials
from afspark.lab.observations import Scores, TargetObservations
from afspark.report.figure_style import COLORS, INK, MUTED, save_figure, styled_figure

_COLUMNS = 3
_BAND = "#f3f3f3"


def draw_quality_by_outage(findings: Findings, path: Path) -> None:
    """A panel for each target with a line for each offset, and the fitted curve where there is one: figure 8."""
    targets = findings.result.targets
    figure, axes = _panels(len(targets), "Quality against outage", "of the affected section; 1 is the golden output")
    for axis, target in zip(axes, targets, strict=True):
        seen = findings.result.observations[target]
        items = np.array([outage.items for outage in seen.outages])
        order = np.argsort(items)
        for at, (offset, row) in enumerate(zip(seen.offsets, quality(seen), strict=True)):
            color = COLORS[1 + at % (len(COLORS) - 1)]
            axis.plot(items[order], row[order], color=color, marker="o", ms=3, lw=1, alpha=0.75, label=f"{offset:,}")
        curve = findings.curves.get(target)
        if curve is not None:
            x = np.linspace(0, items.max(), 200)
            axis.plot(x, curve.points(x), color=INK, linestyle="--", linewidth=1.6, label=curve.formula)
        coq = findings.metrics[target].coq.value
        _finish(axis, f"{target}   C = {'–' if coq is None else f'{coq:.2f}'}", "items lost", "quality")
        _legend(axis, title="offset")
    save_figure(figure, path)


def draw_quality_by_offset(findings: Findings, path: Path) -> None:
    """The quality under the longest outage at each offset, with the range of its repetitions: figure 9."""
    figure, (axis,) = styled_figure(
        (9.5, 4.8), "Quality against offset", "under the longest outage; bars span the repetitions"
    )
    count = len(findings.result.targets)
    for place, target in enumerate(findings.result.targets):
        seen = findings.result.observations[target]
        trials = quality_of_trials(seen)[:, longest_outage(seen), :]
        means = trials.mean(axis=1)
        # A little beside each other, or the bars of two targets would hide each other.
        x = np.arange(len(means)) + (place - (count - 1) / 2) * 0.5 / max(count, 1)
        ranges = np.abs(np.stack([means - trials.min(axis=1), trials.max(axis=1) - means]))
        doq = findings.metrics[target].doq
        sigma = "–" if doq.sigma is None else f"{doq.sigma:.2f}"
        label = f"{target}: σ = {sigma}, {doq.verdict.value if doq.verdict else 'undefined'}"
        color = COLORS[(place + 1) % len(COLORS)]
        axis.errorbar(x, means, yerr=ranges, color=color, marker="o", ms=5, lw=1.2, capsize=2, label=label)
    _finish(axis, "", "place of the fault in the stream", "quality")
    first = next(iter(findings.result.observations.values()), None)
    if first is not None:
        axis.set_xticks(range(len(first.offsets)), [_place(findings, first, at) for at in range(len(first.offsets))])
    axis.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save_figure(figure, path)


def draw_local_quality(findings: Findings, path: Path) -> None:
    """A panel for each target with the quality of every section after the fault, at its worst offset: figure 10."""
    targets, unit = findings.result.targets, findings.result.settings.section_unit or "the output"
    figure, axes = _panels(
        len(targets),
        "Local quality over the stream",
        f"longest outage at the offset with the largest I; sections of {unit}",
    )
    for axis, target in zip(axes, targets, strict=True):
        seen = findings.result.observations[target]
        offset = worst_offset(findings, target)
        local = findings.metrics[target].local
        _draw_sections(axis, findings, target, longest_outage(seen), local)
        impact = f"I = {local.impacts[offset]:.3g}" if local.impacts else "no sections"
        _finish(axis, f"{target}   {impact}", "section", "local quality")
    save_figure(figure, path)


def draw_local_quality_by_outage(findings: Findings, path: Path) -> None:
    """Three outages of the target with the highest impact, at its worst offset: figure 11."""
    target = by_impact(findings.metrics)[0]
    seen = findings.result.observations[target]
    offset = worst_offset(findings, target)
    chosen = compared_outages(seen)
    figure, axes = _panels(len(chosen), f"Local quality under longer and longer outages of {target}", "")
    by_outage = dict(findings.local_by_outage(target))
    for axis, at in zip(axes, chosen, strict=True):
        outage = seen.outages[at]
        _draw_sections(axis, findings, target, at, by_outage[outage])
        span = f"{outage.seconds:g} s, " if outage.seconds else ""
        impacts = by_outage[outage].impacts
        impact = f"I = {impacts[offset]:.3g}" if impacts else ""
        _finish(axis, f"{span}{outage.items:,} items   {impact}", "section", "local quality")
    limits = [axis.get_ylim() for axis in axes]
    for axis in axes:
        axis.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    save_figure(figure, path)


def compared_outages(seen: TargetObservations) -> list[int]:
    """The longest outage, and two shorter ones at the same rate: a half and an eighth of it, where there are many."""
    rate = seen.outages[longest_outage(seen)].rate
    same = [at for at, outage in enumerate(seen.outages) if outage.rate is rate]
    same.sort(key=lambda at: seen.outages[at].items)
    return [same[-4], same[-2], same[-1]] if len(same) > 3 else same


def worst_offset(findings: Findings, target: str) -> int:
    """The offset with the highest impact under the longest outage."""
    impacts = findings.metrics[target].local.impacts
    return int(np.argmax(impacts)) if impacts else 0


def local_quality(seen: TargetObservations, offset: int, outage: int) -> Scores:
    """The mean score of each section by the golden one; NaN where that is 0."""
    golden = seen.golden_local.mean(axis=0)
    return seen.local[offset, outage].mean(axis=0) / np.where(golden == 0, np.nan, golden)


def _draw_sections(axis: Any, findings: Findings, target: str, outage: int, local: LocalImpact) -> None:
    seen, offset = findings.result.observations[target], worst_offset(findings, target)
    settings = findings.result.settings
    found = local_quality(seen, offset, outage)
    begin = seen.begins[offset]
    recovery = (findings.metrics[target].local.recoveries or (0,) * len(seen.offsets))[offset]
    # Of all outages the same stretch, so that plots can be compared.
    first, last = max(0, begin - 5), min(len(found), begin + max(20, int(1.25 * recovery)))
    x = np.arange(first, last)
    axis.axhspan(1 - settings.threshold, 1 + settings.threshold, color=_BAND, zorder=0)
    axis.axhline(1.0, color=MUTED, linewidth=0.8, zorder=1)
    axis.plot(x, found[first:last], color=COLORS[2], linewidth=1.2, zorder=3)
    axis.axvline(begin, color=MUTED, linewidth=0.8, linestyle=":", zorder=1)
    sections = local.recoveries[offset] if local.recoveries else 0
    if sections:
        bottom, top = axis.get_ylim()
        axis.set_ylim(bottom - 0.1 * (top - bottom), top)
        low = bottom - 0.07 * (top - bottom)
        arrow = {"arrowstyle": "<->", "color": COLORS[1], "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
        axis.annotate("", (begin, low), (begin + sections, low), arrowprops=arrow, annotation_clip=False)
        axis.text(begin + sections / 2, low, f"R = {sections:,}", ha="center", va="bottom", fontsize=9, color=COLORS[1])


def _panels(count: int, title: str, subtitle: str) -> tuple[Any, Any]:
    across = min(_COLUMNS, max(count, 1))
    rows = -(-max(count, 1) // across)
    return styled_figure((4.5 * across, 0.7 + 3.5 * rows), title, subtitle, max(count, 1), columns=across)


def _finish(axis: Any, title: str, xlabel: str, ylabel: str) -> None:
    axis.set_title(title, loc="left", fontsize=11, color=INK)
    axis.set_xlabel(xlabel, color=MUTED)
    axis.set_ylabel(ylabel, color=MUTED)
    axis.axhline(1.0, color=MUTED, linewidth=0.8, zorder=1)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _legend(axis: Any, *, title: str) -> None:
    axis.legend(frameon=False, fontsize=7.5, title=title, title_fontsize=7.5)


def _place(findings: Findings, seen: TargetObservations, at: int) -> str:
    if seen.golden_local.shape[1]:
        return f"section {seen.begins[at]:,}"
    return f"{seen.offsets[at]:,} items"
