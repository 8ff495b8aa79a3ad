"""Output score functions: a number for a part of a pipeline's output, to be compared with that of a golden run.

Section 3 of the paper calls them OSF. A quality score is a ratio of two of them, so whatever measures an error is given
here as its complement: an output without any error scores 1, not 0. A part of the output without rows scores 0.

>>> import pyarrow as pa
>>> parse_score("sum:gain").of(pa.table({"ticker": ["IBM", "BAC", "TWX"], "gain": [41.66, 30.56, 28.88]}))
101.1
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from afspark.errors import UsageError, first_line
from afspark.lab.observations import Scores
from afspark.lab.sections import Numbers, refuse_without

#: A user's own score of a table.
ScoreFunction = Callable[[pa.Table], Any]


@dataclass(frozen=True)
class OutputScore(ABC):
    """Base of the scores. ``kind`` is the word used on the command line."""

    kind: ClassVar[str] = ""
    #: whether an output is compared with the same part of a golden one, row by row
    compares: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """The text that :func:`parse_score` makes this score of again."""
        return ":".join((self.kind, *self.columns))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the output has to have."""
        return ()

    def of(self, output: pa.Table, golden: pa.Table | None = None) -> float:
        """The score of an output; ``golden``: the same part of a golden one, if the score compares."""
        refuse_without(output, self.columns, f"The score {self.name!r}")
        return self._checked(output, self._golden(golden))

    def by_section(
        self,
        output: pa.Table,
        numbers: Numbers,
        count: int,
        golden: pa.Table | None = None,
        golden_numbers: Numbers | None = None,
    ) -> Scores:
        """The score of each of ``count`` sections; ``numbers`` has the section of each row."""
        refuse_without(output, self.columns, f"The score {self.name!r}")
        golden = self._golden(golden)
        if golden is not None and golden_numbers is None:
            raise ValueError("the sections of the golden output are missing")
        scores = self._sections(output, numbers, count, golden, golden_numbers)
        wrong = np.flatnonzero(~np.isfinite(scores))
        if len(wrong):
            raise self._no_number(float(scores[wrong[0]]), f"section {wrong[0]}")
        return scores

    def _golden(self, golden: pa.Table | None) -> pa.Table | None:
        if not self.compares:
            return None
        if golden is None:
            raise ValueError(f"{self.name} compares with a golden output")
        return golden

    def _sections(
        self,
        output: pa.Table,
        numbers: Numbers,
        count: int,
        golden: pa.Table | None,
        golden_numbers: Numbers | None,
    ) -> Scores:
        parts = dict(_parts(output, numbers))
        goldens = {} if golden is None or golden_numbers is None else dict(_parts(golden, golden_numbers))
        scores = np.zeros(count)
        for section in parts.keys() | goldens.keys():
            part = parts.get(section, output.slice(0, 0))
            other = None if golden is None else goldens.get(section, golden.slice(0, 0))
            scores[section] = self._checked(part, other)
        return scores

    def _checked(self, output: pa.Table, golden: pa.Table | None) -> float:
        if not output.num_rows:
            return self._of_nothing(golden)
        value = self._value(output, golden)
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise UsageError(
                f"The score {self.name!r} gave {type(value).__name__} instead of a number.",
                remedy="A score takes a table and returns one finite number.",
                score=self.name,
            ) from None
        if not math.isfinite(number):
            raise self._no_number(number, f"{output.num_rows} rows")
        return number

    def _of_nothing(self, golden: pa.Table | None) -> float:
        return 0.0

    @abstractmethod
    def _value(self, output: pa.Table, golden: pa.Table | None) -> Any:
        """The score of an output that has rows."""

    def _no_number(self, number: float, where: str) -> UsageError:
        return UsageError(
            f"The score {self.name!r} of {where} is {number}.",
            remedy="A score takes a table and returns one finite number; look for NaN or a division by zero.",
            score=self.name,
        )


@dataclass(frozen=True)
class CountScore(OutputScore):
    """How many rows there are."""

    kind: ClassVar[str] = "count"

    def _value(self, output: pa.Table, golden: pa.Table | None) -> float:
        return float(output.num_rows)

    def _sections(
        self,
        output: pa.Table,
        numbers: Numbers,
        count: int,
        golden: pa.Table | None,
        golden_numbers: Numbers | None,
    ) -> Scores:
        return np.bincount(numbers, minlength=count).astype(np.float64)


