"""WordCount: how often each word occurs. A word is a run of bytes without ASCII white space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa

from afspark.errors import UsageError
from afspark.model.kernels.words import WordCounter
from afspark.model.operator import Combiner, Operator
from afspark.model.states import HashTable, StateSpec


class WordCombiner(Combiner):
    """Splits and counts a share of a batch in one pass over its raw bytes."""

    def __init__(self, column: str, lower: bool) -> None:
        self.column = column
        self.counter = WordCounter(lower=lower)
        self.items = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.counter.count(batch.column(self.column))

    def finish(self) -> pa.RecordBatch:
        self.items += self.counter.items
        return self.counter.finish()


class WordCount(Operator):
    """Counts the words of a text column. Divergence: the largest difference of any word's count.

    ``lower`` folds ASCII capitals. Results have the columns ``word`` and ``count``.
    """

    key: ClassVar[tuple[str, ...]] = ("word",)

    def __init__(self, *, column: str = "value", lower: bool = False) -> None:
        self.column = column
        self.lower = lower

    def states(self) -> Mapping[str, StateSpec]:
        return {"counts": HashTable(key="string", value="int64", divergence="max")}

    def check(self, schema: pa.Schema | None) -> None:
        if schema is None:
            return
        if self.column not in schema.names:
            raise UsageError(
                f"There is no column {self.column!r}; the stream has {', '.join(schema.names)}.",
                remedy="Name the column that holds the text.",
                column=self.column,
            )
        kind = schema.field(self.column).type
        texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
        if not any(is_text(kind) for is_text in texts):
            raise UsageError(
                f"Column {self.column!r} is {kind}, not text.",
                remedy="Name the column that holds the text.",
                column=self.column,
            )

    def combiner(self) -> WordCombiner:
        return WordCombiner(self.column, self.lower)

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["counts"].add(items.column("word"), items.column("count"), hashes=items.column("hash").to_numpy())

    def rows(self, cells: pa.RecordBatch) -> pa.RecordBatch:
        # Spark's strings are bytes as well; a view keeps words that are no UTF-8 as they are.
        words = cells.column("key").view(pa.string())
        return pa.record_batch({"word": words, "count": cells.column("value")})

    def fingerprint(self) -> dict[str, Any]:
        return super().fingerprint() | {"column": self.column, "lower": self.lower}
