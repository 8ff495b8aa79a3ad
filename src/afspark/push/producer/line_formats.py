"""Blocks of whole lines into rows: CSV, JSON lines, plain text. One bad line costs that line only."""

from __future__ import annotations

import csv as plain_csv
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from pyarrow import json as arrow_json

from afspark.errors import InputError
from afspark.push.producer.fitting import EXAMPLE_LENGTH, Rows, fit
from afspark.push.wire.batches import no_rows

MAX_LINE_BYTES = 16 << 20

LineParser = Callable[[bytes], Rows]

# Arrow's JSON reader crashes the process at a bare null.
_BARE_NULL = re.compile(rb"(?:^|[}\n])\s*null", re.MULTILINE)
_NO_OBJECT = re.compile(rb"^[ \t\r]*[^ \t\r\n{]", re.MULTILINE)


def whole_lines(chunks: Iterator[bytes], *, quoted: bool = False) -> Iterator[bytes]:
    """Chunks cut anew at ends of lines; with ``quoted``, not inside double quotes. The last may lack its end.

    >>> list(whole_lines(iter([b"a\\nb", b"c\\n", b"d"])))
    [b'a\\n', b'bc\\n', b'd']
    >>> list(whole_lines(iter([b'1,"x\\ny', b'"\\n2,z\\n']), quoted=True))
    [b'1,"x\\ny"\\n2,z\\n']
    """
    rest = b""
    for chunk in chunks:
        rest += chunk
        end = _line_end(rest, quoted=quoted)
        if not end and len(rest) > MAX_LINE_BYTES:
            # A quote that is never closed: better one bad row than no bound on memory.
            end = rest.rfind(b"\n") + 1 or len(rest)
        if end:
            yield rest[:end]
            rest = rest[end:]
    if rest:
        yield rest


def _line_end(block: bytes, *, quoted: bool) -> int:
    end = block.rfind(b"\n") + 1
    while quoted and end and block.count(b'"', 0, end) % 2:
        end = block.rfind(b"\n", 0, block.rfind(b'"', 0, end)) + 1
    return end


def text_of(block: bytes) -> bytes:
    """The block as sound UTF-8; what is none becomes the replacement character."""
    try:
        block.decode()
    except UnicodeDecodeError:
        return block.decode(errors="replace").encode()
    return block


class TextLines:
    """Every line is the value of the one column."""

    def __init__(self, schema: pa.Schema) -> None:
        if len(schema) != 1 or not pa.types.is_string(schema.field(0).type):
            raise InputError(
                "Lines of text need a receiver with one column of text, not " + ", ".join(schema.names) + ".",
                remedy="Choose another --format.",
            )
        self._schema = schema

    def __call__(self, block: bytes) -> Rows:
        array = line_array(text_of(block))
        return Rows(pa.RecordBatch.from_arrays([array], schema=self._schema), bytes=len(block))


def line_array(block: bytes) -> pa.StringArray:
    """The lines of a block without their ends."""
    ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")) + 1
    if block and not block.endswith(b"\n"):
        ends = np.append(ends, len(block))
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    lines = pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(block))
    return pc.utf8_rtrim(lines, "\r\n")


