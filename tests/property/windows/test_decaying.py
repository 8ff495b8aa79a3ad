"""What a fading state shows is the sum of all items, each weighed by its age."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from afspark.model.states import HashTable, HeapColumns
from afspark.model.windows import Decayed, Decaying, needs_rebase, scale


@settings(max_examples=60)
@given(
    st.sampled_from([0.1, 0.5, 0.9, 0.999]),
    st.integers(-1000, 1000),
    st.lists(st.tuples(st.integers(-3, 40), st.integers(0, 3), st.floats(0, 1e6)), max_size=40),
    st.integers(0, 50),
)
def test_forward_decay_equals_the_direct_sum(
    decay: float, base: int, items: list[tuple[int, int, float]], after: int
) -> None:
    window = Decaying(decay, 1, by="processing")
    table = HashTable(key="int64", value="float64").open(HeapColumns(), "fading")
    table.begin()
    latest, taken = base, []
    for forward, key, amount in items:
        tick = latest + forward
        latest = max(latest, tick)
        if needs_rebase(window, tick, base):
            moved = scale(window, tick, base)
            cells = table.export()
            table.put(cells["key"], cells["value"].to_numpy() * moved)
            base = tick
        Decayed(table, scale(window, tick, base)).add([key], [amount])
        taken.append((tick, key, amount))
    now = latest + after
    if needs_rebase(window, now, base):
        return
    values = Decayed(table, scale(window, now, base)).get([0, 1, 2, 3])
    for key in range(4):
        direct = math.fsum(amount * decay ** (now - tick) for tick, found, amount in taken if found == key)
        assert math.isclose(values[key], direct, rel_tol=1e-9, abs_tol=1e-90)
