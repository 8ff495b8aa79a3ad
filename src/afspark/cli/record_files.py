"""Files of records as a source: CSV, JSON lines or Parquet, of which some columns are read."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence

from afspark.cli.algorithm_options import JSON_LINES, PARQUET
from afspark.cli.application_options import RecordOptions
from afspark.sources import CsvFiles, JsonFiles, ParquetFiles, Source
from afspark.sources.file_source import require_files
from afspark.sources.json_files import first_object
from afspark.sources.text_files import lines_of

NUMBER, TEXT, EITHER = "number", "text", "either"

_SAMPLE_BYTES = 1 << 16
_IS_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")


def record_source(options: RecordOptions, columns: Mapping[str, str], *, unnamed: Sequence[str] = ()) -> Source:
    """The source of these columns, each a number, a text, or ``either``: then the first record decides.

    ``unnamed``: how the columns of CSV files are called whose first line holds as many numbers.
    """
    path = options.input
    assert path is not None
    if options.format == PARQUET:
        return ParquetFiles(path, columns=tuple(columns))
    if options.format == JSON_LINES:
        first = first_object(*_beginning(path)) if EITHER in columns.values() else {}
        numeric = {name for name in columns if isinstance(first.get(name), int | float)}
        numbers, texts = _divided(columns, numeric)
        return JsonFiles(path, numeric=numbers, categorical=texts, on_bad=options.on_bad)
    rows = _first_rows(path, options.delimiter)
    names = options.names
    if not names and rows and len(rows[0]) == len(unnamed) and all(map(_IS_NUMBER.fullmatch, rows[0])):
        names = tuple(unnamed)
    header, sample = (names, rows[0] if rows else []) if names else (rows[0] if rows else [], (rows[1:] or [[]])[0])
    numeric = {name for name, value in zip(header, sample, strict=False) if _IS_NUMBER.fullmatch(value)}
    numbers, texts = _divided(columns, {name.strip() for name in numeric})
    return CsvFiles(
        path,
        label=None,
        numeric=numbers,
        categorical=texts,
        names=names,
        delimiter=options.delimiter,
        on_bad=options.on_bad,
    )


def _divided(columns: Mapping[str, str], numeric: set[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns that are read as numbers, and those that are read as text."""
    numbers = tuple(name for name, kind in columns.items() if kind == NUMBER or (kind == EITHER and name in numeric))
    return numbers, tuple(name for name in columns if name not in numbers)


def _beginning(path: str) -> tuple[bytes, str]:
    """The first lines of the first file, and its path; UsageError if there is none."""
    first = require_files(path)[0]
    return lines_of(first.path, 0, min(first.size, _SAMPLE_BYTES), first.size).to_pybytes(), first.path


def _first_rows(path: str, delimiter: str) -> list[list[str]]:
    """Up to two rows of a CSV file."""
    text, _ = _beginning(path)
    lines = text.decode("utf-8-sig", errors="replace").splitlines()[:2]
    try:
        return list(csv.reader(lines, delimiter=delimiter[:1] or ","))
    except csv.Error:
        return []
