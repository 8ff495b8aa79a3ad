"""Set: keys that are there or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from afspark.model.divergence import Divergence
from afspark.model.states.columns import Array, Columns
from afspark.model.states.keyed import KEY_TYPES, KeyedState
from afspark.model.states.state import StateSpec, check_null_key, one_of, register_state

_ONE = np.ones(1, np.int64)


@register_state
@dataclass(frozen=True, kw_only=True)
class Set(StateSpec):
    """A set of keys, "string" (text and binary alike; compared as bytes) or "int64".

    Its divergence is the number of members that came or went since the last backup. Limits are those of a hash
    table. With ``null_key`` null can be a member; without it null keys are refused.

    >>> from afspark.model.states import HeapColumns, Set
    >>> seen = Set(key="string").open(HeapColumns(), "seen")
    >>> seen.begin()
    >>> seen.add(["ann", "bob", "ann"])
    >>> seen.contains(["ann", "cid"]).tolist(), len(seen)
    ([True, False], 2)
    >>> seen.issue(theta=1).to_pydict()
    {'key': [b'ann', b'bob'], 'present': [True, True]}
    """

    kind: ClassVar[str] = "set"
    divergences: ClassVar[tuple[Divergence, ...]] = (Divergence.KEYS,)
    divergence: Divergence | str = Divergence.KEYS
    key: str = "string"
    null_key: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_null_key(self.null_key)
        one_of("key type", self.key, KEY_TYPES)

    def open(self, columns: Columns, name: str) -> SetState:
        return SetState(self, columns, name)

    @property
    def pairs_schema(self) -> pa.Schema:
        return pa.schema([("key", KEY_TYPES[self.key]), ("present", pa.bool_())])


class SetState(KeyedState):
    """One worker's share of a set: a table of ones."""

    spec: Set

    def __init__(self, spec: Set, columns: Columns, name: str) -> None:
        super().__init__(spec, columns, name, spec.key, "int64", null_key=spec.null_key)

    def add(self, keys: Any) -> None:
        """Puts keys in; those that are there are ignored, and a key may come several times."""
        self._require_open()
        self._update(self._keys.prepare(keys), _ONE, 0, self._put)

    def merge_from(self, cells: pa.RecordBatch) -> None:
        self._require_schema(cells)
        self.add(cells.column("key").filter(cells.column("present")))

    def members(self) -> pa.Array:
        """The present members, in order of first appearance."""
        return self.export().column("key")

    def _load(self, image: pa.RecordBatch) -> None:
        self._load_pairs(image.column("key"), image.column("present").to_numpy(zero_copy_only=False).astype(np.int64))

    def _pairs(self, cells: Array | None, values: Array) -> pa.RecordBatch:
        return pa.record_batch([self._keys.take(cells), pa.array(values != 0)], schema=self.spec.pairs_schema)
