"""KeywordFilter: the texts that have at least one of some keywords or hash-tags. Decides by each text alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from afspark.algorithms.bad_rows import SKIPPED, refuse_bad, skipped_rows, skipped_state
from afspark.algorithms.event_times import check_time, seconds_of
from afspark.algorithms.lexicon import folded, refuse_other_than_words
from afspark.algorithms.stream_columns import column_type
from afspark.algorithms.texts import is_text, text_column
from afspark.errors import UsageError
from afspark.model.kernels.sentiment_kernels import WordTable, match_words, word_table
from afspark.model.onbad import check_on_bad
from afspark.model.operator import Operator, Share
from afspark.model.states import StateSpec

TIME, KEYWORDS = "time", "keywords"


class KeywordFilter(Operator):
    """Sends on the rows whose text in ``column`` has one of ``keywords`` as a word: the seconds of their ``time`` as
    column ``time``, the text, the columns to ``keep``, and the list ``keywords`` of those they have.

    ASCII capitals are folded. A keyword with a # before it is found as a hash-tag only, one without as both. Rows
    without a text or a time are skipped and counted, or stop the query (``on_bad``); their number is all that
    ``query.results()`` can tell.
    """

    sends_by_state = False
    rescalable = True
    alpha = 1.0

    def __init__(
        self,
        keywords: Sequence[str],
        *,
        column: str = "text",
        time: str = TIME,
        keep: Sequence[str] = (),
        on_bad: str = "skip",
    ) -> None:
        if isinstance(keywords, str) or not keywords:
            raise UsageError("A filter needs a list of keywords.", remedy="Name at least one.", keywords=keywords)
        self.keywords = tuple(dict.fromkeys(map(folded, keywords)))
        refuse_other_than_words(self.keywords, "a keyword")
        self.column, self.time, self.keep, self.on_bad = column, time, tuple(keep), check_on_bad(on_bad)
        for name in self._kept:
            if name in (TIME, KEYWORDS):
                raise UsageError(f"What is sent has a column {name!r} of its own.", remedy="Rename yours.", column=name)

    def states(self) -> Mapping[str, StateSpec]:
        return {SKIPPED: skipped_state()}

    def check(self, schema: pa.Schema | None) -> None:
        if schema is None:
            return
        if not is_text(text_column(schema, self.column)):
            raise UsageError(
                f"Column {self.column!r} has blocks, not one text in each row.",
                remedy="Read the file by lines.",
                column=self.column,
            )
        check_time(schema, self.time)
        for name in self._kept:
            column_type(schema, name, "Name a column to keep that is there.")

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        seconds = seconds_of(items.column(self.time))
        sound = pc.and_(items.column(self.column).is_valid(), seconds.is_valid())
        if sound.false_count:
            refuse_bad(sound.false_count, f"have no {self.column!r} or no usable {self.time!r}", self.on_bad)
            states[SKIPPED].add(sound.false_count)
            items, seconds = items.filter(sound), seconds.filter(sound)
        rows, words = match_words(items.column(self.column), _table(self.keywords))
        kept, starts = np.unique(rows, return_index=True)
        offsets = pa.array(np.append(starts, len(rows)).astype(np.int32))
        found = pa.ListArray.from_arrays(offsets, pa.array(self.keywords, pa.string()).take(pa.array(words)))
        places = pa.array(kept)
        columns = {name: items.column(name).take(places) for name in self._kept}
        return pa.record_batch({TIME: seconds.take(places), **columns, KEYWORDS: found})

    def results(self, shares: Sequence[Share]) -> pa.Table:
        return pa.table({SKIPPED: pa.array([skipped_rows(shares)], pa.int64())})

    def fingerprint(self) -> dict[str, Any]:
        lists = {"keywords": list(self.keywords), "keep": list(self.keep)}
        return super().fingerprint() | {"column": self.column, "time": self.time, **lists}

    @property
    def _kept(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.column, *self.keep)))


@lru_cache(maxsize=8)
def _table(keywords: tuple[str, ...]) -> WordTable:
    return word_table(keywords)
