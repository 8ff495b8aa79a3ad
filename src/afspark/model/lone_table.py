"""Operators whose results need no code of theirs."""

from __future__ import annotations

from afspark.model.operator import Operator
from afspark.model.states import HashTable


def is_lone_table(operator: Operator) -> bool:
    """Whether results are the rows of one table, added up by key."""
    specs = list(operator.states().values())
    return len(specs) == 1 and isinstance(specs[0], HashTable) and type(operator).results is Operator.results
