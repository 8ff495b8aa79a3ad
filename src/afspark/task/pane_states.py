"""The states of one worker: a single set, or one set for every open pane of a window.

The states of a pane have columns of their own, so that a pane comes and goes without touching the others: a closed
one is dropped with its columns once the batch that closed it is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from afspark.model.state_label import Pane, StateLabel
from afspark.model.states import Columns, HeapColumns, State, StateSpec
from afspark.model.windows import Decayed, Fading, Window
from afspark.numbers import PaneNumber
from afspark.store.images import ImageKey

States = dict[str, State]


class PaneStates:
    """All states of a worker by pane; ``None`` is the pane of operators without windows, and of ``decaying`` ones."""

    def __init__(
        self,
        columns: Columns,
        specs: Mapping[str, StateSpec],
        *,
        paned: bool,
        first: PaneNumber | None = None,
        decaying: Window | None = None,
    ) -> None:
        self._columns, self._specs = columns, specs
        self.fading = Fading(decaying, columns) if decaying is not None else None
        self._sets: dict[Pane, States] = {}
        self._in_transaction = False
        self._new: set[Pane] = set()
        if paned:
            if first is not None:
                self.drop_below(first)
            for pane in sorted(set(_panes(columns).values())):
                self._sets[pane] = self._open(pane)
        else:
            self._sets[None] = self._open(None)

    @classmethod
    def under(
        cls, window: Window | None, columns: Columns, specs: Mapping[str, StateSpec], *, first: PaneNumber | None = None
    ) -> PaneStates:
        """The states of an operator with that window."""
        if window is None or window.has_panes:
            return cls(columns, specs, paned=window is not None, first=first)
        return cls(columns, specs, paned=False, first=first, decaying=window)

    def __iter__(self) -> Iterator[Pane]:
        return iter(list(self._sets))

    def named(self) -> Iterator[tuple[str, Pane, State]]:
        """Every state with its name and pane."""
        for pane, states in list(self._sets.items()):
            for name, state in states.items():
                yield name, pane, state

    def of(self, pane: Pane) -> States:
        """The states of a pane; a new one joins the running transaction."""
        if pane not in self._sets:
            self._sets[pane] = self._open(pane)
            if self._in_transaction:
                self._new.add(pane)
                # Without history, so begun after the mark is as good as before it.
                for state in self._sets[pane].values():
                    state.begin()
        return self._sets[pane]

    def at(self, tick: int | None, *, updating: bool = False) -> dict[str, Decayed]:
        """The states of a decaying window in units of a tick, which can be updated if they are ``updating``."""
        assert self.fading is not None
        states = self.of(None)
        if updating and tick is not None:
            self.fading.move(states.values(), tick)
        return self.fading.at(states, tick)

    def drifts(self, tick: int | None) -> dict[str, float]:
        """How far each state is from its last backup, with that of this batch; decaying ones in units of a tick."""
        if self.fading is not None:
            return {name: state.drift_left() for name, state in self.at(tick).items()}
        return {StateLabel(name, pane).text(): state.drift_left() for name, pane, state in self.named()}

    def drop_below(self, first: PaneNumber) -> None:
        """Forgets panes that no open window needs. By their columns: a process may have died while it did so."""
        known = [pane for pane in self._sets if pane is not None and pane < first]
        if not known and self._sets:
            return
        for pane in known:
            del self._sets[pane]
        for name, pane in _panes(self._columns).items():
            if pane < first:
                self._columns.drop(name)

    def begin(self) -> None:
        if self.fading is not None:
            self.fading.begin()
        for _, _, state in self.named():
            state.acknowledge()
            if state.wants_rebuild:
                state.rebuild()
            state.begin()
        self._in_transaction = True
        self._new.clear()

    def rollback(self) -> None:
        """Undoes the transaction; panes that it has opened are gone."""
        for _, _, state in self.named():
            state.rollback()
        for pane in self._new:
            for state in self._sets.pop(pane).values():
                state.discard()
        self._new.clear()
        if self.fading is not None:
            self.fading.rollback()
        self._in_transaction = False

    def end(self) -> None:
        self._in_transaction = False

    def restore(self, images: Mapping[ImageKey, Iterable[pa.RecordBatch]], needed_from: PaneNumber | None) -> int:
        """Loads backups onto fresh states; returns the number of cells. Panes that are not needed are left out."""
        cells = 0
        of_states = {
            key: found for key, found in images.items() if isinstance(key, StateLabel) and key.state in self._specs
        }
        if self.fading is not None:
            of_states = dict(self.fading.restore(of_states))
        for label, found in of_states.items():
            if label.pane is not None and needed_from is not None and label.pane < needed_from:
                continue
            target = self.of(label.pane)[label.state]
            target.restore(found)
            cells += target.size
        return cells

    def _open(self, pane: Pane) -> States:
        return {name: spec.open(self._columns, StateLabel(name, pane).text()) for name, spec in self._specs.items()}


def merged(specs: Mapping[str, StateSpec], sets: Iterable[Mapping[str, State]]) -> States:
    """The states of several panes as one, apart from them."""
    columns = HeapColumns()
    made = {name: spec.open(columns, name) for name, spec in specs.items()}
    for state in made.values():
        state.begin()
    for states in sets:
        for name, state in states.items():
            made[name].merge_from(state.export())
    return made


def _panes(columns: Columns) -> dict[str, PaneNumber]:
    """The columns that belong to panes: ``counts@17.value`` is of pane 17."""
    found = {name: StateLabel.of_column(name) for name in columns.names()}
    return {name: label.pane for name, label in found.items() if label is not None and label.pane is not None}
