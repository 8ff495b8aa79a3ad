"""The throttle's sleeping times."""

from __future__ import annotations

import math
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from afspark.errors import ObjectMissing, UsageError
from afspark.store import Throttle, open_store


def _seconds(action: object) -> float:
    began = time.monotonic()
    action()  # type: ignore[operator]
    return time.monotonic() - began


def test_every_request_pays_latency(tmp_path: Path) -> None:
    store = open_store(tmp_path, Throttle(0.03))
    assert _seconds(lambda: store.put("a", b"x" * 1000)) >= 0.03
    assert _seconds(lambda: store.get("a")) >= 0.03
    assert _seconds(lambda: store.list("")) >= 0.03
    assert _seconds(lambda: store.delete(["a"])) >= 0.03

    def missing() -> None:
        with pytest.raises(ObjectMissing):
            store.get("a")

    assert _seconds(missing) >= 0.03


def test_size_pays_bandwidth(tmp_path: Path) -> None:
    store = open_store(tmp_path, Throttle(0.0, 1_000_000.0))
    assert _seconds(lambda: store.put("a", b"x" * 60_000)) >= 0.06
    assert _seconds(lambda: store.get("a")) >= 0.06


def test_copies_share_the_line_but_not_the_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    monkeypatch.setattr(time, "sleep", slept.append)
    line = Throttle(0.25, 1_000_000.5)
    for copy in (line, pickle.loads(pickle.dumps(line)), Throttle(0.25, 1_000_000.5)):
        copy.transfer(1_000_000)
    Throttle(0.25, 2_000_000.5).transfer(1_000_000)
    assert slept == pytest.approx([1.25, 2.25, 3.25, 0.75], rel=1e-5)


def test_threads_queue_behind_each_other() -> None:
    line = Throttle(0.0, 1_000_000.25)
    with ThreadPoolExecutor(4) as pool:
        assert _seconds(lambda: list(pool.map(line.transfer, [50_000] * 4))) >= 0.19


@pytest.mark.parametrize("latency", [-1.0, math.inf, math.nan])
def test_latency_is_checked(latency: float) -> None:
    with pytest.raises(UsageError):
        Throttle(latency)


@pytest.mark.parametrize("bandwidth", [0.0, -5.0, math.nan])
def test_bandwidth_is_checked(bandwidth: float) -> None:
    with pytest.raises(UsageError):
        Throttle(0.0, bandwidth)
