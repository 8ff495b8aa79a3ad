"""docs/architecture.md names the files that a row passes: a marked word is followed through a batch and its results."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numba.core.dispatcher import Dispatcher

import afspark
from afspark import Approximate, testing
from afspark.algorithms import WordCount
from afspark.api.assembly import assemble
from afspark.api.stream import Inflow, Stream
from afspark.coordinator.run_options import DEFAULT_BATCH_BYTES
from afspark.sources import TextFiles

PACKAGE = Path(afspark.__file__).parent
DOCUMENT = PACKAGE.parents[1] / "docs" / "architecture.md"
WORD, TIMES = b"zebrafinch", 7919

# They map memory, or stand in for Spark.
ELSEWHERE = ("resident", "cluster", "api", "testing.py")


def holds(value: Any, depth: int = 0) -> bool:
    """Whether the word, or how often it came, is in there, as an array. What is sealed in bytes nobody looks at."""
    if isinstance(value, pa.RecordBatch | pa.Table):
        return any(map(holds, value.columns))
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return any(found == TIMES or (isinstance(found, bytes) and WORD in found) for found in value.to_pylist())
    if isinstance(value, pa.Buffer):
        return WORD in value.to_pybytes()
    if isinstance(value, np.ndarray):
        return WORD in value.tobytes() if value.dtype == np.uint8 else bool((value == TIMES).any())
    if isinstance(value, list | tuple | dict) and depth < 2:
        return any(holds(one, depth + 1) for one in (value.values() if isinstance(value, dict) else value))
    return False


class Trace:
    """The files whose functions are given the word, or give it."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def note(self, path: str, *values: Any) -> None:
        place = Path(path)
        if not place.is_relative_to(PACKAGE) or place.relative_to(PACKAGE).parts[0] in ELSEWHERE:
            return
        if place.name not in self.files and holds(values):
            self.files.add(place.name)

    def profile(self, frame: FrameType, event: str, result: Any) -> None:
        if event in ("call", "return"):
            self.note(frame.f_code.co_filename, *frame.f_locals.values(), result if event == "return" else None)

    def kernel(self, kernel: Dispatcher) -> Callable[..., Any]:
        def called(*values: Any) -> Any:
            result = kernel(*values)
            self.note(kernel.py_func.__code__.co_filename, *values, result)
            return result

        return called


@contextmanager
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Trace]:
    trace = Trace()
    with monkeypatch.context() as patches:
        for module in [found for name, found in sys.modules.items() if name.startswith("afspark.")]:
            for name, value in list(vars(module).items()):
                if isinstance(value, Dispatcher):
                    patches.setattr(module, name, trace.kernel(value))
        sys.setprofile(trace.profile)
        threading.setprofile(trace.profile)
        try:
            yield trace
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]


def count_words(folder: Path, *, keyed: bool) -> None:
    (folder / "input").mkdir(parents=True)
    (folder / "input" / "lines.txt").write_bytes((WORD + b" ") * TIMES + b"to be or not to be\n" * 100)
    stream = Stream(None, (Inflow(TextFiles(str(folder / "input"))),))
    counts = stream.apply(WordCount(), name="counts", workers=2, keyed=keyed, tolerance=Approximate(theta=10))
    query = testing.LocalQuery(folder, assemble([(counts, None)], batch_bytes=DEFAULT_BATCH_BYTES), [], 1)
    try:
        query.batch()
        assert {"word": WORD.decode(), "count": TIMES} in query.results().to_pylist()
    finally:
        query.close()


def named(sentence: str) -> list[str]:
    return re.findall(r"`(?:[a-z]+/)*([a-z_]+\.py)`", sentence)


def documented() -> tuple[int, list[str], list[str]]:
    """How many files a row passes, which, and which more by key."""
    text = re.search(r"\*\*The files that a row passes\.\*\*(.*)", DOCUMENT.read_text())
    assert text is not None
    on_the_fast_path, _, others = text[1].partition(". ")
    number = re.search(r"passes (\d+)", on_the_fast_path)
    assert number is not None
    return int(number[1]), named(on_the_fast_path), named(others.partition("By key")[2])


@pytest.mark.parametrize("keyed", [False, True])
def test_a_row_passes_the_files_that_are_named(keyed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number, files, by_key = documented()
    assert len(files) == number
    # Kernels are compiled before they are watched.
    count_words(tmp_path / "before", keyed=keyed)
    with traced(monkeypatch) as trace:
        count_words(tmp_path / "watched", keyed=keyed)
    assert sorted(trace.files) == sorted(files + by_key if keyed else files)
