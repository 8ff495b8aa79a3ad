"""A batch counts with all it keeps in memory."""

from __future__ import annotations

import pyarrow as pa

from afspark.push.receiver.footprint import footprint


def test_a_batch_counts_as_what_it_shows() -> None:
    batch = pa.record_batch({"n": pa.array([1, 2, 3], pa.int64()), "t": ["a", None, "ccc"]})
    assert batch.nbytes <= footprint(batch) <= batch.nbytes + 256


def test_a_view_of_a_large_message_counts_as_the_message() -> None:
    message = pa.py_buffer(bytes(100_000))
    column = pa.Array.from_buffers(pa.int64(), 2, [None, message.slice(64, 1000).slice(0, 16)])
    assert footprint(pa.record_batch({"n": column})) == 100_000


def test_bytes_that_are_shown_twice_count_twice() -> None:
    message = pa.py_buffer(bytes(8000))
    column = pa.Array.from_buffers(pa.int64(), 1000, [None, message])
    assert footprint(pa.record_batch({"a": column, "b": column})) == 16_000


def test_nested_columns_count() -> None:
    column = pa.array([["a" * 1000], ["b" * 1000]])
    assert footprint(pa.record_batch({"l": column})) >= 2000
