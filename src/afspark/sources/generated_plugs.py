"""An endless supply of readings of smart plugs, with the same bursts every day: input for predictions. Synthetic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from random import Random

import numpy as np
import pyarrow as pa

from afspark.errors import UsageError
from afspark.model.kernels.plain_arrays import Array
from afspark.sources.bursts import bursts
from afspark.sources.chunks import NumberedChunk
from afspark.sources.source import EvenPlanner, LogStore, Planner, Source

READINGS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
        pa.field("property", pa.int8(), nullable=False),
        pa.field("plug_id", pa.int32(), nullable=False),
        pa.field("household_id", pa.int32(), nullable=False),
        pa.field("house_id", pa.int32(), nullable=False),
    ]
)
READING_BYTES = 37
"""What a reading weighs in a batch."""
BEGINNING = 1_377_993_600
"""The second of the first reading's day: 1 September 2013, as in the challenge."""

_CHUNK_ROWS = 1 << 15
_DAY = 86_400
_SHARE = 2.0**-53
_SHIFT = np.uint64(11)


@dataclass(frozen=True)
class SmartPlugs(Source, kind="smart-plugs"):
    """``rows`` generated readings in the format of the DEBS 2014 Grand Challenge: ``id``, ``timestamp`` (ascending),
    ``value``, ``property`` (1: load in watts, 0: work in kWh; in turns), ``plug_id``, ``household_id``, ``house_id``.

    They fill ``days`` days, each with the same peaks of `Bursts`: plugs report more often then, and draw more. A plug
    draws its own 16 to 2048 W by the time of day, give or take a tenth, and is off in an eighth of all hours. Each of
    ``houses`` has 1 to 3 households with 2 to 6 plugs. A chunk depends on these settings and its number.
    """

    rows: int
    seed: int = 0
    houses: int = 10
    days: int = 4

    def __post_init__(self) -> None:
        if self.rows < 0 or not 1 <= self.houses <= 100_000 or self.days < 1:
            raise UsageError(
                f"{self} cannot be generated.", remedy="Needs rows >= 0, 1 to 100,000 houses, 1 day or more."
            )

    def schema(self) -> pa.Schema:
        return READINGS

    def planner(self, log: LogStore) -> Planner:
        return EvenPlanner(self.rows, _CHUNK_ROWS, READING_BYTES)

    def read(self, chunk: NumberedChunk) -> Iterator[pa.RecordBatch]:
        # Not before: whoever only plans needs no compiled kernels.
        from afspark.model.kernels.generate import block_key, random_numbers
        from afspark.model.kernels.hashing import hash_integers
        from afspark.model.kernels.plain_arrays import read_only

        number = chunk.index * _CHUNK_ROWS + np.arange(chunk.units)
        pairs, first = -(-chunk.units // 2), chunk.index * _CHUNK_ROWS // 2
        day = bursts(self.seed).times(first, pairs, max(1, -(-self.rows // (2 * self.days))))
        draws = random_numbers(block_key(self.seed, chunk.index), pairs, 2)
        plugs, typical = plugs_of(self.seed, self.houses)
        plug = (draws[:, 0] % np.uint64(len(plugs))).astype(np.int64)
        hours = np.empty(pairs, np.uint64)
        hash_integers(read_only(plug * 1_000_003 + (day * 24).astype(np.int64)), hours)
        rate, noise = bursts(self.seed).rates(day), 0.9 + 0.2 * ((draws[:, 1] >> _SHIFT) * _SHARE)
        load = typical[plug] * np.minimum(0.3 + 0.2 * rate, 1.0) * noise * ((hours >> np.uint64(61)) != 0)
        work = typical[plug] * 0.5 * day * 24 / 1000
        values = np.rint(np.stack([load, work], axis=1) * 1000) / 1000
        both = np.arange(chunk.units) // 2
        columns = [
            number,
            BEGINNING + (day[both] * _DAY).astype(np.int64),
            values.reshape(-1)[: chunk.units],
            np.resize([1, 0], chunk.units),
            *plugs[plug[both]].T,
        ]
        yield pa.record_batch(
            [pa.array(column, field.type) for column, field in zip(columns, READINGS, strict=True)], schema=READINGS
        )


@lru_cache(maxsize=8)
def plugs_of(seed: int, houses: int) -> tuple[Array, Array]:
    """Number, household and house of all plugs, and the most watts that each draws."""
    draw = Random(seed)
    plugs = [
        (plug, household, house)
        for house in range(houses)
        for household in range(draw.randint(1, 3))
        for plug in range(draw.randint(2, 6))
    ]
    typical = [round(2.0 ** draw.uniform(4, 11)) for _ in plugs]
    return np.array(plugs, np.int32), np.array(typical, np.float64)
