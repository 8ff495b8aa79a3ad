"""Sentiments by a second way: Python's regular expressions and dictionaries, text by text, none of the kernels."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from afspark.algorithms import KeywordFilter, Sentiment
from afspark.algorithms.event_times import seconds_of
from afspark.algorithms.sentiment import as_text
from afspark.sources import Chunk, Source

TEXTS, SCORE = "texts", "score"

_LETTERS = "[0-9A-Za-z_\u00c0-\u1fff\u3000-\uffff]+"
_WORD = re.compile(f"(#?)({_LETTERS}(?:['\u2019]{_LETTERS})*)")
_CAPITALS = {code: code + 32 for code in range(65, 91)}


def words_of(text: str) -> list[tuple[bool, str]]:
    """The words of a text, ASCII capitals folded, and whether a # stands before each."""
    return [(bool(tag), word.replace("\u2019", "'").translate(_CAPITALS)) for tag, word in _WORD.findall(text)]


def score(text: str, values: Mapping[str, float], negations: Collection[str]) -> float:
    """A text's score."""
    total, since = 0.0, math.inf
    for _, word in words_of(text):
        since += 1
        total += values.get(word, 0.0) * (-0.74 if since <= 3 else 1.0)
        if word in negations:
            since = 0
    return round(1024 * total / math.sqrt(total * total + 15.0)) / 1024


def matches(text: str, keywords: Sequence[str]) -> list[int]:
    """The keywords that a text has, in the order in which they are found first."""
    places = {word.translate(_CAPITALS): place for place, word in reversed(list(enumerate(keywords)))}
    found: list[int] = []
    for tagged, word in words_of(text):
        for one in [word, f"#{word}"][: 1 + tagged]:
            if one in places and places[one] not in found:
                found.append(places[one])
    return found


def count_sentiments(
    source: Source, chunks: Iterable[Chunk], *, filtering: KeywordFilter, operator: Sentiment, pane: float
) -> pa.Table:
    """``pane`` (of so many seconds), ``keyword``, the column ``by`` if there is one, ``what`` (texts or score) and
    ``total``.
    """
    by = [operator.by] if operator.by else []
    values, negations = operator.lexicon.values, operator.lexicon.all_negations
    counts: Counter[tuple[Any, ...]] = Counter()
    sums: dict[tuple[Any, ...], float] = {}
    for chunk in chunks:
        for batch in source.read(chunk):
            times = seconds_of(batch.column(filtering.time)).to_pylist()
            texts = batch.column(filtering.column).to_pylist()
            groups = [as_text(batch.column(name)).to_pylist() for name in by]
            for number, (time, text) in enumerate(zip(times, texts, strict=True)):
                if time is None or text is None:
                    continue
                found = matches(text, filtering.keywords)
                worth = score(text, values, negations) if found else 0.0
                for place in found:
                    key = (_pane(time, pane), filtering.keywords[place], *(column[number] for column in groups))
                    counts[key] += 1
                    sums[key] = sums.get(key, 0.0) + worth
    names = ("pane", "keyword", *by)
    kinds = [pa.int64(), *[pa.string()] * (len(names) - 1)]
    columns = [
        pa.array([key[place] for key in (*counts, *sums)], kind)
        for place, kind in zip(range(len(names)), kinds, strict=True)
    ]
    what = pa.array([TEXTS] * len(counts) + [SCORE] * len(sums), pa.string())
    total = pa.array([*map(float, counts.values()), *sums.values()], pa.float64())
    return pa.table([*columns, what, total], names=[*names, "what", "total"])


def _pane(time: float, size: float) -> int:
    """The pane of a time, as windows have it: products are rounded as floats are."""
    pane = math.floor(time / size)
    pane -= pane * size > time
    return pane + ((pane + 1) * size <= time)
