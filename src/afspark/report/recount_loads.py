"""Loads of plugs by a second way: Arrow's ``group_by`` over the readings as they came, none of the engine's sums."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from afspark.algorithms import LoadPrediction
from afspark.algorithms.event_times import seconds_of
from afspark.algorithms.load_slices import PLUG_NAMES
from afspark.report.recount import merge
from afspark.sources import Chunk, Source

LOAD, READINGS = "load", "readings"
CELL_NAMES = ("minutes", *PLUG_NAMES, "slice")

_IDS = {name: f"{name}_id" for name in PLUG_NAMES}
_SCHEMA = pa.schema([*((name, pa.int64()) for name in CELL_NAMES), ("what", pa.string()), ("total", pa.float64())])
_MERGE_AFTER = 16


def sum_loads(source: Source, chunks: Iterable[Chunk], *, operator: LoadPrediction) -> pa.Table:
    """``minutes``, the plug, ``slice``, ``what`` (load in units, or readings) and ``total``."""
    parts = [_SCHEMA.empty_table()]
    for chunk in chunks:
        for batch in source.read(chunk):
            parts += _sums(pa.Table.from_batches([batch]), operator)
        if len(parts) >= _MERGE_AFTER:
            parts = [merge(parts, [*CELL_NAMES, "what"]).cast(_SCHEMA)]
    return merge(parts, [*CELL_NAMES, "what"])


def _sums(rows: pa.Table, operator: LoadPrediction) -> Iterable[pa.Table]:
    rows = rows.filter(pc.equal(rows.column("property").cast(pa.float64()), 1))
    numbers = {name: rows.column(name).cast(pa.float64()) for name in (*_IDS.values(), "value")}
    rows = pa.table({**numbers, "timestamp": seconds_of(rows.column("timestamp"))})
    for name in rows.column_names:
        most = operator.largest if name == "value" else 2.0**31 * 60 if name == "timestamp" else 2.0**31 - 1
        inside = pc.and_(pc.greater_equal(rows.column(name), 0), pc.less_equal(rows.column(name), most))
        if name in _IDS.values():
            inside = pc.and_(inside, pc.equal(pc.floor(rows.column(name)), rows.column(name)))
        rows = rows.filter(pc.fill_null(inside, False))
    steps = pc.round(pc.multiply(rows.column("value"), 1024), round_mode="half_to_even")
    plugs = {name: rows.column(column).cast(pa.int64()) for name, column in _IDS.items()}
    for minutes in operator.minutes:
        slices = pc.floor(pc.divide(rows.column("timestamp"), 60.0 * minutes)).cast(pa.int64())
        cells = pa.table({**plugs, "slice": slices, LOAD: pc.divide(steps, 1024 * operator.unit)})
        sums = cells.group_by([*PLUG_NAMES, "slice"]).aggregate([(LOAD, "sum"), (LOAD, "count")])
        for what, column in ((LOAD, f"{LOAD}_sum"), (READINGS, f"{LOAD}_count")):
            named = sums.select([*PLUG_NAMES, "slice", column]).rename_columns([*PLUG_NAMES, "slice", "total"])
            for name, value in (("minutes", minutes), ("what", what)):
                named = named.append_column(name, pa.repeat(pa.scalar(value), len(named)))
            yield named.select(_SCHEMA.names).cast(_SCHEMA)
