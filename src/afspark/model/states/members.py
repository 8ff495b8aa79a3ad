"""Set: keys that are there or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from afspark.model.divergence import Divergence
from afspark.model.states.columns import Columns
from afspark.model.states.keyed import KEY_TYPES, KeyedSpec, SetState
from afspark.model.states.state import register_state


@register_state
@dataclass(frozen=True, kw_only=True)
class Set(KeyedSpec):
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

    def open(self, columns: Columns, name: str) -> SetState:
        return SetState(self, columns, name, "int64")

    @property
    def pairs_schema(self) -> pa.Schema:
        return pa.schema([("key", KEY_TYPES[self.key]), ("present", pa.bool_())])
