"""The same training in Flink, beside ours: ``python -m tests.soak.flink_training --flink FOLDER --rounds 3``.

Flink is no dependency: ``pip install --no-deps --target FOLDER apache-flink-libraries`` brings its jars (tried: 2.3.0);
a JDK 17 or later has to be there as well. ``FlinkTraining.java`` is compiled and runs in a mini cluster of two slots, a
process for each run, in turns with our own runs of experiment 6.

What Flink does: two subtasks generate the very items that our workers have, and learn from them by the same steps.
Streams have no loops any more in Flink 2. What leads from one place to all subtasks and back are the events between the
readers of a source and their enumerator, which is beside the job manager and in every checkpoint. So the subtasks are
readers, and the enumerator merges in rounds (BSP), as our model server does; losses have to be ours but for the last
digits. A checkpoint has the model, and of each worker its round, which it begins again after a failure: results are
exact. ``flink, own`` is what a stream can do without a way back: workers learn on models of their own, which are in
checkpoints, and send what they change to one subtask downstream, which has the average. Nobody waits, and each model
sees half of the items.

What it is spared: connections between processes (its slots are threads of one, our workers are processes), a source
that keeps items, and records (a reader learns from what it has just generated). It warms up in every process before it
is measured, as Spark has been. What it does not do: `countWindowAll`, as in the paper, where one subtask learns alone.

``--fail`` measures nothing: a worker fails in the midst of runs, and losses must be those of runs without failures.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import afspark as af
from afspark.bench.interleave import NONE, Contest
from afspark.bench.kept_rounds import Contenders, KeptRounds, run_contests
from afspark.bench.markdown import spread, table
from afspark.bench.rig import Rig
from afspark.bench.streams import WARM_BATCHES
from afspark.bench.training_runs import CHUNK, DATA, WORKERS, TrainingData, trained_run, training
from afspark.model.consistency import BSP

PROGRAM = Path(__file__).with_name("FlinkTraining.java")
#: Steps of a worker in a batch.
PARTS = (16, 4, 1)
#: Milliseconds between Flink's checkpoints: none, the experiment's, and about one a batch.
INTERVALS = {NONE: 0, "every 3 s": 3000, "every 0.3 s": 300}
#: Where a failure has to meet a state that was restored.
OFTEN = 50
OURS: dict[str, af.Tolerance] = {
    NONE: af.Nothing(),
    "approximate (Θ = 1)": af.Approximate(theta=1.0, items=2000),
    "snapshots every 3 s": af.BarrierSnapshot(interval=3.0),
}
#: Flink looks into the classes of functions, which Java forbids unless it is told.
JAVA = ("java", "-Xms2g", "-Xmx2g", "--add-opens=java.base/java.util=ALL-UNNAMED")


def compiled(jars: Path, folder: Path) -> str:
    """The class path of the program."""
    needed = [*jars.rglob("flink-dist-*.jar"), *jars.rglob("log4j-*.jar")]
    if not needed:
        sys.exit(f"{jars} has no jars of Flink: see python -m tests.soak.flink_training --help")
    path = ":".join(map(str, [folder, *needed]))
    subprocess.run(["javac", "-cp", path, "-d", folder, PROGRAM], check=True)
    return path


def flink_run(
    path: str, data: TrainingData, parts: int, *, rounds: bool, interval: int, batches: int, fails: bool = False
) -> dict[str, float]:
    """One run in a process of its own: items a second without the first batches, and the loss of all."""
    chunks = data.batch // WORKERS // parts // CHUNK
    steps, warm = parts * batches, parts * WARM_BATCHES
    told = [data is DATA["clicks"], rounds, chunks, steps, steps // 2 if fails else -1, warm, interval]
    with tempfile.TemporaryDirectory(prefix="flink-bench-") as folder:
        command = [*JAVA, "-cp", path, "FlinkTraining", *(str(one).lower() for one in told), f"file://{folder}"]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    *steps_told, (checkpoints, failures) = (line.split() for line in lines)
    if sorted(int(step) for step, *_ in steps_told) != sorted([*range(steps)] * WORKERS):
        sys.exit("Flink has lost steps, or told some twice")
    # From when workers had warmed up until the last step had come downstream: what waits in between is no gain.
    began = max(int(at) for step, at, _, _ in steps_told if int(step) == warm - 1)
    ended = max(int(at) for _, _, at, _ in steps_told)
    return {
        "items_per_second": data.batch * (batches - WARM_BATCHES) / (ended - began) * 1e9,
        # In whatever order steps came.
        "log_loss": math.fsum(float(loss) for *_, loss in steps_told) / (data.batch * batches),
        "checkpoints": float(checkpoints),
        "failures": float(failures),
    }


def our_run(rig: Rig, data: TrainingData, parts: int, *, tolerance: af.Tolerance, batches: int) -> dict[str, float]:
    iteration = data.batch // WORKERS // parts
    model = training(rig.spark, data, tolerance, rows=batches * data.batch, iteration=iteration, consistency=BSP())
    found = trained_run(model, data)
    return {name: found[name] for name in ("items_per_second", "log_loss")}


def contenders(rig: Rig, path: str, data: TrainingData, parts: int, batches: int) -> Contenders:
    ours = {
        f"ours, {name}": partial(our_run, rig, data, parts, tolerance=tolerance, batches=batches)
        for name, tolerance in OURS.items()
    }
    return ours | {
        f"{kind}, {name}": partial(
            flink_run, path, data, parts, rounds=kind == "flink", interval=interval, batches=batches
        )
        for kind in ("flink", "flink, own")
        for name, interval in INTERVALS.items()
    }


def shown(found: dict[str, Contest]) -> str:
    """Throughput, alone, over the same system's without fault tolerance, and over Flink's; losses; and how many
    checkpoints a whole run had, with the one that Flink makes at its end.
    """
    rows = []
    for case, contest in found.items():
        for name, runs in contest.rounds.items():
            ratio = partial(contest.ratio_spread, name, figure="items_per_second")
            figures = contest.to_json()[name]
            rows.append(
                [
                    case,
                    name,
                    spread(figures["items_per_second"], "{:.2f}", 1e-6),
                    spread(ratio(f"{name.rpartition(', ')[0]}, {NONE}"), "{:.3f}"),
                    spread(ratio(f"flink, {NONE}"), "{:.2f}"),
                    f"{runs[0]['log_loss']:.10f}",
                    spread(figures["checkpoints"], "{:.0f}") if "checkpoints" in figures else "",
                ]
            )
    return table(["step", "run", "M items/s", "over none", "over flink, none", "log loss", "checkpoints"], rows)


def check_failures(path: str, batches: int) -> None:
    """A worker fails in the midst of a run: the losses must be those of a run without failures."""
    for name, data in DATA.items():
        for rounds in (True, False):
            run = partial(flink_run, path, data, PARTS[0], rounds=rounds, batches=batches)
            plain, failed = run(interval=0), run(interval=OFTEN, fails=True)
            print(f"{name}, {'flink' if rounds else 'flink, own'}: {plain} {failed}", flush=True)
            if plain["log_loss"] != failed["log_loss"] or not failed["failures"]:
                sys.exit("after a failure Flink has learned something else, or there was none")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.flink_training")
    parser.add_argument("--flink", type=Path, required=True, help="folder with Flink's jars, at any depth")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=36, help="enough for checkpoints (default 36)")
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--parts", nargs="+", type=int, choices=PARTS, default=PARTS, help="steps in a batch")
    parser.add_argument("--fail", action="store_true", help="only check that failures change nothing")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flink-bench-") as folder:
        path = compiled(told.flink, Path(folder))
        if told.fail:
            check_failures(path, told.batches)
            return
        rig = Rig(inputs=Path(folder), log=Path(folder, "spark.log"))
        contests = {
            f"{name}, {DATA[name].batch // WORKERS // parts:,}": contenders(rig, path, DATA[name], parts, told.batches)
            for name in told.data
            for parts in told.parts
        }

        def warm_up() -> None:
            for name in told.data:
                our_run(rig, DATA[name], 1, tolerance=af.MiniBatch(), batches=3)

        found = run_contests(contests, rounds=told.rounds, kept=KeptRounds(None, {}), warm_up=warm_up)
        rig.spark.stop()
    print(shown(found))
    for case, contest in found.items():
        ours, flink = (contest.median(f"{system}, {NONE}", "log_loss") for system in ("ours", "flink"))
        if not math.isclose(ours, flink, rel_tol=1e-9):
            sys.exit(f"{case}: in Flink the loss is {flink!r} instead of {ours!r}")


if __name__ == "__main__":
    main()
