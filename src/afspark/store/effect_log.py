"""What batches have done, as digests: a driver that has them replayed after a restart compares.

One small object beside each record, with the batches since the record before it. It is no part of the record, because
whoever cannot read that has to replay just these batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from afspark.model.effect_digest import EffectDigest
from afspark.numbers import Batch
from afspark.store.base import Store
from afspark.store.batch_log import BatchLog

EFFECTS = "effects"

BatchEffects = Mapping[str, Mapping[int, Mapping[str, EffectDigest]]]
"""What a batch has done: digests by operator, worker and what they are of."""


class EffectLog(BatchLog):
    """The effects of the batches of one query."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, EFFECTS)

    def write(self, batch: Batch, epoch: str, effects: Mapping[Batch, BatchEffects]) -> None:
        """Makes durable what batches have done; ``batch`` is the last one of them."""
        done = {str(number): effects_to_json(one) for number, one in effects.items()}
        self.put(batch, epoch, {"batches": done})

    def read(self, first: Batch) -> dict[Batch, BatchEffects]:
        """What batches from ``first`` on have done, as far as that can be read; what the newest driver says counts."""
        known = [entry for entry in self.entries() if entry.batch >= first]
        return {
            Batch(int(number)): effects_from_json(done)
            for _, meta in self.contents(known)
            for number, done in meta["batches"].items()
        }


def effects_to_json(effects: BatchEffects) -> dict[str, Any]:
    return {
        operator: {
            str(worker): {label: digest.to_json() for label, digest in done.items()} for worker, done in by.items()
        }
        for operator, by in effects.items()
    }


def effects_from_json(found: Mapping[str, Any]) -> BatchEffects:
    """The effects that `effects_to_json` described."""
    return {
        operator: {
            int(worker): {label: EffectDigest.from_json(one) for label, one in done.items()}
            for worker, done in by.items()
        }
        for operator, by in found.items()
    }
