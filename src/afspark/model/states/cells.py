"""The part that all array-like states share: cells with values, shadows, and an undo journal.

Rules that make a kill at any store harmless:

- A journal entry is written by one kernel call, its count published by a later Python statement, and only
  then does another kernel change the value: a compiler may reorder stores inside a kernel, never across
  calls.
- Stamps say "journalled in this attempt". The attempt number grows with every ``begin``, so stamps of an
  attempt that was killed mean nothing to the next.
- ``PHASE`` changes by one store. Whatever a phase promises is written before it is entered.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from afspark.errors import UsageError
from afspark.model.effect_digest import EffectDigest
from afspark.model.kernels import cell_kernels as kernel
from afspark.model.kernels import digest_kernels as digest_kernel
from afspark.model.kernels.plain_arrays import Array
from afspark.model.states import books
from afspark.model.states.books import Balance
from afspark.model.states.columns import Columns
from afspark.model.states.measure import MEASURES, Weigh
from afspark.model.states.resident import ResidentState
from afspark.model.states.scalars import Slot, TransactionPhase
from afspark.model.states.state import StateLimit, StateSpec

BLOCK = 1 << 15
"""Cells updated at a stretch: few enough to stay in the cache between the steps of an update."""

VALUE_TYPES: dict[str, np.dtype[Any]] = {"int64": np.dtype(np.int64), "float64": np.dtype(np.float64)}

_ID = np.dtype(np.uint32)
_MOST_ATTEMPTS = 2**32 - 1
_NO_PLACES = np.zeros(0, np.uint64)


def roomy(wanted: int) -> int:
    """Capacity to ask for when ``wanted`` elements are needed: growth by a quarter keeps appending cheap."""
    return wanted + wanted // 4 + 64


class CellState(ResidentState):
    """Transactions, divergence and backups over numbered cells; subclasses say what a cell number means."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("value", "shadow", "stamp", "journal", "old", "pending")
    COUNTS_LIFE: ClassVar[bool] = False
    """Whether ``Slot.LIVING`` is kept: the number of cells of which value or shadow is not 0."""

    def __init__(self, spec: StateSpec, columns: Columns, name: str, value: str, capacity: int) -> None:
        super().__init__(spec, columns, name)
        self._type = VALUE_TYPES[value]
        self._integers = value == "int64"
        self._measure = MEASURES[spec.distance]
        self._open_arrays(capacity)
        self._folded: tuple[Balance, Balance] | None = None
        """Balance of the untouched cells and of the journalled ones; None while updates are not folded in."""
        self._resume_acknowledging()

    def _open_arrays(self, capacity: int) -> None:
        columns, label = self._columns, self._label()
        self._values = columns.open(f"{label}.value", self._type, capacity)
        self._shadows = columns.open(f"{label}.shadow", self._type, capacity)
        self._stamps = columns.open(f"{label}.stamp", _ID, capacity)
        self._journal = columns.open(f"{label}.journal", _ID, 0)
        self._olds = columns.open(f"{label}.old", self._type, 0)
        self._pending = columns.open(f"{label}.pending", _ID, 0)

    def _room_for_cells(self, count: int) -> None:
        """Makes room for that many cells; new ones are zero."""
        if count > min(len(self._values), len(self._shadows), len(self._stamps)):
            label = self._label()
            self._values = self._columns.grow(f"{label}.value", roomy(count))
            self._shadows = self._columns.grow(f"{label}.shadow", roomy(count))
            self._stamps = self._columns.grow(f"{label}.stamp", roomy(count))

    @property
    @abstractmethod
    def size(self) -> int: ...

    @abstractmethod
    def _pairs(self, cells: Array | None, values: Array) -> pa.RecordBatch:
        """A batch of the pairs schema from cell numbers (None: all cells in order) and their values."""

    @abstractmethod
    def _load(self, image: pa.RecordBatch) -> None:
        """Writes the pairs of a backup into the values of a fresh state, outside any transaction."""

    # What a kind keeps about its cells as a whole follows the transaction by these; all must be repeatable.

    def _extent_begin(self) -> None:
        """Remembers what ``_extent_rollback`` needs."""

    def _extent_rollback(self) -> None:
        """Removes cells added since the transaction began."""

    def _extent_issue(self, cells: Array) -> None:
        """These cells are about to be pending: remembers what ``_extent_acknowledge`` needs."""

    def _extent_acknowledge(self) -> None:
        """The pending cells are durable."""

    def _extent_restore(self) -> None:
        """All cells are as restored."""

    def _complete(self, cells: Array, left: Balance, theta: float) -> tuple[Array, Balance]:
        """The selected cells with what else a backup needs, and the balance once they are durable."""
        return cells, left

    # Transactions

    def begin(self) -> None:
        scalars = self._scalars
        self._require_kept()
        self._resume_acknowledging()
        scalars[Slot.PHASE] = TransactionPhase.CLOSED
        scalars[Slot.JOURNAL] = 0
        scalars[Slot.PENDING] = 0
        scalars.set_real(Slot.POWER_BEFORE, scalars.real(Slot.POWER))
        scalars.set_real(Slot.ERROR_BEFORE, scalars.real(Slot.ERROR))
        self._extent_begin()
        if scalars[Slot.ATTEMPT] >= _MOST_ATTEMPTS:
            self._stamps[:] = 0
            scalars[Slot.ATTEMPT] = 0
        scalars[Slot.ATTEMPT] += 1
        self._folded = None
        scalars[Slot.PHASE] = TransactionPhase.OPEN

    def rollback(self) -> None:
        self._resume_acknowledging()
        if not self._in_transaction:
            return
        scalars = self._scalars
        kernel.undo_cells(self._journal, self._olds, scalars[Slot.JOURNAL], self._values)
        self._extent_rollback()
        scalars.set_real(Slot.POWER, scalars.real(Slot.POWER_BEFORE))
        scalars.set_real(Slot.ERROR, scalars.real(Slot.ERROR_BEFORE))
        self._folded = None
        scalars[Slot.PENDING] = 0
        scalars[Slot.JOURNAL] = 0
        scalars[Slot.PHASE] = TransactionPhase.CLOSED

    def _journal_room(self, more: int) -> int:
        """Makes room for ``more`` journal entries; returns the present count."""
        count = self._scalars[Slot.JOURNAL]
        wanted = min(count + more, self.size)
        self._folded = None
        if wanted > min(len(self._journal), len(self._olds)):
            room = max(wanted, min(roomy(wanted), len(self._values)))
            self._journal = self._columns.grow(f"{self._label()}.journal", room)
            self._olds = self._columns.grow(f"{self._label()}.old", room)
        return count

    def _touch(self, cells: Array) -> None:
        """Journals the cells that this transaction has not touched yet, and publishes their number."""
        count = self._journal_room(len(cells))
        attempt = self._scalars[Slot.ATTEMPT]
        count = kernel.journal_cells(cells, self._values, self._stamps, attempt, self._journal, self._olds, count)
        self._scalars[Slot.JOURNAL] = count

    def _add(self, cells: Array, deltas: Array, step: int) -> None:
        """Adds to touched cells."""
        add = kernel.add_integers if self._integers else kernel.add_floats
        if add(cells, deltas, step, self._values):
            self._overflow()

    def _put(self, cells: Array, news: Array, step: int) -> None:
        """Overwrites touched cells."""
        kernel.put_cells(cells, news, step, self._values)

    def _overflow(self) -> None:
        raise StateLimit(
            f"A sum in state {self.name!r} left the range of int64.",
            remedy="Use value='float64', or smaller increments.",
            state=self.name,
            limit=2**63 - 1,
        )

    # Divergence

    def update_drift(self) -> None:
        if self._folded is not None or not self._in_transaction:
            return
        count = self._scalars[Slot.JOURNAL]
        journal = self._journal[:count]
        start = Balance(self._scalars.real(Slot.POWER_BEFORE), self._scalars.real(Slot.ERROR_BEFORE))
        before, after, gained = self._measure.fold(journal, self._olds, self._values, self._shadows, self.COUNTS_LIFE)
        rest, touched = start, Balance(after, self._rounding(after, count))
        if self._measure.adds_up:
            rest = books.untouched(start, before, count, integers=self._whole)
        if self.COUNTS_LIFE:
            self._scalars[Slot.LIVING] = self._scalars[Slot.LIVING_BEFORE] + gained
        self._write_balance(Slot.POWER, Slot.ERROR, books.combined(self.spec.distance, rest, touched))
        self._folded = (rest, touched)

    @property
    def _whole(self) -> bool:
        """Whether every cell adds a whole number to the power sum."""
        return self._integers or self._measure.counts

    def _rounding(self, power: float, count: int) -> float:
        """Bound on what is wrong with the power of ``count`` cells."""
        if not self._measure.adds_up:
            return 0.0
        unseen = books.UNSEEN if self._measure.counts and count else 0.0
        return books.rounding(power, count, integers=self._whole) + unseen

    def _write_balance(self, power: Slot, error: Slot, balance: Balance) -> None:
        self._scalars.set_real(power, balance.power)
        self._scalars.set_real(error, balance.error)

    def drift(self) -> float:
        return self.spec.distance.norm(self._scalars.real(Slot.POWER))

    def drift_left(self) -> float:
        issued = self._scalars[Slot.PHASE] == TransactionPhase.ISSUED
        return self.spec.distance.norm(self._scalars.real(Slot.POWER_AFTER if issued else Slot.POWER))

    def divergence(self) -> float:
        values, shadows = self._values[: self.size], self._shadows[: self.size]
        found = self.spec.distance.norm(self._measure.total(values, shadows))
        squared = self.spec.distance.power == 2
        if not squared or (math.isfinite(found) and not self.spec.distance.is_traceless(found)):
            return found
        # Squares have overflowed or underflowed: in units of the largest difference they do neither.
        largest = float(kernel.largest_distance(values, shadows))
        if largest == 0.0 or math.isinf(largest):
            return largest
        all_cells = np.arange(self.size, dtype=_ID)
        return largest * float(np.linalg.norm(self._weighed(kernel.distances, all_cells) / largest))

    # Backups

    def issue(self, theta: float, *, everything: bool = False) -> pa.RecordBatch | None:
        self._require_issuable(theta)
        self.update_drift()
        if theta == math.inf:
            return None
        # Below what power sums can tell, whatever differs at all is backed up.
        limit = 0.0 if self.spec.exact or self.spec.distance.is_traceless(theta) else float(theta)
        cells, left = self._complete(*self._select(limit, everything), limit)
        if len(cells) == 0:
            return None
        if len(cells) > len(self._pending):
            self._pending = self._columns.grow(f"{self._label()}.pending", len(cells))
        self._pending[: len(cells)] = cells
        self._extent_issue(cells)
        self._write_balance(Slot.POWER_AFTER, Slot.ERROR_AFTER, left)
        self._scalars[Slot.PENDING] = len(cells)
        self._scalars[Slot.PHASE] = TransactionPhase.ISSUED
        return self._pairs(cells, self._values[cells])

    def _select(self, theta: float, everything: bool) -> tuple[Array, Balance]:
        """The cells to back up, and the balance once they are."""
        assert self._folded is not None
        rest, touched = self._folded
        divergence = self.spec.distance
        limit, low = divergence.raised(theta), divergence.raised(theta / 2)
        none = np.zeros(0, _ID)
        overall = books.combined(divergence, rest, touched)
        # At threshold 0 only the differences themselves tell: squares of tiny ones underflow, counts ignore them.
        if not everything and overall.most <= limit and theta > 0:
            return none, overall
        scan = everything or rest.most > (low if self._measure.adds_up else limit)
        cells = np.arange(self.size, dtype=_ID) if scan else self._journal[: self._scalars[Slot.JOURNAL]]
        if scan:
            rest = Balance()
        if theta == 0:
            return cells[self._weighed(kernel.distances, cells) != 0.0], rest
        weights = self._weighed(self._measure.weigh, cells)
        chosen = np.zeros(len(cells), np.bool_)
        left = books.combined(divergence, rest, self._remaining(weights, chosen))
        if left.most > limit:
            if self._measure.adds_up:
                kernel.choose_largest(weights, max(low - rest.most, 0.0), chosen)
            else:
                np.greater(weights, low, out=chosen)
            left = books.combined(divergence, rest, self._remaining(weights, chosen))
        elif scan:
            self._write_balance(Slot.POWER, Slot.ERROR, left)
        return cells[chosen], left

    def _weighed(self, weigh: Weigh, cells: Array) -> Array:
        weights = np.empty(len(cells), np.float64)
        weigh(cells, self._values, self._shadows, weights)
        return weights

    def _remaining(self, weights: Array, chosen: Array) -> Balance:
        """The balance of the cells that are not chosen."""
        if not self._measure.adds_up:
            return Balance(float(np.max(weights, where=~chosen, initial=0.0)))
        power = float(kernel.sum_where(weights, chosen, False))
        count = len(weights) - int(np.count_nonzero(chosen))
        return Balance(power, self._rounding(power, count))

    def acknowledge(self) -> None:
        if self._scalars[Slot.PHASE] in (TransactionPhase.ISSUED, TransactionPhase.ACKNOWLEDGING):
            self._scalars[Slot.PHASE] = TransactionPhase.ACKNOWLEDGING
            self._finish_acknowledging()
        if self._scalars[Slot.PHASE] == TransactionPhase.OPEN:
            self._scalars[Slot.PHASE] = TransactionPhase.CLOSED

    def _finish_acknowledging(self) -> None:
        scalars = self._scalars
        kernel.move_shadows(self._pending[: scalars[Slot.PENDING]], self._values, self._shadows)
        scalars.set_real(Slot.POWER, scalars.real(Slot.POWER_AFTER))
        scalars.set_real(Slot.ERROR, scalars.real(Slot.ERROR_AFTER))
        self._extent_acknowledge()
        # The pending count stays until the next begin: dump and a repeated move give the same with it.
        scalars[Slot.PHASE] = TransactionPhase.CLOSED

    def dump(self) -> pa.RecordBatch:
        durable = self._shadows[: self.size].copy()
        pending = self._pending[: self._scalars[Slot.PENDING]]
        durable[pending] = self._values[pending]
        cells = np.flatnonzero(durable).astype(_ID)
        return self._pairs(cells, durable[cells])

    def restore(self, images: Iterable[pa.RecordBatch]) -> None:
        if self._scalars[Slot.ATTEMPT] or not self._is_fresh():
            raise UsageError(
                f"State {self.name!r} is not fresh.",
                remedy="Restore before the first transaction.",
                state=self.name,
            )
        for image in images:
            self._require_schema(image)
            self._load(image)
        self._shadows[: self.size] = self._values[: self.size]
        self._extent_restore()

    @abstractmethod
    def _is_fresh(self) -> bool: ...

    # Reading

    def changed(self) -> pa.RecordBatch:
        cells = self._journal[: self._scalars[Slot.JOURNAL]].copy()
        return self._pairs(cells, self._values[cells])

    def digest(self) -> EffectDigest:
        count = self._scalars[Slot.JOURNAL]
        cells = self._journal[:count]
        changes = cells, self._olds[:count], self._values, self._places(cells)
        if self._integers:
            changed, total = digest_kernel.digest_integers(*changes)
            return EffectDigest(int(changed), int(total))
        # How many cells have changed is a matter of rounding.
        new, change, size = digest_kernel.digest_floats(*changes)
        return EffectDigest(floats=(float(new), float(change)), size=float(size))

    def _places(self, cells: Array) -> Array:
        """Hashes of what the cells stand for; none where a cell has the same number in every copy of the state."""
        return _NO_PLACES

    @property
    def memory(self) -> int:
        arrays = (self._values, self._shadows, self._stamps, self._journal, self._olds, self._pending)
        return self._scalars.memory + sum(array.nbytes for array in arrays)
