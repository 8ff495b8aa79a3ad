"""``afspark inspect``: what a checkpoint and the resident state on this machine say about a query."""

from __future__ import annotations

from afspark.api.inspection import inspect
from afspark.cli.options import InspectOptions
from afspark.cli.places import check_file
from afspark.report.document import plain_json, save_json
from afspark.report.inspection_text import inspection
from afspark.report.summary import console


def show(options: InspectOptions) -> int:
    """Carries out ``options``; the exit status: 1 if anything is damaged. Nothing but the file of --json is written."""
    if options.json is not None:
        check_file(options.json, "--json")
    found = inspect(
        options.checkpoint, verify=options.verify, segments=options.segments, cells=options.cells, bad=options.bad
    )
    operators = found.operators if options.operator is None else (found.operator(options.operator),)
    if options.json is not None:
        save_json(options.json, plain_json(found.to_json()))
    console().print(inspection(found, operators, bad=options.bad))
    return 1 if found.damaged else 0
