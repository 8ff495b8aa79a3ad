"""Θ + L·α and Γ + L·β hold whatever fails, in any order."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from afspark.bounds import Loss, Place, divides_among_copies, output_bound, realised_outputs, realised_state, weights
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
    """Workers of several operators that share one budget by weight."""
    parts = weights([None] * operators)
    counts: Counter[tuple[int, int]] = Counter()
    losses: dict[int, list[Loss]] = {operator: [] for operator in range(operators)}
    for which, copy in lost:
        operator, worker = which % operators, copy % place.workers
        here = Place(workers=place.workers, keyed=place.keyed, weight=parts[operator])
        k = counts[operator, worker]
        loss = Loss(
            theta=policy.allowance(failures=k, place=here, divergence=divergence, exact=False),
            items=policy.items_allowance(failures=k, place=here),
            unacked=policy.unacked_allowance(failures=k, place=here),
            worker=worker,
        )
        losses[operator].append(loss)
        counts[operator, worker] += 1
    adds_up = divides_among_copies(keyed=place.keyed, divergence=divergence)
    state = sum(realised_state(taken, alpha=alpha, adds_up=adds_up) for taken in losses.values())
    outputs = sum(realised_outputs(taken, fan_out=fan_out) for taken in losses.values())
    promised = policy.promise(alpha)
    assert promised is not None and state <= promised * (1 + 1e-12)
    assert outputs <= output_bound(policy.unacked, items=policy.items, fan_out=fan_out) * (1 + 1e-12)
