"""What a failure-free run gives, in plain Python: one model of all workers, without states or panes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from afspark.model.windows import Decaying
from afspark.protocol.parcels import owners
from afspark.sources import share
from tests.simulation.program import chunk
from tests.simulation.schedule import Item, Schedule, as_arrow, cell_of

Cells = dict[Any, float]


class Truth:
    """Applies batches; ``closed`` maps each batch to the cells of the windows that ended before its items."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.window = schedule, schedule.window
        #: cells by pane (tick); all in one pane without windows
        self.panes: dict[int, Cells] = {}
        self.closed: dict[int, dict[int, Cells]] = {}
        self.items = self.late = self.unplaced = self.kept = 0
        self.latest: float | None = None
        self.seen = [0] * schedule.workers
        self.first_open: int | None = None
        #: panes with items that can still close
        self._open: set[int] = set()
        self._first_chunk = 0
        #: by batch and worker, the items in the order it meets them
        self.dealt: list[list[list[Item]]] = []

    def apply(self, batch: int) -> None:
        now = self.schedule.times[batch]
        if self.window is not None and self.window.by == "processing":
            now = self.latest = max(now, self.latest if self.latest is not None else now)
        self._close(batch, self._bound(now))
        latest = self.latest
        self.dealt.append(self._shares(batch))
        for worker, items in enumerate(self.dealt[-1]):
            for item in items:
                self.items += 1
                pane = self._pane(worker, item, now)
                if pane is None:
                    self.unplaced += 1
                    continue
                if self.window is not None and self.window.by == "event":
                    assert item[2] is not None
                    latest = item[2] if latest is None else max(latest, item[2])
                self._take(pane, item)
        self.latest = latest

    def end(self, batch: int) -> None:
        """The end of the stream closes everything."""
        if self.window is not None:
            self._close(batch, math.inf)

    def of_window(self, number: int) -> Cells:
        """The cells of the window that ends with pane ``number``; of a decaying one, at the newest tick with items."""
        if isinstance(self.window, Decaying):
            return self.at_tick(max(self._open))
        assert self.window is not None
        return summed(
            [self.panes[pane] for pane in range(number - self.window.panes + 1, number + 1) if pane in self.panes],
            self.schedule.spec.kind == "set",
        )

    def at_tick(self, tick: int) -> Cells:
        assert isinstance(self.window, Decaying)
        total: Cells = defaultdict(float)
        for pane, cells in self.panes.items():
            for key, value in cells.items():
                total[key] += value * self.window.decay ** (tick - pane)
        return dict(total)

    # --- parts ----------------------------------------------------------------------------------------------

    def _shares(self, batch: int) -> list[list[Item]]:
        """The items of each worker, in the order it meets them."""
        schedule, first = self.schedule, self._first_chunk
        self._first_chunk += len(schedule.batches[batch])
        chunks = [chunk(first + number, len(items)) for number, items in enumerate(schedule.batches[batch])]
        read = [
            [item for one in part for item in schedule.chunks[one.index]] for part in share(chunks, schedule.workers)
        ]
        if not schedule.keyed:
            return read
        dealt: list[list[Item]] = [[] for _ in range(schedule.workers)]
        for items in read:
            if items:
                for item, owner in zip(
                    items, owners(as_arrow(tuple(items)), ("key",), schedule.workers).tolist(), strict=True
                ):
                    dealt[owner].append(item)
        return dealt

    def _pane(self, worker: int, item: Item, now: float) -> int | None:
        window = self.window
        if window is None:
            return 0
        if window.by == "processing":
            return math.floor(now / window.size)
        if window.by == "event":
            return math.floor(item[2] / window.size) if item[2] is not None and math.isfinite(item[2]) else None
        number = self.seen[worker]
        self.seen[worker] += 1
        return number // (int(window.size) // self.schedule.workers)

    def _take(self, pane: int, item: Item) -> None:
        is_open = self.first_open is None or pane >= self.first_open
        if not is_open and not isinstance(self.window, Decaying):
            self.late += 1
            return
        self.kept += 1
        if is_open:
            self._open.add(pane)
        self._put(item, self.panes.setdefault(pane, {}))

    def cells_of(self, items: Iterable[Item]) -> Cells:
        """What these items come to alone, without windows."""
        cells: Cells = {}
        for item in items:
            self._put(item, cells)
        return summed([cells], self.schedule.spec.kind == "set")

    def _put(self, item: Item, cells: Cells) -> None:
        key, value = self._cell(item)
        cells[key] = value if self.schedule.spec.kind == "set" else cells.get(key, 0) + value

    def _cell(self, item: Item) -> tuple[Any, float]:
        match self.schedule.spec.kind:
            case "numeric":
                return 0, item[1]
            case "vector" | "matrix":
                return item[0], item[1]
            case "hashtable":
                return f"k{cell_of(self.schedule, item)}".encode(), item[1]
            case _:
                return f"k{cell_of(self.schedule, item)}".encode(), 1

    def _bound(self, now: float) -> float | None:
        """Windows that end with a lower pane are over."""
        window = self.window
        if window is None:
            return None
        if window.by == "processing":
            return math.floor(now / window.size)
        if window.by == "event":
            return None if self.latest is None else math.floor((self.latest - window.patience) / window.size)
        return min(self.seen) // (int(window.size) // self.schedule.workers)

    def _close(self, batch: int, bound: float | None) -> None:
        if bound is None:
            return
        assert self.window is not None
        panes = self.window.panes
        windows = {pane + later for pane in self._open for later in range(panes)}
        over = {one for one in windows if one < bound and (self.first_open is None or one >= self.first_open)}
        self.closed.setdefault(batch, {}).update({one: self.of_window(one) for one in over})
        if bound == math.inf:
            bound = max(over, default=(self.first_open or 1) - 1) + 1
        self.first_open = int(bound) if self.first_open is None else max(self.first_open, int(bound))
        self._open = {pane for pane in self._open if pane + panes - 1 >= self.first_open}

    @property
    def open_windows(self) -> set[int]:
        assert self.window is not None
        panes = self.window.panes
        windows = {pane + later for pane in self._open for later in range(panes)}
        return {one for one in windows if self.first_open is None or one >= self.first_open}


def summed(parts: list[Cells], united: bool) -> Cells:
    """Shares as one: numbers add up, sets unite. A cell of 0 is none."""
    total: Cells = {}
    for cells in parts:
        for key, value in cells.items():
            total[key] = 1 if united else total.get(key, 0) + value
    return {key: value for key, value in total.items() if value}
