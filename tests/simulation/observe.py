"""What is there after a batch: the workers' resident states, merged, and the windows that were delivered."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa

from afspark.model.distances import cells_of
from afspark.model.windows import Decaying
from afspark.runtime.crew import Crew
from afspark.runtime.exchange import open_parts
from afspark.runtime.panes import Panes
from afspark.runtime.shift import WINDOWS
from tests.simulation.cluster import kept_by
from tests.simulation.truth import Cells, summed
from tests.simulation.world import world


def plain(exported: pa.RecordBatch) -> Cells:
    return {key[0]: value for key, value in cells_of(exported).items()}


def at_home(crew: Crew, batch: int) -> bool:
    """Whether every worker's state is where it belongs and has applied the batch."""
    for member in crew.workforce.members:
        segment = world().memory.get((member.home, crew.name, member.worker))
        if segment is None or member.home not in world().slots:
            return False
        if (segment.incarnation, segment.version, segment.marked) != (member.incarnation, batch, False):
            return False
    return True


def states(crew: Crew) -> dict[int, Cells]:
    """The merged cells by pane; pane 0 without panes."""
    window, united = crew.node.window, crew.node.operator.states()["state"].kind == "set"
    paned = window is not None and not isinstance(window, Decaying)
    shares: dict[int, list[Cells]] = defaultdict(list)
    for member in crew.workforce.members:
        segment = world().memory[member.home, crew.name, member.worker]
        for _, pane, state in Panes(segment.columns, crew.node.operator.states(), paned=paned).named():
            shares[pane or 0].append(plain(state.export()))
    return {pane: summed(parts, united) for pane, parts in shares.items()}


def table(crew: Crew, name: str) -> Cells:
    """The merged cells of one of an operator's states, without panes."""
    shares = []
    for member in crew.workforce.members:
        segment = world().memory[member.home, crew.name, member.worker]
        shares.append(plain(Panes(segment.columns, crew.node.operator.states(), paned=False).of(None)[name].export()))
    return summed(shares, united=False)


def at_tick(crew: Crew, tick: int) -> Cells:
    """A decaying state at a tick."""
    window, shares = crew.node.window, []
    assert isinstance(window, Decaying)
    for member in crew.workforce.members:
        segment = world().memory[member.home, crew.name, member.worker]
        panes = Panes(segment.columns, crew.node.operator.states(), paned=False, decaying=window)
        shares.append(plain(panes.at(tick)["state"].export()))
    return summed(shares, united=False)


def closed_windows(crew: Crew, batch: int) -> dict[int, Cells]:
    """The windows that the batch has closed, read as a sink reads them."""
    found: dict[int, list[Cells]] = defaultdict(list)
    here = world()
    for member in crew.workforce.members:
        before, here.host = here.host, member.home
        try:
            for label, cells in open_parts(kept_by(crew.residents, member.worker, batch, WINDOWS)):
                found[label[0]].append(plain(cells))
        finally:
            here.host = before
    united = crew.node.operator.states()["state"].kind == "set"
    return {number: summed(parts, united) for number, parts in found.items()}
