"""Plain numpy twin of the matrix kernels."""

from __future__ import annotations

from tests.twins.cells_twin import Array


def touched_by(deltas: Array, start: int, stamps: Array, attempt: int) -> list[int]:
    """The cells that a dense delta touches for the first time in this attempt, ascending."""
    return [start + i for i, delta in enumerate(deltas.tolist()) if delta != 0 and stamps[start + i] != attempt]


def added(values: Array, deltas: Array, start: int) -> Array:
    result = values.copy()
    result[start : start + len(deltas)] += deltas
    return result
