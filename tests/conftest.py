"""Settings for every test: repeatable by default, exploratory on request."""

from __future__ import annotations

import gc
import os
import signal
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.archive import java_options

if TYPE_CHECKING:
    from afspark.bench.object_server import ObjectServer

# Shared machines stall; a slow example is no failure. pytest-timeout catches real hangs.
_COMMON = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", _COMMON, derandomize=True, database=None)
settings.register_profile("explore", _COMMON, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options())
_STARTUP = str(Path(__file__).parent / "startup")
os.environ["PYTHONPATH"] = os.pathsep.join([_STARTUP, *filter(None, [os.environ.get("PYTHONPATH")])])

# A shell lets what it runs in the background ignore Ctrl-C, and so does everything that is started there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Plots are written to files; no test opens a window.
os.environ.setdefault("MPLBACKEND", "Agg")

_TESTS = Path(__file__).parent
_LAYERS = ["unit", "contract", "property", "simulation", "objects", "spark", "cluster"]
_MARKERS = {"spark": [pytest.mark.spark], "cluster": [pytest.mark.spark, pytest.mark.cluster]}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts processes by its folder, and run cheap tests first.

    In several processes (-n) the long ones come first, so that the short ones fill up what they leave.
    """
    for item in items:
        for marker in _MARKERS.get(_layer(item), []):
            item.add_marker(marker)
    for variants in _by_function(item for item in items if item.get_closest_marker("some")).values():
        many = variants[0].get_closest_marker("some").args[0]
        # Neighbours differ in the parameter that changes fastest alone, so that every third would always have the same.
        for item in sorted(variants, key=lambda one: zlib.crc32(one.name.encode()))[many:]:
            item.add_marker(pytest.mark.thorough)
    side_by_side = "PYTEST_XDIST_WORKER" in os.environ
    items.sort(key=lambda item: _LAYERS.index(_layer(item)), reverse=side_by_side)


def _by_function(items: Iterable[pytest.Item]) -> dict[str, list[pytest.Item]]:
    found: dict[str, list[pytest.Item]] = {}
    for item in items:
        found.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return found


def _layer(item: pytest.Item) -> str:
    """The folder of tests/ an item is in; the examples in docstrings count as unit tests."""
    folder = item.path.relative_to(_TESTS).parts[0] if item.path.is_relative_to(_TESTS) else ""
    return folder if folder in _LAYERS else "unit"


def pytest_collection_finish() -> None:
    """What is there when tests begin stays: nobody looks through it again, nor do forked processes copy its pages."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def s3() -> Iterator[ObjectServer]:
    """An S3 server for all tests of this process that leave it alone."""
    from afspark.bench.object_server import object_server

    with object_server() as server:
        yield server


@pytest.fixture
def address(s3: ObjectServer, tmp_path: Path) -> str:
    """A place on it that nobody else uses."""
    return s3.address(f"tests/{os.getpid()}/{tmp_path.name}")
