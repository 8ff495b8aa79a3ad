"""The figures of a folder as a page with plots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from afspark.bench.catalogue import NAMES, experiment

HEAD = """# Results

Made by `afspark bench` (`make bench` runs everything): all contenders interleaved, several rounds in one run, medians, in brackets the least and the most. Figures are ratios on one noisy machine, not promises: run it on yours. The raw figures are beside the plots in [{folder}]({folder}); what was aimed at and what was missed is in [targets](targets.md).

"""


def write_page(folder: Path, page: Path) -> None:
    """Writes the page and draws the plots into ``folder``."""
    place = _relative(folder, page.parent)
    parts = [HEAD.format(folder=place)]
    for name in NAMES:
        path = folder / f"{name}.json"
        if not path.exists():
            continue
        document = json.loads(path.read_text())
        one = experiment(name)
        parts += [f"## {one.title}\n\n", _circumstances(document)]
        if one.draw is not None:
            caption = one.draw(document["figures"], folder / f"{name}.png")
            parts.append(f"![{caption}]({place}/{name}.png)\n\n*{caption}.*\n\n")
        parts.append(one.page(document["figures"]).rstrip() + "\n\n")
    page.write_text("".join(parts).rstrip() + "\n")


def _circumstances(document: dict[str, Any]) -> str:
    found, settings = document["environment"], document["settings"]
    return (
        f"`afspark bench {document['experiment']}`: {found['cores']} cores ({found['processor']}), "
        f"{found['memory_gb']} GB, Spark {found['spark']}, Python {found['python']}; rounds: {settings['rounds']}, "
        f"{settings['batches']} batches, {settings['seeds']} seeds where there are any; "
        f"load before {found['load_before']}. {document.get('note', '')}".rstrip()
        + "\n\n"
    )


def _relative(folder: Path, start: Path) -> str:
    return str(folder.resolve().relative_to(start.resolve()))
