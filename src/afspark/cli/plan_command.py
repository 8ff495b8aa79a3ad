"""``afspark plan``: what a changed pipeline would make of a checkpoint, without running it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.text import Text

from afspark.api.assembly import assemble
from afspark.api.pipeline_plan import PipelinePlan, plan_change
from afspark.api.planned_start import PlannedStart, planned_only
from afspark.api.stream import Inflow, StatefulStream, Stream
from afspark.api.writer import StreamWriter
from afspark.api.writer_options import discarded
from afspark.cli.options import PlanOptions
from afspark.cli.places import check_file
from afspark.cli.user_files import FUNCTION, defines, function_of, load_module, run_program
from afspark.coordinator.run_options import DEFAULT_BATCH_BYTES
from afspark.errors import AfsparkError, UsageError
from afspark.graph.pipeline import Pipeline
from afspark.lab.application import call
from afspark.policies.parameters import shown
from afspark.report.document import plain_json, save_json
from afspark.report.summary import console
from afspark.sources.described_source import DescribedSource
from afspark.store import open_store
from afspark.store.identity import require_identity

_GIVEN = "Give afspark plan a program that starts a query, or a file with a function pipeline(stream) that returns one."


def plan(options: PlanOptions) -> int:
    """Carries out ``options``; the exit status: 1 if the pipeline would be refused. Nothing is run or written but the
    file of --json.
    """
    if options.json is not None:
        check_file(options.json, "--json")
    sources = require_identity(open_store(options.checkpoint)).settings.get("sources", {})
    pipeline, given = built(options.pipeline, sources)
    names = {name.strip() for text in options.discard_state for name in text.split(",")}
    found = plan_change(options.checkpoint, pipeline, discarded(given) | names)
    if options.json is not None:
        save_json(options.json, plain_json(found.to_json()))
    if not options.quiet:
        _show(found)
    return 0 if found.starts else 1


def built(file: str, sources: Mapping[str, Mapping[str, Any]]) -> tuple[Pipeline, Mapping[str, str]]:
    """The pipeline that a user's file makes, and the options of its query.

    ``file`` may name a function behind a colon. It is given a stream for each of the checkpoint's ``sources``, if it
    takes any. A file without such a function is run until it starts a query, which it does not.
    """
    place, _, name = file.rpartition(":") if not Path(file).is_file() and ":" in file else (file, "", "")
    path = Path(place)
    with planned_only() as asked, suppress(PlannedStart):
        try:
            if name or defines(path, FUNCTION):
                return _of_function(function_of(load_module(path), place, name), sources)
            run_program(path)
        except AfsparkError:
            # A program that goes on without its query may fail for want of that.
            if not asked:
                raise
    if asked:
        return asked[0].check(), asked[0].given
    raise UsageError(f"{file} starts no query and has no function {FUNCTION!r}.", remedy=_GIVEN)


def _of_function(
    builder: Callable[..., Any], sources: Mapping[str, Mapping[str, Any]]
) -> tuple[Pipeline, Mapping[str, str]]:
    taken = [one for one in inspect.signature(builder).parameters.values() if one.default is one.empty]
    streams = [Stream(None, (Inflow(DescribedSource(one)),)) for one in sources.values()] if taken else []
    made = call(builder, streams)
    if isinstance(made, StreamWriter):
        return _on(made.check(), sources), made.given
    sinks = made if isinstance(made, list | tuple) else [made]
    if not sinks or not all(isinstance(one, StatefulStream) for one in sinks):
        raise UsageError(f"The pipeline's function returned {shown(made)}, which is no operator.", remedy=_GIVEN)
    return _on(assemble([(one, None) for one in sinks], batch_bytes=DEFAULT_BATCH_BYTES), sources), {}


def _on(pipeline: Pipeline, sources: Mapping[str, Mapping[str, Any]]) -> Pipeline:
    """The pipeline on the checkpoint's sources, whichever of them its function was given first."""
    given = [one for one in pipeline.sources.values() if isinstance(one, DescribedSource)]
    if len(given) < len(pipeline.sources) or pipeline.sources.keys() != sources.keys():
        return pipeline
    return replace(pipeline, sources={name: DescribedSource(one) for name, one in sources.items()})


def _show(found: PipelinePlan) -> None:
    done = "before its first batch" if found.batch is None else f"after batch {found.batch}"
    console().print(f"The query in {found.checkpoint}, {done}:", soft_wrap=True, markup=False)
    for one in found.findings:
        console().print(Text(f"  {one.line}"), soft_wrap=True)
    end = "The pipeline would start on it." if found.starts else "The pipeline would be refused."
    console().print(end, soft_wrap=True)
