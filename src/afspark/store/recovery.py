"""Loads the durable state of a worker, going back to the newest sound one where objects are damaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from afspark.store.base import Store
from afspark.store.format import Sealed
from afspark.store.images import ImageKey
from afspark.store.reading import Damage, read_sealed
from afspark.store.worker_record import ObjectRef


@dataclass(frozen=True)
class LoadedChain:
    """A worker's durable state.

    ``images``: of each state the record batches to apply in order, the last write winning; and waiting feedback.
    ``metas``: the meta of each used object.
    ``damaged``: what was passed over; empty if the state is the one the record names.
    """

    images: dict[ImageKey, list[pa.RecordBatch]]
    metas: tuple[dict[str, Any], ...]
    used: tuple[ObjectRef, ...]
    damaged: tuple[Damage, ...]

    @property
    def complete(self) -> bool:
        """Whether nothing was passed over, so that the promised bound holds."""
        return not self.damaged


def load_chain(store: Store, chain: Sequence[ObjectRef], previous: Sequence[ObjectRef] = ()) -> LoadedChain:
    """The newest sound state at or before the end of ``chain``.

    Objects after the first damaged one are not used, as they only hold what changed since. If the full image
    at the head is the damaged one, the chain before it takes its place. Raises `StoreError` if the
    store cannot be read at all.
    """
    loaded = _sound_prefix(store, chain)
    if loaded.used or loaded.complete:
        return loaded
    before = _sound_prefix(store, previous)
    return LoadedChain(before.images, before.metas, before.used, loaded.damaged + before.damaged)


def _sound_prefix(store: Store, chain: Sequence[ObjectRef]) -> LoadedChain:
    images: dict[ImageKey, list[pa.RecordBatch]] = {}
    metas: list[dict[str, Any]] = []
    for ref, found in zip(chain, read_sealed(store, [ref.name for ref in chain]), strict=True):
        checked = _is_what_was_named(found, ref)
        if isinstance(checked, Damage):
            return LoadedChain(images, tuple(metas), tuple(chain[: len(metas)]), (checked,))
        for key, batch in checked.images.items():
            images.setdefault(key, []).append(batch)
        metas.append(checked.meta)
    return LoadedChain(images, tuple(metas), tuple(chain), ())


def _is_what_was_named(found: Sealed | Damage, ref: ObjectRef) -> Sealed | Damage:
    if isinstance(found, Damage) or found.checksum == ref.checksum:
        return found
    return Damage(ref.name, "foreign", f"checksum {found.checksum}, expected {ref.checksum}")
