"""Generated items with labels, and files of them: libsvm and CSV."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.errors import InputError, UsageError
from afspark.model.kernels.libsvm import parse_libsvm
from afspark.sources import Clicks, CsvFiles, Higgs, LibsvmFiles, Source, source_from_json
from afspark.sources.chunks import NumberedChunk
from tests.unit.sources.conftest import DictStore

GENERATORS: list[Callable[..., Source]] = [Clicks, Higgs]
GOLDEN = {"Clicks": "601e6873dbbd95c0", "Higgs": "b1061fddf78fe05a"}


def read(source: Source) -> pa.Table:
    planner = source.planner(DictStore())
    chunks = planner.chunks(planner.initial(), planner.discover())
    return pa.Table.from_batches([batch for chunk in chunks for batch in source.read(chunk)], source.schema())


# --- generated ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", GENERATORS)
def test_a_chunk_depends_on_seed_and_number_only(make: Callable[..., Source]) -> None:
    small, large, other = make(70_000, seed=3), make(10**12, seed=3), make(10**12, seed=4)
    first, second = large.planner(DictStore()).chunks({"chunks": 0}, {"chunks": 2})
    (rows,) = large.read(first)
    assert rows.equals(next(iter(small.read(first)))) and rows.schema == large.schema()
    assert not rows.equals(next(iter(large.read(second)))) and not rows.equals(next(iter(other.read(first))))
    assert read(small).num_rows == 70_000
    assert source_from_json(small.to_json()) == small


@pytest.mark.parametrize("make", GENERATORS)
def test_generated_items_are_fixed_for_all_times(make: Callable[..., Source]) -> None:
    (rows,) = make(1000, seed=7).read(NumberedChunk(index=0, units=1000, bytes=0))
    digest = hashlib.blake2b(digest_size=8)
    for column in (rows.column("label"), rows.column("features").flatten()):
        digest.update(column.to_numpy().tobytes())
    assert digest.hexdigest() == GOLDEN[make.__name__]


def test_clicks_are_skewed_and_labelled_by_a_hidden_model() -> None:
    rows = read(Clicks(200_000, seed=1, noise=0.0))
    values = rows.column("features").combine_chunks().flatten().to_numpy().reshape(-1, 11)
    assert (values >= 0).all() and values[:, 0].max() == 2 and 900_000 < values[:, 10].max() < 1_000_000
    first, many = (values[:, 10] == 0).mean(), len(np.unique(values[:, 10]))
    assert 0.15 < first < 0.21 and many > 50_000, "the chance of the first of a million is 10 ** -0.75"
    labels = rows.column("label").to_numpy()
    assert 0.25 < labels.mean() < 0.55
    noisy = read(Clicks(200_000, seed=1, noise=0.1)).column("label").to_numpy()
    assert (noisy != labels).mean() == pytest.approx(0.1, abs=0.005)


def test_collisions_have_numbers_of_deviation_one_and_a_small_shift() -> None:
    rows = read(Higgs(100_000, seed=1))
    values = rows.column("features").combine_chunks().flatten().to_numpy().reshape(-1, 28)
    signal = rows.column("label").to_numpy() == 1
    assert signal.mean() == pytest.approx(0.53, abs=0.01)
    assert values.std(axis=0) == pytest.approx(np.ones(28), abs=0.03)
    shifts = values[signal].mean(axis=0) - values[~signal].mean(axis=0)
    assert 0.1 < np.abs(shifts).max() <= 0.32


@pytest.mark.parametrize("settings", [{"rows": -1}, {"rows": 1, "values": 0}, {"rows": 1, "noise": 0.6}], ids=str)
def test_what_cannot_be_generated_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Clicks(**settings)


# --- libsvm ------------------------------------------------------------------------------------------------------

LINES = b"""# a comment
1 3:2.5 \t 11:-5.2  16:1.5 # inline
-1 6:1e-3\r
0

+1.0
spam 1:2
1 2:x 3:4
1 -2:1
1 2:1 7
1 2147483648:1
-1 5:1.234567890123456789e10 6:3e300
"""


def test_libsvm_lines_and_lines_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.libsvm").write_bytes(LINES)
    rows = read(LibsvmFiles(str(tmp_path))).to_pylist()
    broken = {"label": None, "index": [], "value": []}
    assert rows == [
        {"label": 1.0, "index": [3, 11, 16], "value": [2.5, -5.2, 1.5]},
        {"label": -1.0, "index": [6], "value": [1e-3]},
        {"label": 0.0, "index": [], "value": []},
        {"label": 1.0, "index": [], "value": []},
        *[broken] * 5,
        {"label": -1.0, "index": [5, 6], "value": [1.234567890123456789e10, 3e300]},
    ]


@given(numbers=st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=5))
def test_numbers_are_read_as_python_reads_them(numbers: list[float]) -> None:
    text = "1 " + " ".join(f"{place}:{number!r}" for place, number in enumerate(numbers))
    assert parse_libsvm(np.frombuffer(text.encode(), np.uint8)).value.tolist() == numbers


@pytest.mark.parametrize("chunk_bytes", [1, 7, 64, 1 << 20])
def test_every_line_is_read_once_whatever_the_chunks(tmp_path: Path, chunk_bytes: int) -> None:
    (tmp_path / "a.libsvm").write_bytes(LINES)
    whole = read(LibsvmFiles(str(tmp_path)))
    assert read(LibsvmFiles(str(tmp_path), chunk_bytes=chunk_bytes)).equals(whole)


def test_new_files_are_picked_up(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1 1:1\n")
    source = LibsvmFiles(str(tmp_path))
    planner = source.planner(DictStore())
    before = planner.discover()
    (tmp_path / "b").write_bytes(b"0 2:1\n")
    (chunk,) = planner.chunks(before, planner.discover())
    assert next(iter(source.read(chunk))).to_pylist() == [{"label": 0.0, "index": [2], "value": [1.0]}]


def test_a_broken_line_stops_the_query_if_asked(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(LINES)
    with pytest.raises(InputError) as caught:
        read(LibsvmFiles(str(tmp_path), on_bad="stop"))
    assert caught.value.line == "spam 1:2" and caught.value.path.endswith("a")


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("to be\nor not to be\n")
    with pytest.raises(UsageError) as caught:
        LibsvmFiles(str(tmp_path)).validate()
    assert caught.value.path.endswith("a")


# --- CSV ---------------------------------------------------------------------------------------------------------

CSV = 'age,job,label\n39,"clerk, old",1\n?,cook,0\nforty,cook,0\n1,2,3,4\n5\n41, guard ,0\n,,1\n1e1,"say ""hi""",1\n'