class CsvLines:
    """Fields with commas between; ``names`` of the columns in the order of the lines."""

    def __init__(self, schema: pa.Schema, names: Sequence[str]) -> None:
        self._schema, self._names = schema, list(names)
        missing = [name for name in schema.names if name not in self._names]
        if missing:
            raise InputError(
                f"The CSV has no column {missing[0]!r}, but {', '.join(map(repr, self._names[:20]))}.",
                remedy="The first line must name the columns; use --no-header if there is no such line.",
                missing=missing,
            )

    @classmethod
    def with_header(cls, schema: pa.Schema, block: bytes) -> tuple[CsvLines, bytes]:
        """The parser for a text that begins with ``block``, and the block without the line of names."""
        first, _, rest = text_of(block).partition(b"\n")
        names = next(plain_csv.reader(io.StringIO(first.decode().lstrip("\ufeff"))), [])
        return cls(schema, [name.strip() for name in names]), rest

    def __call__(self, block: bytes) -> Rows:
        text = text_of(block)
        if not text.strip():
            return Rows(no_rows(self._schema), bytes=len(block))
        skipped: list[str] = []
        types = {field.name: field.type for field in self._schema}
        try:
            rows = fit(self._read(text, types, skipped), self._schema)
        except pa.ArrowInvalid:
            skipped.clear()
            rows = fit(self._as_text(text, types, skipped), self._schema)
        example = rows.example or (f"{skipped[0][:EXAMPLE_LENGTH]!r} (number of fields)" if skipped else "")
        return Rows(rows.batch, rows.bad + len(skipped), example, len(block))

    def _as_text(self, block: bytes, types: dict[str, pa.DataType], skipped: list[str]) -> pa.Table:
        table = self._read(block, dict.fromkeys(types, pa.string()), skipped, strings_can_be_null=True)
        for place, name in enumerate(table.column_names):
            if pa.types.is_string(types[name]):
                table = table.set_column(place, name, table[name].fill_null(""))
        return table

    def _read(
        self, block: bytes, types: dict[str, pa.DataType], skipped: list[str], *, strings_can_be_null: bool = False
    ) -> pa.Table:
        def skip(row: Any) -> str:
            skipped.append(row.text)
            return "skip"

        return csv.read_csv(
            pa.BufferReader(block),
            read_options=csv.ReadOptions(column_names=self._names, block_size=len(block) + 1, use_threads=False),
            parse_options=csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
            convert_options=csv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                null_values=[""],
                strings_can_be_null=strings_can_be_null,
                quoted_strings_can_be_null=False,
            ),
        )


class JsonLines:
    """An object in every line; fields that the schema does not name are ignored, missing ones are null."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._nullable = pa.schema([field.with_nullable(True) for field in schema])

    def __call__(self, block: bytes) -> Rows:
        text = text_of(block)
        bad: list[tuple[bytes, str]] = []
        if _NO_OBJECT.search(text) or (b"null" in text and _BARE_NULL.search(text)):
            tables = self._by_halves(self._objects(text, bad), bad)
        else:
            tables = self._by_halves([text], bad) if text.strip() else []
        if not tables:
            rows = Rows(no_rows(self._schema))
        else:
            rows = fit(pa.concat_tables(tables), self._schema)
        example = rows.example
        if bad and not example:
            example = f"{bad[0][0][:EXAMPLE_LENGTH].decode(errors='replace')!r} ({bad[0][1]})"
        return Rows(rows.batch, rows.bad + len(bad), example, len(block))

    def _objects(self, text: bytes, bad: list[tuple[bytes, str]]) -> list[bytes]:
        """The lines that hold one object and nothing else; only called for blocks with a line that does not."""
        lines = []
        for line in text.splitlines(keepends=True):
            try:
                if line.strip() and isinstance(json.loads(line), dict):
                    lines.append(line)
                elif line.strip():
                    bad.append((line.strip(), "no object"))
            except ValueError as error:
                bad.append((line.strip(), str(error)))
        return lines

    def _by_halves(self, lines: list[bytes], bad: list[tuple[bytes, str]]) -> list[pa.Table]:
        if not lines:
            return []
        text = b"".join(lines)
        try:
            return [
                arrow_json.read_json(
                    pa.BufferReader(text),
                    read_options=arrow_json.ReadOptions(block_size=len(text) + 1, use_threads=False),
                    parse_options=arrow_json.ParseOptions(
                        explicit_schema=self._nullable, unexpected_field_behavior="ignore"
                    ),
                )
            ]
        except pa.ArrowInvalid as error:
            if len(lines) == 1 and text.count(b"\n", 0, -1):
                lines = text.splitlines(keepends=True)
            if len(lines) == 1:
                if text.strip():
                    bad.append((text.strip(), str(error)))
                return []
        middle = len(lines) // 2
        return self._by_halves(lines[:middle], bad) + self._by_halves(lines[middle:], bad)
