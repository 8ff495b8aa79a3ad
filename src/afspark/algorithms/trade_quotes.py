"""The stateless beginning of Bargain Discovery: events of a market become small, and trades and quotes part.

Each event is a trade (somebody bought ``volume`` shares at a ``price``) or a quote (somebody would sell ``ask_size``
shares at ``ask_price``). Its ``key`` is its position in the stream; all operators pass it on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from afspark.algorithms.bad_rows import SKIPPED, refuse_bad, skipped_rows, skipped_state
from afspark.algorithms.event_times import check_time, seconds_of, whole_numbers
from afspark.algorithms.stream_columns import column_type
from afspark.algorithms.texts import is_text, text_column
from afspark.errors import UsageError
from afspark.model.kernels.plain_arrays import as_array
from afspark.model.onbad import check_on_bad
from afspark.model.operator import Operator, Share
from afspark.model.states import StateSpec

EVENT_COLUMNS = ("key", "time", "ticker", "type", "price", "volume", "ask_price", "ask_size")
TRADE, QUOTE = "trade", "quote"

_NUMBERS = ("key", "price", "volume", "ask_price", "ask_size")
_REMEDY = f"Events have the columns {', '.join(EVENT_COLUMNS)}."


class TradeQuote(Operator):
    """Makes events smaller: sends ``key``, ``time`` in seconds, ``ticker``, whether it is a ``trade``, and of either
    kind a ``price`` and a ``size``.

    Unusable are events without key, time or ticker, of another type than "trade" and "quote", or whose price is not
    above 0 or whose number of shares is no whole number above 0. They are skipped and counted, or stop the query
    (``on_bad``); their number is all that ``query.results()`` can tell.
    """

    sends_by_state = False
    rescalable = True
    alpha = 1.0

    def __init__(self, *, on_bad: str = "skip") -> None:
        self.on_bad = check_on_bad(on_bad)

    def states(self) -> Mapping[str, StateSpec]:
        return {SKIPPED: skipped_state()}

    def check(self, schema: pa.Schema | None) -> None:
        if schema is None:
            return
        for name in EVENT_COLUMNS:
            column_type(schema, name, _REMEDY)
        check_time(schema, "time")
        for name in ("ticker", "type"):
            if not is_text(text_column(schema, name)):
                raise UsageError(f"Column {name!r} has blocks, not one text in each row.", column=name)
        for name in _NUMBERS:
            kind = schema.field(name).type
            if not (pat.is_integer(kind) or pat.is_floating(kind)):
                raise UsageError(f"Column {name!r} is {kind}, not a number.", remedy="Convert it first.", column=name)

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        kinds = as_array(items.column("type"))
        trade = pc.equal(kinds, TRADE)
        columns = {
            "key": whole_numbers(items.column("key")),
            "time": seconds_of(items.column("time")),
            "ticker": as_array(items.column("ticker")).cast(pa.string()),
            "trade": trade,
            "price": _either(trade, items, "price", "ask_price").cast(pa.float64(), safe=False),
            "size": whole_numbers(_either(trade, items, "volume", "ask_size")),
        }
        price, size = columns["price"], columns["size"]
        usable = [
            pc.or_(trade, pc.equal(kinds, QUOTE)),
            pc.and_(pc.greater(price, 0.0), pc.less(price, np.inf)),
            pc.greater(size, 0),
        ]
        sound = np.ones(items.num_rows, bool)
        for one in usable:
            if one.null_count or one.false_count:
                sound &= one.fill_null(False).to_numpy(zero_copy_only=False)
        for name in ("key", "time", "ticker"):
            if columns[name].null_count:
                sound &= columns[name].is_valid().to_numpy(zero_copy_only=False)
        made = pa.record_batch(columns)
        bad = int(len(sound) - np.count_nonzero(sound))
        if bad:
            refuse_bad(bad, "are neither a trade nor a quote", self.on_bad)
            states[SKIPPED].add(bad)
            made = made.filter(pa.array(sound))
        return made

    def results(self, shares: Sequence[Share]) -> pa.Table:
        return pa.table({SKIPPED: pa.array([skipped_rows(shares)], pa.int64())})


class _Kind(Operator):
    """Sends on the events of one kind."""

    sends_by_state = False
    _sent: ClassVar[bool]

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        trade = items.column("trade")
        return items.filter(trade if self._sent else pc.invert(trade)).drop_columns(["trade"])

    def results(self, shares: Sequence[Share]) -> pa.Table:
        raise UsageError(f"{type(self).__name__} sends events and keeps nothing.", remedy="Use outputMode('append').")


class TradeFilter(_Kind):
    """Sends on the trades: ``key``, ``time``, ``ticker``, ``price``, ``size``."""

    _sent = True


class QuoteFilter(_Kind):
    """Sends on the quotes: ``key``, ``time``, ``ticker``, ``price`` (asked), ``size``."""

    _sent = False


def _either(trade: pa.Array, items: pa.RecordBatch, of_trades: str, of_quotes: str) -> pa.Array:
    return pc.if_else(trade, as_array(items.column(of_trades)), as_array(items.column(of_quotes)))
