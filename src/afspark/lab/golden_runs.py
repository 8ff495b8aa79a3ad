"""Golden runs: a repetition without faults, with all that its trials need of it, in a folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from afspark.graph.injector import Inlet, StreamFault, injector_name
from afspark.lab.application import Application
from afspark.lab.interleaving import Counts
from afspark.lab.trial_query import trial_query

_FACTS = "golden.json"
_OUTPUT = "output.arrow"


@dataclass(frozen=True)
class GoldenRun:
    """A run without faults. Trials begin with a state of it, and end when theirs equals it again."""

    folder: Path
    #: after how many rows of the output each batch ends; one more for what came at the end of the stream
    rows: Sequence[int]
    #: by injector, and after each batch: how many items each of its workers has seen
    seen: Mapping[str, Sequence[Sequence[int]]]
    #: after each batch, a digest of the states of each operator where they matter; none: they cannot be compared
    digests: Sequence[Mapping[str, str]]
    #: batches before which the query was kept
    kept: Sequence[int]

    @property
    def batches(self) -> int:
        return len(self.rows) - 1

    @cached_property
    def output(self) -> pa.Table:
        """Everything that came out, in the order of the batches."""
        with pa.memory_map(str(self.folder / _OUTPUT)) as file:
            return pa.ipc.open_file(file).read_all()

    def rows_before(self, batch: int) -> int:
        """How many rows of the output came before a batch."""
        return self.rows[batch - 1] if batch else 0

    def kept_at(self, batch: int) -> Path | None:
        """Where the query is as it was before a batch; None: nowhere."""
        return _place(self.folder, batch) if batch in self.kept else None

    def passed(self, inlet: Inlet, taken: set[str]) -> Counts:
        """How many items had passed an input after each batch, by worker."""
        return np.array(self.seen[injector_name(inlet, taken)], dtype=np.int64)


def golden_run(
    application: Application, folder: Path, *, batches: int, kept: Sequence[int], inlets: Sequence[Inlet]
) -> GoldenRun:
    """The golden run in a folder, made now if it is not there; ``kept``: batches before which the query is copied."""
    if not is_there(folder):
        _run(application, folder, batches, kept, inlets)
    facts = json.loads((folder / _FACTS).read_text())
    return GoldenRun(folder, facts["rows"], facts["seen"], facts["digests"], facts["kept"])


def is_there(folder: Path) -> bool:
    """Whether a folder has a golden run, from its beginning to its end."""
    return (folder / _FACTS).exists()


def _run(application: Application, folder: Path, batches: int, kept: Sequence[int], inlets: Sequence[Inlet]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pipeline = application.instrumented({inlet: StreamFault() for inlet in inlets})
    taken = {node.name for node in application.graph.nodes}
    injectors = [injector_name(inlet, taken) for inlet in inlets]
    parts: list[pa.Table] = []
    rows: list[int] = []
    digests: list[dict[str, str]] = []
    seen: dict[str, list[list[int]]] = {name: [] for name in injectors}
    with trial_query(pipeline, application.sink(pipeline), application.mode) as query:
        for batch in range(batches):
            if batch in kept:
                shutil.rmtree(_place(folder, batch), ignore_errors=True)
                query.keep(_place(folder, batch))
            _put(parts, rows, query.advance())
            for name, counts in query.counts(injectors).items():
                seen[name].append(counts)
            if application.comparable:
                digests.append({name: query.state_digest(name) for name in application.stateful})
        _put(parts, rows, query.finish())
    whole = _joined(parts)
    with pa.OSFile(str(folder / _OUTPUT), "wb") as sink, pa.ipc.new_file(sink, whole.schema) as writer:
        writer.write_table(whole)
    facts = {"rows": rows, "seen": seen, "digests": digests, "kept": list(kept)}
    # Last and at once: a run that was cut short is made again.
    unfinished = folder / f"{_FACTS}.new"
    unfinished.write_text(json.dumps(facts))
    unfinished.replace(folder / _FACTS)


def _put(parts: list[pa.Table], rows: list[int], given: pa.Table | None) -> None:
    if given is not None and given.num_rows:
        parts.append(given)
    rows.append((rows[-1] if rows else 0) + (given.num_rows if given is not None else 0))


def _joined(parts: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(parts).combine_chunks() if parts else pa.table({})


def _place(folder: Path, batch: int) -> Path:
    return folder / f"batch-{batch}"
