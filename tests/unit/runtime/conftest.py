"""A rig per test: input of three files a batch, two hosts with a worker each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from afspark.algorithms import WordCount
from afspark.cluster.local.processes import in_process
from afspark.graph.pipeline import Pipeline
from afspark.policies import MiniBatch
from afspark.resident import process_cache
from afspark.sources import Source, TextFiles
from afspark.task.warmup import warm_up
from tests.unit.runtime.sparkless import Hosts, Rig


@pytest.fixture(scope="session")
def warm_kernels(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Processes forked later find kernels compiled and caches filled, as those of Spark's daemon do."""
    warm(tmp_path_factory.mktemp("warm"))


def warm(folder: Path) -> None:
    """A short query in this very process."""
    warm_up()
    write_words(folder / "input", 8)
    source = TextFiles(str(folder / "input"), blocks=True)
    for keyed in (False, True):
        hosts = Hosts({"a": 2}, processes=in_process)
        Rig(folder / f"keyed-{keyed}", hosts, source=source, operator=WordCount(), keyed=keyed, batch_bytes=1600).go()
    process_cache().clear()


MakeRig = Callable[..., tuple[Rig, Counter[str]]]


def write_file(folder: Path, number: int, words: list[str]) -> Counter[str]:
    """A file of 400 bytes; returns what it adds to the count of those it may replace."""
    file = folder / f"{number:04d}.txt"
    before = Counter(file.read_text().split()) if file.exists() else Counter()
    file.write_text(" ".join(words).ljust(399) + "\n")
    change = Counter(words)
    change.subtract(before)
    return change


def write_words(folder: Path, files: int, *, first: int = 0) -> Counter[str]:
    """Files with a word of their own, one of every fifth file, and one that is everywhere."""
    folder.mkdir(exist_ok=True)
    total: Counter[str] = Counter()
    for number in range(first, first + files):
        total.update(write_file(folder, number, ["all"] * 20 + [f"mod{number % 5}"] * 10 + [f"file{number}"] * 5))
    return total


@pytest.fixture
def make_rig(warm_kernels: None, tmp_path: Path) -> MakeRig:
    """Makes a rig over fresh input of ``batches`` batches, and the exact recount of that input.

    ``pipeline`` makes a whole one from the source; without it there is one operator, which counts words.
    """

    def make(
        batches: int = 6,
        slots: dict[str, int] | None = None,
        pipeline: Callable[[Source], Pipeline] | None = None,
        **settings: Any,
    ) -> tuple[Rig, Counter[str]]:
        truth = write_words(tmp_path / "input", 4 * batches)
        source = TextFiles(str(tmp_path / "input"), blocks=True)
        chosen: dict[str, Any] = {"batch_bytes": 1600}
        if pipeline is not None:
            chosen["pipeline"] = pipeline(source)
        else:
            chosen |= {"source": source, "operator": WordCount(), "tolerance": MiniBatch(), "workers": 2}
        return Rig(tmp_path, Hosts(slots), **{**chosen, **settings}), truth

    return make
