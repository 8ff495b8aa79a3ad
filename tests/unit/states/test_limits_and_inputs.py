"""What states refuse, what they accept, and how much memory they take."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from afspark.errors import CheckpointError, UsageError
from afspark.model.divergence import Divergence
from afspark.model.kernels import cell_kernels as cell_kernel
from afspark.model.states import (
    HashTable,
    HeapColumns,
    Matrix,
    Numeric,
    Own,
    OwnState,
    Set,
    StateLimit,
    StateSpec,
    Vector,
    cells,
    keys,
    register_state,
    spec_class,
)
from afspark.model.states.scalars import Slot


def opened(spec: Any) -> Any:
    state = spec.open(HeapColumns(), "s")
    state.begin()
    return state


@pytest.mark.parametrize(
    ("make", "allowed"),
    [
        (lambda: HashTable(key="text"), ["string", "int64"]),
        (lambda: HashTable(value="int32"), ["int64", "float64"]),
        (lambda: Matrix(rows=1, cols=1, value="str"), ["int64", "float64"]),
        (lambda: Set(key="text"), ["string", "int64"]),
        (lambda: Numeric(value="int32"), ["int64", "float64"]),
        (lambda: Vector(value="int32"), ["int64", "float64"]),
        (lambda: HashTable(divergence="cosine"), ["max", "manhattan", "euclidean", "keys"]),
        (lambda: HashTable(divergence="difference"), ["max", "manhattan", "euclidean", "keys"]),
        (lambda: Matrix(rows=1, cols=1, divergence="keys"), ["max", "manhattan", "euclidean"]),
        (lambda: Vector(divergence="keys"), ["max", "manhattan", "euclidean"]),
        (lambda: Numeric(divergence="manhattan"), ["max"]),
        (lambda: Set(divergence="max"), ["keys"]),
        (lambda: Own(OwnState, divergence="keys"), ["manhattan", "max"]),
        (lambda: spec_class("tree"), ["hashtable", "matrix", "numeric", "own", "set", "vector"]),
    ],
)
def test_unknown_names_are_refused(make: Any, allowed: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        make()
    assert set(allowed) == set(refused.value.allowed)


def test_other_bad_specifications() -> None:
    wrong: Any
    for wrong in ((0, 1), (1, -1), (1.5, 1), (2**16, 2**16)):
        with pytest.raises(UsageError):
            Matrix(rows=wrong[0], cols=wrong[1])
    for wrong in (-1, 1.5, True, 2**32):
        with pytest.raises(UsageError):
            Vector(size=wrong)
    wrong = "yes"
    with pytest.raises(UsageError):
        HashTable(exact=wrong)
    with pytest.raises(UsageError) as refused:
        StateSpec.from_json({"kind": "hashtable", "colour": "red"})
    assert refused.value.got == ["colour"]
    with pytest.raises(UsageError) as refused:

        @register_state
        class Impostor(HashTable):
            pass

    assert refused.value.kind == "hashtable"


def test_too_many_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MOST_ENTRIES", 700)
    table = opened(HashTable(key="int64"))
    table.add(np.arange(700), 1)
    table.update_drift()
    table.issue(0)
    table.acknowledge()
    table.begin()
    with pytest.raises(StateLimit) as refused:
        table.add([1, 2, 701], 1)
    assert refused.value.limit == 700
    table.rollback()
    assert len(table) == 700
    assert table.get([1, 701]).tolist() == [1, 0]


def test_too_many_key_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MOST_KEY_BYTES", 1000)
    table = opened(HashTable(key="string"))
    table.add([b"x" * 600], 1)
    with pytest.raises(StateLimit) as refused:
        table.add([b"y" * 600], 1)
    assert refused.value.limit == 1000


@pytest.mark.parametrize("amounts", [[2**62, 2**62], [-(2**62), -(2**62), -1]])
def test_sums_outside_int64_are_refused(amounts: list[int]) -> None:
    table = opened(HashTable(key="int64"))
    with pytest.raises(StateLimit):
        table.add([5] * len(amounts), amounts)
    table.rollback()
    assert len(table) == 0
    grid = opened(Matrix(rows=1, cols=2))
    grid.add_dense(np.array([[sum(amounts[:-1]), 0]]))
    with pytest.raises(StateLimit):
        grid.add_dense(np.array([[amounts[-1], 0]]))
    grid.rollback()
    assert grid.values.tolist() == [[0, 0]]


def test_extreme_integers_differ_by_what_they_differ() -> None:
    grid = opened(Matrix(rows=1, cols=2, divergence="max"))
    grid.put_at([0, 1], [2**63 - 1, -(2**63)])
    grid.update_drift()
    grid.issue(0)
    grid.acknowledge()
    grid.begin()
    grid.put_at([0, 1], [-(2**63), -(2**63) + 1])
    grid.update_drift()
    assert grid.drift() == grid.divergence() == 2.0**64
    assert grid.issue(1e18).to_pydict() == {"index": [0], "value": [-(2**63)]}
    assert grid.issue(0).num_rows == 2


@pytest.mark.parametrize("divergence", Matrix.divergences)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_values_that_are_not_finite_are_backed_up(divergence: Divergence, bad: float) -> None:
    grid = opened(Matrix(rows=1, cols=3, value="float64", divergence=divergence))
    grid.put_at([0, 1], [bad, 1.0])
    grid.update_drift()
    assert grid.issue(5.0).column("index").to_pylist() == [0]
    grid.acknowledge()
    assert grid.divergence() == grid.drift() == 1.0
    for _ in range(3):
        grid.begin()
        grid.add_at([0, 2], 0.5)
        grid.update_drift()
        assert grid.issue(5.0) is None
        assert grid.divergence() == grid.drift()


def test_differences_whose_squares_vanish_are_backed_up_at_threshold_0() -> None:
    grid = opened(Matrix(rows=1, cols=2, value="float64", divergence="euclidean"))
    grid.add_at([0], 1e-200)
    grid.update_drift()
    assert grid.issue(1.0) is None
    grid.begin()
    grid.add_at([1], 1e-200)
    grid.update_drift()
    assert grid.issue(0.0).num_rows == 2


def test_attempts_wrap_around() -> None:
    grid = Matrix(rows=1, cols=3).open(HeapColumns(), "s")
    # Attempt 1 leaves a stamp that attempt 1 after the wrap must not take for its own.
    grid.begin()
    grid.add_at([1], 1)
    grid.rollback()
    grid._scalars[Slot.ATTEMPT] = cells._MOST_ATTEMPTS - 1
    for expected in (cells._MOST_ATTEMPTS, 1, 2):
        grid.begin()
        assert grid._scalars[Slot.ATTEMPT] == expected
        grid.add_at([1, 1] if expected == 1 else [0, 0], 1)
        assert grid.changed().num_rows == 1
        grid.rollback()
        assert grid.values.sum() == 0


def test_another_format_is_refused() -> None:
    columns = HeapColumns()
    HashTable().open(columns, "s")
    columns.arrays()["s.meta"][Slot.FORMAT] = 99
    with pytest.raises(CheckpointError) as refused:
        HashTable().open(columns, "s")
    assert refused.value.found == 99


STRING_KINDS = [
    pa.string(), pa.binary(), pa.large_string(), pa.large_binary(), pa.string_view(), pa.binary_view()
]  # fmt: skip


@pytest.mark.parametrize("kind", STRING_KINDS, ids=str)
def test_kinds_of_string_keys(kind: pa.DataType) -> None:
    table = opened(HashTable())
    words = pa.array(["zero", "one", "two", "", "a rather long key, longer than a view holds", "one"], kind)
    table.add(words.slice(1), [1, 2, 3, 4, 5])
    table.add(pa.chunked_array([words.slice(1, 1), words.slice(2, 1)]), 10)
    table.add(words.slice(4, 1).cast(pa.string()).dictionary_encode(), 100)
    asked = ["zero", "one", "two", "", "a rather long key, longer than a view holds"]
    assert table.get(asked).tolist() == [0, 16, 12, 3, 104]
    assert table.contains(pa.array(asked)).tolist() == [False, True, True, True, True]
    assert len(table) == 4


def test_inputs_that_cannot_work() -> None:
    words, numbers = opened(HashTable()), opened(HashTable(key="int64", value="int64"))
    grid, line, number = opened(Matrix(rows=2, cols=2)), opened(Vector(size=2)), opened(Numeric())
    members = opened(Set())
    attempts: tuple[Callable[[], object], ...] = (
        lambda: words.add([1, 2], 1),
        lambda: words.add(pa.array(["a", None]), 1),
        lambda: words.add(["a"], [1, 2]),
        lambda: words.add(["a"], 1.5),
        lambda: words.add(["a"], pa.array([None], pa.int64())),
        lambda: numbers.add(["a"], 1),
        lambda: numbers.add([1.5], 1),
        lambda: numbers.add(np.array([2**63], np.uint64), 1),
        lambda: numbers.add(np.zeros((2, 2), np.int64), 1),
        lambda: grid.add_at([4], 1),
        lambda: grid.add_at([0, -1], 1),
        lambda: grid.add_at([0.5], 1),
        lambda: grid.add_dense(np.zeros((2, 3))),
        lambda: grid.add_dense(np.full((2, 2), 0.5)),
        lambda: grid.merge_from(pa.record_batch({"index": [0], "value": [0.5]})),
        lambda: line.add_at([-1], 1),
        lambda: line.add_at([7], [1, 2]),
        lambda: line.add_dense(np.ones((2, 2), np.int64)),
        lambda: number.add([1, 2]),
        lambda: number.put(0.5),
        lambda: members.add([1]),
        lambda: members.remove(pa.array(["a", None])),
        lambda: members.merge_from(pa.record_batch({"key": ["a"], "value": [True]})),
        lambda: grid.issue(-1.0),
        lambda: grid.issue(math.nan),
    )
    for attempt in attempts:
        with pytest.raises(UsageError):
            attempt()
    assert words.size == numbers.size == members.size == grid.values.sum() == grid.changed().num_rows == 0
    assert len(line) == 2 and line.values.sum() == number.value == 0


def test_no_updates_once_pairs_are_issued() -> None:
    table = opened(HashTable())
    table.add(["a"], 1)
    table.update_drift()
    assert table.issue(0).num_rows == 1
    with pytest.raises(UsageError):
        table.add(["a"], 1)
    table.acknowledge()
    with pytest.raises(UsageError):
        table.add(["a"], 1)
    with pytest.raises(UsageError):
        table.issue(0)


@pytest.mark.parametrize("key", ["string", "int64"])
@pytest.mark.parametrize("count", [3_000, 41_000, 83_000])
def test_memory_of_a_key(key: str, count: int) -> None:
    """At most 100 bytes a key beyond its own bytes, unused capacity, a full journal and a full backup
    included.
    """
    table = opened(HashTable(key=key))
    numbers = np.arange(count)
    names: Any = pa.array(numbers).cast(pa.string()) if key == "string" else numbers
    for start in range(0, count, 1000):
        table.add(names[start : start + 1000], 1)
    table.update_drift()
    assert table.issue(0).num_rows == count
    key_bytes = sum(len(str(number)) for number in range(count)) if key == "string" else 8 * count
    assert table.memory - key_bytes <= 100 * count


def test_a_transaction_costs_what_it_touches(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the batch path no kernel sees more cells than the transaction touched."""
    table = opened(HashTable(key="int64", divergence="manhattan"))
    table.add(np.arange(50_000), 1)
    table.update_drift()
    table.issue(0)
    table.acknowledge()
    seen: list[int] = []

    def spied(kernel: Any) -> Any:
        def spy(first: Any, *others: Any) -> Any:
            seen.append(len(first))
            return kernel(first, *others)

        return spy

    for name in ("journal_cells", "add_integers", "distances", "move_shadows"):
        monkeypatch.setattr(cell_kernel, name, spied(getattr(cell_kernel, name)))
    measure = table._measure
    table._measure = replace(measure, fold=spied(measure.fold), weigh=spied(measure.weigh))
    for theta in (0.0, 10.0, math.inf):
        table.begin()
        table.add(np.arange(100, 200), 3)
        table.update_drift()
        table.issue(theta)
        table.acknowledge()
    assert len(seen) >= 12
    assert max(seen) == 100


