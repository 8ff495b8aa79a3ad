"""What the secondary of each scheme really takes, so that six names are six mechanisms, and what is left of the speed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import afspark as af
from afspark.bench.drawing import bars
from afspark.bench.experiments.experiment_replica_recovery import PROCESSING, RARE_INTERVAL
from afspark.bench.interleave import Measure
from afspark.bench.kept_rounds import run_contests
from afspark.bench.markdown import spread, table
from afspark.bench.replica_case import ReplicaCase
from afspark.bench.replica_costs import what_it_takes
from afspark.bench.rig import Rig
from afspark.bench.scheme_colors import NONE_COLOR, SCHEME_COLORS
from afspark.bench.topology import CHUNK_RECORDS
from afspark.policies.replication import SCHEMES

TITLE = "Replicas: what secondaries take"
NONE, SNAPSHOT = "none", "snapshot"
KEYS, RECORDS, INTERVAL, SECONDS = 10**6, 16 * CHUNK_RECORDS, 1.0, 8.0
HOSTS, SLOTS = 3, 2


def measure(rig: Rig) -> dict[str, Any]:
    """All schemes beside none and snapshots without a secondary, as fast as they go."""
    with rig.on_hosts(HOSTS, slots=SLOTS) as hosts:
        kept = rig.kept("replica-costs")
        case = ReplicaCase(keys=KEYS, records=RECORDS)
        tolerances: dict[str, af.Tolerance] = {NONE: af.Nothing(), SNAPSHOT: af.BarrierSnapshot(interval=INTERVAL)}
        tolerances |= {kind.name: kind(interval=RARE_INTERVAL if kind in PROCESSING else INTERVAL) for kind in SCHEMES}
        runs: dict[str, Measure] = {
            name: partial(what_it_takes, hosts, case, one, SECONDS) for name, one in tolerances.items()
        }
        # In the first round snapshots come first, and warm up the hosts.
        contest = run_contests({"cost": runs}, rounds=rig.rounds, kept=kept, warm_up=lambda: None)["cost"]
    return {
        "keys": KEYS,
        "records": RECORDS,
        "interval": INTERVAL,
        "seconds": SECONDS,
        "figures": contest.to_json(),
        "throughput": {name: contest.ratio_spread(name, NONE, "records_per_second") for name in tolerances},
        "cpu": {name: contest.ratio_spread(name, NONE, "cpu_per_million") for name in tolerances},
    }


HEAD = (
    "scheme",
    "throughput over none",
    "CPU of all hosts a record, over none",
    "CPU of the primary's host, s/s",
    "of the secondary's",
    "state of the secondary, MB",
    "its Python processes, MB",
    "it receives, bytes a record",
    "the primary sends",
)


def page(found: dict[str, Any]) -> str:
    text = (
        f"One worker that aggregates by key, {found['keys']:,} keys, batches of {found['records']:,} records one right "
        f"after the other for {found['seconds']:g} s, checkpoints {found['interval']:g} s apart ({RARE_INTERVAL:g} s where the secondary processes), on {HOSTS} hosts of this "
        "machine, which share its cores: what a secondary takes of CPU, the primary may lack. CPU is that of all "
        "processes of a host, JVM included. The host of the secondary is the one with the most state, else the most CPU, "
        "besides the primary's. Network is what the host's own interface has counted (0 where hosts have none); a "
        "record has 24 bytes, and is generated where it is read, so that receiving it costs CPU and no network.\n\n"
    )
    rows = []
    for name, figures in found["figures"].items():
        rows.append(
            [
                name,
                spread(found["throughput"][name], "{:.2f}"),
                spread(found["cpu"][name], "{:.2f}"),
                *(f"{figures[one]['median']:.2f}" for one in ("primary_cpu", "secondary_cpu")),
                *(f"{figures[one]['median'] / 1e6:,.0f}" for one in ("secondary_state", "secondary_python")),
                *(f"{figures[one]['median']:,.1f}" for one in ("received_per_record", "sent_per_record")),
            ]
        )
    return text + table(HEAD, rows)


def draw(found: dict[str, Any], path: Path) -> str:
    groups = {
        "throughput over none": {name: one["median"] for name, one in found["throughput"].items()},
        "CPU a record over none": {name: one["median"] for name, one in found["cpu"].items()},
        "CPU of the secondary's host, s/s": {
            name: one["secondary_cpu"]["median"] for name, one in found["figures"].items()
        },
    }
    bars(
        path,
        groups,
        title="What secondaries take",
        subtitle=f"{found['keys']:,} keys; medians over rounds",
        colors={NONE: NONE_COLOR, **SCHEME_COLORS},
    )
    return "Throughput and CPU under each scheme, over those of none, and the CPU of the secondary's host, s/s"
