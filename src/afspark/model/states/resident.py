"""What all states have in common that live in columns: their names, their generations, and their end.

The columns of a state are prefixed with its name; those of a later generation, made by ``rebuild``, with name
and generation number. A number is never used twice, so that no process mistakes new columns for old ones.
While two generations exist, ``REBUILDING`` is set: whoever opens the state drops the one that is not in force.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import pyarrow as pa

from afspark.errors import UsageError
from afspark.model.states.columns import Columns
from afspark.model.states.scalars import Scalars, Slot, TransactionPhase
from afspark.model.states.state import State, StateSpec


class ResidentState(State):
    """Opens the scalars of a state and completes what a killed process has left half done."""

    COLUMNS: ClassVar[tuple[str, ...]]
    """Suffixes of all columns that a state of this class may have, besides its scalars."""

    def __init__(self, spec: StateSpec, columns: Columns, name: str) -> None:
        self.spec = spec
        self.name = name
        self._columns = columns
        self._scalars = Scalars(columns, name)
        if self._scalars[Slot.PHASE] == TransactionPhase.DISCARDING:
            self.discard()
            self._scalars = Scalars(columns, name)
        if self._scalars[Slot.PHASE] == TransactionPhase.REBUILT:
            self._finish_rebuilding()
        self._drop_leftovers()

    def _label(self, generation: int | None = None) -> str:
        """Prefix of the columns of a generation, of the present one if none is named."""
        number = self._scalars[Slot.GENERATION] if generation is None else generation
        return f"{self.name}~{number}" if number else self.name

    # Generations

    def _next_generation(self) -> str:
        """Announces a new generation; returns the prefix of its columns, of which none exists."""
        self._require_closed("rebuilt")
        self._drop_leftovers()
        self._scalars[Slot.GENERATION_AFTER] = self._scalars[Slot.GENERATION] + 1
        self._scalars[Slot.REBUILDING] = 1
        return self._label(self._scalars[Slot.GENERATION_AFTER])

    def _switch_generation(self) -> None:
        """Puts the announced generation in force with one store, then drops the old one."""
        self._scalars[Slot.PHASE] = TransactionPhase.REBUILT
        self._finish_rebuilding()
        self._drop_leftovers()

    def _finish_rebuilding(self) -> None:
        """Moves the scalars to the new generation; can be repeated until the phase ends."""
        scalars = self._scalars
        scalars[Slot.GENERATION] = scalars[Slot.GENERATION_AFTER]
        scalars[Slot.JOURNAL] = 0
        scalars[Slot.PENDING] = 0
        scalars[Slot.PHASE] = TransactionPhase.CLOSED

    def _drop_leftovers(self) -> None:
        if self._scalars[Slot.REBUILDING]:
            present = self._scalars[Slot.GENERATION]
            for generation in (present - 1, present + 1):
                self._drop_generation(generation)
            self._scalars[Slot.REBUILDING] = 0

    def _drop_generation(self, generation: int) -> None:
        if generation >= 0:
            label = self._label(generation)
            for column in self.COLUMNS:
                self._columns.drop(f"{label}.{column}")

    # The end

    def discard(self) -> None:
        self._scalars[Slot.PHASE] = TransactionPhase.DISCARDING
        self._drop_leftovers()
        self._drop_generation(self._scalars[Slot.GENERATION])
        self._columns.drop(f"{self.name}.meta")

    # Transactions

    @abstractmethod
    def _finish_acknowledging(self) -> None:
        """Completes an acknowledgement; can be repeated until the phase ends."""

    def _resume_acknowledging(self) -> None:
        """Completes an acknowledgement that was cut short, if one was."""
        if self._scalars[Slot.PHASE] == TransactionPhase.ACKNOWLEDGING:
            self._finish_acknowledging()

    @property
    def _in_transaction(self) -> bool:
        return self._scalars[Slot.PHASE] in (TransactionPhase.OPEN, TransactionPhase.ISSUED)

    # What is allowed when

    def _require_open(self) -> None:
        phase = self._scalars[Slot.PHASE]
        if phase != TransactionPhase.OPEN:
            what = (
                "pairs of this transaction are already issued"
                if phase == TransactionPhase.ISSUED
                else "no transaction is open"
            )
            raise UsageError(
                f"State {self.name!r} takes no updates: {what}.",
                remedy="Call begin() first.",
                state=self.name,
            )

    def _require_issuable(self, theta: float) -> None:
        if not theta >= 0:
            raise UsageError(f"A threshold is at least 0, got {theta}.", got=theta)
        if not self._in_transaction:
            raise UsageError(
                f"State {self.name!r} has no open transaction.", remedy="Call begin() first.", state=self.name
            )

    def _require_closed(self, what: str) -> None:
        if self._scalars[Slot.PHASE] != TransactionPhase.CLOSED:
            raise UsageError(
                f"State {self.name!r} cannot be {what} in the midst of a transaction.",
                remedy="Call acknowledge() or rollback() first.",
                state=self.name,
            )

    def _require_schema(self, image: pa.RecordBatch) -> None:
        schema = self.spec.pairs_schema
        if not image.schema.equals(schema):
            raise UsageError(
                f"A backup of state {self.name!r} has another schema: {image.schema}.",
                remedy=f"Expected {schema}.",
                state=self.name,
            )

    def _require_kept(self) -> None:
        if self._scalars[Slot.PHASE] == TransactionPhase.DISCARDING:
            raise UsageError(
                f"State {self.name!r} was discarded.", remedy="Open it again for a fresh one.", state=self.name
            )
