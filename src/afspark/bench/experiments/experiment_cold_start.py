"""How long a small job takes from nothing to its first result, against native Spark."""

from __future__ import annotations

import tempfile
from functools import partial
from typing import Any

from afspark.bench.cold_starts import PARTS, cold_start, small_input
from afspark.bench.interleave import Measure, interleave
from afspark.bench.markdown import spread, table
from afspark.bench.rig import Rig

TITLE = "From a cold start to the first result"

OURS, NATIVE = "afspark", "native"
FIRST = "afspark, kernels not compiled yet"


def measure(rig: Rig) -> dict[str, Any]:
    """Processes that are started anew, in turns; and once on a machine that has never run afspark."""
    place = small_input(rig.inputs)
    contenders: dict[str, Measure] = {name: partial(cold_start, name, place) for name in (OURS, NATIVE)}
    contest = interleave(contenders, rounds=rig.rounds)
    with tempfile.TemporaryDirectory(prefix="afspark-bench-") as empty:
        first = cold_start(OURS, place, {"NUMBA_CACHE_DIR": empty})
    rows = {name: {round_["rows"] for round_ in rounds} for name, rounds in contest.rounds.items()}
    if rows[OURS] != rows[NATIVE]:
        raise AssertionError(f"the contenders have counted other words: {rows}")
    return {
        "figures": contest.to_json(),
        "ratio": contest.ratio_spread(OURS, NATIVE, "seconds"),
        "first": first,
    }


def page(found: dict[str, Any]) -> str:
    text = (
        "Seconds from the start of a Python process to the rows of the first batch: a count of the words of one file of "
        "1 MB, in update mode, `local[2]`, a JVM of its own. The contenders ran in turns; parts are from the one before "
        "on: everything imported, the session there, `start()` returned, rows counted in `foreachBatch`. With kernels "
        "that are not compiled yet, as in the first query after an installation, once.\n\n"
    )
    rows = [
        [name, *(spread(figures[part], "{:.2f}") for part in ("seconds", *PARTS))]
        for name, figures in found["figures"].items()
    ]
    rows.append([FIRST, *(f"{found['first'][part]:.2f}" for part in ("seconds", *PARTS))])
    text += table(["contender", "seconds", *PARTS], rows)
    return text + f"- afspark / native: **{spread(found['ratio'], '{:.2f}')}**\n\n"
