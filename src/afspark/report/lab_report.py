"""Everything that a study leaves in a folder: report.json, report.html, and the plots as PNG."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from afspark.errors import UsageError, first_line
from afspark.lab.findings import Findings, findings_of
from afspark.lab.study_result import StudyResult
from afspark.report.lab_graph import draw_graph
from afspark.report.lab_improvement import draw_improvements
from afspark.report.lab_page import IMPROVEMENT, page_text
from afspark.report.lab_plots import (
    draw_local_quality,
    draw_local_quality_by_outage,
    draw_quality_by_offset,
    draw_quality_by_outage,
)

JSON_NAME, PAGE_NAME = "report.json", "report.html"

_PLOTS: dict[str, Callable[[Findings, Path], None]] = {
    "graph": draw_graph,
    "quality-by-outage": draw_quality_by_outage,
    "quality-by-offset": draw_quality_by_offset,
    "local-quality": draw_local_quality,
    "local-quality-by-outage": draw_local_quality_by_outage,
}
_NEED_SECTIONS = {"local-quality", "local-quality-by-outage"}


def write_report(result: StudyResult, folder: str | Path, findings: Findings | None = None) -> Findings:
    """Writes the report of a study into a folder, and returns what it says.

    The page is written last, so that a folder with a page is a whole report.
    """
    found = findings or findings_of(result)
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        text = json.dumps(found.to_json(), indent=2, allow_nan=False, ensure_ascii=False)
        (place / JSON_NAME).write_text(text + "\n", encoding="utf-8")
        plots = {}
        for name, draw in _PLOTS.items():
            if not result.observations or (name in _NEED_SECTIONS and not _has_sections(result)):
                continue
            plots[name] = place / f"{name}.png"
            draw(found, plots[name])
        if found.improvements:
            plots[IMPROVEMENT] = place / f"{IMPROVEMENT}.png"
            draw_improvements(found, plots[IMPROVEMENT])
        (place / PAGE_NAME).write_text(page_text(found, plots), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"The report cannot be written to {str(place)!r}: {first_line(error)}.",
            remedy="Name a folder that you may write to.",
            path=str(place),
        ) from error
    return found


def _has_sections(result: StudyResult) -> bool:
    return all(seen.golden_local.shape[1] for seen in result.observations.values())
