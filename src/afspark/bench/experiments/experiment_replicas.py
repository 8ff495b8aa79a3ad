"""What a secondary takes under each scheme that keeps one, and how long recoveries take after real failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import afspark as af
from afspark.bench.bench_hosts import BenchHosts
from afspark.bench.drawing import bars
from afspark.bench.interleave import Measure
from afspark.bench.kept_rounds import KeptRounds, OneRun, run_contests
from afspark.bench.markdown import spread, table
from afspark.bench.replica_costs import (
    BATCHES_AFTER,
    FAILURES,
    FROZEN_SECONDS,
    ReplicaCase,
    recovery_after,
    schemes_with_secondaries,
    what_it_takes,
)
from afspark.bench.rig import Rig
from afspark.bench.streams import WARM_BATCHES
from afspark.bench.topology import CHUNK_RECORDS
from afspark.policies.replication import Replicated

TITLE = "Replicas: what secondaries take, and recovery"
NONE, SNAPSHOT = "none", "snapshot"
#: The size that all seeds are run at, and how often the others are.
KEYS, OTHER_KEYS, OTHER_ROUNDS = 10**6, (10**4, 10**7), 3
INTERVAL = 1.0
HOSTS = 3
LEAST_BATCHES = WARM_BATCHES + 2 * BATCHES_AFTER


def measure(rig: Rig) -> dict[str, Any]:
    """All schemes beside none and snapshots without a secondary; failures are seeded by their round."""
    schemes = schemes_with_secondaries()
    with rig.on_hosts(HOSTS, slots=2) as hosts:
        kept = rig.kept("replicas", seeds=rig.seeds)
        costs = _costs(rig, hosts, schemes, kept)
        recoveries = {
            str(keys): _recoveries(rig, hosts, keys, rounds, schemes, kept) for keys, rounds in _sizes(rig).items()
        }
        kept.forget()
    return {"keys": min(KEYS, _most(rig)), "schemes": list(schemes), "costs": costs, "recoveries": recoveries}


def _most(rig: Rig) -> int:
    """So many keys that each is met some ten times."""
    return max(rig.records // 10, 1)


def _sizes(rig: Rig) -> dict[int, int]:
    """How often each number of keys is measured; numbers that the records cannot fill are left out."""
    found = {min(KEYS, _most(rig)): rig.seeds}
    return found | {keys: min(OTHER_ROUNDS, rig.seeds) for keys in OTHER_KEYS if keys <= _most(rig)} | found


def _case(rig: Rig, keys: int) -> ReplicaCase:
    batches = max(LEAST_BATCHES, 30)
    return ReplicaCase(keys, max(CHUNK_RECORDS, rig.records // batches // CHUNK_RECORDS * CHUNK_RECORDS), batches)


def _costs(rig: Rig, hosts: BenchHosts, schemes: dict[str, type[Replicated]], kept: KeptRounds) -> dict[str, Any]:
    case = _case(rig, min(KEYS, _most(rig)))
    tolerances: dict[str, af.Tolerance] = {NONE: af.Nothing(), SNAPSHOT: af.BarrierSnapshot(interval=INTERVAL)}
    tolerances |= {name: kind(interval=INTERVAL) for name, kind in schemes.items()}
    runs: dict[str, Measure] = {name: partial(what_it_takes, hosts, case, one) for name, one in tolerances.items()}
    warm_up = partial(what_it_takes, hosts, case, af.Nothing())
    contest = run_contests({"cost": runs}, rounds=rig.rounds, kept=kept, warm_up=warm_up)["cost"]
    return {
        "figures": contest.to_json(),
        "throughput": {name: contest.ratio_spread(name, NONE, "records_per_second") for name in tolerances},
    }


def _recoveries(
    rig: Rig, hosts: BenchHosts, keys: int, rounds: int, schemes: dict[str, type[Replicated]], kept: KeptRounds
) -> dict[str, Any]:
    """By kind of failure and scheme; the number of the round is the seed, so that all meet the same moments."""
    case = _case(rig, keys)
    contests = {}
    for failure in FAILURES:
        contest = f"{failure}, {keys} keys"
        contests[contest] = {
            name: _seeded(partial(recovery_after, hosts, case, kind(interval=INTERVAL), failure), open_rounds)
            for name, kind in schemes.items()
            for open_rounds in [[n for n in range(1, rounds + 1) if kept.figures(OneRun(contest, name, n)) is None]]
        }
    done = run_contests(contests, rounds=rounds, kept=kept, warm_up=lambda: None)
    return {name.split(",")[0]: contest.to_json() for name, contest in done.items()}


def _seeded(run: Callable[[int], dict[str, float]], seeds: Sequence[int]) -> Measure:
    """A measurement that takes one seed after the other."""
    left = iter(seeds)
    return lambda: run(next(left))


def page(found: dict[str, Any]) -> str:
    text = (
        f"One worker that aggregates by key, {found['keys']:,} keys, on {HOSTS} hosts of this machine with a folder for "
        "resident state each; snapshots are a second apart. CPU is that of all processes of a host, JVM included, after "
        "the first batches; network is what all processes of the machine have sent over its loopback interface, by "
        "record. Medians over rounds, in brackets the least and the most.\n\n"
    )
    head = [
        "scheme",
        "throughput over none",
        "CPU of primary, s",
        "CPU of secondary, s",
        "state of secondary",
        "its Python processes",
        "network, bytes a record",
    ]
    costs = found["costs"]
    text += table(head, [_cost_row(costs, name) for name in costs["figures"]])
    text += (
        "Real failures of the primary's host at seeded moments. Recovery is from the failure to the end of the batch "
        "that was at work; the delay is that without the rest of a usual batch. Detection is from the failure to the "
        "loss in the ledger; a killed process loses no state, because that outlives it. A frozen host wakes up after "
        f"{FROZEN_SECONDS:.0f} s: recoveries that took longer are late.\n\n"
    )
    columns = ["keys", "failure", "scheme", "recovery, s", "delay, s", "detection, s", "promoted", "late"]
    return text + table(
        columns,
        [
            _recovery_row(keys, failure, name, figures)
            for keys, failures in found["recoveries"].items()
            for failure, schemes in failures.items()
            for name, figures in schemes.items()
        ],
    )


def _cost_row(costs: dict[str, Any], name: str) -> list[str]:
    figures = costs["figures"][name]
    return [
        name,
        spread(costs["throughput"][name], "{:.2f}"),
        *(spread(figures[one], "{:.2f}") for one in ("primary_cpu", "secondary_cpu")),
        *(f"{figures[one]['median'] / 1e6:,.1f} MB" for one in ("secondary_state", "secondary_python")),
        f"{figures['network_per_record']['median']:,.1f}",
    ]


def _recovery_row(keys: str, failure: str, name: str, figures: dict[str, Any]) -> list[str]:
    return [
        f"{int(keys):,}",
        failure,
        name,
        *(spread(figures[one], "{:.2f}") for one in ("recovery", "delay", "detection")),
        f"{figures['promoted']['median']:.0f}",
        "some" if figures["late"]["most"] else "none",
    ]


def draw(found: dict[str, Any], path: Path) -> str:
    largest = found["recoveries"][str(found["keys"])]
    groups = {
        failure: {name: figures["recovery"]["median"] for name, figures in schemes.items()}
        for failure, schemes in largest.items()
    }
    bars(path, groups, title="Recovery of a worker, s", subtitle=f"{found['keys']:,} keys; medians over seeds")
    return "How long after a failure of the primary's host the batch at work was applied, by scheme and kind of failure"
