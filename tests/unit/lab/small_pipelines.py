"""Small pipelines for tests of the laboratory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import afspark as af
from afspark.sources.recorded_items import RecordedItems, record

SMALL_STUDY: dict[str, Any] = {
    "score": "sum:before",
    "key": "id",
    "sections": "keys:id:100",
    "offsets": [800, 1_600],
    "outages": [40, 160],
    "repetitions": 1,
    "batch_items": 200,
    "processes": 1,
}


class Pass(af.Operator):
    """Sends on what it gets."""

    def process(self, items, states):
        return items


class Even(af.Operator):
    """Sends on the rows with an even key."""

    def process(self, items, states):
        return items.filter(pc.equal(pc.bit_wise_and(items.column("id"), 1), 0))


class Latest(af.Operator):
    """Remembers the newest amount of each group, and sends it with every row: after a gap it is right again soon."""

    key = ("group",)

    def states(self):
        return {"latest": af.HashTable(key="int64", value="float64", operator_key=True)}

    def process(self, items, states):
        known = states["latest"].get(items.column("group"))
        states["latest"].put(items.column("group"), items.column("amount"))
        return pa.record_batch({"id": items.column("id"), "before": pa.array(known)})


class Sums(af.Operator):
    """Adds the amounts of each group up, and sends the sum with every batch of rows: a gap stays for ever."""

    key = ("group",)

    def states(self):
        return {"sums": af.HashTable(key="int64", value="float64", operator_key=True)}

    def process(self, items, states):
        states["sums"].add(items.column("group"), items.column("amount"))
        return items.append_column("sum", pa.array(states["sums"].get(items.column("group"))))


def two_operators(stream):
    """A filter, and the latest amount of each group."""
    return stream.apply(Even(), name="even", workers=2).apply(Latest(), name="latest", workers=2)


def diamond(stream, workers: int = 2):
    """A fan-out, a stateful branch, and an operator with two inputs. With one worker, items keep their order."""
    first = stream.apply(Pass(), name="first", workers=workers)
    left = first.apply(Sums(), name="sums", workers=workers)
    right = first.apply(Even(), name="even", workers=1)
    seen = left.apply(Pass(), name="seen", workers=1)
    return seen.union(right).apply(Latest(), name="latest", workers=workers)


def rows(count: int, groups: int = 7) -> pa.Table:
    """Rows with ascending ids; their amounts grow."""
    ids = np.arange(count)
    return pa.table({"id": ids, "group": ids % groups, "amount": ids.astype(float)})


def recorded(folder: Path, table: pa.Table, batch_rows: int = 100, pieces: int = 4) -> RecordedItems:
    path = folder / "items.arrow"
    record(path, table.schema, (table.slice(at, batch_rows) for at in range(0, table.num_rows, batch_rows)), pieces)
    return RecordedItems(str(path))
