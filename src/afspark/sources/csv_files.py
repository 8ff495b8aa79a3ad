"""CSV files, read by byte ranges."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from afspark.errors import InputError, UsageError
from afspark.model.column_names import column_names
from afspark.model.onbad import SKIP, STOP, check_on_bad
from afspark.sources.chunked_files import ChunkedFiles
from afspark.sources.chunks import ByteRange
from afspark.sources.file_source import open_file, require_files
from afspark.sources.libsvm_files import bad_line
from afspark.sources.source import require_columns
from afspark.sources.text_files import find_newline, lines_of, read_lines, refuse_other_encodings
from afspark.store.address_schemes import redact

logger = logging.getLogger(__name__)

_NUMBER = r"^[ \t]*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?[ \t]*$"
_SAMPLE_BYTES = 1 << 16
_MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "?"]


@dataclass(frozen=True)
class CsvFiles(ChunkedFiles, kind="csv"):
    """CSV files: a folder, a file, or a glob; new files are picked up. A row is one line: values may be quoted, but not
    broken over lines. The first line of a file names its columns, unless ``names`` does.

    ``numeric`` and ``categorical`` name the columns that are read, besides the ``label`` (None: there is none); with
    neither, every other column is numeric. Numbers are read as ``float64``, categorical values as text; so is the label
    if ``text_label``.
    A value that is missing or cannot be parsed is null, and so is text that is not UTF-8; a row with too few or too
    many values has only nulls, so that a learner counts and skips it, and a column that a later file lacks is null
    there. With ``on_bad="stop"`` each of these is an InputError that names file and row.
    """

    path: str
    label: str | None = "label"
    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    text_label: bool = False
    names: tuple[str, ...] = ()
    delimiter: str = ","
    on_bad: str = SKIP
    chunk_bytes: int = 4 << 20

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("numeric", "categorical", "names"):
            object.__setattr__(self, name, column_names(name, getattr(self, name)))
        check_on_bad(self.on_bad)
        if len(self.delimiter) != 1:
            raise UsageError(f"A delimiter is one character, not {self.delimiter!r}.", delimiter=self.delimiter)

    def schema(self) -> pa.Schema:
        """The schema that the header of the first file gives. UsageError if it lacks a column."""
        return self._schema(self._header(require_files(self.path)[0].path))

    def validate(self, needs: Mapping[str, str] | None = None) -> None:
        """Checks also that no numeric column holds nothing but text in the first rows."""
        schema = self.schema()
        first = require_files(self.path)[0]
        header = self._header(first.path)
        text = lines_of(first.path, 0, min(first.size, _SAMPLE_BYTES), first.size)
        # Not as texts: some may not be UTF-8, and what becomes of those is decided where they are read.
        rows, _ = self._parsed(self._body(text), header, dict.fromkeys(schema.names, pa.binary()))
        for field in schema:
            if pa.types.is_floating(field.type):
                refuse_text(field.name, texts_of(rows.column(field.name)), label=field.name == self.label)
        require_columns(schema, needs or {})

    def read(self, chunk: ByteRange) -> Iterator[pa.RecordBatch]:
        path = chunk.path
        text = lines_of(path, chunk.start, chunk.stop, chunk.size)
        header = self._header(path)
        if self.on_bad == STOP:
            schema = self._schema(header, path)
            refuse_other_encodings(text, chunk)
        else:
            schema = self._lenient_schema(header, path)
        if chunk.start == 0:
            text = self._body(text)
        if text.size == 0:
            return
        rows, odd = self._typed(text, header, schema)
        if self.on_bad == STOP:
            self._refuse_bad(path, rows, odd)
        if odd:
            empty = {field.name: pa.nulls(len(odd), field.type) for field in schema}
            rows = pa.concat_tables([rows, pa.table(empty, schema=schema)])
        yield from rows.combine_chunks().to_batches()

    def _body(self, text: pa.Buffer) -> pa.Buffer:
        """The beginning of a file without the line that names columns."""
        if self.names:
            return text
        at = find_newline(np.frombuffer(text, np.uint8), 0, text.size)
        return text.slice(at + 1) if at >= 0 else text.slice(0, 0)

    def _header(self, path: str) -> list[str]:
        if self.names:
            return list(self.names)
        with open_file(path) as file:
            size = file.size()
            line = read_lines(file, path, 0, 1, size).to_pybytes()
        if line.startswith(b"\xef\xbb\xbf"):
            line = line[3:]
        try:
            line.decode()
        except UnicodeDecodeError:
            raise InputError(
                f"Input file {redact(path)!r} is not UTF-8 in line 1, which names its columns.",
                remedy="Convert it into a new file: iconv -t UTF-8.",
                path=path,
                missing=False,
            ) from None
        names = pv.read_csv(
            pa.BufferReader(line),
            pv.ReadOptions(autogenerate_column_names=True, use_threads=False),
            pv.ParseOptions(delimiter=self.delimiter),
            pv.ConvertOptions(column_types=None, strings_can_be_null=False),
        )
        return [str(column[0].as_py()).strip() for column in names.columns]

    def _schema(self, header: list[str], path: str | None = None) -> pa.Schema:
        numeric = self.numeric
        if not numeric and not self.categorical:
            numeric = tuple(name for name in header if name != self.label)
        labels = () if self.label is None else (self.label,)
        for name in (*labels, *numeric, *self.categorical):
            if header.count(name) != 1:
                problem = f"{header.count(name) or 'no'} column{'s' if header.count(name) > 1 else ''} named {name!r}"
                problem += ", which is read as the label" if name == self.label else ""
                remedy = f"Its first line has: {', '.join(header)[:200]}."
                if path is not None:
                    raise InputError(
                        f"Input file {redact(path)!r} has {problem}.",
                        remedy=remedy,
                        path=path,
                        missing=False,
                        column=name,
                    )
                raise UsageError(f"The input has {problem}.", remedy=remedy, column=name)
        label = pa.string() if self.text_label else pa.float64()
        return pa.schema(
            [
                *((name, label) for name in labels),
                *((name, pa.float64()) for name in numeric),
                *((name, pa.string()) for name in self.categorical),
            ]
        )

    def _lenient_schema(self, header: list[str], path: str) -> pa.Schema:
        """The columns that are read, although this file may lack some: a warning says which."""
        wanted = (*(() if self.label is None else (self.label,)), *self.numeric, *self.categorical)
        lacking = [name for name in wanted if name not in header]
        if len(lacking) == len(wanted) or not (self.numeric or self.categorical):
            return self._schema(header, path)
        if lacking:
            logger.warning("%s has no column %r: it is null in all its rows", path, lacking[0])
        return self._schema([*header, *lacking], path)

    def _typed(self, text: pa.Buffer, header: list[str], schema: pa.Schema) -> tuple[pa.Table, list[str]]:
        """The rows, and the lines that have another number of values than the header."""
        types = {field.name: field.type for field in schema}
        try:
            return self._parsed(text, header, types)
        except pa.ArrowInvalid:
            # Somewhere is a text in place of a number, or one that is not UTF-8: slower, value by value.
            given, odd = self._parsed(text, header, dict.fromkeys(types, pa.binary()))
            plain = pa.table({name: texts_of(given.column(name)) for name in given.column_names})
        columns = [
            numbers_of(plain.column(field.name)) if pa.types.is_floating(field.type) else plain.column(field.name)
            for field in schema
        ]
        return pa.table(columns, schema=schema), odd

    def _parsed(self, text: pa.Buffer, header: list[str], types: dict[str, Any]) -> tuple[pa.Table, list[str]]:
        odd: list[str] = []

        def note(row: Any) -> str:
            odd.append(row.text)
            return "skip"

        if text.size == 0:
            return pa.table({name: pa.array([], kind) for name, kind in types.items()}), odd
        rows = pv.read_csv(
            pa.BufferReader(text),
            pv.ReadOptions(column_names=header, use_threads=False, block_size=max(text.size + 1, 1 << 20)),
            pv.ParseOptions(delimiter=self.delimiter, invalid_row_handler=note),
            pv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                include_missing_columns=True,
                null_values=_MISSING,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        return rows, odd

    def _refuse_bad(self, path: str, rows: pa.Table, odd: list[str]) -> None:
        if odd:
            raise bad_line(path, odd[0].encode())
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            if column.null_count:
                row = int(np.flatnonzero(column.is_null().to_numpy())[0])
                raise bad_line(path, f"no usable {name}: {rows.slice(row, 1).to_pylist()[0]}".encode())


def texts_of(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Bytes as texts; null where they are not UTF-8."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.chunked_array([pa.array([_text(value) for value in column.to_pylist()], pa.string())])


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def numbers_of(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts as numbers; null where they are none."""
    is_number = pc.match_substring_regex(column, _NUMBER)
    return pc.utf8_trim_whitespace(pc.if_else(is_number, column, None)).cast(pa.float64())


def refuse_text(name: str, column: pa.ChunkedArray, *, label: bool) -> None:
    """UsageError for a column of numbers in which nothing is one."""
    texts = column.drop_null()
    if len(texts) == 0 or pc.any(pc.match_substring_regex(texts, _NUMBER)).as_py():
        return
    counts = "Say which label counts as 1: --positive, or in a program text_label=True and Features(positive=...)."
    remedy = counts if label else "Name it as categorical, or name the numeric columns."
    what = "Label column" if label else "Column"
    raise UsageError(f"{what} {name!r} is not numeric: {texts[0].as_py()!r}.", remedy=remedy, column=name)
