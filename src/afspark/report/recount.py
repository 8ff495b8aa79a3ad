"""Exact results by a second way: plain ``bytes.split`` and Arrow's ``group_by``, none of the engine's kernels.

Each function takes the chunks of one share and holds no more than the distinct keys and one chunk in memory.
Shares are put together with :func:`merge`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import pyarrow as pa

from afspark.runtime.sources import Chunk, Source, TextFiles
from afspark.runtime.sources.files import open_file

WORD_COUNTS = pa.schema([("word", pa.large_binary()), ("count", pa.int64())])

_BLANK = re.compile(rb"[ \t\n\v\f\r]")
_STEP = 1 << 16
_MERGE_AFTER = 16


def count_words(source: Source, chunks: Iterable[Chunk], *, column: str, lower: bool) -> pa.Table:
    """``word`` and ``count`` of all words in the chunks. A word is a run of bytes without ASCII white space."""
    counts: Counter[bytes] = Counter()
    for chunk in chunks:
        for text in _texts(source, chunk, column):
            counts.update((text.lower() if lower else text).split())
    return pa.table([list(counts.keys()), list(counts.values())], schema=WORD_COUNTS)


def sum_weights(source: Source, chunks: Iterable[Chunk], *, keys: Sequence[str], weight: str) -> pa.Table:
    """The key columns and ``total``, the sum of ``weight`` for each key."""
    sums = pa.table({name: pa.array([], source.schema().field(name).type) for name in (*keys, weight)})
    sums = sums.rename_columns([*keys, "total"])
    waiting: list[pa.Table] = []
    for chunk in chunks:
        rows = pa.Table.from_batches(source.read(chunk), source.schema()).select([*keys, weight])
        waiting.append(merge([rows.rename_columns([*keys, "total"])], keys))
        if len(waiting) == _MERGE_AFTER:
            waiting = [merge(waiting, keys)]
    return merge(waiting, keys) if waiting else sums


def merge(tables: Sequence[pa.Table], keys: Sequence[str]) -> pa.Table:
    """One row for each key; the only other column is summed."""
    (value,) = (name for name in tables[0].column_names if name not in keys)
    together = pa.concat_tables(tables, promote_options="permissive")
    sums = together.group_by(list(keys)).aggregate([(value, "sum")])
    return sums.select([*keys, f"{value}_sum"]).rename_columns([*keys, value])


def _texts(source: Source, chunk: Chunk, column: str) -> Iterable[bytes]:
    if isinstance(source, TextFiles):
        yield text_of_range(chunk["path"], chunk["start"], chunk["stop"], chunk["size"])
        return
    for batch in source.read(chunk):
        values = batch.column(column)
        # No word spans two rows.
        yield b"\n".join(values.cast(pa.large_binary()).drop_null().to_pylist())


def text_of_range(path: str, start: int, stop: int, size: int) -> bytes:
    """Text with exactly the words that start in [start, stop) of the first ``size`` bytes of a file."""
    # The byte before the range tells whether a word starts right at its beginning.
    base = max(start - 1, 0)
    with open_file(path) as file:
        file.seek(base)
        text = file.read(stop - base)
        if start > 0:
            first = _BLANK.search(text)
            if first is None:
                return b""
            text = text[first.start() :]
        parts = [text]
        inside_word = bool(text[-1:].strip())
        while inside_word and (more := file.read(min(_STEP, size - file.tell()))):
            blank = _BLANK.search(more)
            parts.append(more[: blank.start()] if blank else more)
            inside_word = blank is None
    return b"".join(parts)