@dataclass(frozen=True)
class SumScore(OutputScore):
    """The sum of a column; rows where it is null count for nothing."""

    column: str

    kind: ClassVar[str] = "sum"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def _value(self, output: pa.Table, golden: pa.Table | None) -> float:
        return float(_floats(output, self).sum())

    def _sections(
        self,
        output: pa.Table,
        numbers: Numbers,
        count: int,
        golden: pa.Table | None,
        golden_numbers: Numbers | None,
    ) -> Scores:
        return _sums(numbers, _floats(output, self), count)


@dataclass(frozen=True)
class MeanScore(SumScore):
    """The mean of a column over the rows where it is not null; 0 if there are none."""

    kind: ClassVar[str] = "mean"

    def _value(self, output: pa.Table, golden: pa.Table | None) -> float:
        rows = output.num_rows - output[self.column].null_count
        return float(_floats(output, self).sum()) / rows if rows else 0.0

    def _sections(
        self,
        output: pa.Table,
        numbers: Numbers,
        count: int,
        golden: pa.Table | None,
        golden_numbers: Numbers | None,
    ) -> Scores:
        there = pc.is_valid(output[self.column]).to_numpy().astype(np.float64)
        rows = _sums(numbers, there, count)
        return _sums(numbers, _floats(output, self), count) / np.maximum(rows, 1.0)


@dataclass(frozen=True)
class RelativeErrorScore(OutputScore):
    """One minus the mean relative error by key: what the rows of a key add up to, against the golden output.

    A key that one of the two outputs lacks has an error of 1, and so has one whose golden value is 0 and whose own is
    not.

    >>> golden = pa.table({"word": ["a", "b", "c"], "n": [10, 20, 30]})
    >>> parse_score("relative-error:word:n").of(pa.table({"word": ["a", "b"], "n": [10, 15]}), golden)
    0.5833333333333333
    """

    key: str
    column: str

    kind: ClassVar[str] = "relative-error"
    compares: ClassVar[bool] = True

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.key, self.column)

    def _value(self, output: pa.Table, golden: pa.Table | None) -> float:
        assert golden is not None
        refuse_without(golden, self.columns, f"The score {self.name!r}")
        both = self._by_key(golden, "right").join(self._by_key(output, "found"), "key", join_type="full outer")
        lacking = pc.or_(pc.is_null(both["right"]), pc.is_null(both["found"])).to_numpy()
        right, found = (both[name].fill_null(0.0).to_numpy() for name in ("right", "found"))
        error, scale = np.abs(found - right), np.abs(right)
        relative = np.divide(error, scale, out=np.where(error > 0, 1.0, 0.0), where=scale > 0)
        return 1.0 - float(np.where(lacking, 1.0, relative).mean())

    def _by_key(self, table: pa.Table, name: str) -> pa.Table:
        plain = pa.table({"key": table[self.key], "value": _column(table, self.column, self.name)})
        return plain.group_by("key").aggregate([("value", "sum")]).rename_columns(["key", name])


@dataclass(frozen=True)
class PrecisionScore(OutputScore):
    """Which part of the keys in the output is in the golden output as well."""

    key: str

    kind: ClassVar[str] = "precision"
    compares: ClassVar[bool] = True

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.key,)

    def _value(self, output: pa.Table, golden: pa.Table | None) -> float:
        found, right = self._keys(output, golden)
        return _common(found, right) / len(found)

    def _of_nothing(self, golden: pa.Table | None) -> float:
        # Nothing was found where nothing was to be found.
        return 1.0 if golden is not None and not golden.num_rows else 0.0

    def _keys(self, output: pa.Table, golden: pa.Table | None) -> tuple[pa.Array, pa.Array]:
        assert golden is not None
        refuse_without(golden, self.columns, f"The score {self.name!r}")
        return pc.unique(output[self.key]), pc.unique(golden[self.key])


@dataclass(frozen=True)
class RecallScore(PrecisionScore):
    """Which part of the keys in the golden output is in the output as well."""

    kind: ClassVar[str] = "recall"

    def _value(self, output: pa.Table, golden: pa.Table | None) -> float:
        found, right = self._keys(output, golden)
        return _common(found, right) / len(right) if len(right) else 0.0


