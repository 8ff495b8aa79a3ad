"""Sentiment: how many texts mention a keyword, and how friendly they are on the average, window by window.

    texts -> filter by keywords -> sentiment, over a sliding window of ten seconds

The state is a table of the number of texts and one of the sum of their scores, by keyword. A score lies in [-1, 1], so
that one text changes neither table by more than 1, and Θ counts texts in both. Scores are multiples of 1/1024: their
sums do not depend on the order in which they are added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from afspark.algorithms.keyword_filter import KEYWORDS, TIME, KeywordFilter
from afspark.algorithms.lexicon import Lexicon
from afspark.algorithms.stream_columns import column_type
from afspark.algorithms.sums import Summing, summed_rows, sums_by_key
from afspark.algorithms.texts import text_column
from afspark.errors import UsageError
from afspark.model.kernels.plain_arrays import as_array
from afspark.model.operator import Combiner, Operator, Share
from afspark.model.states import HashTable, StateSpec
from afspark.model.windows import Sliding, Window

KEYWORD = "keyword"
FILTER, SENTIMENT = "filter", "sentiment"
#: The filter's only state is exact, so that nearly all of Θ is for the sentiment.
_WEIGHT = 0.99
_JOINT = "\x1f"
_NAME_ANOTHER = "Name a column of single values."


class Sentiment(Operator):
    """Counts texts and adds up their scores, for each keyword in the list ``keywords`` of an item.

    ``by`` names a further column: then each pair of a keyword and a value of it has a count of its own, so that the
    state grows with the stream. Divergence: the largest difference of a count, and of a sum. Results: ``keyword``,
    the column ``by`` as text, ``texts``, ``score`` (their sum) and ``mean``.
    """

    alpha = 1.0
    rescalable = True

    def __init__(self, *, column: str = "text", by: str | None = None, lexicon: Lexicon | None = None) -> None:
        if by in (KEYWORD, "texts", "score", "mean"):
            raise UsageError(f"Results have a column {by!r} of their own.", remedy="Rename yours.", column=by)
        self.column, self.by, self.lexicon = column, by, lexicon or Lexicon()

    @property
    def key(self) -> tuple[str, ...]:  # type: ignore[override]
        """The keyword, and the further column: so that few keywords do not leave workers without a share."""
        return (KEYWORD, *([self.by] if self.by else []))

    def states(self) -> Mapping[str, StateSpec]:
        # A table's key has to be a single column of the operator's.
        alone = self.by is None
        return {
            "texts": HashTable(key="string", value="int64", divergence="max", operator_key=alone),
            "score": HashTable(key="string", value="float64", divergence="max", operator_key=alone),
        }

    def check(self, schema: pa.Schema | None) -> None:
        if schema is None:
            return
        text_column(schema, self.column)
        column_type(schema, KEYWORDS, "Apply a KeywordFilter before.")
        if self.by is not None and pa.types.is_nested(column_type(schema, self.by, _NAME_ANOTHER)):
            raise UsageError(f"Column {self.by!r} is a list or a structure.", remedy=_NAME_ANOTHER, column=self.by)

    def combiner(self) -> Combiner:
        return Summing(self.scored)

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        if KEYWORD not in items.schema.names:
            # Windows by count combine nothing.
            items = self.scored(items)
        keys = items.column(KEYWORD)
        if self.by is not None:
            keys = pc.binary_join_element_wise(keys, items.column(self.by), _JOINT)
        states["texts"].add(keys, items.column("texts"))
        states["score"].add(keys, items.column("score"))

    def scored(self, items: pa.RecordBatch) -> pa.RecordBatch:
        """Texts and scores of the items added up: a row for each keyword (and value of the column ``by``)."""
        lists = as_array(items.column(KEYWORDS))
        parents = pc.list_parent_indices(lists)
        columns: dict[str, Any] = {
            KEYWORD: pc.list_flatten(lists).cast(pa.string()),
            "score": self.lexicon.scores(items.column(self.column))[parents.to_numpy()],
        }
        if self.by is not None:
            columns[self.by] = as_text(items.column(self.by)).take(parents)
        return summed_rows(columns, "score", "texts")

    def results(self, shares: Sequence[Share]) -> pa.Table:
        sums = sums_by_key(shares, "texts", "score")
        # A count that failures took altogether leaves no row.
        sums = sums.filter(pc.greater(sums.column("texts"), 0))
        columns = self._key_columns(sums.column("key"))
        texts, score = sums.column("texts"), sums.column("score")
        return pa.table(columns | {"texts": texts, "score": score, "mean": pc.divide(score, texts)})

    def keys_of(self, state: str, cells: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch(self._key_columns(cells.column("key")))

    def _key_columns(self, keys: Any) -> dict[str, Any]:
        """The columns of the key, from the keys of the state, which are bytes."""
        parts = pc.split_pattern(keys.cast(pa.string()), _JOINT, max_splits=1)
        return {name: pc.list_element(parts, place) for place, name in enumerate(self.key)}

    def fingerprint(self) -> dict[str, Any]:
        settings = {"column": self.column, "by": self.by, "lexicon": self.lexicon.fingerprint()}
        return super().fingerprint() | settings


def mean_bound(texts: float, mean: float, *, bound_texts: float, bound_score: float) -> float:
    """How far a mean can be off whose count lacks at most ``bound_texts`` and whose sum is off by ``bound_score``.

    Let S and N be the true sum and count, s and n those that were found: N lies between n and n + ``bound_texts``, so
    that S/N and s/n differ by at most (S - s)/N + s/n · (N - n)/N, and N is at least n.

    >>> mean_bound(200, 0.5, bound_texts=10, bound_score=10)
    0.075
    """
    return (bound_score + abs(mean) * bound_texts) / texts


def keyword_sentiment(  # noqa: PLR0913 - the settings of two operators
    stream: Any,
    keywords: Sequence[str],
    *,
    column: str = "text",
    time: str = TIME,
    by: str | None = None,
    lexicon: Lexicon | None = None,
    window: Window | None = None,
    on_bad: str = "skip",
    workers: int = 2,
    tolerance: Any = None,
    name: str = SENTIMENT,
) -> Any:
    """Composes a filter by keywords and the sentiment over windows (default: of ten seconds, each second) by the
    column ``time`` that the filter sends; gives the latter's stream. ``stream`` is any stream or operator's output that
    has ``apply``, with a text and a time in each item. A sink in append mode gets each window once it is over.
    """
    filtering = KeywordFilter(keywords, column=column, time=time, keep=[by] if by else [], on_bad=on_bad)
    filtered = stream.apply(filtering, name=FILTER, workers=workers, tolerance=tolerance)
    window = window or Sliding(10, 1, column=TIME)
    operator = Sentiment(column=column, by=by, lexicon=lexicon)
    return filtered.apply(operator, name=name, workers=workers, tolerance=tolerance, window=window, weight=_WEIGHT)


def as_text(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Values as text; numbers without a fraction look the same in all types, and nulls are empty.

    >>> as_text(pa.array([1.0, 2.5, None])).to_pylist()
    ['1', '2.5', '']
    """
    values = as_array(column)
    texts = values.cast(pa.string())
    if pa.types.is_floating(values.type):
        whole = pc.and_(pc.equal(pc.floor(values), values), pc.less(pc.abs(values), 2.0**53))
        texts = pc.if_else(whole, pc.if_else(whole, values, 0).cast(pa.int64()).cast(pa.string()), texts)
    return texts.fill_null("")
