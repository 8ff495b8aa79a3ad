"""Parts of an output over which scores are computed: the part that a fault affects, and local sections of the stream.

Section 5.1 of the paper: results from before a fault, or from long after it, hide what the fault did; and a score of
everything lets what is too much make up for what is too little.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy import stats

from afspark.errors import UsageError, first_line

#: The local section of each row, counted from 0.
Numbers = npt.NDArray[np.int64]

#: The least rank correlation between keys and places in the output.
_GROWING = 0.8


@dataclass(frozen=True)
class FaultSpan:
    """Where the longest outage at an offset lies: how many items it follows, how many it takes, and their keys."""

    target: str
    offset: int
    items: int
    #: keys of the first and of the last item that is taken
    first_key: float
    last_key: float


@dataclass(frozen=True)
class AffectedRange:
    """The affected section, estimated: all rows from the first key that the longest outage takes.

    It ends with the outage, or ``stretch`` times as far from its begin, for what the fault does to states downstream.
    """

    key: str
    stretch: float = 1.0

    def select(self, output: pa.Table, span: FaultSpan) -> pa.Table:
        """The rows of an output that belong to it."""
        keys = keys_of(output, self.key)
        last = span.first_key + self.stretch * (span.last_key - span.first_key)
        return output.filter(pa.array((keys >= span.first_key) & (keys <= last)))


@dataclass(frozen=True)
class AffectedRows:
    """The affected section, given by the user: a function of an output and the fault, which answers for each row."""

    predicate: Callable[[pa.Table, FaultSpan], Any]

    def select(self, output: pa.Table, span: FaultSpan) -> pa.Table:
        """The rows of an output that belong to it."""
        try:
            mask = np.asarray(self.predicate(output, span))
        except Exception as error:
            raise UsageError(
                f"The function of the affected section raised {type(error).__name__}: {first_line(error)}.",
                remedy="It is called with an Arrow table and the FaultSpan, and returns true or false for each row.",
            ) from error
        if mask.dtype != np.bool_ or mask.shape != (output.num_rows,):
            raise UsageError(
                f"The function of the affected section gave {mask.dtype} of shape {mask.shape}"
                f" for {output.num_rows} rows.",
                remedy="It returns true or false for each row of the table.",
            )
        return output.filter(pa.array(mask))


@dataclass(frozen=True)
class AffectedKeys:
    """The affected section, found out: the keys of all rows that the longest outage removes, changes or adds."""

    key: str
    keys: pa.Array

    def select(self, output: pa.Table, span: FaultSpan | None = None) -> pa.Table:
        """The rows of an output that belong to it."""
        refuse_without(output, (self.key,), "The affected section")
        return output.filter(pc.is_in(output[self.key], value_set=self.keys))

    @classmethod
    def between(
        cls, golden: pa.Table, faulty: pa.Table, key: str, columns: Sequence[str] | None = None
    ) -> AffectedKeys:
        """The keys whose rows differ between two outputs of the same interleaving; ``columns``: in these alone."""
        for output in (golden, faulty):
            refuse_without(output, (key, *(columns or ())), "The affected section")
        names = list(dict.fromkeys((key, *(columns or golden.column_names))))
        signed = [
            output.select(names).append_column("", pa.array(np.full(output.num_rows, sign)))
            for output, sign in ((golden, 1), (faulty, -1))
        ]
        # What both have as often adds up to 0; grouping takes nulls for equal, as a join would not.
        sums = pa.concat_tables(signed, promote_options="permissive").group_by(names).aggregate([("", "sum")])
        return cls(key, pc.unique(sums.filter(pc.not_equal(sums["_sum"], 0))[key]))


@dataclass(frozen=True)
class LocalSections(ABC):
    """Base of the ways to divide an output into local sections. ``kind`` is the word used on the command line."""

    kind: ClassVar[str] = ""

    @property
    @abstractmethod
    def name(self) -> str:
        """The text that :func:`parse_sections` makes these sections of again."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """What one section is, for a report."""

    def numbers(self, output: pa.Table, count: int | None = None) -> Numbers:
        """The section of each row, from 0.

        With ``count``, the number of sections of a golden run, rows of other runs that lie before or behind all of them
        belong to the first or to the last one.
        """
        numbers = self._numbers(output)
        if count is not None:
            return np.clip(numbers, 0, count - 1)
        if len(numbers) and numbers.min() < 0:
            raise UsageError(
                f"Sections {self.name!r} begin after the first row of the output.", remedy="Let them begin before it."
            )
        return numbers

    def count(self, golden: pa.Table) -> int:
        """How many sections a golden output has."""
        numbers = self.numbers(golden)
        return int(numbers.max()) + 1 if len(numbers) else 0

    def from_first_row(self, golden: pa.Table) -> LocalSections:
        """The same sections, of which the first is the one with the first row of a golden output.

        Times since 1970, and keys that are large from the beginning, would have millions of empty ones before it.
        """
        return self

    @abstractmethod
    def at(self, key: float) -> int:
        """The section in which a key (or row, or time) lies."""

    @abstractmethod
    def _numbers(self, output: pa.Table) -> Numbers:
        """The section of each row, wherever sections begin."""


@dataclass(frozen=True)
class SectionsByKey(LocalSections):
    """A section for every ``size`` keys: [begin, begin + size), and so on.

    >>> SectionsByKey("key", 5000).numbers(pa.table({"key": [1, 4999, 5000, 12_000]})).tolist()
    [0, 0, 1, 2]
    """

    key: str
    size: float
    begin: float = 0.0

    kind: ClassVar[str] = "keys"

    def __post_init__(self) -> None:
        _refuse_size(self.size)

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.key}:{self.size:g}"

    @property
    def unit(self) -> str:
        return f"{self.size:,g} keys"

    def from_first_row(self, golden: pa.Table) -> LocalSections:
        return replace(self, begin=_first_begin(keys_of(golden, self.key), self.begin, self.size))

    def at(self, key: float) -> int:
        return max(0, math.floor((key - self.begin) / self.size))

    def _numbers(self, output: pa.Table) -> Numbers:
        return np.floor_divide(keys_of(output, self.key) - self.begin, self.size).astype(np.int64)


@dataclass(frozen=True)
class SectionsByRows(LocalSections):
    """A section for every ``size`` rows in the order of the output.

    Rows that a fault took move all later ones forward; with keys that does not happen.
    """

    size: int

    kind: ClassVar[str] = "rows"

    def __post_init__(self) -> None:
        _refuse_size(self.size)

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.size}"

    @property
    def unit(self) -> str:
        return f"{self.size:,} rows"

    def at(self, key: float) -> int:
        return max(0, math.floor(key / self.size))

    def _numbers(self, output: pa.Table) -> Numbers:
        return np.arange(output.num_rows, dtype=np.int64) // self.size


@dataclass(frozen=True)
class SectionsByTime(LocalSections):
    """A section for every so many seconds of a column of timestamps, or of numbers of seconds; from ``begin`` on."""

    column: str
    seconds: float
    begin: float = 0.0

    kind: ClassVar[str] = "time"

    def __post_init__(self) -> None:
        _refuse_size(self.seconds)

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.column}:{self.seconds:g}"

    @property
    def unit(self) -> str:
        return f"{self.seconds:,g} s"

    def from_first_row(self, golden: pa.Table) -> LocalSections:
        return replace(self, begin=_first_begin(seconds_of(golden, self.column), self.begin, self.seconds))

    def at(self, key: float) -> int:
        return max(0, math.floor((key - self.begin) / self.seconds))

    def _numbers(self, output: pa.Table) -> Numbers:
        return np.floor((seconds_of(output, self.column) - self.begin) / self.seconds).astype(np.int64)


def first_after(numbers: Numbers, row: int, share: float) -> int:
    """S_begin: the first section of which at least this ``share`` of the golden rows come from ``row`` on.

    Items that have changed places carry a few rows of the section before over to the other side of a fault. A share of
    0 means any row at all; a fault after the last row has the last section.

    >>> numbers = np.array([0] * 99 + [1] + [0] + [1] * 99)
    >>> first_after(numbers, 100, 0.0), first_after(numbers, 100, 0.03), first_after(numbers, 200, 0.03)
    (0, 1, 1)
    """
    rows = np.bincount(numbers)
    after = np.bincount(numbers[row:], minlength=len(rows))
    found = np.flatnonzero((after > 0) & (after >= share * rows))
    return int(found[0]) if len(found) else len(rows) - 1


SECTION_FORMS = ("keys:COLUMN:SIZE", "rows:SIZE", "time:COLUMN:SECONDS")
"""What :func:`parse_sections` reads, for help texts."""


def parse_sections(text: str) -> LocalSections:
    """The sections that a text names, in one of `SECTION_FORMS`.

    >>> parse_sections("keys:key:5000"), parse_sections("rows:100").name
    (SectionsByKey(key='key', size=5000.0, begin=0.0), 'rows:100')
    """
    try:
        match text.split(":"):
            case ["keys", column, size] if column:
                return SectionsByKey(column, float(size))
            case ["rows", size]:
                return SectionsByRows(int(size))
            case ["time", column, seconds] if column:
                return SectionsByTime(column, float(seconds))
    except ValueError:
        pass
    raise UsageError(f"{text!r} names no sections.", remedy=f"Use {', '.join(SECTION_FORMS)}.", sections=text)


def refuse_without(output: pa.Table, columns: Sequence[str], who: str) -> None:
    """UsageError if the output lacks one of these columns."""
    missing = [name for name in columns if name not in output.column_names]
    if missing:
        raise UsageError(
            f"{who} needs column {missing[0]!r}, and the output has {', '.join(output.column_names) or 'none'}.",
            remedy="Let the pipeline carry it to its output, or name another one.",
            column=missing[0],
        )


def keys_of(output: pa.Table, key: str) -> npt.NDArray[Any]:
    """The primary keys of the rows, which are numbers."""
    refuse_without(output, (key,), "The section")
    column = output[key]
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)) or column.null_count:
        what = "nulls" if column.null_count else str(column.type)
        raise UsageError(
            f"Column {key!r} cannot be the primary key of the output: it has {what}.",
            remedy="A primary key is a number that grows along the input, in every row.",
            column=key,
        )
    keys: npt.NDArray[Any] = column.to_numpy()
    if not np.isfinite(keys).all():
        raise UsageError(
            f"Column {key!r} cannot be the primary key of the output: it has values that are not finite.",
            remedy="A primary key is a number that grows along the input, in every row.",
            column=key,
        )
    return keys


def grows(keys: npt.NDArray[Any]) -> bool:
    """Whether keys grow along the output, apart from neighbours that have changed places.

    >>> grows(np.array([1, 3, 2, 4, 6, 5])), grows(np.array([3, 2, 1])), grows(np.array([5, 5, 5]))
    (True, False, False)
    """
    if len(keys) < 2 or keys.min() == keys.max():
        return len(keys) < 2
    return float(stats.spearmanr(np.arange(len(keys)), keys).statistic) >= _GROWING


def seconds_of(output: pa.Table, column: str) -> npt.NDArray[np.float64]:
    """The time of each row in seconds, from a column of timestamps or of numbers."""
    refuse_without(output, (column,), "The section")
    found = output[column]
    if pa.types.is_timestamp(found.type) and not found.null_count:
        return found.cast(pa.timestamp("us", found.type.tz), safe=False).cast(pa.int64()).to_numpy() / 1e6
    return keys_of(output, column).astype(np.float64)


def _first_begin(places: npt.NDArray[Any], begin: float, size: float) -> float:
    """Where the section of the first place begins; ``begin`` if there is no place."""
    if not len(places):
        return begin
    return begin + math.floor((float(places.min()) - begin) / size) * size


def _refuse_size(size: float) -> None:
    if not 0 < size < math.inf:
        raise UsageError(f"A section of {size} is none.", remedy="Give a size above 0.", size=size)
