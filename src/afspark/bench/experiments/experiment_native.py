"""Against native Structured Streaming, with its checkpoints and, as nearly as it can be done, without."""

from __future__ import annotations

from functools import partial
from typing import Any

import afspark as af
from afspark.bench.interleave import Contest, Measure, interleave
from afspark.bench.markdown import spread, table
from afspark.bench.rig import Rig
from afspark.bench.streams import native, native_lines, native_packets, native_words, ours
from afspark.bench.workloads import GREP, HITTERS, PATTERN, WORDCOUNT, workloads

TITLE = "Against native Structured Streaming"


def measure(rig: Rig) -> dict[str, Any]:
    """Grep, WordCount and heavy hitters, on the same files in the same batches."""
    contests = {GREP: _grep(rig), WORDCOUNT: _words(rig), HITTERS: _hitters(rig)}
    return {name: {"figures": one.to_json(), "ratios": _against_best(one)} for name, one in contests.items()}


def _grep(rig: Rig) -> Contest:
    load = workloads(rig)[GREP]
    frame = partial(native_lines, rig.spark, rig.text, PATTERN)
    contenders: dict[str, Measure] = {
        "approximate, lines every batch": partial(ours, partial(load.start, load.approximate)),
        "native, checkpoint in memory": partial(native, rig.spark, frame, rig.text, "hdfs", in_memory=True),
        "native": partial(native, rig.spark, frame, rig.text, "hdfs"),
    }
    return interleave(contenders, rounds=rig.rounds)


def _words(rig: Rig) -> Contest:
    load = workloads(rig)[WORDCOUNT]
    frame = partial(native_words, rig.spark, rig.text)

    def every_batch(tolerance: af.Tolerance) -> af.StreamWriter:
        return load.start(tolerance).outputMode("update").format("noop")

    contenders: dict[str, Measure] = {
        "approximate, at the end": partial(ours, partial(load.start, load.approximate), results=load.results),
        "approximate, every batch": partial(ours, partial(every_batch, load.approximate)),
        "minibatch, every batch": partial(ours, partial(every_batch, af.MiniBatch())),
        "native, checkpoint in memory": partial(native, rig.spark, frame, rig.text, "hdfs", in_memory=True),
        "native, hdfs": partial(native, rig.spark, frame, rig.text, "hdfs"),
        "native, rocksdb": partial(native, rig.spark, frame, rig.text, "rocksdb"),
    }
    return interleave(contenders, rounds=rig.rounds)


def _hitters(rig: Rig) -> Contest:
    load = workloads(rig)[HITTERS]
    frame = partial(native_packets, rig.spark, rig.packets)
    run = partial(ours, batch_bytes=load.batch_bytes, results=load.results)
    contenders: dict[str, Measure] = {
        "approximate, at the end": partial(run, partial(load.start, load.approximate)),
        "native, hdfs": partial(native, rig.spark, frame, rig.packets, "hdfs"),
        "native, rocksdb": partial(native, rig.spark, frame, rig.packets, "rocksdb"),
    }
    return interleave(contenders, rounds=rig.rounds)


def _against_best(contest: Contest) -> dict[str, Any]:
    """Our contenders against the better of those that keep their checkpoint on disk."""
    natives = [name for name in contest.rounds if name.startswith("native") and "memory" not in name]
    best = max(natives, key=lambda name: contest.median(name, "inputs_per_second"))
    return {
        f"{name} / {best}": contest.ratio_spread(name, best, "inputs_per_second")
        for name in contest.rounds
        if not name.startswith("native")
    }


def page(found: dict[str, Any]) -> str:
    text = (
        "Native: `where(contains)`, `groupBy().count()` and `groupBy(keys).sum(weight)` in update mode with Spark's "
        "exactly-once checkpoint, two shuffle partitions, the same checkpoint file manager; state store HDFS-backed "
        "and RocksDB with changelog checkpointing; the better one counts. Spark has no switch that turns checkpoints "
        "off; a checkpoint in memory is the nearest thing.\n\n"
    )
    for algorithm, part in found.items():
        rows = [
            [
                name,
                spread(figures["mb_per_second"]),
                f"{figures['seconds_per_batch']['median']:.3f}",
                f"{figures['results_seconds']['median']:.2f}" if "results_seconds" in figures else "",
            ]
            for name, figures in part["figures"].items()
        ]
        text += f"**{algorithm}**\n\n" + table(["contender", "MB/s", "s a batch", "results, s"], rows)
        text += "".join(f"- {name}: **{spread(value, '{:.2f}')}**\n" for name, value in part["ratios"].items()) + "\n"
    return text
