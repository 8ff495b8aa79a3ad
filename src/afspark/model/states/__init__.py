"""Fault-tolerant states: what an operator keeps between batches."""

from afspark.model.divergence import Divergence
from afspark.model.states.columns import Columns, HeapColumns
from afspark.model.states.keyed import HashTableState, SetState
from afspark.model.states.matrix import Matrix, MatrixState
from afspark.model.states.members import Set
from afspark.model.states.numeric import Numeric, NumericState
from afspark.model.states.own import Own, OwnState
from afspark.model.states.state import State, StateFull, StateLimit, StateSpec, register_state, spec_class, state_kinds
from afspark.model.states.table import HashTable
from afspark.model.states.vector import Vector, VectorState

__all__ = [
    "Columns",
    "Divergence",
    "HashTable",
    "HashTableState",
    "HeapColumns",
    "Matrix",
    "MatrixState",
    "Numeric",
    "NumericState",
    "Own",
    "OwnState",
    "Set",
    "SetState",
    "State",
    "StateFull",
    "StateLimit",
    "StateSpec",
    "Vector",
    "VectorState",
    "register_state",
    "spec_class",
    "state_kinds",
]
