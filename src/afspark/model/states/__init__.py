"""Fault-tolerant states: what an operator keeps between batches."""

from afspark.model.divergence import Divergence
from afspark.model.states.base import State, StateLimit, StateSpec, register_state, spec_class, state_kinds
from afspark.model.states.columns import Columns, HeapColumns
from afspark.model.states.matrix import Matrix, MatrixState
from afspark.model.states.table import HashTable, HashTableState

__all__ = [
    "Columns",
    "Divergence",
    "HashTable",
    "HashTableState",
    "HeapColumns",
    "Matrix",
    "MatrixState",
    "State",
    "StateLimit",
    "StateSpec",
    "register_state",
    "spec_class",
    "state_kinds",
]
