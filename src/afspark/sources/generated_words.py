"""An endless supply of text that looks like books: word frequencies after Zipf, frequent words short."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from afspark.errors import UsageError
from afspark.sources.chunks import NumberedChunk
from afspark.sources.source import EvenPlanner, LogStore, Planner, Source
from afspark.sources.text_files import BLOCKS

_BLOCK_BYTES = 1 << 18


@dataclass(frozen=True)
class ZipfWords(Source, kind="zipf-words"):
    """``bytes`` bytes of generated text in blocks of 256 KiB, like ``TextFiles(blocks=True)`` without a file.

    Lines have about ten words. The word of rank r has weight r ** -exponent; the spelling of a rank is the
    same for every seed. A block depends only on ``seed`` and its number.
    """

    bytes: int
    seed: int = 0
    exponent: float = 1.07
    vocabulary: int = 200_000

    def __post_init__(self) -> None:
        if self.bytes < 0 or not 1 <= self.vocabulary <= 2_000_000 or not 0 <= self.exponent <= 8:
            raise UsageError(
                f"{self} cannot be generated.",
                remedy="Needs bytes >= 0, a vocabulary of 1 to 2 million words, an exponent of 0 to 8.",
            )

    def schema(self) -> pa.Schema:
        return BLOCKS

    def planner(self, log: LogStore) -> Planner:
        return EvenPlanner(self.bytes, _BLOCK_BYTES, 1)

    def read(self, chunk: NumberedChunk) -> Iterator[pa.RecordBatch]:
        # Not before: whoever only plans needs no compiled kernels.
        from afspark.model.kernels.generate import block_key, fill_words, spell_words, zipf_cells

        text = np.empty(chunk.units, np.uint8)
        cells, spelling = zipf_cells(self.vocabulary, self.exponent), spell_words(self.vocabulary)
        fill_words(text, block_key(self.seed, chunk.index), cells, spelling)
        offsets = pa.py_buffer(np.array([0, len(text)], np.int64))
        values = pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, pa.py_buffer(text)])
        yield pa.record_batch([values], schema=BLOCKS)
