"""What user code may give back: a record batch, or None."""

from __future__ import annotations

import pyarrow as pa

from afspark.errors import OperatorMisuse
from afspark.model.user_trace import place_of_code


def no_batch(who: str, given: object, how: str = "returned") -> OperatorMisuse:
    """The error for user code that gives something else than a batch; no item is to blame for that."""
    found = type(given)
    remedy = "Return a pyarrow.RecordBatch, or None if nothing is left."
    if isinstance(given, pa.Table):
        remedy = "Make one of the table: table.combine_chunks().to_batches()[0]."
    elif isinstance(given, list | tuple) and given and all(isinstance(one, pa.RecordBatch) for one in given):
        remedy = "Make one of them: pyarrow.concat_batches(batches)."
    elif isinstance(given, dict):
        remedy = "Make one of the columns: pyarrow.record_batch(columns)."
    elif found.__name__ == "DataFrame":
        remedy = "Make one of it: pyarrow.RecordBatch.from_pandas(frame)."
    return OperatorMisuse(
        f"{who} {how} {_article(found.__name__)}, not a record batch.", remedy=remedy, returned=found.__qualname__
    )


def named(code: object) -> str:
    """A function of a user's, with where it is written."""
    return f"{getattr(code, '__name__', type(code).__name__)!r}{place_of_code(code)}"


def _article(word: str) -> str:
    return f"an {word}" if word[:1].lower() in "aeiou" else f"a {word}"
