"""How long recoveries take after real failures, under each of the six schemes, beside what was estimated."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from afspark.bench.bench_hosts import BenchHosts
from afspark.bench.drawing import bars
from afspark.bench.markdown import spread, table
from afspark.bench.real_failures import possible
from afspark.bench.recovery_trials import LATE_SECONDS
from afspark.bench.replica_case import ReplicaCase
from afspark.bench.rig import Rig
from afspark.bench.scheme_colors import SCHEME_COLORS
from afspark.bench.trial_series import ALLOWED, TrialSeries, median_of, run_series, summaries, together
from afspark.policies.replication import SCHEMES, ActiveReplication, ActiveStandby

TITLE = "Replicas: recovery after real failures"
#: The size that all seeds are run at, and the others.
KEYS, OTHER_KEYS, OTHER_SEEDS = 10**6, (10**4, 10**7), 3
INTERVAL, PAUSE = 1.0, 500
#: Where the secondary processes, checkpoints are for the case that both copies die.
RARE_INTERVAL = 3.0
HOSTS, SLOTS = 3, 2
PROCESSING = (ActiveReplication, ActiveStandby)
_WIRING = ("step_wire_send", "step_wire_receive")


def measure(rig: Rig) -> dict[str, Any]:
    """One query for each scheme and size; its primary's host fails again and again, in every way that can be had."""
    with rig.on_hosts(HOSTS, slots=SLOTS) as hosts:
        kept = rig.kept("replica-recovery")
        series = {keys: _series(hosts, keys, seeds) for keys, seeds in sizes(rig.seeds).items()}
        run_series(hosts, [one for found in series.values() for one in found], kept)
        recoveries = {str(keys): summaries(found, kept) for keys, found in series.items()}
        case = _case(KEYS)
        return {"records": case.records, "pause": case.pause, "interval": INTERVAL, "recoveries": recoveries}


def sizes(seeds: int) -> dict[int, int]:
    """How many seeds there are for each number of keys.

    >>> sizes(20), sizes(5)
    ({1000000: 20, 10000: 3, 10000000: 3}, {1000000: 5, 10000: 1, 10000000: 1})
    """
    return {KEYS: seeds} | dict.fromkeys(OTHER_KEYS, min(OTHER_SEEDS, max(1, seeds // 5)))


def _case(keys: int) -> ReplicaCase:
    return ReplicaCase(keys=keys, pause=PAUSE)


def _series(hosts: BenchHosts, keys: int, seeds: int) -> list[TrialSeries]:
    return [
        TrialSeries(
            contest=f"{keys} keys",
            scheme=kind.name,
            case=_case(keys),
            tolerance=kind(interval=RARE_INTERVAL if kind in PROCESSING else INTERVAL),
            failures=possible(hosts),
            seeds=range(1, seeds + 1),
        )
        for kind in SCHEMES
    ]


HEAD = (
    "keys",
    "failure",
    "scheme",
    "n",
    "recovery, s",
    "longest pause over",
    "the driver knew",
    "wait",
    "promotion or deployment",
    "wiring",
    "reading",
    "replay",
    "estimate, s",
    "too low",
)


def page(found: dict[str, Any]) -> str:
    text = (
        f"One worker that aggregates by key, on {HOSTS} hosts of this machine, each with a network namespace, an executor "
        f"and a folder for resident state of its own. A batch of {found['records']:,} records begins "
        f"every {found['pause'] / 1000:g} s; checkpoints are {found['interval']:g} s apart, and {RARE_INTERVAL:g} s where the "
        "secondary processes and does not need them. The primary's host fails at seeded moments, one failure after the other in the same query, and comes back when "
        "four more batches have ended.\n\n"
        "Recovery is from the failure to the end of the first batch that was applied without the failed host, the rest of "
        "the pause before that batch included. A later batch may take longer, while hosts start and secondaries are "
        "built on the same cores: when the longest pause between two batches was over is beside it. The steps are those "
        "of the ledger (medians; the driver knew: from the failure, by its watch); a process that is killed loses no "
        "state, and if its executor is back in time there is no loss, and no step. An "
        f"estimate is too low if the recovery took more than {1 / (1 - ALLOWED):.2f} times as long. n counts failures; "
        f"late ones took longer than {LATE_SECONDS:g} s.\n\n"
    )
    rows = [
        _row(keys, failure, scheme, figures)
        for keys, failures in found["recoveries"].items()
        for failure, schemes in failures.items()
        for scheme, figures in schemes.items()
    ]
    return text + table(HEAD, rows)


def _row(keys: str, failure: str, scheme: str, found: Mapping[str, Any]) -> list[str]:
    late = found["late"]["most"] if "late" in found else 0.0
    amiss = [f"{found['failed']} failed"] * bool(found["failed"]) + ["late"] * bool(late)
    return [
        f"{int(keys):,}",
        failure,
        scheme,
        ", ".join([str(found["count"]), *amiss]),
        spread(found["recovery"], "{:.2f}") if "recovery" in found else "–",
        *(
            _seconds(value)
            for value in (
                median_of(found, "held_up"),
                median_of(found, "noticed"),
                median_of(found, "step_wait"),
                together(found, "step_promotion", "step_deploy"),
                _longest(found, *_WIRING),
                median_of(found, "step_read"),
                median_of(found, "step_replay"),
                median_of(found, "estimated" if "estimated" in found else "foreseen"),
            )
        ),
        f"{found['too_low']} of {found['estimates']}",
    ]


def _longest(found: Mapping[str, Any], *names: str) -> float | None:
    """Of steps that are taken at the same time; None if none was."""
    return max((value for value in (median_of(found, name) for name in names) if value is not None), default=None)


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def draw(found: dict[str, Any], path: Path) -> str:
    groups = {
        failure: {scheme: one["recovery"]["median"] for scheme, one in schemes.items() if "recovery" in one}
        for failure, schemes in found["recoveries"][str(KEYS)].items()
    }
    bars(
        path,
        groups,
        title="Recovery of a worker, s",
        subtitle=f"{KEYS:,} keys; medians over seeds",
        colors=SCHEME_COLORS,
    )
    return "How long after a failure of the primary's host the next batch was applied, by scheme and kind of failure"
