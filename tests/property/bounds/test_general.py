"""Θ + L·α and Γ + L·β hold whatever fails, in any order."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from afspark.bounds import Place, divides_among_copies, realised, state_bound, weights
from afspark.policies import Approximate

amounts = st.floats(0, 1e9)


@given(
    policy=st.builds(Approximate, amounts, items=amounts, unacked=amounts),
    place=st.builds(Place, workers=st.integers(1, 5), keyed=st.booleans()),
    divergence=st.sampled_from(["max", "manhattan", "euclidean", "keys"]),
    alpha=st.floats(0, 1e3),
    fan_out=st.floats(1, 100),
    operators=st.integers(1, 4),
    lost=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=50),
)
def test_every_history_stays_within_the_promise(
    policy: Approximate,
    place: Place,
    divergence: str,
    alpha: float,
    fan_out: float,
    operators: int,
    lost: list[tuple[int, int]],
) -> None:
    """Workers of several operators that share one budget by weight; told as queries tell it."""
    parts = weights([None] * operators)
    counts: Counter[tuple[int, int]] = Counter()
    theta: dict[tuple[int, int], float] = defaultdict(float)
    items = dict.fromkeys(range(operators), 0.0)
    unacked = 0.0
    for which, copy in lost:
        operator, worker = which % operators, copy % place.workers
        here = Place(workers=place.workers, keyed=place.keyed, weight=parts[operator])
        k = counts[operator, worker]
        theta[operator, worker] += policy.allowance(failures=k, place=here, divergence=divergence, exact=False)
        items[operator] += policy.items_allowance(failures=k, place=here)
        unacked += policy.unacked_allowance(failures=k, place=here)
        counts[operator, worker] += 1
    adds_up = divides_among_copies(keyed=place.keyed, divergence=divergence)
    told = [
        state_bound(
            realised([theta[operator, worker] for worker in range(place.workers)], adds_up=adds_up),
            items=items[operator],
            alpha=alpha,
        )
        for operator in range(operators)
    ]
    promised = policy.promise(alpha)
    assert promised is not None and math.fsum(told) <= promised * (1 + 1e-12)
    outputs = unacked + fan_out * math.fsum(items.values())
    assert outputs <= (policy.unacked + fan_out * policy.items) * (1 + 1e-12)
