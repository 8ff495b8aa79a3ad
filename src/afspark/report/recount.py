"""Exact results by a second way: plain ``bytes.split`` and Arrow's ``group_by``, none of the engine's kernels.

Each function takes the chunks of one share and holds no more than the distinct keys and one chunk in memory.
Shares are put together with :func:`merge`.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from afspark.algorithms import OnlineJoin
from afspark.sources import Chunk, Source, TextFiles
from afspark.sources.file_source import open_file

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
    """The key columns and ``total``, the sum of ``weight`` for each key; without rows whose weight is none."""
    sums = pa.table({name: pa.array([], source.schema().field(name).type) for name in (*keys, weight)})
    sums = sums.rename_columns([*keys, "total"])
    waiting: list[pa.Table] = []
    for chunk in chunks:
        rows = pa.Table.from_batches(source.read(chunk), source.schema()).select([*keys, weight])
        rows = rows.filter(pc.fill_null(pc.greater_equal(rows.column(weight), 0), False))
        waiting.append(merge([rows.rename_columns([*keys, "total"])], keys))
        if len(waiting) == _MERGE_AFTER:
            waiting = [merge(waiting, keys)]
    return merge(waiting, keys) if waiting else sums


def count_matches(
    source: Source, chunks: Iterable[Chunk], *, pattern: str, column: str, regex: bool, ignore_case: bool, invert: bool
) -> pa.Table:
    """``what`` and ``count``: lines ``seen`` and ``matched``, and the ``checksum`` of the matched, a sum of CRC-32.

    Lines are split and plain texts searched for by Python; expressions are left to RE2, line by line.
    """
    plain = not (regex or ignore_case)
    search = pc.match_substring_regex if regex else pc.match_substring
    counts = Counter(seen=0, matched=0, checksum=0)
    for chunk in chunks:
        for batch in source.read(chunk):
            values = batch.column(column).drop_null()
            lines = values.cast(pa.large_binary()).to_pylist()
            if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
                lines = all_lines(lines)
            if plain:
                hits = [pattern.encode() in line for line in lines]
            else:
                texts = pa.array(lines, pa.large_binary()).view(pa.large_string())
                hits = search(texts, pattern, ignore_case=ignore_case).to_pylist()
            found = [line for line, hit in zip(lines, hits, strict=True) if hit != invert]
            counts.update(seen=len(lines), matched=len(found), checksum=sum(map(zlib.crc32, found)))
    return pa.table({"what": list(counts.keys()), "count": pa.array(counts.values(), pa.int64())})


def count_tuples(sources: Sequence[Source], chunks: Iterable[Any], *, join: OnlineJoin) -> pa.Table:
    """The join columns, ``what`` and ``total``: items of each side and the sum of left values per join value, and
    without join value how many items of each side the samples of an undisturbed run hold.
    """
    kinds = {name: sources[0].schema().field(name).type for name in join.on}
    schema = pa.schema([*kinds.items(), ("what", pa.string()), ("total", pa.float64())])
    parts, taken = [schema.empty_table()], Counter(left_samples=0, right_samples=0)
    for one in chunks:
        side = one.input
        for batch in sources[side].read(one.chunk):
            marked = join.right(batch) if side else join.left(batch)
            sides = join.sample(marked).column("side").to_pylist()
            taken["right_samples" if side else "left_samples"] += sum(found == side for found in sides)
            sound = _sound(pa.Table.from_batches([marked]), join.on, None if side else join.value)
            counts = sound.group_by(list(join.on)).aggregate([([], "count_all")]).rename_columns([*join.on, "total"])
            parts.append(_labelled(counts, "right" if side else "left", schema))
            if not side and join.value is not None:
                sums = sound.group_by(list(join.on)).aggregate([(join.value, "sum")])
                parts.append(_labelled(sums.rename_columns([*join.on, "total"]), "sum", schema))
        if len(parts) >= _MERGE_AFTER:
            parts = [merge(parts, [*join.on, "what"]).cast(schema)]
    samples = [{"what": name, "total": float(count)} for name, count in taken.items()]
    return merge([*parts, pa.Table.from_pylist(samples, schema)], [*join.on, "what"])


def _sound(rows: pa.Table, on: Sequence[str], value: str | None) -> pa.Table:
    for name in on:
        rows = rows.filter(pc.is_valid(rows.column(name)))
    if value is not None:
        numbers = pc.cast(rows.column(value), pa.float64())
        rows = rows.filter(pc.fill_null(pc.is_finite(numbers), False))
    return rows


def _labelled(totals: pa.Table, what: str, schema: pa.Schema) -> pa.Table:
    named = totals.append_column("what", pa.repeat(pa.scalar(what), len(totals)))
    return named.select(schema.names).cast(schema)


def merge(tables: Sequence[pa.Table], keys: Sequence[str]) -> pa.Table:
    """One row for each key; the only other column is summed."""
    (value,) = (name for name in tables[0].column_names if name not in keys)
    together = pa.concat_tables(tables, promote_options="permissive")
    sums = together.group_by(list(keys)).aggregate([(value, "sum")])
    return sums.select([*keys, f"{value}_sum"]).rename_columns([*keys, value])


def _texts(source: Source, chunk: Any, column: str) -> Iterable[bytes]:
    if isinstance(source, TextFiles):
        yield text_of_range(chunk.path, chunk.start, chunk.stop, chunk.size)
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


def all_lines(blocks: Iterable[bytes]) -> list[bytes]:
    """Lines without their ends: a newline, or a carriage return and a newline; the last may have none."""
    lines = []
    for block in blocks:
        *whole, rest = block.split(b"\n")
        lines += [line.removesuffix(b"\r") for line in whole] + ([rest] if rest else [])
    return lines
