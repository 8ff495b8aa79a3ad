"""The graph of an assessed pipeline as a figure: operators coloured by the impact of faults in them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from afspark.lab.findings import Findings
from afspark.lab.study_result import NodeKind, StudyResult
from afspark.report.figure_style import INK, MUTED, save_figure, styled_figure

_WIDTH, _HEIGHT = 0.74, 0.5
_UNMEASURED = "#f1f1f1"


def draw_graph(findings: Findings, path: Path) -> None:
    """Draws the graph; targets have a thick frame, the others the colour of the target that they behave like."""
    places = layout(findings.result)
    layers = 1 + max(int(x) for x, _ in places.values())
    rows = [y for _, y in places.values()]
    size = (max(7.0, 1.75 * layers), 2.2 + 0.95 * (max(rows) - min(rows) + 1))
    figure, (axis,) = styled_figure(
        size, "What faults in each operator cost", "dark: high impact I of the longest outage; thick frame: target"
    )
    axis.grid(visible=False)
    axis.set_axis_off()
    axis.set_xlim(-0.5, layers - 0.5)
    axis.set_ylim(min(rows) - 0.6, max(rows) + 0.6)
    for edge in findings.result.edges:
        _draw_edge(axis, places[edge.origin], places[edge.reader])
    colors = _colors(findings)
    targets = _targets(findings)
    for node in findings.result.nodes:
        target = targets.get(node.name)
        _draw_node(
            axis, places[node.name], node.name, _detail(findings, node.kind, node.name, target), colors[node.name]
        )
    save_figure(figure, path)


def layout(result: StudyResult) -> dict[str, tuple[float, float]]:
    """Where each node stands: its distance from the sources, and a row in which it meets no other node."""
    inputs: dict[str, list[str]] = defaultdict(list)
    for edge in result.edges:
        inputs[edge.reader].append(edge.origin)
    depth: dict[str, int] = {}
    # Feedback may go round in circles; nodes come in the order of the pipeline.
    for node in result.nodes:
        depth[node.name] = 1 + max((depth[origin] for origin in inputs[node.name] if origin in depth), default=-1)
    layers: dict[int, list[str]] = defaultdict(list)
    for name, at in depth.items():
        layers[at].append(name)
    places: dict[str, tuple[float, float]] = {}
    for at in sorted(layers):
        members = layers[at]

        def wanted(name: str) -> float:
            rows = [places[origin][1] for origin in inputs[name] if origin in places]
            return sum(rows) / len(rows) if rows else 0.0

        members.sort(key=wanted, reverse=True)
        middle = sum(wanted(name) for name in members) / len(members)
        for row, name in enumerate(members):
            places[name] = (float(at), middle + (len(members) - 1) / 2 - row)
    return places


def _colors(findings: Findings) -> dict[str, tuple[Any, bool]]:
    """The colour of each node, and whether it is a target."""
    from matplotlib import colormaps

    impacts = {target: metrics.local.impact or 0.0 for target, metrics in findings.metrics.items()}
    most = max(impacts.values(), default=0.0) or 1.0
    found: dict[str, tuple[Any, bool]] = {node.name: (_UNMEASURED, False) for node in findings.result.nodes}
    for name, target in _targets(findings).items():
        if target in impacts:
            # The root keeps small impacts apart beside a large one.
            shade = 0.05 + 0.75 * (impacts[target] / most) ** 0.5
            found[name] = (colormaps["OrRd"](shade), name == target)
    return found


def _targets(findings: Findings) -> dict[str, str | None]:
    """The target of every node; several operators that fail together are a node and a target of their own."""
    own: dict[str, str | None] = {target: target for target in findings.metrics}
    return own | {placed.operator: placed.target for placed in findings.result.placements}


def _detail(findings: Findings, kind: NodeKind, name: str, target: str | None) -> str:
    if target is None or target not in findings.metrics:
        return kind.value
    if target != name:
        return f"{kind.value}\nlike {target}"
    local = findings.metrics[target].local
    if local.impact is None or local.recovery is None:
        return kind.value
    return f"{kind.value}\nI {local.impact:.3g}, R {local.recovery:,}"


def _draw_node(axis: Any, place: tuple[float, float], name: str, detail: str, color: tuple[Any, bool]) -> None:
    from matplotlib.colors import to_rgb
    from matplotlib.patches import FancyBboxPatch

    (x, y), (fill, is_target) = place, color
    axis.add_patch(
        FancyBboxPatch(
            (x - _WIDTH / 2, y - _HEIGHT / 2),
            _WIDTH,
            _HEIGHT,
            boxstyle="round,pad=0,rounding_size=0.08",
            facecolor=fill,
            edgecolor=INK if is_target else MUTED,
            linewidth=2.2 if is_target else 0.8,
            zorder=3,
        )
    )
    red, green, blue = to_rgb(fill)
    ink = "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.5 else INK
    axis.text(x, y + 0.1, name, ha="center", va="center", fontsize=10, fontweight="bold", color=ink, zorder=4)
    axis.text(x, y - 0.1, detail, ha="center", va="center", fontsize=8, color=ink, zorder=4, linespacing=1.25)


def _draw_edge(axis: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    axis.annotate(
        "",
        (end[0] - _WIDTH / 2, end[1]),
        (start[0] + _WIDTH / 2, start[1]),
        arrowprops={"arrowstyle": "-|>", "color": MUTED, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 1},
        zorder=2,
    )