def people(path: Path, text: str = CSV, **settings: Any) -> CsvFiles:
    path.mkdir(exist_ok=True)
    (path / "people.csv").write_text(text)
    return CsvFiles(str(path), **({"numeric": ("age",), "categorical": ("job",)} | settings))


def test_csv_rows_and_what_is_missing_in_them(tmp_path: Path) -> None:
    rows = read(people(tmp_path)).to_pylist()
    assert [(row["label"], row["age"], row["job"]) for row in rows] == [
        (1, 39, "clerk, old"),
        (0, None, "cook"),
        (0, None, "cook"),
        (0, 41, " guard "),
        (1, None, None),
        (1, 10, 'say "hi"'),
        (None, None, None),
        (None, None, None),
    ]


@pytest.mark.parametrize("chunk_bytes", [1, 20, 1 << 20])
def test_every_row_is_read_once_whatever_the_chunks(tmp_path: Path, chunk_bytes: int) -> None:
    whole = read(people(tmp_path)).to_pylist()
    parts = read(people(tmp_path, chunk_bytes=chunk_bytes)).to_pylist()
    assert sorted(map(str, parts)) == sorted(map(str, whole))


def test_files_may_have_their_columns_in_another_order(tmp_path: Path) -> None:
    source = people(tmp_path)
    (tmp_path / "more.csv").write_text("label,x,job,age\n1,9,cook,7\n")
    assert {"label": 1.0, "age": 7.0, "job": "cook"} in read(source).to_pylist()
    (tmp_path / "some.csv").write_text("label,job\n1,cook\n")
    assert {"label": 1.0, "age": None, "job": "cook"} in read(source).to_pylist()
    for name in ("people.csv", "more.csv"):
        (tmp_path / name).unlink()
    with pytest.raises(InputError) as caught:
        read(replace(source, on_bad="stop"))
    assert caught.value.column == "age"


def test_columns_can_be_named_and_all_be_numbers(tmp_path: Path) -> None:
    source = people(tmp_path, "1;2;1\n3;4;0\n", names=("a", "b", "label"), delimiter=";", numeric=(), categorical=())
    source.validate()
    assert read(source).to_pylist() == [{"label": 1, "a": 1, "b": 2}, {"label": 0, "a": 3, "b": 4}]


def test_labels_can_be_texts(tmp_path: Path) -> None:
    source = people(tmp_path, "label,age\n>50K,3\n<=50K,4\n", text_label=True, categorical=())
    assert read(source).column("label").to_pylist() == [">50K", "<=50K"]


@pytest.mark.parametrize(
    ("settings", "column"),
    [
        ({"numeric": ("age", "job"), "categorical": ()}, "job"),
        ({"numeric": (), "categorical": ()}, "job"),
        ({"numeric": ("size",)}, "size"),
        ({"label": "income"}, "income"),
        ({"label": "job", "categorical": ()}, "job"),
    ],
    ids=str,
)
def test_columns_that_do_not_fit_are_refused_in_one_line(tmp_path: Path, settings: dict[str, Any], column: str) -> None:
    with pytest.raises(UsageError) as caught:
        people(tmp_path, "age,job,label\n39,clerk,1\n4,cook,0\n", **settings).validate()
    assert caught.value.column == column and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["age,job,label\n1,a,1\nforty,a,1\n", "age,job,label\n1,a,1\n1,2\n", "age,job,label\n,a,1\n"]
)
def test_a_bad_row_stops_the_query_if_asked(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError) as caught:
        read(people(tmp_path, text, on_bad="stop"))
    assert caught.value.path.endswith("people.csv")


def test_a_file_with_nothing_but_its_header_has_no_rows(tmp_path: Path) -> None:
    source = people(tmp_path, "age,job,label\n")
    source.validate()
    assert read(source).num_rows == 0


@pytest.mark.parametrize("make", [
    lambda path: CsvFiles(path, delimiter=";;"), lambda path: CsvFiles(path, on_bad="hide"),
    lambda path: LibsvmFiles(path, on_bad="hide"), lambda path: LibsvmFiles(path, chunk_bytes=0),
    lambda path: LibsvmFiles(path).validate(), lambda path: CsvFiles(path).validate(),
])  # fmt: skip
def test_settings_that_mean_nothing_and_empty_places_are_refused(tmp_path: Path, make: Any) -> None:
    with pytest.raises(UsageError):
        make(str(tmp_path))
