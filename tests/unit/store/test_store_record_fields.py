"""What a record says is written to the store and comes back, field by field."""

from __future__ import annotations

import math
from pathlib import Path

from afspark.model.windows import WindowProgress
from afspark.store import (
    CommitRecord,
    CountedFailure,
    ObjectRef,
    OperatorCounters,
    OperatorRecord,
    RecordLog,
    StreamEnd,
    WorkerRecord,
    open_store,
)
from afspark.store.quarantine import Count
from afspark.store.snapshot_history import SnapshotEntry


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    log = RecordLog(open_store(tmp_path))
    assert log.open_epoch(-1) is None
    ref, old = (
        ObjectRef("objects/x", "ab" * 16, 100, 7, True),
        ObjectRef("objects/y", "cd" * 16, 50, 3, False),
    )
    failures = (
        CountedFailure(taken={"counts": 0.5, "model": math.inf}, tick=3, incarnation=0, theta={"counts": 1.0}),
        CountedFailure(pane_taken={2: {"counts": 0.5}, 5: {"counts": 1.0}}, panes=(2, 5), incarnation=1),
    )
    workers = (
        WorkerRecord(0, 2, 1, 5, "host-a", {"counts": 0.5, "model": math.inf}, (ref, old), (old,), failures),
        WorkerRecord(1, 0, 0, 9, "host-b", {"counts": 0.0}, waiting=3),
    )
    windowed = OperatorRecord(
        workers=workers,
        window_progress=WindowProgress(first_open=2, touched=frozenset({2, 5}), latest=17.5, seen=(4, 6)),
        counters=OperatorCounters(late=1, unplaced=2, bad=(Count("source", "ValueError", 3),), quarantined=4),
        lost_by_receivers={0: 12.5, 11: math.inf},
        missing_items={0: 3, 11: 4},
        bounds={"counts": 1.5, "model": math.inf},
        lost_items=7,
        upstream=("first", "second"),
    )
    record = CommitRecord(
        9,
        log.epoch,
        {"count": windowed, "other": OperatorRecord()},
        items=100,
        bytes=2000,
        end=StreamEnd.TOLD,
        lanes={"": {0: {"a": 4, "b": 5}, 11: {}}},
        ledger_heads=("ledger/a", "ledger/b"),
        snapshots=(
            SnapshotEntry(number=1, barrier=4, started=2.5, abandoned="a loss").with_skipped(5, "no room"),
            SnapshotEntry(number=2, barrier=9, started=3.5, completed=4.0, parts=3, full=1, bytes=99),
        ),
        replays=True,
    )
    log.write(record)
    assert log.newest() == record
    assert RecordLog(open_store(tmp_path)).open_epoch(9) == record
    assert record.references() == {"objects/x", "objects/y"}
