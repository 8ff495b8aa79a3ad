"""What a batch has done at one worker, as digests: if the batch is replayed, the same must come of it."""

from __future__ import annotations

from collections.abc import Mapping

from afspark.model.effect_digest import EffectDigest, digest_of_rows
from afspark.model.state_label import StateLabel
from afspark.protocol.parcels import open_parts
from afspark.task.pane_states import PaneStates

#: How the labels of states, and of what is kept for others, begin.
STATE, PORT = "state ", "port "


def effects_of(items: int, panes: PaneStates, kept: Mapping[str, bytes]) -> dict[str, EffectDigest]:
    """The items that were taken, the cells that were changed, by state, and what is kept, by port."""
    found: dict[str, EffectDigest] = {}
    # The cells of decaying states are in units that depend on when a worker was restored.
    for name, pane, state in panes.named() if panes.fading is None else ():
        found[STATE + StateLabel(name, pane).text()] = state.digest()
    for port, data in kept.items():
        found[PORT + port] = digest_of_rows(open_parts(data))
    nothing = EffectDigest()
    made = {label: digest for label, digest in found.items() if not digest.agrees(nothing)}
    return {"items": EffectDigest(items), **made}
