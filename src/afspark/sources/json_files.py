"""Files of JSON lines, read by byte ranges."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from afspark.errors import InputError, UsageError
from afspark.model.column_names import column_names
from afspark.model.onbad import SKIP, STOP, check_on_bad
from afspark.push.producer.line_formats import JsonLines
from afspark.sources.chunked_files import ChunkedFiles
from afspark.sources.chunks import ByteRange
from afspark.sources.file_source import require_files
from afspark.sources.source import require_columns
from afspark.sources.text_files import lines_of, refuse_other_encodings
from afspark.store.address_schemes import redact

_SAMPLE_BYTES = 1 << 16


@dataclass(frozen=True)
class JsonFiles(ChunkedFiles, kind="jsonl"):
    """Files with a JSON object in each line: a folder, a file, or a glob; new files are picked up.

    ``numeric`` and ``categorical`` name the fields that are read, as ``float64`` and as text; others are ignored. A
    field that is missing is null, and a line that cannot be parsed, or has another type in one of these fields, is a
    row of nulls; with ``on_bad="stop"`` such a line is an InputError that names file and line.
    """

    path: str
    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    on_bad: str = SKIP
    chunk_bytes: int = 4 << 20

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("numeric", "categorical"):
            object.__setattr__(self, name, column_names(name, getattr(self, name)))
        check_on_bad(self.on_bad)
        if not self.numeric and not self.categorical:
            raise UsageError("JSON lines need the names of the fields to read.", remedy="Name some as numeric.")

    def schema(self) -> pa.Schema:
        numbers = [(name, pa.float64()) for name in self.numeric]
        return pa.schema([*numbers, *((name, pa.string()) for name in self.categorical)])

    def validate(self, needs: Mapping[str, str] | None = None) -> None:
        """Checks also that the first lines are objects, and have each of the fields at least once."""
        first = require_files(self.path)[0]
        text = lines_of(first.path, 0, min(first.size, _SAMPLE_BYTES), first.size).to_pybytes()
        rows = JsonLines(self.schema())(text)
        if rows.bad and not rows.batch.num_rows:
            raise UsageError(
                f"None of the first {rows.bad} lines of {redact(first.path)!r} can be read: {rows.example}.",
                remedy="Each line is a JSON object whose fields have the types that are asked for.",
                path=first.path,
            )
        for name, column in zip(rows.batch.schema.names, rows.batch.columns, strict=True):
            if len(column) and column.null_count == len(column):
                raise UsageError(
                    f"None of the first {len(column)} lines of {redact(first.path)!r} has the field {name!r}.",
                    remedy=f"The first has: {', '.join(map(repr, first_object(text, first.path)))}.",
                    column=name,
                )
        require_columns(self.schema(), needs or {})

    def read(self, chunk: ByteRange) -> Iterator[pa.RecordBatch]:
        lines = lines_of(chunk.path, chunk.start, chunk.stop, chunk.size)
        if self.on_bad == STOP:
            refuse_other_encodings(lines, chunk)
        text = lines.to_pybytes()
        if not text:
            return
        rows = JsonLines(self.schema())(text)
        if rows.bad and self.on_bad == STOP:
            raise InputError(
                f"Input file {redact(chunk.path)!r} has a line that cannot be read: {rows.example}.",
                remedy="Repair it, or let such rows be skipped.",
                path=chunk.path,
                missing=False,
            )
        if rows.batch.num_rows:
            yield rows.batch
        if rows.bad:
            yield pa.record_batch([pa.nulls(rows.bad, field.type) for field in self.schema()], schema=self.schema())


def first_object(text: bytes, path: str) -> dict[str, object]:
    """The object in the first line that has anything; UsageError if it has none."""
    line = next((line for line in text.splitlines() if line.strip()), b"")
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(
            f"The first line of {redact(path)!r} is no JSON object: {line[:60].decode(errors='replace')!r}.",
            remedy="Is it a file of another format?",
            path=path,
        )
    return found
