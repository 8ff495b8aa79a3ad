"""What is there after a batch: the workers' resident states, merged, and the windows that were delivered."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa

from afspark.coordinator.operator_run import OperatorRun
from afspark.model.distances import cells_of
from afspark.model.windows import Decaying
from afspark.protocol.parcels import open_parts
from afspark.protocol.ports import WINDOWS
from afspark.task.pane_states import PaneStates
from tests.simulation.cluster import kept_at
from tests.simulation.truth import Cells, summed
from tests.simulation.world import world


def plain(exported: pa.RecordBatch) -> Cells:
    return {key[0]: value for key, value in cells_of(exported).items()}


def at_home(run: OperatorRun, batch: int) -> bool:
    """Whether every worker's state is where it belongs and has applied the batch."""
    for member in run.group.members:
        segment = world().memory.get((member.home, run.name, member.worker))
        if segment is None or member.home not in world().slots:
            return False
        if (segment.incarnation, segment.version, segment.marked) != (member.incarnation, batch, False):
            return False
    return True


def states(run: OperatorRun) -> dict[int, Cells]:
    """The merged cells by pane; pane 0 without panes."""
    window, united = run.node.window, run.node.operator.states()["state"].kind == "set"
    paned = window is not None and not isinstance(window, Decaying)
    shares: dict[int, list[Cells]] = defaultdict(list)
    for member in run.group.members:
        segment = world().memory[member.home, run.name, member.worker]
        for _, pane, state in PaneStates(segment.columns, run.node.operator.states(), paned=paned).named():
            shares[pane or 0].append(plain(state.export()))
    return {pane: summed(parts, united) for pane, parts in shares.items()}


def table(run: OperatorRun, name: str, only: int | None = None) -> Cells:
    """The merged cells of one of an operator's states, without panes; ``only``: those of one worker."""
    shares = []
    for member in run.group.members:
        if only not in (None, member.worker):
            continue
        segment = world().memory[member.home, run.name, member.worker]
        shares.append(
            plain(PaneStates(segment.columns, run.node.operator.states(), paned=False).of(None)[name].export())
        )
    return summed(shares, united=False)


def at_tick(run: OperatorRun, tick: int) -> Cells:
    """A decaying state at a tick."""
    window, shares = run.node.window, []
    assert isinstance(window, Decaying)
    for member in run.group.members:
        segment = world().memory[member.home, run.name, member.worker]
        panes = PaneStates(segment.columns, run.node.operator.states(), paned=False, decaying=window)
        shares.append(plain(panes.at(tick)["state"].export()))
    return summed(shares, united=False)


def closed_windows(run: OperatorRun, batch: int) -> dict[int, Cells]:
    """The windows that the batch has closed, read as a sink reads them."""
    found: dict[int, list[Cells]] = defaultdict(list)
    for member in run.group.members:
        for label, cells in open_parts(kept_at(run, member.worker, batch, WINDOWS)):
            found[label[0]].append(plain(cells))
    united = run.node.operator.states()["state"].kind == "set"
    return {number: summed(parts, united) for number, parts in found.items()}
