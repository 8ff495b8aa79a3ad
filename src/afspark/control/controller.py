"""The controller's decision for one unit: the cheapest protection that recovers within the user's limit. Pure.

The four steps of StreamMine3G (section III-C): estimate how long each would take, drop those over the limit, rank the
rest by weighted cost, take the cheapest, and of equally cheap ones the fastest. A unit starts with active replication.

Measurements are noisy, and a change has its price. So that noise does not move a unit to and fro:

- a protection stays for the cool-down, unless it has become too slow: what keeps the limit is never put off;
- it is entered if it leaves a margin to the limit, and left when it is over it, and the same with longer intervals;
- a change must save something worth having, or at the same cost be clearly faster;
- estimates take the worst moment between two checkpoints, not the present one: otherwise everything would look fast
  after a checkpoint and slow before the next; and rates are those of seconds, not of a single batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from afspark.control.candidates import MARGIN, Candidate, candidate, offered, planned
from afspark.control.decisions import Decision, InForce
from afspark.control.schemes import Protection, Scheme
from afspark.control.situation import Situation
from afspark.control.transitions import keeps_checkpoints
from afspark.policies import Adaptive

SAVING = 0.05
"""The part of its cost that a change has to save."""

TIE = 0.02
"""Costs that differ by no more than this part are the same."""


def decide(
    adaptive: Adaptive, situation: Situation, before: InForce | None = None, *, schemes_only: bool = False
) -> Decision:
    """What protects the unit from now on. ``before`` is in force; None: nothing is yet. ``schemes_only``: one of the
    six schemes, and nothing else.
    """
    kept = None if before is None else candidate(before.protection, before.interval, adaptive, situation, late=True)
    cooling = before is not None and situation.now - before.since < adaptive.cooldown
    choices = tuple(Scheme) if schemes_only else tuple(offered(adaptive, situation))
    found = tuple(_candidates(choices, adaptive, situation, kept, cooling=cooling))
    chosen, reason = _choose(found, kept, adaptive.recovery_seconds, cooling=cooling)
    return Decision(
        at=situation.now,
        unit=situation.unit,
        before=before,
        chosen=chosen,
        candidates=found,
        limit=adaptive.recovery_seconds,
        reason=reason,
    )


def _candidates(
    choices: Iterable[Protection],
    adaptive: Adaptive,
    situation: Situation,
    kept: Candidate | None,
    *,
    cooling: bool,
) -> Sequence[Candidate]:
    """One for each of the choices. That in force keeps its interval while it is in time, or until a longer one is. What
    begins with the same checkpoints has as much to replay as that, until there is another one.
    """
    limit, found = adaptive.recovery_seconds, []
    for protection in choices:
        late = kept is not None and keeps_checkpoints(kept.protection, protection)
        one = planned(protection, adaptive, situation, late=late)
        if kept is not None and protection is kept.protection and kept.seconds <= limit:
            longer = (one.interval or 0.0) > (kept.interval or 0.0) and _leaves_margin(one, limit)
            one = one if longer and not cooling else kept
        found.append(one)
    return found


def _choose(
    found: Sequence[Candidate], kept: Candidate | None, limit: float, *, cooling: bool
) -> tuple[Candidate, str]:
    active = _of(Scheme.ACTIVE_REPLICATION, found)
    fastest = min(found, key=lambda one: one.seconds)
    if fastest.seconds > limit:
        return active, (
            f"nothing recovers within {limit:g} s, the best estimate is {fastest.seconds:.3g} s "
            f"({fastest.protection}): active replication runs"
        )
    if kept is None and active.seconds <= limit:
        return active, "active replication first, until it is known what others would take"
    own = next((one for one in found if kept is not None and one.protection is kept.protection), None)
    best = _cheapest(_enterable(found, own, limit))
    if kept is None:
        return best, f"active replication is too slow ({_told(active)} of {limit:g} s); {_praised(best)}"
    if own is None:
        return best, f"{kept.protection} is no longer possible; {_praised(best)}"
    if kept.seconds > limit:
        why = f"{kept.protection} is no longer in time ({_told(kept)} of {limit:g} s)"
        return best, f"{why}; {_spaced(own) if best is own else _praised(best)}"
    if cooling:
        return kept, f"{kept.protection} stays: cool-down"
    if best is own:
        return own, f"{own.protection} is the cheapest in time ({_told(own)} of {limit:g} s){_respaced(own, kept)}"
    if best.cost < own.cost and best.cost <= (1 - SAVING) * own.cost:
        return best, f"{_praised(best)} instead of {own.cost:.3g} with {own.protection}"
    if best.seconds <= (1 - MARGIN) * own.seconds:
        return (
            best,
            f"{best.protection} costs hardly more than {own.protection}, or less, and recovers in {_told(best)}",
        )
    return own, f"{own.protection} stays{_respaced(own, kept)}: {best.protection} is hardly better"


def _enterable(found: Sequence[Candidate], own: Candidate | None, limit: float) -> Sequence[Candidate]:
    """Those in time: what is in force, active replication, and all that leave a margin; without such, any."""
    in_time = [one for one in found if one.seconds <= limit]
    safe = [
        one
        for one in in_time
        if one is own or one.protection is Scheme.ACTIVE_REPLICATION or _leaves_margin(one, limit)
    ]
    return safe or in_time


def _cheapest(found: Sequence[Candidate]) -> Candidate:
    """Of those that cost the same, the fastest; of those that are as fast, the cheaper one after all.

    Then one that is no scheme: it recovers as passive replication does, and moves no worker whose host lives.
    """
    least = min(one.cost for one in found)
    same = [one for one in found if one.cost <= (1 + TIE) * least]
    return min(same, key=lambda one: (one.seconds, one.cost, isinstance(one.protection, Scheme)))


def _leaves_margin(one: Candidate, limit: float) -> bool:
    return one.seconds <= (1 - MARGIN) * limit


def _of(protection: Protection, found: Sequence[Candidate]) -> Candidate:
    return next(one for one in found if one.protection is protection)


def _told(one: Candidate) -> str:
    return f"unknown: {', '.join(one.estimate.unknown)}" if one.estimate.unknown else f"{one.seconds:.3g} s"


def _praised(one: Candidate) -> str:
    return f"{one.protection} recovers in {_told(one)} and costs {one.cost:.3g}"


def _respaced(own: Candidate, kept: Candidate) -> str:
    return "" if own.interval == kept.interval else f", {_spaced(own)}"


def _spaced(one: Candidate) -> str:
    return f"with a checkpoint every {one.interval:g} s" if one.interval else "with other checkpoints"
