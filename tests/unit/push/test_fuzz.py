"""Whatever comes over the network, the receiver's process lives, and the honest are served as if nothing came."""

from __future__ import annotations

from pathlib import Path

from afspark.push.consumer.lane_client import LaneClient
from tests.unit.push.child_receiver import WORKERS, ChildReceiver
from tests.unit.push.fuzzing import HIGHEST, LANES, SCHEMA, Honest, campaign

CASES = 400
SECONDS = 12.0
BUFFER = 16 << 20


def test_fuzzing_harms_nobody(tmp_path: Path) -> None:
    with ChildReceiver(
        SCHEMA, LANES, store=tmp_path, allow_items=200, buffer_bytes=BUFFER, message_bytes=1 << 20
    ) as receiver:
        honest = Honest(receiver.address)
        try:
            before = receiver.resident()
            outcome = campaign(
                receiver.port,
                4,
                threads=4,
                until=lambda cases, spent: cases >= CASES or spent > SECONDS,
            )
        finally:
            honest.stop()
        assert receiver.alive, (receiver.returncode, receiver.errors())
        assert not honest.wrong
        assert honest.rounds > 10
        with LaneClient(receiver.address, 0, incarnation=HIGHEST, fence=HIGHEST, access=WORKERS) as worker:
            stats = worker.stats()
        assert not outcome.unforeseen
        assert "internal" not in stats["refused"], receiver.errors()
        assert stats["refused"]["UnsoundBatch"] > 0
        assert stats["refused"]["WireError"] > 0
        assert receiver.resident() - before < BUFFER + (150 << 20)
        assert outcome.counts.total() > 50
