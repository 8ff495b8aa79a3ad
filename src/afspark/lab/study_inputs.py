"""Recorded input of a study, from whatever a user has: files, tables, sources."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson
import pyarrow.parquet as pq

from afspark.errors import InputError, UsageError, first_line
from afspark.lab.sections import seconds_of
from afspark.sources import Source
from afspark.store import open_store

#: One input: the path of a file or folder, a table, or a source that can be read again.
StudyInput: TypeAlias = "str | Path | pa.Table | Source"

FORMATS = (".csv", ".parquet", ".jsonl", ".arrow", ".txt")


def store_inputs(given: Sequence[StudyInput], folder: Path) -> list[str]:
    """Stores the items of all inputs as Arrow files, and says where; those that are there are left as they are.

    Items that are not those of an earlier start replace them: the study is another one then, which it finds out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, one in enumerate(given):
        path, mark = folder / f"items{number}.arrow", folder / f"items{number}.from"
        origin = _origin(one)
        if not path.exists() or not mark.exists() or mark.read_text() != origin:
            _store(table_of(one), path)
            mark.write_text(origin)
        paths.append(str(path))
    return paths


def _store(table: pa.Table, path: Path) -> None:
    if not table.num_rows:
        raise UsageError("An input has no items.", remedy="Give recorded input to inject faults into.")
    unfinished = path.with_suffix(".new")
    with pa.OSFile(str(unfinished), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    unfinished.replace(path)


def _origin(given: StudyInput) -> str:
    """What tells an input from another one without reading its files."""
    if isinstance(given, pa.Table):
        return items_digest(given)
    if isinstance(given, Source):
        return f"{type(given).__name__} {sorted(vars(given).items(), key=str)}"
    return "\n".join(_traits(Path(given)))


def _traits(path: Path) -> Iterator[str]:
    for file in _files(path):
        found = file.stat()
        yield f"{file.absolute()} {found.st_size} {found.st_mtime_ns}"


def items_digest(table: pa.Table) -> str:
    """A digest of all items, the same however they are divided into chunks."""
    whole = hashlib.blake2b(str(table.schema).encode(), digest_size=16)
    for batch in table.combine_chunks().to_batches():
        whole.update(memoryview(batch.serialize()))
    return whole.hexdigest()


def event_times(table: pa.Table, column: str) -> npt.NDArray[np.float64]:
    """The time of each item of an input in seconds; UsageError if the column has none."""
    there = table[column] if column in table.column_names else None
    if there is None:
        why = f"it has {', '.join(table.column_names)}"
    elif there.null_count:
        why = "some are null"
    elif not (pa.types.is_timestamp(there.type) or pa.types.is_integer(there.type) or pa.types.is_floating(there.type)):
        why = f"they are {there.type}"
    else:
        return seconds_of(table, column)
    raise UsageError(
        f"An input has no event times in column {column!r}: {why}.",
        remedy="Name a column of timestamps, or of numbers of seconds, that every input has; or give the rate.",
        column=column,
    )


def table_of(given: StudyInput) -> pa.Table:
    """All items of an input."""
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, Source):
        return _read_source(given)
    files = _files(Path(given))
    return pa.concat_tables([_read_file(file) for file in files], promote_options="default")


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise UsageError(f"There is no input at {str(path)!r}.", remedy="Give a file or a folder.", path=str(path))
    files = [path] if path.is_file() else sorted(one for one in path.iterdir() if one.suffix in FORMATS)
    if not files:
        raise UsageError(
            f"No file in {str(path)!r} can be read.", remedy=f"Files end in {', '.join(FORMATS)}.", path=str(path)
        )
    return files


def _read_file(path: Path) -> pa.Table:
    try:
        match path.suffix:
            case ".csv":
                return pacsv.read_csv(path)
            case ".parquet":
                return pq.read_table(path)
            case ".jsonl" | ".json" | ".ndjson":
                return pajson.read_json(path)
            case ".arrow" | ".feather":
                with pa.memory_map(str(path)) as file:
                    return pa.ipc.open_file(file).read_all()
            case ".txt":
                return pa.table({"value": pa.array(path.read_text().splitlines(), pa.large_string())})
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"Input {str(path)!r} cannot be read: {first_line(error)}.", path=str(path)) from error
    raise UsageError(
        f"The format of {path.name!r} is not known.", remedy=f"Files end in {', '.join(FORMATS)}.", path=str(path)
    )


def _read_source(source: Source) -> pa.Table:
    if not source.replayable:
        raise UsageError("A pushed source has no recorded input.", remedy="Record its items in a file, and give that.")
    with tempfile.TemporaryDirectory(prefix="afspark-lab-") as log:
        planner = source.planner(open_store(log))
        chunks = planner.chunks(planner.initial(), planner.discover())
        batches = [batch for chunk in chunks for batch in source.read(chunk)]
    return pa.Table.from_batches(batches, source.schema())
