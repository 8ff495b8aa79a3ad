"""Grep: the lines that hold a text, or that a regular expression matches somewhere. Keeps no state.

Blocks of lines are never split where nothing can match: a literal is searched in the raw bytes, and a regular
expression sees pieces of many lines first, of which only those with a match are taken apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from afspark.algorithms.bad_rows import SKIPPED, refuse_bad, skipped_state
from afspark.algorithms.texts import is_block, is_text, text_column
from afspark.errors import UsageError, first_line
from afspark.model.kernels.lines import all_lines, count_lines, lines_with, pieces_of, rows_with
from afspark.model.onbad import check_on_bad
from afspark.model.operator import Operator, Share
from afspark.model.states import Numeric, StateSpec

# What a piece of many lines would read in another way than each of its lines does.
_NOT_BY_PIECES = re.compile(r"\\[AzQ]|\(\?(?!:)")


class Grep(Operator):
    """Sends the lines of ``column`` in which ``pattern`` occurs.

    A column of text has one line in each row, and rows are sent on whole. A binary column has blocks of lines, as
    ``text(path, blocks=True)`` gives them, and lines are sent on as text. With ``regex`` the pattern is a
    regular expression (RE2's syntax); ``invert`` sends the lines without a match.

    Rows without a value are left out, or stop the query (``on_bad``). With ``count`` the operator also keeps how
    many lines it has ``seen`` and ``matched`` and how many rows it has ``skipped``: the only state it can have,
    in numbers of lines, and all that ``query.results()`` can tell.
    """

    sends_by_state = False
    rescalable = True

    def __init__(
        self,
        pattern: str,
        *,
        column: str = "value",
        regex: bool = False,
        ignore_case: bool = False,
        invert: bool = False,
        count: bool = False,
        on_bad: str = "skip",
    ) -> None:
        self.pattern, self.column = pattern, column
        self.regex, self.ignore_case, self.invert, self.count = regex, ignore_case, invert, count
        self.on_bad = check_on_bad(on_bad)
        if "\n" in pattern:
            raise UsageError("A pattern with a newline matches no line.", remedy="Leave it out.", pattern=pattern)
        self._match(pa.array([""]))

    def states(self) -> Mapping[str, StateSpec]:
        if not self.count:
            return {}
        return {"seen": Numeric(), "matched": Numeric(), SKIPPED: skipped_state()}

    def check(self, schema: pa.Schema | None) -> None:
        if schema is None:
            return
        # A row of text is one line, sent or not; a block may have any number of them.
        self.alpha = 1.0 if is_text(text_column(schema, self.column)) else None

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        bad = items.column(self.column).null_count
        refuse_bad(bad, f"have no {self.column!r}", self.on_bad)
        if bad:
            items = items.filter(items.column(self.column).is_valid())
        found = self._lines(items) if is_block(items.schema.field(self.column).type) else self._rows(items)
        if self.count:
            states["seen"].add(self._seen(items))
            states["matched"].add(found.num_rows)
            if bad:
                states[SKIPPED].add(bad)
        return found

    def results(self, shares: Sequence[Share]) -> pa.Table:
        if not self.count:
            raise UsageError(
                "Grep sends lines and keeps nothing.", remedy="Use outputMode('append'), or count=True for numbers."
            )
        sums = {name: sum(pc.sum(share.cells[name].column("value")).as_py() or 0 for share in shares) for name in _SUMS}
        return pa.table({name: pa.array([value], pa.int64()) for name, value in sums.items()})

    def fingerprint(self) -> dict[str, Any]:
        names = ("pattern", "column", "regex", "ignore_case", "invert", "count")
        return super().fingerprint() | {name: getattr(self, name) for name in names}

    def _rows(self, items: pa.RecordBatch) -> pa.RecordBatch:
        column = items.column(self.column)
        if self._is_plain:
            return items.filter(pa.array(rows_with(column, self.pattern.encode())))
        matches = self._match(column)
        return items.filter(pc.invert(matches) if self.invert else matches)

    def _lines(self, items: pa.RecordBatch) -> pa.RecordBatch:
        blocks = items.column(self.column)
        if self._is_plain:
            lines = lines_with(blocks, self.pattern.encode())
        else:
            lines = all_lines(self._promising(blocks))
            matches = self._match(_as_text(lines))
            lines = lines.filter(pc.invert(matches) if self.invert else matches)
        return pa.record_batch({self.column: _as_text(lines).cast(pa.string())})

    def _seen(self, items: pa.RecordBatch) -> int:
        blocks = is_block(items.schema.field(self.column).type)
        return count_lines(items.column(self.column)) if blocks else items.num_rows

    @property
    def _is_plain(self) -> bool:
        """Whether a search for bytes will do."""
        return bool(self.pattern) and not (self.regex or self.ignore_case or self.invert)

    def _promising(self, blocks: pa.Array) -> pa.Array:
        """Blocks with all lines that match, and as few others as is easy to tell."""
        if self.invert or (self.regex and _NOT_BY_PIECES.search(self.pattern)):
            return blocks
        pieces = pieces_of(blocks)
        # "$" stands before a newline here, so where lines end otherwise nothing can be told.
        others = rows_with(pieces, b"\r")
        matches = self._match(_as_text(pieces), "(?m)").to_numpy(zero_copy_only=False)
        return pieces.filter(pa.array(matches | others))

    def _match(self, texts: pa.Array, flags: str = "") -> pa.Array:
        try:
            if self.regex:
                return pc.match_substring_regex(texts, flags + self.pattern, ignore_case=self.ignore_case)
            return pc.match_substring(texts, self.pattern, ignore_case=self.ignore_case)
        except pa.ArrowInvalid as error:
            raise UsageError(
                f"{self.pattern!r} is no regular expression: {_reason(error)}.",
                remedy="RE2's syntax is meant, which has no look-around and no back-references.",
                pattern=self.pattern,
            ) from error


_SUMS = ("seen", "matched", SKIPPED)


def _as_text(lines: pa.Array) -> pa.Array:
    # A view, so that lines that are no UTF-8 stay as they are.
    return lines.view(pa.large_string())


def _reason(error: Exception) -> str:
    return first_line(error).removeprefix("Invalid regular expression: ")
