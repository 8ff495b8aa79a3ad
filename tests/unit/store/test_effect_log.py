"""What drivers have recorded of the effects of batches."""

from __future__ import annotations

from pathlib import Path

from afspark.model.effect_digest import EffectDigest
from afspark.store import open_store
from afspark.store.effect_log import EFFECTS, BatchEffects, EffectLog
from afspark.store.format import unseal

FIRST, SECOND = "00000001-00000000000000aa", "00000002-00000000000000bb"


def done(items: int) -> BatchEffects:
    return {"count": {0: {"items": EffectDigest(items), "state counts": EffectDigest(2, 255, (0.5,), 1.0)}, 1: {}}}


def test_the_newest_driver_says_what_a_batch_has_done(tmp_path: Path) -> None:
    log = EffectLog(open_store(str(tmp_path)))
    log.write(6, SECOND, {5: done(50), 6: done(60)})
    log.write(4, FIRST, {3: done(3), 4: done(4)})
    log.write(7, FIRST, {5: done(5), 6: done(6), 7: done(7)})
    assert log.read(5) == {5: done(50), 6: done(60), 7: done(7)}
    (tmp_path / EFFECTS / "000000000006" / SECOND).write_bytes(b"rot")
    assert log.read(5) == {5: done(5), 6: done(6), 7: done(7)}, "what cannot be read is not known"


def test_the_format_is_fixed(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    EffectLog(store).write(4, FIRST, {4: done(4)})
    assert unseal(store.get(f"effects/000000000004/{FIRST}")).meta == {
        "kind": "effects",
        "batches": {
            "4": {"count": {"0": {"items": [4, "0", [], 0.0], "state counts": [2, "ff", [0.5], 1.0]}, "1": {}}}
        },
    }
