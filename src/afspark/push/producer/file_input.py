"""Files and standard input as rows for a receiver."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from afspark.errors import InputError, UsageError, first_line
from afspark.push.producer.fitting import Rows, fit
from afspark.push.producer.line_formats import CsvLines, JsonLines, LineParser, TextLines, whole_lines

FORMATS = ("csv", "jsonl", "parquet", "arrow", "text")
STANDARD_INPUT = "-"
BLOCK_BYTES = 4 << 20

_SUFFIXES = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
    ".txt": "text",
    ".log": "text",
}
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


def guess_format(path: str) -> str:
    """The format that a file's name suggests.

    >>> guess_format("a/flows.csv.gz"), guess_format("flows.parquet")
    ('csv', 'parquet')
    """
    name = Path(path)
    suffix = Path(name.stem).suffix if name.suffix in _COMPRESSIONS else name.suffix
    if path == STANDARD_INPUT or suffix.lower() not in _SUFFIXES:
        what = "Standard input" if path == STANDARD_INPUT else f"The name {path!r}"
        raise UsageError(f"{what} does not tell a format.", remedy=f"Give --format: {', '.join(FORMATS)}.")
    return _SUFFIXES[suffix.lower()]


@dataclass(frozen=True, kw_only=True)
class Input:
    """A file, or standard input (``-``), of a format. ``header``: whether CSV begins with the names of its columns."""

    path: str
    format: str
    header: bool = True

    def __post_init__(self) -> None:
        if self.path == STANDARD_INPUT:
            if self.format == "parquet":
                raise UsageError("Parquet cannot be read from standard input.", remedy="Give the file.")
        elif not Path(self.path).is_file():
            raise InputError(f"There is no file {self.path!r}.", path=self.path)

    @property
    def bytes(self) -> int:
        """Size of the file; 0 for standard input."""
        return 0 if self.path == STANDARD_INPUT else Path(self.path).stat().st_size

    def rows(self, schema: pa.Schema) -> Iterator[Rows]:
        """Everything in it, in order. InputError if it cannot be read."""
        try:
            if self.format == "parquet":
                yield from self._parquet(schema)
            elif self.format == "arrow":
                yield from self._arrow(schema)
            else:
                yield from self._lines(schema)
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                f"{self._name} cannot be read as {self.format}: {first_line(error)}.", path=self.path
            ) from error

    @property
    def _name(self) -> str:
        return "Standard input" if self.path == STANDARD_INPUT else f"File {self.path!r}"

    def _open(self) -> io.RawIOBase:
        # Unbuffered: what a pipe has is taken as it comes, and an interrupted read leaves no lock behind.
        return io.FileIO(os.dup(0) if self.path == STANDARD_INPUT else self.path, "rb")

    def _lines(self, schema: pa.Schema) -> Iterator[Rows]:
        with self._open() as raw:
            compression = _COMPRESSIONS.get(Path(self.path).suffix)
            stream: Any = raw if compression is None else pa.input_stream(raw, compression=compression)
            chunks = iter(lambda: stream.read(BLOCK_BYTES), b"")
            parse: LineParser | None = self._parser(schema)
            before = 0
            for block in whole_lines(chunks, quoted=self.format == "csv"):
                rest = block
                if parse is None:
                    parse, rest = CsvLines.with_header(schema, block)
                rows = parse(rest)
                now = raw.tell() if compression is not None else before + len(block)
                yield Rows(rows.batch, rows.bad, rows.example, now - before)
                before = now

    def _parser(self, schema: pa.Schema) -> LineParser | None:
        if self.format == "csv" and self.header:
            return None
        return line_parser(self.format, schema)

    def _arrow(self, schema: pa.Schema) -> Iterator[Rows]:
        with self._open() as raw:
            if self.path != STANDARD_INPUT:
                magic = raw.read(6)
                raw.seek(0)
                if magic == b"ARROW1":
                    file = pa.ipc.open_file(raw)
                    batches = (file.get_batch(place) for place in range(file.num_record_batches))
                    yield from (_fitted(batch, schema) for batch in batches)
                    return
            yield from (_fitted(batch, schema) for batch in pa.ipc.open_stream(raw))

    def _parquet(self, schema: pa.Schema) -> Iterator[Rows]:
        with parquet.ParquetFile(self.path) as file:
            per_row = self.bytes / max(1, file.metadata.num_rows)
            wanted = [name for name in schema.names if name in file.schema_arrow.names]
            for batch in file.iter_batches(batch_size=1 << 17, columns=wanted):
                rows = _fitted(batch, schema)
                yield Rows(rows.batch, rows.bad, rows.example, round(per_row * batch.num_rows))


def line_parser(name: str, schema: pa.Schema) -> LineParser:
    """Parser of lines in a format; CSV has the receiver's columns in their order."""
    if name == "jsonl":
        return JsonLines(schema)
    if name == "csv":
        return CsvLines(schema, schema.names)
    return TextLines(schema)


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> Rows:
    rows = fit(pa.Table.from_batches([batch]), schema)
    return Rows(rows.batch, rows.bad, rows.example, batch.nbytes)
