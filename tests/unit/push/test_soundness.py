"""A batch whose buffers contradict each other is refused, a sound one is not."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from afspark.push.receiver.soundness import check_batch
from afspark.push.wire.push_errors import UnsoundBatch


def text(offsets: list[int], data: bytes, kind: pa.DataType | None = None) -> pa.RecordBatch:
    memory = bytearray(4 * len(offsets))
    buffers = [None, pa.py_buffer(memory), pa.py_buffer(data)]
    batch = pa.record_batch({"t": pa.Array.from_buffers(kind or pa.string(), len(offsets) - 1, buffers)})
    # Only now, as making an array looks at the first and last offset.
    memory[:] = struct.pack(f"<{len(offsets)}i", *offsets)
    return batch


@pytest.mark.parametrize(
    "batch",
    [
        text([0, 5, 2, 8], b"abcdefgh"),
        text([0, 100, 100], b"abcdefgh"),
        text([-4, 2, 8], b"abcdefgh"),
        text([0, 1 << 30, 3], b"abcdefgh", pa.binary()),
        text([0, 4, 8], b"abc\xffefgh"),
        text([0, 4, 9], b"abcdefgh\xff"),
        pa.record_batch(
            {
                "d": pa.DictionaryArray.from_buffers(
                    pa.dictionary(pa.int32(), pa.string()),
                    2,
                    [None, pa.py_buffer(struct.pack("<2i", 0, 7))],
                    pa.array(["x"]),
                )
            }
        ),
        pa.record_batch(
            {
                "l": pa.Array.from_buffers(
                    pa.list_(pa.int64()),
                    2,
                    [None, pa.py_buffer(struct.pack("<3i", 0, 9, 2))],
                    children=[pa.array([1, 2, 3])],
                )
            }
        ),
    ],
    ids=["descending", "beyond", "negative", "binary", "utf-8", "utf-8 tail", "dictionary", "list"],
)
def test_an_unsound_batch_is_refused(batch: pa.RecordBatch) -> None:
    with pytest.raises(UnsoundBatch) as caught:
        check_batch(batch, "a/1")
    assert caught.value.producer == "a/1"


NO_NULLS = pa.field("x", pa.int64(), nullable=False)
FOUR_NULLS = [pa.py_buffer(bytes(8)), pa.py_buffer(bytes(40)), pa.py_buffer(b"abcdefgh")]


@pytest.mark.parametrize(
    ("field", "column"),
    [
        (pa.field("v", pa.int64()), pa.Array.from_buffers(pa.int64(), 4, FOUR_NULLS[:2], null_count=1)),
        (pa.field("v", pa.string()), pa.Array.from_buffers(pa.string(), 4, FOUR_NULLS, null_count=1)),
        (NO_NULLS, pa.array([1, None])),
        (pa.field("s", pa.struct([NO_NULLS])), pa.StructArray.from_arrays([pa.array([1, None])], fields=[NO_NULLS])),
        (
            pa.field("l", pa.list_(NO_NULLS)),
            pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), pa.array([1, None]), type=pa.list_(NO_NULLS)),
        ),
    ],
    ids=["count", "count of text", "forbidden", "forbidden inside", "forbidden in a list"],
)
def test_nulls_are_where_and_as_many_as_they_may_be(field: pa.Field, column: pa.Array) -> None:
    with pytest.raises(UnsoundBatch):
        check_batch(pa.RecordBatch.from_arrays([column], schema=pa.schema([field])), "a/1")


def test_the_offset_of_an_empty_list_is_not_followed() -> None:
    items = pa.list_(NO_NULLS)
    memory = bytearray(4)
    empty = pa.Array.from_buffers(items, 0, [None, pa.py_buffer(memory)], children=[pa.array([], pa.int64())])
    memory[:] = struct.pack("<i", 1 << 28)
    outer = pa.ListArray.from_arrays(pa.array([0, 0], pa.int32()), empty, type=pa.list_(items))
    for column in (empty, outer):
        check_batch(pa.record_batch({"l": column}), "a/1")


def test_what_lies_under_a_null_does_not_count() -> None:
    pair, items = pa.struct([NO_NULLS]), pa.list_(NO_NULLS)
    columns = [pa.array([None, {"x": 1}], pair), pa.array([None, [1, 2]], items), pa.array(["a", None])]
    check_batch(pa.RecordBatch.from_arrays(columns, ["p", "i", "t"]), "a/1")
    check_batch(pa.RecordBatch.from_arrays(columns, ["p", "i", "t"]).slice(1), "a/1")


@pytest.mark.parametrize(
    "values",
    [
        [],
        ["a", None, "longer than a word", ""],
        ["é", "Ω", "🙂"],
        [None, None],
        [b"\xff\x00", b""],
        [[1, 2], None, []],
        [{"x": "y"}],
        [1.5, None],
    ],
    ids=str,
)
def test_a_sound_batch_passes(values: list[object]) -> None:
    array = pa.array(values, pa.string() if not values else None)
    check_batch(pa.record_batch({"v": array}), "a/1")
    check_batch(pa.record_batch({"v": array}).slice(1), "a/1")


@pytest.mark.parametrize("kind", [pa.large_string(), pa.large_binary(), pa.string_view()], ids=str)
def test_other_kinds_of_text_pass(kind: pa.DataType) -> None:
    check_batch(pa.record_batch({"v": pa.array(["a", None, "ccc"], pa.string()).cast(kind)}), "a/1")
