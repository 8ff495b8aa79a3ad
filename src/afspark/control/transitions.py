"""How a running unit gets from one scheme to another: for each of the 30 pairs the actions, one after the other.

StreamMine3G's figure 3, for the complete graph. In every row

- the new protection stands before the old one goes: after each action the unit recovers at least as fast as under the
  slower of both schemes (``+store`` and ``+ship`` have ended when their first checkpoint is safe);
- a secondary receives before it is given state, so that no item falls between the state and its queue; one that has
  state already is wired while checkpoints still come, the next of which covers what came before its queue;
- a secondary does not process while checkpoints come into its memory: what they hold would count twice.

Protections without a secondary (`Unreplicated`) have the switches of passive replication, and its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

from afspark.control.schemes import STEPS, Protection, RecoveryStep, Scheme, Switches, Unreplicated


class SchemeAction(StrEnum):
    """One switch of a unit, put on or off. Each is complete before the next one begins."""

    DEPLOY = "+deploy"
    UNDEPLOY = "-deploy"
    WIRE = "+receive"
    UNWIRE = "-receive"
    LOAD_STATE = "+state"
    DROP_STATE = "-state"
    START_PROCESSING = "+process"
    STOP_PROCESSING = "-process"
    START_SENDING = "+send"
    STOP_SENDING = "-send"
    SHIP_CHECKPOINTS = "+ship"
    STOP_SHIPPING = "-ship"
    STORE_CHECKPOINTS = "+store"
    STOP_STORING = "-store"

    @property
    def switch(self) -> str:
        """Which of the `Switches` it sets."""
        return _SWITCH[self[1:]]

    @property
    def on(self) -> bool:
        return self.startswith("+")

    def applied(self, switches: Switches) -> Switches:
        return replace(switches, **{self.switch: self.on})


_SWITCH = {
    "deploy": "deployed",
    "receive": "receiving",
    "state": "holds_state",
    "process": "processing",
    "send": "sending",
    "ship": "shipping",
    "store": "storing",
}

_AR, _AS, _HOT, _COLD, _DEPLOYED, _PR = Scheme

_ROWS: dict[tuple[Scheme, Scheme], str] = {
    (_AR, _AS): "-send",
    (_AR, _HOT): "-send -process +ship",
    (_AR, _COLD): "-send -process +ship -receive",
    (_AR, _DEPLOYED): "+store -send -process -receive -state",
    (_AR, _PR): "+store -send -process -receive -state -deploy",
    (_AS, _AR): "+send",
    (_AS, _HOT): "-process +ship",
    (_AS, _COLD): "-process +ship -receive",
    (_AS, _DEPLOYED): "+store -process -receive -state",
    (_AS, _PR): "+store -process -receive -state -deploy",
    (_HOT, _AR): "-ship +process +send",
    (_HOT, _AS): "-ship +process",
    (_HOT, _COLD): "-receive",
    (_HOT, _DEPLOYED): "+store -ship -receive -state",
    (_HOT, _PR): "+store -ship -receive -state -deploy",
    (_COLD, _AR): "+receive -ship +process +send",
    (_COLD, _AS): "+receive -ship +process",
    (_COLD, _HOT): "+receive",
    (_COLD, _DEPLOYED): "+store -ship -state",
    (_COLD, _PR): "+store -ship -state -deploy",
    (_DEPLOYED, _AR): "+receive +state +process +send -store",
    (_DEPLOYED, _AS): "+receive +state +process -store",
    (_DEPLOYED, _HOT): "+receive +state +ship -store",
    (_DEPLOYED, _COLD): "+state +ship -store",
    (_DEPLOYED, _PR): "-deploy",
    (_PR, _AR): "+deploy +receive +state +process +send -store",
    (_PR, _AS): "+deploy +receive +state +process -store",
    (_PR, _HOT): "+deploy +receive +state +ship -store",
    (_PR, _COLD): "+deploy +state +ship -store",
    (_PR, _DEPLOYED): "+deploy",
}

TRANSITIONS: Mapping[tuple[Scheme, Scheme], tuple[SchemeAction, ...]] = {
    pair: tuple(map(SchemeAction, row.split())) for pair, row in _ROWS.items()
}


def actions(before: Protection, after: Protection) -> tuple[SchemeAction, ...]:
    """What leads from one protection to another; nothing if both have the same switches.

    >>> [action.name for action in actions(Scheme.ACTIVE_STANDBY, Scheme.HOT_STANDBY)]
    ['STOP_PROCESSING', 'SHIP_CHECKPOINTS']
    """
    pair = _scheme(before), _scheme(after)
    return () if pair[0] is pair[1] else TRANSITIONS[pair]


def keeps_checkpoints(before: Protection, after: Protection) -> bool:
    """Whether recoveries begin with the same checkpoints after a change: none is made on the way.

    >>> keeps_checkpoints(Unreplicated.BARRIER_SNAPSHOT, Scheme.DEPLOYED)
    True
    >>> keeps_checkpoints(Scheme.DEPLOYED, Scheme.HOT_STANDBY)
    False
    """
    return _begins_with_checkpoint(before) and _MADE_ANEW.isdisjoint(actions(before, after))


_MADE_ANEW = frozenset({SchemeAction.STORE_CHECKPOINTS, SchemeAction.SHIP_CHECKPOINTS, SchemeAction.LOAD_STATE})


def _begins_with_checkpoint(one: Protection) -> bool:
    return RecoveryStep.REPLAY in STEPS[one]


def _scheme(one: Protection) -> Scheme:
    return Scheme.PASSIVE_REPLICATION if isinstance(one, Unreplicated) else one
