from __future__ import annotations

from pathlib import Path

import pytest

from afspark.protocol.lifecycle import Identity
from afspark.resident import Segment


@pytest.fixture
def identity() -> Identity:
    return Identity(query_id="q", fingerprint="f", operator="count", worker=0, workers=2)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a segment is to be."""
    return tmp_path / "host" / "q" / "count-0"


@pytest.fixture
def segment(place: Path, identity: Identity) -> Segment:
    return Segment.create(place, identity, 0)
