"""Brings the state of a secondary to that of a durable record, from the backups of its primary.

Records may become durable before a secondary has got the same checkpoint. What it lacks then is little, and in the
store: to read that is all that is needed, whether the secondary is promoted or only has to go on.
"""

from __future__ import annotations

from afspark.errors import AfsparkError
from afspark.model.state_label import StateLabel
from afspark.numbers import Batch
from afspark.policies import CompleteState
from afspark.protocol.parcels import pack_packets
from afspark.resident.kept_files import output_name
from afspark.resident.side_files import drop_queued
from afspark.resident.storage import StateStorage
from afspark.store import load_chain
from afspark.store.recovery import LoadedChain
from afspark.task.pane_states import PaneStates
from afspark.task.task_context import TaskContext
from afspark.task.waiting_feedback import waiting_feedback


class CannotComplete(AfsparkError):
    """A backup that a state lacks does not fit to it, or cannot be read: the state has to be made anew."""


def complete(task: TaskContext, home: StateStorage, panes: PaneStates, plan: CompleteState) -> None:
    """Carries out ``plan``, in one transaction, if the state needs it."""
    version = home.found().version
    if not plan.fits(version):
        return
    loaded = load_chain(task.config.store, plan.chain)
    if loaded.damaged:
        raise CannotComplete(f"behind a record, and {loaded.damaged[0].name} cannot be read")
    panes.begin()
    home.begin(Batch(version + 1), home.found().kept_from)
    try:
        _overwrite(task, panes, loaded)
        for port, packets in waiting_feedback(loaded.images, Batch(plan.until)).items():
            home.side_files.write(output_name(Batch(plan.until), port), pack_packets(packets))
    except BaseException:
        panes.rollback()
        home.clear_mark()
        raise
    home.advance(Batch(plan.until), Batch(plan.until), alone=True)
    panes.end()
    drop_queued(home.side_files, plan.until)


def _overwrite(task: TaskContext, panes: PaneStates, loaded: LoadedChain) -> None:
    needed_from, specs = task.request.batch_time.needed_from, task.operator.states()
    for label, images in loaded.images.items():
        if not isinstance(label, StateLabel) or label.state not in specs:
            continue
        if label.pane is not None and needed_from is not None and label.pane < needed_from:
            continue
        for image in images:
            if panes.fading is not None and not panes.fading.takes(image):
                raise CannotComplete("counting in other units than a record")
            panes.of(label.pane)[label.state].overwrite(image)
    for _, _, state in panes.named():
        state.update_drift()