@pytest.mark.parametrize(("key", "known"), [("int64", [0, 7]), ("string", ["", "ann"])])
def test_null_is_a_key_of_its_own_where_a_table_takes_it(key: str, known: list[Any]) -> None:
    """Neither 0 nor the empty string, however the table grows."""
    columns = HeapColumns()
    table = HashTable(key=key, null_key=True).open(columns, "counts")
    table.begin()
    given = pa.array([None, *known, None])
    table.add(given, [1, 10, 20, 2])
    table.add(pa.nulls(2), 1)
    many = range(1000, 40_000)
    table.add(pa.array(many if key == "int64" else [str(number) for number in many]), 1)
    table.add(known, 1)
    again = HashTable(key=key, null_key=True).open(columns, "counts")
    assert again.get(pa.array([*known, None])).tolist() == [11, 21, 5]
    assert dict(zip(*again.export().to_pydict().values(), strict=True))[None] == 5
    again.rollback()
    again.begin()
    again.add(known, 1)
    assert again.size == 2 and again.get(pa.array([*known, None])).tolist() == [1, 1, 0]


@pytest.mark.parametrize("key", ["ann", b"ann", pa.scalar("ann")])
def test_a_key_alone_is_refused(key: Any) -> None:
    """The letters of a text would pass for keys."""
    table = HashTable(key="string").open(HeapColumns(), "counts")
    table.begin()
    with pytest.raises(UsageError):
        table.add(key, 1)
    with pytest.raises(UsageError):
        table.get(key)


def test_null_keys_are_refused_where_a_table_does_not_take_them() -> None:
    table = HashTable(key="int64").open(HeapColumns(), "counts")
    table.begin()
    with pytest.raises(UsageError, match="null_key=True"):
        table.add(pa.array([1, None]), 1)
    with pytest.raises(UsageError):
        HashTable(null_key="yes")  # type: ignore[arg-type]
    assert "null_key" not in HashTable().to_json()
    assert HashTable.from_json(HashTable(null_key=True).to_json()) == HashTable(null_key=True)
