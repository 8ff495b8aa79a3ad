"""No search for garbage inside a test of this folder: it takes a fifth of the time, and finds little."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _frozen() -> None:
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _uncollected(_frozen: None) -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()
    gc.collect()
