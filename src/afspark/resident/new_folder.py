"""The folder of a new segment, which appears as a whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from afspark.numbers import Batch, Incarnation
from afspark.protocol.lifecycle import Identity
from afspark.resident import header
from afspark.resident.folders import NEW
from afspark.resident.open_folder import OpenFolder


def build_folder(
    directory: Path, identity: Identity, incarnation: Incarnation, version: Batch, *, secondary: bool
) -> None:
    """Puts an empty segment of ``version`` where there is none."""
    building = Path(tempfile.mkdtemp(prefix=f"{NEW}{directory.name}-", dir=directory.parent))
    try:
        meta = header.Meta.new(identity)
        (building / header.COLUMNS).mkdir(mode=0o700)
        header.write_header(building, meta, incarnation, version, secondary=secondary)
        header.write_meta(OpenFolder(building), meta)
        os.rename(building, directory)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
