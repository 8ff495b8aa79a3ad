"""LoadReadings: readings of smart plugs, as meters send them, become loads of plugs. Decides by each reading alone.

The format is that of the DEBS 2014 Grand Challenge: ``id``, ``timestamp`` (seconds), ``value``, ``property`` (0: work
in kWh, 1: load in watts), ``plug_id`` (unique in its household), ``household_id`` (unique in its house), ``house_id``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from afspark.algorithms.bad_rows import SKIPPED, refuse_bad, skipped_rows, skipped_state
from afspark.algorithms.event_times import check_time, seconds_of, whole_numbers
from afspark.algorithms.load_slices import PLUG_NAMES
from afspark.algorithms.stream_columns import column_type
from afspark.errors import UsageError
from afspark.model.onbad import check_on_bad
from afspark.model.operator import Operator, Share
from afspark.model.states import StateSpec

COLUMNS = ("id", "timestamp", "value", "property", "plug_id", "household_id", "house_id")
"""The challenge's columns, in the order of its files, which have no line of names."""
LARGEST = 4096.0
"""Watts: what no plug draws; sockets carry 16 amperes at 230 volts."""

_WORK, _LOAD = 0, 1
_LATEST = 2.0**31 * 60
_IDS = dict(zip(PLUG_NAMES, ("house_id", "household_id", "plug_id"), strict=True))
_READ = ("timestamp", "value", "property", *_IDS.values())


class LoadReadings(Operator):
    """Sends ``time``, ``house``, ``household``, ``plug`` and ``load`` of the readings of loads; those of work are left
    out.

    Unusable are readings with a missing value, another property, a time before 1970, an identifier that is no whole
    number of 0 to 2**31 - 1, or a load below 0 or above ``largest`` watts. They are skipped and counted, or stop the
    query (``on_bad``); their number is all that ``query.results()`` can tell.
    """

    sends_by_state = False
    rescalable = True
    alpha = 1.0

    def __init__(self, *, largest: float = LARGEST, on_bad: str = "skip") -> None:
        self.largest, self.on_bad = checked_largest(largest), check_on_bad(on_bad)

    def states(self) -> Mapping[str, StateSpec]:
        return {SKIPPED: skipped_state()}

    def check(self, schema: pa.Schema | None) -> None:
        if schema is None:
            return
        check_time(schema, "timestamp")
        for name in _READ[1:]:
            kind = column_type(schema, name, f"Readings have the columns {', '.join(COLUMNS)}.")
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
                raise UsageError(f"Column {name!r} is {kind}, not a number.", remedy="Convert it first.", column=name)

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        columns = {
            "time": seconds_of(items.column("timestamp")),
            **{name: whole_numbers(items.column(column)) for name, column in _IDS.items()},
            "load": items.column("value").cast(pa.float64(), safe=False),
        }
        sound = np.ones(items.num_rows, bool)
        limits = {"time": (0.0, _LATEST), "load": (0.0, self.largest), **dict.fromkeys(PLUG_NAMES, (0, 2**31 - 1))}
        kinds = whole_numbers(items.column("property")).fill_null(-1).to_numpy(zero_copy_only=False)
        loads = kinds == _LOAD
        for name, (least, most) in limits.items():
            inside = pc.and_(pc.greater_equal(columns[name], least), pc.less_equal(columns[name], most))
            fits = inside.fill_null(False).to_numpy(zero_copy_only=False)
            # Work may be any number; it is not looked at.
            sound &= fits | ~loads if name == "load" else fits
        sound &= loads | (kinds == _WORK)
        bad = int((~sound).sum())
        if bad:
            refuse_bad(bad, "are no readings of a plug", self.on_bad)
            states[SKIPPED].add(bad)
        return pa.record_batch(columns).filter(pa.array(sound & loads))

    def results(self, shares: Sequence[Share]) -> pa.Table:
        return pa.table({SKIPPED: pa.array([skipped_rows(shares)], pa.int64())})

    def fingerprint(self) -> dict[str, Any]:
        return super().fingerprint() | {"largest": self.largest}


def checked_largest(largest: float) -> float:
    """UsageError unless it is a load."""
    if not 0 < largest < np.inf:
        raise UsageError(f"The largest load is a number of watts above 0, not {largest}.", largest=largest)
    return float(largest)