@dataclass(frozen=True)
class OwnScore(OutputScore):
    """A user's own function of a table. It is not called for a part of the output without rows, which scores 0."""

    function: ScoreFunction
    label: str = ""

    kind: ClassVar[str] = "own"

    @property
    def name(self) -> str:
        return self.label or getattr(self.function, "__name__", type(self.function).__name__)

    def _value(self, output: pa.Table, golden: pa.Table | None) -> Any:
        try:
            return self.function(output)
        except Exception as error:
            raise UsageError(
                f"The score {self.name!r} raised {type(error).__name__}: {first_line(error)}.",
                remedy="It is called with an Arrow table of output rows, and returns one finite number.",
                score=self.name,
            ) from error


_KINDS: dict[str, tuple[type[OutputScore], tuple[str, ...]]] = {
    "count": (CountScore, ()),
    "sum": (SumScore, ("COLUMN",)),
    "mean": (MeanScore, ("COLUMN",)),
    "relative-error": (RelativeErrorScore, ("KEY", "COLUMN")),
    "precision": (PrecisionScore, ("KEY",)),
    "recall": (RecallScore, ("KEY",)),
}

SCORE_FORMS = tuple(":".join((kind, *wanted)) for kind, (_, wanted) in _KINDS.items())
"""What :func:`parse_score` reads, for help texts."""


def parse_score(text: str, functions: Mapping[str, ScoreFunction] | None = None) -> OutputScore:
    """The score that a text names: one of `SCORE_FORMS`, or a function of the user's.

    >>> parse_score("mean:gain"), parse_score("count").name
    (MeanScore(column='gain'), 'count')
    """
    kind, *columns = text.split(":")
    if functions and text in functions:
        return OwnScore(functions[text], text)
    if kind in _KINDS:
        made, wanted = _KINDS[kind]
        if len(columns) == len(wanted) and all(columns):
            return made(*columns)
    own = f" or one of your functions {', '.join(sorted(functions))}" if functions else ""
    raise UsageError(f"{text!r} is no score.", remedy=f"Use {', '.join(SCORE_FORMS)}{own}.", score=text)


def as_score(score: OutputScore | ScoreFunction | str) -> OutputScore:
    """A score, from what a user may give for one."""
    if isinstance(score, OutputScore):
        return score
    if isinstance(score, str):
        return parse_score(score)
    if callable(score):
        return OwnScore(score)
    raise UsageError(
        f"{score!r} is no score.", remedy=f"Give a function of a table, or one of {', '.join(SCORE_FORMS)}."
    )


def different_scores(scores: Iterable[OutputScore | ScoreFunction | str]) -> tuple[OutputScore, ...]:
    """All scores of a study; UsageError if two have the same name, by which results are kept."""
    found: dict[str, OutputScore] = {}
    for score in map(as_score, scores):
        if score.name in found:
            raise UsageError(
                f"Two scores have the name {score.name!r}.",
                remedy="Leave one out, or give functions other names.",
                score=score.name,
            )
        found[score.name] = score
    return tuple(found.values())


def _floats(table: pa.Table, score: SumScore) -> Scores:
    """The column as numbers, 0 where it is null."""
    return _column(table, score.column, score.name).fill_null(0.0).to_numpy()


def _sums(numbers: Numbers, weights: Scores, count: int) -> Scores:
    return np.bincount(numbers, weights=weights, minlength=count).astype(np.float64, copy=False)


def _column(table: pa.Table, column: str, score: str) -> pa.ChunkedArray:
    found = table[column]
    if not (pa.types.is_integer(found.type) or pa.types.is_floating(found.type) or pa.types.is_decimal(found.type)):
        raise UsageError(
            f"The score {score!r} needs numbers, and column {column!r} has {found.type}.",
            remedy="Name a column of numbers, or give a function of your own.",
            score=score,
        )
    return found.cast(pa.float64(), safe=False)


def _common(some: pa.Array, others: pa.Array) -> int:
    return int(pc.sum(pc.is_in(some, value_set=others)).as_py() or 0)


def _parts(table: pa.Table, numbers: Numbers) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each section that has any, in their order."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    bounds = np.flatnonzero(np.diff(ordered)) + 1
    edges = [0, *bounds.tolist(), len(ordered)] if len(ordered) else []
    rows = table.take(pa.array(order))
    for first, last in itertools.pairwise(edges):
        yield int(ordered[first]), rows.slice(first, last - first)
