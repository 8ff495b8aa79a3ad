"""What words say about a text's sentiment: a list of words with numbers, and the words that turn others round."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from afspark.errors import UsageError
from afspark.model.kernels.plain_arrays import Array
from afspark.model.kernels.sentiment_kernels import WordTable, score_texts, word_hash, word_table

Words = tuple[tuple[str, float], ...]

#: VADER's words with their mean ratings (-4 to 4); vader_lexicon.LICENSE.txt says where they come from.
VADER = Path(__file__).with_name("vader_lexicon.tsv")
NEGATIONS = VADER.with_name("vader_negations.txt")
_REMEDY = "A line is a word, a tab and a number, such as 'good', tab, 1.9."


@dataclass(frozen=True)
class Lexicon:
    """Scores texts by their words. Without ``words`` they are VADER's, and so are ``negations``.

    A text's score is s / √(s² + 15), where s is the sum of its words' numbers; a word less than four words behind a
    negation counts -0.74 times. These are VADER's constants; what else VADER looks at (degrees, capitals, exclamation
    marks, emoticons, idioms) is left out. So scores lie in [-1, 1], and they are rounded to multiples of 1/1024.

    >>> good, bad = Lexicon().scores(pa.array(["A great day, really good!", "not good at all"]))
    >>> bool(good > 0.5), bool(bad < 0)
    (True, True)
    """

    words: Words | None = None
    negations: tuple[str, ...] | None = None

    @classmethod
    def load(cls, path: str | Path) -> Lexicon:
        """The words of a file: in each line one word, a tab and a number; what follows another tab is left out."""
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
            raise UsageError(
                f"Lexicon {str(path)!r} cannot be read: {reason}.", remedy="Name a file of words.", path=str(path)
            ) from error
        words = tuple(_entry(line, number, str(path)) for number, line in enumerate(lines, 1) if line.strip())
        if not words:
            raise UsageError(f"Lexicon {str(path)!r} has no words.", remedy=_REMEDY, path=str(path))
        return cls(words)

    def scores(self, texts: pa.Array) -> Array:
        """The score of each text; 0 for nulls."""
        tables = _tables(self)
        return score_texts(texts, tables.words, tables.values, tables.negates)

    @property
    def values(self) -> dict[str, float]:
        """The words with their numbers; of a word that comes twice, the first."""
        listed = _shipped() if self.words is None else self.words
        return dict(reversed([(folded(word), value) for word, value in listed]))

    @property
    def all_negations(self) -> frozenset[str]:
        """The words that turn others round."""
        return frozenset(map(folded, _shipped_negations() if self.negations is None else self.negations))

    def fingerprint(self) -> str:
        """Tells lexicons apart."""
        if self == Lexicon():
            return "vader 3.3.2"
        return hashlib.blake2b(repr((self.words, self.negations)).encode(), digest_size=8).hexdigest()


class _Tables(NamedTuple):
    words: WordTable
    values: Array
    negates: Array


@lru_cache(maxsize=4)
def _tables(lexicon: Lexicon) -> _Tables:
    """What the kernels need, made once in every process."""
    values = lexicon.values
    negations = lexicon.all_negations
    listed = [*values, *sorted(negations - values.keys())]
    refuse_other_than_words(listed, "a lexicon")
    return _Tables(
        word_table(listed),
        np.array([values.get(word, 0.0) for word in listed]),
        np.array([word in negations for word in listed]),
    )


@lru_cache(maxsize=1)
def _shipped() -> Words:
    lines = VADER.read_text(encoding="utf-8").splitlines()
    return tuple(_entry(line, number, str(VADER)) for number, line in enumerate(lines, 1))


@lru_cache(maxsize=1)
def _shipped_negations() -> tuple[str, ...]:
    return tuple(NEGATIONS.read_text(encoding="utf-8").split())


def folded(word: str) -> str:
    """The word with small letters in place of ASCII capitals, as words of texts are compared."""
    return word.encode().lower().decode()


def refuse_other_than_words(texts: Iterable[str], what: str) -> None:
    """UsageError unless each of the texts is one word, with or without a # before it."""
    for text in texts:
        if word_hash(text) is None:
            raise UsageError(
                f"{text!r} is not one word, as {what} needs it.",
                remedy="Use letters, digits and apostrophes, without spaces.",
                word=text,
            )


def _entry(line: str, number: int, path: str) -> tuple[str, float]:
    word, _, rest = line.partition("\t")
    try:
        value = float(rest.partition("\t")[0])
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or word_hash(word) is None:
        raise UsageError(
            f"Line {number} of lexicon {path!r} is no word with a number: {line[:60]!r}.",
            remedy=_REMEDY,
            path=path,
            line=number,
        )
    return word, value
