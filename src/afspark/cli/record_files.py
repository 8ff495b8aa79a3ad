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
    assert options.input is not None
    if options.format == PARQUET:
        return ParquetFiles(options.input, columns=tuple(columns))
    if options.format == JSON_LINES:
        first = first_object(*_beginning(options.input)) if EITHER in columns.values() else {}
        numeric = {name for name, value in first.items() if isinstance(value, int | float)}
        numbers, texts = _divided(columns, numeric)
        return JsonFiles(options.input, numeric=numbers, categorical=texts, on_bad=options.on_bad)
    first_row, second_row = _first_rows(options.input, options.delimiter)
    names = options.names
    if not names and len(first_row) == len(unnamed) and all(map(_IS_NUMBER.fullmatch, first_row)):
        names = tuple(unnamed)
    named = zip(names, first_row, strict=False) if names else zip(first_row, second_row, strict=False)
    numbers, texts = _divided(columns, {name.strip() for name, value in named if _IS_NUMBER.fullmatch(value)})
    return CsvFiles(
        options.input,
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


def _first_rows(path: str, delimiter: str) -> tuple[list[str], list[str]]:
    """The first two rows of a CSV file, empty where there is none."""
    text, _ = _beginning(path)
    lines = text.decode("utf-8-sig", errors="replace").splitlines()[:2]
    try:
        rows = [*csv.reader(lines, delimiter=delimiter[:1] or ","), [], []]
    except csv.Error:
        rows = [[], []]
    return rows[0], rows[1]
