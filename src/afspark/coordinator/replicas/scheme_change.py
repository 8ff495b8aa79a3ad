"""Another scheme for the workers of a running operator: which there can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from afspark.control import Protection, Scheme, Unreplicated
from afspark.coordinator.replicas.secondary_group import SecondaryGroup
from afspark.errors import UsageError
from afspark.policies import Adaptive, BarrierSnapshot, Replicated, Tolerance
from afspark.policies.barriers import BarrierTolerance
from afspark.policies.replication import SCHEMES, scheme_of


def tolerance_for(protection: Protection, interval: float | None, *, gap: bool = False) -> Tolerance:
    """The tolerance that gives a protection, with checkpoints so many seconds apart; UsageError if a running operator
    cannot have it.
    """
    if protection is Unreplicated.BARRIER_SNAPSHOT:
        return BarrierSnapshot(interval=interval)
    if isinstance(protection, Scheme):
        return scheme_of(protection, interval, gap=gap)
    raise UsageError(
        f"A running operator cannot change to {protection}.", remedy="Use one of the six schemes, or BarrierSnapshot()."
    )


def refuse_change(group: SecondaryGroup, tolerance: Tolerance, slots: Mapping[str, int], *, pushed: bool) -> None:
    """Raises UsageError if the workers of a running operator cannot be protected by ``tolerance``, which a user asks
    for: what a controller chooses needs no leave.
    """
    name = group.operator
    if isinstance(group.tolerance, Adaptive):
        raise UsageError(
            f"The scheme of {name!r} is chosen by Adaptive, which would replace {tolerance.name} again.",
            remedy="Start the query again with the tolerance that you want, or with another limit or other costs.",
            operator=name,
        )
    if not isinstance(tolerance, Replicated | BarrierSnapshot):
        raise UsageError(
            f"{name!r} cannot change to {tolerance.name} while it runs.",
            remedy="Use ActiveReplication, ActiveStandby, HotStandby, ColdStandby, Deployed, PassiveReplication or "
            "BarrierSnapshot; or start the query again.",
            operator=name,
        )
    if not group.can_have_some:
        raise UsageError(
            f"{name!r} was started with {group.tolerance.name}, which has no barriers to change at.",
            remedy="Start it with one of the six schemes, or with BarrierSnapshot.",
            operator=name,
        )
    if tolerance.leaves_gap != group.tolerance.leaves_gap:
        raise UsageError(
            f"{name!r} cannot change between precise and gap recovery while it runs.",
            remedy=f"Use gap={group.tolerance.leaves_gap}."
            if isinstance(tolerance, Replicated)
            else "Use one of the six schemes with gap=True.",
            operator=name,
        )
    if tolerance.has_secondaries and pushed:
        raise UsageError(
            f"{name!r} cannot have secondaries, which cannot follow a pushed source.",
            remedy="Use PassiveReplication() or BarrierSnapshot().",
            operator=name,
        )
    if tolerance.has_secondaries and len(slots) < 2:
        raise UsageError(
            f"A secondary has to be on another host than its primary, and there is {len(slots)} host.",
            remedy="Use a cluster with two hosts or more, or a tolerance without secondaries.",
            hosts=len(slots),
        )


def recorded_schemes(group: SecondaryGroup) -> dict[str, Any]:
    """What a commit record says of schemes that are not those of the program; nothing if there are none."""
    other = {worker: unit.wanted for worker, unit in group.units.items() if unit.wanted != group.tolerance}
    if not other or isinstance(group.tolerance, Adaptive):
        return {}
    return {
        "program": group.tolerance.to_json(),
        "workers": [[worker, wanted.to_json()] for worker, wanted in sorted(other.items())],
    }


def recall_schemes(group: SecondaryGroup, recorded: Mapping[str, Any], now: float) -> None:
    """Takes up what a record says, unless the program has another tolerance since."""
    if not recorded or recorded["program"] != group.tolerance.to_json():
        return
    for worker, found in recorded["workers"]:
        if worker in group.units:
            group.start_with(worker, _from_json(found), now)


def _from_json(found: Mapping[str, Any]) -> Tolerance:
    fields = {name: value for name, value in found.items() if name != "name"}
    kinds: dict[str, type[BarrierTolerance]] = {one.name: one for one in SCHEMES}
    return kinds.get(found["name"], BarrierSnapshot)(**fields)
