"""LoadPrediction: what plugs and houses will draw two slices of time from now, for slices of several lengths.

    readings -> conversion -> prediction, by house

The state is the sum and the number of readings of each plug in each slice of the last days, which add up: losing some
of them is like having measured a little less often. Predictions are made of it when a slice is over, or when somebody
asks, and kept nowhere. Loads are taken in steps of 1/1024 W, so that sums do not depend on the order of readings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from afspark.algorithms.load_forecasts import forecasts
from afspark.algorithms.load_readings import LARGEST, LoadReadings, checked_largest
from afspark.algorithms.load_slices import (
    CELL,
    PLUG,
    PLUG_NAMES,
    LoadSlices,
    in_order,
    indexed,
    keys_of,
    packed,
    unpacked,
)
from afspark.algorithms.newest_slices import DAY_MINUTES, SlicesOver, move_on, newest_key, opened
from afspark.algorithms.stream_columns import column_type
from afspark.algorithms.sums import Groups, Summing, summed_rows, sums_by_key
from afspark.errors import UsageError
from afspark.model.kernels.plain_arrays import Array, as_array
from afspark.model.operator import Combiner, Operator, Share, WorkerContext
from afspark.model.states import HashTable, StateSpec

MINUTES = (1, 5, 15, 60, 120)
"""The lengths of the challenge."""
DAYS = 7
UNIT = 256.0
CONVERSION, PREDICTION = "conversion", "prediction"

#: The conversion's only state is exact, so that nearly all of Θ is for the predictions.
_WEIGHT = 0.99
_STEPS = 1024
_READ = ("time", *PLUG_NAMES, "load")
#: Lookups in tables that are made at once.
_AT_ONCE = 1 << 20


class LoadPrediction(Operator):
    """Predicts loads from readings (``time`` in seconds, ``house``, ``household``, ``plug``, ``load`` in watts).

    ``minutes`` are the lengths of slices, each of which divides a day; up to ``days`` days before the present are
    looked at and kept. No load is above ``largest``. Divergence: the largest difference of a count of readings, and of
    a sum in units of ``unit`` watts (a power of two): one Θ for both means that a reading counts as much as so many
    watts. Results, as `forecasts` has them: predictions from the newest slice of every house.

    With ``sends`` predictions are sent on for every slice when the first reading of a later one has come; that needs
    all readings of a house in one place, hence ``keyed=True`` (the default behind another operator).
    """

    key: ClassVar[tuple[str, ...]] = ("house",)

    def __init__(
        self,
        *,
        minutes: Sequence[int] = MINUTES,
        days: int = DAYS,
        largest: float = LARGEST,
        unit: float = UNIT,
        sends: bool = False,
    ) -> None:
        self.minutes = _lengths(minutes)
        if days < 1:
            raise UsageError(f"A prediction looks at 1 day or more, not {days}.", days=days)
        if not (0 < unit < math.inf and math.frexp(unit)[0] == 0.5):
            raise UsageError(f"The unit is a power of two in watts, not {unit}.", remedy="Use 256.", unit=unit)
        self.days, self.largest, self.unit, self.sends = days, checked_largest(largest), float(unit), sends
        self.shortest = math.gcd(*self.minutes)
        self.alpha = max(1.0, self.largest / self.unit)

    def states(self) -> Mapping[str, StateSpec]:
        return {
            "readings": HashTable(key="string", value="int64", divergence="max"),
            "load": HashTable(key="string", value="float64", divergence="max"),
            # The minute of each plug's first reading, and one more, because 0 is absence. It decides what the absence
            # of a slice can mean, and changes seldom; so does the newest slice of each house.
            "plugs": HashTable(key="string", value="int64", divergence="max", exact=True),
            "newest": HashTable(key="int64", value="int64", divergence="max", exact=True),
        }

    def keys_of(self, state: str, cells: pa.RecordBatch) -> pa.RecordBatch:
        keys = cells.column("key")
        if state == "newest":
            _, houses, _ = opened(keys.to_numpy(), cells.column("value").to_numpy())
        else:
            houses = unpacked(keys, PLUG if state == "plugs" else CELL)["house"].astype(np.int64)
        return pa.record_batch({"house": pa.array(houses)})

    def check(self, schema: pa.Schema | None) -> None:
        if schema is None:
            return
        for name in _READ:
            kind = column_type(schema, name, "Apply LoadReadings before.")
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
                raise UsageError(f"Column {name!r} is {kind}, not a number.", column=name)

    # --- readings -------------------------------------------------------------------------------------------

    def combiner(self) -> Combiner:
        return Summing(self.summed)

    def summed(self, items: pa.RecordBatch) -> pa.RecordBatch:
        """Readings of a plug in the same of the shortest slices added up: ``minute``, ``load`` and ``readings``."""
        loads, seconds = (items.column(name).to_numpy(zero_copy_only=False) for name in ("load", "time"))
        if not ((loads >= 0) & (loads <= self.largest) & (seconds >= 0)).all():
            raise UsageError(
                f"A reading has no time, or a load that is not between 0 and {self.largest:g} W.",
                remedy="Apply LoadReadings before.",
            )
        slices = np.floor(seconds / (60 * self.shortest)).astype(np.int64)
        columns = {name: items.column(name) for name in PLUG_NAMES} | {"minute": pa.array(slices * self.shortest)}
        return summed_rows({**columns, "load": np.rint(loads * _STEPS) / _STEPS / self.unit}, "load", "readings")

    def begin(self, states: Mapping[str, Any], context: WorkerContext) -> None:
        self._taken: list[pa.RecordBatch] = []

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        if "readings" not in items.schema.names:
            # Windows by count combine nothing.
            items = self.summed(items)
        plugs, minute = _plugs(items), items.column("minute").to_numpy()
        for length in self.minutes:
            cells = packed(keys_of(CELL, minutes=length, slice=minute // length, **plugs))
            states["readings"].add(cells, items.column("readings"))
            states["load"].add(cells, items.column("load"))
        self._taken.append(items)

    def finish(self, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        if not sum(rows.num_rows for rows in self._taken):
            return None
        rows = pa.concat_batches(self._taken)
        self._note_plugs(rows, states["plugs"])
        house, minute = rows.column("house").to_numpy(), rows.column("minute").to_numpy()
        over = move_on(states["newest"], self.minutes, house, minute)
        made = self._made(states, over) if self.sends and len(over.houses) else None
        # Not before: slices of the day that is over may look back one day further.
        if len(over.turned):
            self._forget(states, over.turned)
        return made

    def _note_plugs(self, rows: pa.RecordBatch, plugs: Any) -> None:
        keys = packed(keys_of(PLUG, **_plugs(rows)))
        groups = Groups.of(keys)
        named, minute = keys.take(pa.array(groups.first)), groups.least(rows.column("minute").to_numpy()) + 1
        known = plugs.get(named)
        earlier = (known == 0) | (minute < known)
        plugs.put(named.filter(pa.array(earlier)), minute[earlier])

    def _forget(self, states: Mapping[str, Any], houses: Array) -> None:
        """Removes what is too old for predictions of these houses, which are in order."""
        cells = unpacked(states["readings"].export().column("key"), CELL)
        slices = [(states["newest"].get(newest_key(length, houses)) - 1) * length for length in self.minutes]
        at = np.minimum(np.searchsorted(houses, cells["house"]), len(houses) - 1)
        old = (houses[at] == cells["house"]) & ~self.is_kept(cells, np.max(slices, axis=0)[at])
        for name in ("readings", "load"):
            states[name].remove(packed(cells[old]))

    def is_kept(self, cells: Array, newest: Array) -> Array:
        """Which cells are kept if the newest slices of their houses begin at these minutes."""
        oldest = (newest // DAY_MINUTES - self.days) * DAY_MINUTES
        return cells["slice"].astype(np.int64) * cells["minutes"] >= oldest

    # --- predictions ----------------------------------------------------------------------------------------

    def _made(self, states: Mapping[str, Any], over: SlicesOver) -> pa.RecordBatch:
        """Predictions from slices of this worker's houses."""
        cells = states["plugs"].export()
        plugs = unpacked(cells.column("key"), PLUG)
        order = in_order(plugs)
        plugs = plugs[order]

        def amounts(numbers: Array, minutes: Array, slices: Array) -> tuple[Array, Array]:
            named = {name: plugs[name][numbers] for name in PLUG_NAMES}
            keys = packed(keys_of(CELL, minutes=minutes, slice=slices, **named))
            return states["load"].get(keys), states["readings"].get(keys)

        missing = self.context.missing
        known = LoadSlices(
            amounts=amounts,
            plugs=plugs,
            since=cells.column("value").to_numpy()[order] - 1,
            lost_load=np.full(len(plugs), missing.get("load", 0.0)),
            lost_readings=np.full(len(plugs), missing.get("readings", 0.0)),
            unit=self.unit,
            largest=self.largest,
        )
        some = max(1, _AT_ONCE // len(plugs))
        parts = [slice(start, start + some) for start in range(0, len(over.houses), some)]
        made = [
            forecasts(known, over.minutes[part], over.houses[part], over.slices[part], days=self.days) for part in parts
        ]
        return pa.RecordBatch.from_struct_array(pa.concat_tables(made).to_struct_array().combine_chunks())

    def results(self, shares: Sequence[Share]) -> pa.Table:
        newest = pa.Table.from_batches([share.cells["newest"] for share in shares])
        keys, place = np.unique(newest.column("key").to_numpy(), return_inverse=True)
        latest = np.zeros(len(keys), np.int64)
        np.maximum.at(latest, place, newest.column("value").to_numpy())
        return forecasts(self.slices_of(shares), *opened(keys, latest), days=self.days)

    def slices_of(self, shares: Sequence[Share]) -> LoadSlices:
        """The loads in all shares together."""
        known = pa.Table.from_batches([share.cells["plugs"] for share in shares])
        groups = Groups.of(known.column("key"))
        named = unpacked(as_array(known.column("key")).take(pa.array(groups.first)), PLUG)
        order = in_order(named)
        # Of plugs that a worker does not know it has lost nothing.
        sizes = [share.cells["plugs"].num_rows for share in shares]
        lost = {
            name: groups.sums(np.repeat([share.missing.get(name, 0.0) for share in shares], sizes))[order]
            for name in ("load", "readings")
        }
        sums = sums_by_key(shares, "load", "readings")
        load, readings = (sums.column(name).to_numpy() for name in ("load", "readings"))
        return LoadSlices(
            amounts=indexed(unpacked(sums.column("key"), CELL), load, readings, named[order]),
            plugs=named[order],
            since=groups.least(known.column("value").to_numpy())[order] - 1,
            lost_load=lost["load"],
            lost_readings=lost["readings"],
            unit=self.unit,
            largest=self.largest,
        )

    def fingerprint(self) -> dict[str, Any]:
        settings = {name: getattr(self, name) for name in ("days", "largest", "unit", "sends")}
        return super().fingerprint() | {"minutes": list(self.minutes)} | settings


def load_prediction(  # noqa: PLR0913 - the settings of two operators
    stream: Any,
    *,
    minutes: Sequence[int] = MINUTES,
    days: int = DAYS,
    largest: float = LARGEST,
    unit: float = UNIT,
    sends: bool = True,
    on_bad: str = "skip",
    workers: int = 2,
    tolerance: Any = None,
    name: str = PREDICTION,
) -> Any:
    """Composes the conversion of smart-plug readings and the prediction of loads; gives the latter's stream.

    ``stream`` is any stream or operator's output that has ``apply``, with the columns of `LoadReadings`. A sink in
    append mode gets the predictions from every slice once it is over.
    """
    converting = LoadReadings(largest=largest, on_bad=on_bad)
    converted = stream.apply(converting, name=CONVERSION, workers=workers, tolerance=tolerance)
    operator = LoadPrediction(minutes=minutes, days=days, largest=largest, unit=unit, sends=sends)
    return converted.apply(operator, name=name, workers=workers, tolerance=tolerance, weight=_WEIGHT)


def _lengths(minutes: Sequence[int]) -> tuple[int, ...]:
    lengths = tuple(sorted(set(minutes)))
    if not lengths:
        raise UsageError("A prediction needs slices.", remedy=f"Name lengths in minutes, such as {MINUTES}.")
    for length in lengths:
        if length < 1 or DAY_MINUTES % length:
            raise UsageError(
                f"Slices of {length} minutes do not divide a day.",
                remedy=f"Use lengths such as {', '.join(map(str, MINUTES))}.",
                minutes=length,
            )
    return lengths


def _plugs(rows: pa.RecordBatch) -> dict[str, Array]:
    return {name: rows.column(name).to_numpy() for name in PLUG_NAMES}
