"""Parquet files, read by row groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from afspark.errors import InputError, UsageError
from afspark.model.column_names import column_names
from afspark.model.onbad import STOP, check_on_bad
from afspark.sources.chunked_files import ChunkedFiles
from afspark.sources.chunks import FileChunk, RowGroups
from afspark.sources.file_source import FoundFile, changed, open_file, require_files
from afspark.sources.source import require_columns
from afspark.store.address_schemes import redact

BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class ParquetFiles(ChunkedFiles, kind="parquet"):
    """Parquet files in a folder (with subfolders), a single file, or a glob.

    ``columns`` are the only ones read, in that order; None reads all. A chunk is one or several row groups of
    a file, about ``chunk_bytes`` as stored. A file whose footer cannot be read when it is found is planned
    whole: reading it raises InputError until it is mended, and then gives all its rows. A file without one of
    ``columns`` is an InputError; with ``on_bad="skip"`` the column is null there.
    """

    chunk_type: ClassVar[type[FileChunk]] = RowGroups

    path: str
    columns: tuple[str, ...] | None = None
    chunk_bytes: int = 1 << 20
    on_bad: str = STOP

    changeable: ClassVar[frozenset[str]] = frozenset({"chunk_bytes", "on_bad"})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_on_bad(self.on_bad)
        if self.columns is not None:
            object.__setattr__(self, "columns", column_names("columns", self.columns))

    def schema(self) -> pa.Schema:
        """The schema of the first readable file, projected. UsageError if there is none or it lacks a column."""
        found = require_files(self.path)
        for file in found:
            try:
                with open_file(file.path) as opened:
                    full = pq.read_schema(opened).remove_metadata()
            except InputError:
                continue
            if self.columns is None:
                return full
            require_columns(full, dict.fromkeys(self.columns, "any"))
            return pa.schema([full.field(name) for name in self.columns])
        raise UsageError(
            f"No file at {redact(self.path)!r} is readable Parquet.",
            remedy="Check the path and the format (on the command line --format); files starting with '.' or '_' are"
            " ignored.",
            path=self.path,
        )

    def validate(self, needs: Mapping[str, str] | None = None) -> None:
        require_columns(self.schema(), needs or {})

    def read(self, chunk: RowGroups) -> Iterator[pa.RecordBatch]:
        path = chunk.path
        with open_file(path) as opened:
            file = pq.ParquetFile(opened, pre_buffer=True, page_checksum_verification=True)
            groups = _groups(file, chunk)
            columns = self._projection(file, path)
            # One worker has one core, and threads would only reorder the work.
            for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=columns, use_threads=False):
                # A file may hold its columns in another order than was asked for.
                yield batch if self.columns is None else _in_order(batch, self.columns)

    def _projection(self, file: pq.ParquetFile, path: str) -> list[str] | None:
        if self.columns is None:
            return None
        present = file.schema_arrow.names
        for name in self.columns:
            if name not in present and self.on_bad == STOP:
                raise InputError(
                    f"Input file {redact(path)!r} has no column {name!r}.",
                    remedy=f"It has: {', '.join(present)}. Write it anew, or read nulls there with on_bad='skip'.",
                    path=path,
                    missing=False,
                    column=name,
                )
        return [name for name in self.columns if name in present]

    def _split(self, file: FoundFile) -> list[dict[str, Any]]:
        try:
            with open_file(file.path) as opened:
                footer = pq.read_metadata(opened)
        except InputError as error:
            # A file that went away while it was looked at was never part of the stream.
            return [] if error.missing else [{"groups": None, "bytes": file.size}]
        return pack_groups(footer, self.chunk_bytes)


def _in_order(batch: pa.RecordBatch, columns: tuple[str, ...]) -> pa.RecordBatch:
    """The columns that were asked for; those that the file lacks are null."""
    present = batch.schema.names
    arrays = [batch.column(name) if name in present else pa.nulls(batch.num_rows) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def pack_groups(footer: pq.FileMetaData, chunk_bytes: int) -> list[dict[str, Any]]:
    """Chunk pieces of neighbouring row groups: each closed as soon as it weighs ``chunk_bytes``."""
    pieces: list[dict[str, Any]] = []
    first = rows = weight = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        rows += group.num_rows
        weight += sum(group.column(i).total_compressed_size for i in range(group.num_columns))
        if weight >= chunk_bytes or number + 1 == footer.num_row_groups:
            pieces.append({"groups": [first, number + 1], "rows": rows, "bytes": weight})
            first, rows, weight = number + 1, 0, 0
    # A file without rows still has to be logged, or it would be looked at again and again.
    return pieces or [{"groups": [0, 0], "rows": 0, "bytes": 0}]


def _groups(file: pq.ParquetFile, chunk: RowGroups) -> list[int]:
    """The row groups of a chunk; InputError with ``changed=True`` if they are not those that were planned."""
    footer = file.metadata
    if chunk.groups is None:
        return list(range(footer.num_row_groups))
    first, stop = chunk.groups
    if stop > footer.num_row_groups:
        raise changed(chunk.path, f"it has {footer.num_row_groups} row groups, {stop} were planned")
    groups = list(range(first, stop))
    rows = sum(footer.row_group(number).num_rows for number in groups)
    if rows != chunk.rows:
        raise changed(chunk.path, f"row groups {first} to {stop - 1} have {rows} rows, {chunk.rows} were planned")
    return groups
