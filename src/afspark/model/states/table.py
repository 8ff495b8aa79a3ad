"""HashTable: numbers by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from afspark.errors import UsageError
from afspark.model.divergence import Divergence
from afspark.model.states.cells import VALUE_TYPES
from afspark.model.states.columns import Columns
from afspark.model.states.keyed import KEY_TYPES, HashTableState, KeyedSpec
from afspark.model.states.state import one_of, register_state


@register_state
@dataclass(frozen=True, kw_only=True)
class HashTable(KeyedSpec):
    """A table of numbers by key. A key whose value is 0 is not in the table: removing is putting 0.

    ``key`` is "string" (text and binary alike; compared as bytes) or "int64", ``value`` "int64" or "float64".
    One worker's share holds at most 2^32 - 1 keys and 2^31 - 1 bytes of string keys; beyond that updates
    raise ``StateLimit``. With the divergence "keys" and a threshold above 0, backups hold the keys that came
    or went; other changes of values are backed up at threshold 0 only.

    With ``null_key`` null is a key like any other, as in Spark's ``groupBy``; without it null keys are refused.

    ``operator_key`` declares that the table's keys are values of the operator's only key column, so that a key
    is in the share of one worker alone where items are partitioned by key. Every key that enters the table is then
    held against the worker that owns it; one that is not its own stops the query before the batch is applied.

    >>> from afspark.model.states import HashTable, HeapColumns
    >>> counts = HashTable(key="string", divergence="max").open(HeapColumns(), "counts")
    >>> counts.begin()
    >>> counts.add(["to", "be", "or", "not", "to", "be"], 1)
    >>> counts.remove(["or"])
    >>> counts.get(["to", "or", "question"]).tolist(), len(counts)
    ([2, 0, 0], 3)
    >>> counts.issue(theta=1.5).to_pydict()
    {'key': [b'to', b'be', b'not'], 'value': [2, 2, 1]}
    """

    kind: ClassVar[str] = "hashtable"
    divergences: ClassVar[tuple[Divergence, ...]] = (*KeyedSpec.divergences, Divergence.KEYS)
    value: str = "int64"
    operator_key: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("value type", self.value, VALUE_TYPES)
        if not isinstance(self.operator_key, bool):
            raise UsageError(f"operator_key is True or False, got {self.operator_key!r}.", got=self.operator_key)

    @property
    def disjoint(self) -> bool:
        return self.operator_key

    def to_json(self) -> dict[str, Any]:
        document = super().to_json()
        # Left out where it says nothing, as in checkpoints of tables that could not say it.
        return document if self.operator_key else {k: v for k, v in document.items() if k != "operator_key"}

    def open(self, columns: Columns, name: str) -> HashTableState:
        return HashTableState(self, columns, name, self.value)

    @property
    def pairs_schema(self) -> pa.Schema:
        return pa.schema([("key", KEY_TYPES[self.key]), ("value", pa.type_for_alias(self.value))])
