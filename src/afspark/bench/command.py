"""``afspark bench``: runs experiments, saves their figures, and writes the page about them."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from afspark.bench.catalogue import NAMES, chosen, experiment
from afspark.bench.environment import environment
from afspark.bench.page import write_page
from afspark.bench.rig import Rig


def bench(names: list[str], rig: Rig, folder: Path, page: Path | None) -> int:
    """Runs the experiments in ``names``; each leaves ``NAME.json`` in ``folder`` as soon as it is done.

    ``page``: write a Markdown page about everything that is in the folder, with plots beside it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    console = Console()
    for name in chosen(names):
        one = experiment(name)
        print(f"{name}: {one.title}", file=sys.stderr, flush=True)
        before, started = environment(), time.time()
        figures = one.measure(rig)
        document: dict[str, Any] = {
            "experiment": name,
            "environment": before,
            "settings": {
                "batches": rig.batches,
                "rounds": rig.rounds,
                "seeds": rig.seeds,
                "records": rig.records,
            },
            "seconds": round(time.time() - started, 1),
            "figures": figures,
        }
        path = folder / f"{name}.json"
        path.write_text(json.dumps(document, indent=1))
        # As it will be read again: keys are texts.
        console.print(Markdown(f"# {one.title}\n\n{one.page(json.loads(path.read_text())['figures'])}"))
        print(f"figures: {path} ({document['seconds']} s)", file=sys.stderr, flush=True)
    if page is not None:
        write_page(folder, page)
        print(f"page: {page}", file=sys.stderr)
    return 0


def listed() -> str:
    """The names of all experiments and what they are about."""
    return "\n".join(f"  {name:20} {experiment(name).title}" for name in NAMES)
