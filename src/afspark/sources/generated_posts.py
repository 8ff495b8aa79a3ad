"""An endless supply of posts about a few subjects, in a compressed day of bursts: input for sentiments. Synthetic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from afspark.errors import UsageError
from afspark.model.kernels.plain_arrays import Array
from afspark.sources.bursts import bursts
from afspark.sources.chunks import NumberedChunk
from afspark.sources.source import EvenPlanner, LogStore, Planner, Source

POSTS = pa.schema(
    [
        pa.field("time", pa.float64(), nullable=False),
        pa.field("author", pa.int64(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
    ]
)
POST_BYTES = 80
"""What a post weighs in a batch."""
SUBJECTS = ("football", "music", "weather", "election", "movies", "traffic")
GOOD = ("good", "great", "love", "happy", "nice", "awesome", "excellent", "fun", "best", "amazing", "glad", "beautiful")
BAD = ("bad", "terrible", "hate", "sad", "awful", "worst", "angry", "failed", "broken", "ugly", "boring", "wrong")

_PLAIN = (
    "the a this that my your it we they is was are be have had do now then today tonight again still just here there "
    "with about for on at in of and or but so if when people game song city street night morning week time way thing"
)
_NOT = "not"
_CHUNK_ROWS = 1 << 14
_LEAST, _MOST = 7, 14
_SHARE = 2.0**-53
_SHIFT = np.uint64(11)


@dataclass(frozen=True)
class Posts(Source, kind="posts"):
    """``rows`` generated posts in ``seconds`` of one day: ``time`` in seconds, ascending, ``author`` and ``text``.

    Traffic has the peaks of `Bursts`. Each peak is about one of the `SUBJECTS`, and either friendly or angry; between
    them two posts in three name a subject, half of these as a hash-tag. Texts have 7 to 14 words, of which one in four
    says how the author feels. ``authors`` write with skew. A chunk depends on these settings and its number.
    """

    rows: int
    seed: int = 0
    seconds: float = 600.0
    authors: int = 100_000

    def __post_init__(self) -> None:
        if self.rows < 0 or not 0 < self.seconds < np.inf or self.authors < 1:
            raise UsageError(
                f"{self} cannot be generated.", remedy="Needs rows >= 0, seconds above 0, 1 author or more."
            )

    def schema(self) -> pa.Schema:
        return POSTS

    def planner(self, log: LogStore) -> Planner:
        return EvenPlanner(self.rows, _CHUNK_ROWS, POST_BYTES)

    def read(self, chunk: NumberedChunk) -> Iterator[pa.RecordBatch]:
        # Not before: whoever only plans needs no compiled kernels.
        from afspark.model.kernels.generate import block_key, random_numbers

        days = bursts(self.seed).times(chunk.index * _CHUNK_ROWS, chunk.units, self.rows)
        draws = (random_numbers(block_key(self.seed, chunk.index), chunk.units, 5 + _MOST) >> _SHIFT) * _SHARE
        author = (self.authors * draws[:, 0] * draws[:, 0] * draws[:, 0]).astype(np.int64)
        peak, share = bursts(self.seed).peaks_at(days)
        busy = draws[:, 1] < share
        # A peak in six is about a subject of its own, and moods take turns.
        subject = np.where(busy, peak % len(SUBJECTS), (len(SUBJECTS) * 1.5 * draws[:, 2]).astype(np.int64))
        mood = np.where(busy, np.where(peak % 2 == 0, 0.85, 0.15), 0.55)
        texts = _texts(draws[:, 5:], mood, subject, draws[:, 3], draws[:, 4])
        yield pa.record_batch([pa.array(days * self.seconds), pa.array(author), texts], schema=POSTS)


def _texts(draws: Array, mood: Array, subject: Array, length: Array, tag: Array) -> pa.Array:
    """A text for each row of draws: words by them, and in it the subject, if there is one of that number."""
    words = [*_PLAIN.split(), *GOOD, *BAD, _NOT, *SUBJECTS, *(f"#{name}" for name in SUBJECTS)]
    good, plain = words.index(GOOD[0]), len(_PLAIN.split())
    kind, rest = draws * 8 // 1, draws * 8 % 1
    friendly = rest < mood[:, None]
    chosen = (rest * plain).astype(np.int64)
    spoken = good + np.where(friendly, 0, len(GOOD)) + (rest * 997 % 1 * len(GOOD)).astype(np.int64)
    chosen = np.where(kind < 2, spoken, chosen)
    chosen = np.where((kind == 2) & (rest < 0.2), words.index(_NOT), chosen)
    counts = _LEAST + (length * (_MOST - _LEAST + 1)).astype(np.int64)
    named = subject < len(SUBJECTS)
    at = (tag * 2 % 1 * counts).astype(np.int64)
    first = words.index(SUBJECTS[0]) + np.where(tag < 0.5, len(SUBJECTS), 0)
    rows = np.flatnonzero(named)
    chosen[rows, at[rows]] = (first + subject)[rows]
    kept = np.arange(_MOST) < counts[:, None]
    offsets = pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
    return pc.binary_join(pa.ListArray.from_arrays(offsets, pa.array(words).take(pa.array(chosen[kept]))), " ")
