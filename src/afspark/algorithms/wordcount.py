"""WordCount: how often each word occurs. A word is a run of bytes without ASCII white space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from afspark.algorithms.texts import text_column
from afspark.errors import UsageError
from afspark.model.kernels.words import WordCounter
from afspark.model.operator import Combiner, Operator
from afspark.model.states import HashTable, StateSpec


class WordCombiner(Combiner):
    """Splits and counts a share of a batch in one pass over its raw bytes."""

    def __init__(self, column: str, lower: bool, longest: int | None) -> None:
        self.column = column
        self.longest = longest
        self.counter = WordCounter(lower=lower)
        self.items = 0

    def add(self, batch: pa.RecordBatch) -> None:
        texts = batch.column(self.column)
        if self.longest is not None:
            self._refuse_longer(texts, self.longest)
        self.counter.count(texts)

    def _refuse_longer(self, texts: pa.Array, longest: int) -> None:
        found = pc.max(pc.binary_length(texts)).as_py() or 0
        if found > longest:
            raise UsageError(
                f"An item has {found} bytes, more than the {longest} that were declared.",
                remedy="Declare a larger `longest`, or split such items before.",
                longest=longest,
                found=found,
            )

    def finish(self) -> pa.RecordBatch:
        self.items += self.counter.items
        return self.counter.finish()


class WordCount(Operator):
    """Counts the words of a text column. Divergence: the largest difference of any word's count.

    ``lower`` folds ASCII capitals. Results have the columns ``word`` and ``count``.

    ``longest``: the most bytes of an item; a longer one is a bad item (see ``on_bad``). With it, pushed items may be
    lost (``Approximate(items=…)``): an item of n bytes holds no word more than (n + 1) / 2 times.
    """

    key: ClassVar[tuple[str, ...]] = ("word",)

    def __init__(self, *, column: str = "value", lower: bool = False, longest: int | None = None) -> None:
        if longest is not None and longest < 1:
            raise UsageError(f"longest must be at least 1, not {longest}.", longest=longest)
        self.column = column
        self.lower = lower
        self.longest = longest
        self.alpha = None if longest is None else float((longest + 1) // 2)

    def states(self) -> Mapping[str, StateSpec]:
        return {"counts": HashTable(key="string", value="int64", divergence="max", operator_key=True)}

    def check(self, schema: pa.Schema | None) -> None:
        if schema is not None:
            text_column(schema, self.column)

    def combiner(self) -> WordCombiner:
        return WordCombiner(self.column, self.lower, self.longest)

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["counts"].add(items.column("word"), items.column("count"))

    def rows(self, cells: pa.RecordBatch) -> pa.RecordBatch:
        # Spark's strings are bytes as well; a view keeps words that are no UTF-8 as they are.
        words = cells.column("key").view(pa.string())
        return pa.record_batch({"word": words, "count": cells.column("value")})

    def fingerprint(self) -> dict[str, Any]:
        limit = {} if self.longest is None else {"longest": self.longest}
        return super().fingerprint() | {"column": self.column, "lower": self.lower} | limit
