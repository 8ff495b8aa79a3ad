"""Real trades and quotes of CSV or Parquet files, brought into the form of generated ones, and written as Parquet."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq

from afspark.errors import InputError, UsageError, first_line
from afspark.sources.file_source import open_file, require_files
from afspark.sources.generated_market import EVENTS, QUOTE, TRADE
from afspark.sources.source import Source
from afspark.store.address_schemes import redact

_KINDS = {TRADE: TRADE, "t": TRADE, QUOTE: QUOTE, "q": QUOTE}
_GROUP_ROWS = 1 << 16


def load_events(path: str, *, columns: Mapping[str, str] | None = None, delimiter: str = ",") -> pa.Table:
    """All events of the files at ``path`` (a file, a folder or a glob), with the columns of `MarketEvents`. Files whose
    names end in ".parquet" are Parquet, all others CSV with a line of names.

    ``columns`` says how a file calls them: ``{"ticker": "SYMBOL", "type": "kind"}``. Types may be written as "T" and
    "Q" as well, in small or capital letters. Without a ``key`` events are numbered as they come, which has to be the
    order of their times; with one, that has to ascend. Times are seconds, or what is recognised as a time of day or a
    timestamp. UsageError if a column is missing or cannot be converted, InputError for the first event that makes no
    sense.
    """
    called = {name: (columns or {}).get(name, name) for name in EVENTS.names}
    for name in columns or {}:
        if name not in EVENTS.names:
            raise UsageError(f"Events have no {name!r}.", remedy=f"They have {', '.join(EVENTS.names)}.", column=name)
    # By name, as days and parts of a day are numbered; by age is for files that come while a query runs.
    files = sorted(file.path for file in require_files(path))
    loaded = pa.concat_tables([_events(file, called, delimiter) for file in files])
    time, key = loaded.column("time").to_numpy(), loaded.column("key")
    if key.null_count == len(key):
        _refuse_first(np.flatnonzero(np.diff(time) < 0) + 1, "comes before the one in front of it", path)
        key = pa.chunked_array([pa.array(np.arange(len(loaded)))])
    elif key.null_count:
        raise UsageError("Some events have a key and some have none.", remedy="Number all of them, or none.", path=path)
    else:
        _refuse_first(np.flatnonzero(np.diff(key.to_numpy()) <= 0) + 1, "has no larger key than the one before", path)
    return loaded.set_column(0, EVENTS.field("key"), key).cast(EVENTS)


def write_events(events: Source | pa.Table, path: str | os.PathLike[str]) -> int:
    """Writes events, generated or loaded, as one Parquet file, which is either complete or as it was before; how many.

    >>> import tempfile
    >>> from afspark.sources import MarketEvents
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_events(MarketEvents(1000, seed=1), f"{folder}/events.parquet")
    1000
    """
    target, rows = Path(path), 0
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with pq.ParquetWriter(draft, EVENTS) as writer:
            for batch in _batches(events):
                writer.write_batch(batch, row_group_size=_GROUP_ROWS)
                rows += batch.num_rows
        draft.replace(target)
    except OSError as error:
        raise UsageError(
            f"{str(path)!r} cannot be written: {first_line(error)}.", remedy="Name a file in a folder that exists."
        ) from error
    finally:
        draft.unlink(missing_ok=True)
    return rows


def _batches(events: Source | pa.Table) -> Iterable[pa.RecordBatch]:
    if isinstance(events, pa.Table):
        yield from events.cast(EVENTS).to_batches(max_chunksize=_GROUP_ROWS)
        return
    planner = events.planner(_Unlogged())
    for chunk in planner.chunks(planner.initial(), planner.discover()):
        yield from events.read(chunk)


class _Unlogged:
    """The log of a planner that plans once."""

    def put(self, name: str, data: bytes) -> None: ...

    def get(self, name: str) -> bytes:
        raise KeyError(name)

    def list(self, prefix: str) -> list[str]:
        return []

    def delete(self, names: Iterable[str]) -> None: ...


def _events(file: str, called: Mapping[str, str], delimiter: str) -> pa.Table:
    """The events of one file; without keys if it has none."""
    rows = _read(file, delimiter)
    missing = [name for name in called.values() if name not in rows.column_names and name != called["key"]]
    if missing:
        raise UsageError(
            f"Input file {file!r} has no column {missing[0]!r}.",
            remedy=f"It has {', '.join(rows.column_names)[:200]}. Say which is which with columns=….",
            path=file,
            column=missing[0],
        )
    found = {name: rows.column(theirs) for name, theirs in called.items() if theirs in rows.column_names}
    made = {name: _converted(column, name, file) for name, column in found.items()}
    made.setdefault("key", pa.chunked_array([pa.nulls(len(rows), pa.int64())]))
    trade = pc.equal(made["type"], TRADE)
    for name, needed in {
        "ticker": made["ticker"],
        "time": made["time"],
        "type": made["type"],
        "price": pc.if_else(trade, _positive(made["price"]), True),
        "volume": pc.if_else(trade, _positive(made["volume"]), True),
        "ask_price": pc.if_else(trade, True, _positive(made["ask_price"])),
        "ask_size": pc.if_else(trade, True, _positive(made["ask_size"])),
    }.items():
        sound = needed if pa.types.is_boolean(needed.type) else pc.is_valid(needed)
        wrong = ~pc.fill_null(sound, False).to_numpy()
        _refuse_first(np.flatnonzero(wrong), f"has no usable {called[name]!r}", file)
    return pa.table({name: made[name] for name in EVENTS.names})


def _read(file: str, delimiter: str) -> pa.Table:
    try:
        with open_file(file) as opened:
            if file.endswith(".parquet"):
                return pq.read_table(opened)
            return pv.read_csv(opened, parse_options=pv.ParseOptions(delimiter=delimiter))
    except pa.ArrowException as error:
        raise InputError(
            f"Input file {file!r} cannot be read: {first_line(error)}.",
            remedy="Events come as Parquet, or as CSV with a line of names.",
            path=file,
            missing=False,
        ) from error


def _converted(column: pa.ChunkedArray, name: str, file: str) -> pa.ChunkedArray:
    """The column in its type; types are spelt out, and null where they are none."""
    kind = EVENTS.field(name).type
    try:
        if name == "time":
            return _seconds(column)
        if name == "type":
            small = pc.utf8_lower(pc.utf8_trim_whitespace(column.cast(pa.string())))
            place = pc.index_in(small, value_set=pa.array(list(_KINDS)))
            return pa.chunked_array([pa.array(list(_KINDS.values())).take(place.combine_chunks())])
        return column.cast(kind)
    except pa.ArrowException as error:
        raise UsageError(
            f"Column {name!r} of {file!r} is {column.type}, not {kind}: {first_line(error)}.",
            remedy="Convert it, or name another column.",
            path=file,
            column=name,
        ) from error


def _seconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_time(kind):
        return pc.divide(column.cast(pa.time64("us")).cast(pa.int64()).cast(pa.float64()), 1e6)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pc.divide(column.cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.float64()), 1e6)
    return column.cast(pa.float64())


def _positive(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.and_(pc.greater(column, 0), pc.less(column.cast(pa.float64()), np.inf))


def _refuse_first(rows: np.ndarray[tuple[int], np.dtype[np.int64]], what: str, path: str) -> None:
    if len(rows):
        raise InputError(
            f"Event {int(rows[0]) + 1} of {redact(path)!r} {what}.",
            remedy="Mend or leave out such events first.",
            path=path,
            missing=False,
            row=int(rows[0]) + 1,
        )
