"""The thresholds in force for one worker, with an explanation a user can read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from afspark.bounds.thresholds import Place, Thresholds, divides_among_copies
from afspark.model.states import StateSpec
from afspark.policies.tolerance import Approximate, Tolerance


def thresholds_in_force(
    tolerance: Tolerance,
    states: Mapping[str, StateSpec],
    *,
    failures: int = 0,
    place: Place,
    decaying: bool = False,
) -> Thresholds:
    """What ``tolerance`` allows a worker at ``place`` after ``failures`` counted recoveries.

    >>> from afspark.model.states import HashTable
    >>> place = Place(workers=2, weight=1 / 3)
    >>> thresholds_in_force(Approximate(10_000), {"counts": HashTable()}, failures=1, place=place).why
    '1/3 of 10000 by weight, halved for safety, shared by 2 workers, halved again for 1 failure'
    """
    return Thresholds(
        theta={
            name: tolerance.allowance(
                failures=failures,
                place=_seen_by(spec, place),
                divergence=spec.distance.value,
                exact=spec.exact,
                decaying=decaying,
            )
            for name, spec in states.items()
        },
        items=tolerance.items_allowance(failures=failures, place=place, decaying=decaying),
        unacked=tolerance.unacked_allowance(failures=failures, place=place, decaying=decaying),
        why=_why(tolerance, states, failures, place, decaying),
    )


def losses_add_up(spec: StateSpec, place: Place) -> bool:
    """Whether the losses of different workers add up in a state, so that they share its budget."""
    return divides_among_copies(keyed=_seen_by(spec, place).keyed, divergence=spec.distance.value)


def _seen_by(spec: StateSpec, place: Place) -> Place:
    """Shares are disjoint where items are partitioned by key and the state has that key, which few states have."""
    return replace(place, keyed=False) if place.keyed and not spec.disjoint else place


def _why(tolerance: Tolerance, states: Mapping[str, StateSpec], failures: int, place: Place, decaying: bool) -> str:
    if not isinstance(tolerance, Approximate):
        return tolerance.reason
    return ", ".join(_factors(tolerance, states, failures, place, decaying))


def _factors(
    tolerance: Approximate, states: Mapping[str, StateSpec], failures: int, place: Place, decaying: bool
) -> Iterator[str]:
    total = f"{tolerance.theta:.12g}"
    yield f"{_part(place.weight)} of {total} by weight" if place.weight < 1 else f"all of {total}"
    if not decaying:
        yield "halved for safety"
    if place.workers > 1:
        yield _sharing(states, place)
    if place.amplification > 1:
        after = "1 operator" if place.downstream == 1 else f"{place.downstream} operators"
        yield f"divided by {place.amplification:g} for {after} downstream with up to {place.fan_out:g} outputs per item"
    if place.panes > 1:
        yield f"divided among the {place.panes} panes of a window"
    if decaying:
        yield "not halved by failures because old errors fade"
    elif failures:
        yield "halved again for 1 failure" if failures == 1 else f"halved again for each of {failures} failures"
    exact = [name for name, spec in states.items() if spec.exact]
    if exact:
        yield f"0 for {' and '.join(exact)}, which must be exact"


def _sharing(states: Mapping[str, StateSpec], place: Place) -> str:
    apart = [name for name, spec in states.items() if not spec.exact and not losses_add_up(spec, place)]
    shared = f"shared by {place.workers} workers"
    return f"{shared} except for {' and '.join(apart)}, whose keys are disjoint" if apart else shared


def _part(weight: float) -> str:
    simple = Fraction(weight).limit_denominator(100)
    return str(simple) if abs(simple - weight) < 1e-9 else f"{weight:.3g}"
