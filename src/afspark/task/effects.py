"""What a batch has done at one worker, as digests: if the batch is replayed, the same must come of it."""

from __future__ import annotations

from collections.abc import Mapping

from afspark.model.effect_digest import EffectDigest, digest_of_rows
from afspark.model.state_label import StateLabel
from afspark.protocol.parcels import open_parts
from afspark.task.pane_states import PaneStates

#: How the labels of states, and of what is kept for others, begin.
STATE, PORT = "state ", "port "

ITEMS = "items"
#: Says that the effects of an exact operator follow, with all of its states and ports.
WHOLE = "whole"


def effects_of(items: int, panes: PaneStates, kept: Mapping[str, bytes | memoryview]) -> dict[str, EffectDigest]:
    """What an exact operator has done: the items that were taken, the cells that were changed, by state, and what is
    kept, by port.
    """
    found: dict[str, EffectDigest] = {}
    # The cells of decaying states are in units that depend on when a worker was restored.
    for name, pane, state in panes.named() if panes.fading is None else ():
        found[STATE + StateLabel(name, pane).text()] = state.digest()
    return {WHOLE: EffectDigest(1), **_of_something(found), **sent_of(items, kept)}


def sent_of(items: int, kept: Mapping[str, bytes | memoryview]) -> dict[str, EffectDigest]:
    """The items that were taken, and what is kept, by port.

    That is all of an approximate operator that a replay is compared by: it begins with another state than it had.
    """
    found = {PORT + port: digest_of_rows(open_parts(data)) for port, data in kept.items()}
    return {ITEMS: EffectDigest(items), **_of_something(found)}


def _of_something(found: Mapping[str, EffectDigest]) -> dict[str, EffectDigest]:
    """Those that are digests of something."""
    nothing = EffectDigest()
    return {label: digest for label, digest in found.items() if not digest.agrees(nothing)}
