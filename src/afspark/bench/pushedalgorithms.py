"""The papers' five algorithms over pushed items, under every scheme of tables 4 and 5, on stores of several speeds.

An item is a line of text for Grep and WordCount (a message has 24,576 of them), a packet's header for heavy hitters and
the join (65,536; two traces in turn, told apart by a column), a click with eleven features for logistic regression
(32,768). One process pushes prepared messages over and over, two workers process them.

What the schemes are: ``approximate`` has the papers' Θ, and L as a time: L = 4 s, of which l = 2 s of stream are in
force before any failure. A producer that is not held back fills the receivers' buffers, and an item waits as long as
they take to be drained; 48 MB are a fraction of a second's worth. Where items are passed on within a batch (the lines
of Grep, the models of the regression) they wait for its end, so batches are short there, and the buffers of Grep hold
what it gets through in one. A message alone exceeds the
papers' L = 10^3, so that under ``approximate, L = 1000`` an item is logged, or is in the state before it is
acknowledged. ``minibatch`` has every item in the log before a worker gets it, with as many under way as fit the
producer's memory, and backs up the changes of every step: what the papers call upstream backup, item backups included,
is the same run under another name here. ``upstream`` keeps items at the producer until their effect is durable and writes none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession

import afspark as af
from afspark.bench.interleave import Contest, interleave
from afspark.bench.pushing import kind_of
from afspark.bench.pushrate import pushed_run
from afspark.bench.rig import PUSHED_STORES

FIGURE = "items_per_second"
SECONDS_OF_STREAM = 4.0
UNACKED = 4_000_000
PAPERS_ITEMS = 1_000
WARM_UP_SECONDS = 1.0
#: Bytes; generated lines have about 60.
LONGEST_LINE = 1_000


@dataclass(frozen=True)
class PushedAlgorithm:
    """``kind`` of its items, the papers' Θ, and what is started. ``tick`` is the length of a batch, ``buffer`` what
    receivers hold of items that wait.
    """

    kind: str
    theta: float
    write: Callable[[af.Stream, af.Tolerance], af.StreamWriter]
    tick: float = 1.0
    buffer: int = 48_000_000


def _grep(stream: af.Stream, tolerance: af.Tolerance) -> af.StreamWriter:
    found = stream.apply(af.Grep("zu"), workers=2, tolerance=tolerance)
    return found.writeStream.outputMode("append").format("noop")


def _words(stream: af.Stream, tolerance: af.Tolerance) -> af.StreamWriter:
    return stream.apply(af.WordCount(longest=LONGEST_LINE), workers=2, tolerance=tolerance).writeStream


def _hitters(stream: af.Stream, tolerance: af.Tolerance) -> af.StreamWriter:
    operator = af.HeavyHitters(keys=("src", "dst"), weight="bytes", threshold=10_000_000, largest=1500)
    return stream.apply(operator, workers=2, tolerance=tolerance).writeStream


def _join(stream: af.Stream, tolerance: af.Tolerance) -> af.StreamWriter:
    operator = af.OnlineJoin(on=("dst", "second"), rate=0.1)
    return stream.apply(operator, workers=2, tolerance=tolerance).writeStream


def _regression(stream: af.Stream, tolerance: af.Tolerance) -> af.StreamWriter:
    merged: af.StatefulStream = af.logistic_regression(stream, workers=2, tolerance=tolerance)
    return merged.writeStream


ALGORITHMS: Mapping[str, PushedAlgorithm] = {
    "grep": PushedAlgorithm("lines", 0.0, _grep, tick=0.4, buffer=192_000_000),
    "wordcount": PushedAlgorithm("lines", 1e4, _words),
    "heavy-hitters": PushedAlgorithm("packets", 1e5, _hitters),
    "join": PushedAlgorithm("visits", 1e5, _join),
    "regression": PushedAlgorithm("clicks", 10.0, _regression, tick=0.4),
}


def schemes(theta: float) -> dict[str, af.Tolerance]:
    """All contenders by name."""
    return {
        "none": af.Nothing(),
        "approximate": af.Approximate(theta, items_seconds=SECONDS_OF_STREAM, unacked=UNACKED),
        "approximate, L = 1000": af.Approximate(theta, items=PAPERS_ITEMS, unacked=UNACKED),
        "minibatch": af.MiniBatch(log_items=True, unacked=math.inf),
        "upstream": af.UpstreamBackup(),
    }


def pushed_schemes(spark: SparkSession, algorithm: str, store: str, rounds: int, seconds: float) -> Contest:
    """All schemes of one algorithm on one of the `PUSHED_STORES`, round by round, after a short run to warm up."""
    chosen = ALGORITHMS[algorithm]

    def run(tolerance: af.Tolerance, seconds: float = seconds) -> dict[str, float]:
        schema = kind_of(chosen.kind).schema
        stream = af.read_stream(spark).pushed(schema, tick_seconds=chosen.tick, buffer_bytes=chosen.buffer)
        writer = chosen.write(stream, tolerance)
        return pushed_run(writer, chosen.kind, seconds=seconds, throttle=PUSHED_STORES[store])

    run(af.Nothing(), seconds=WARM_UP_SECONDS)
    contenders = {name: partial(run, tolerance) for name, tolerance in schemes(chosen.theta).items()}
    return interleave(contenders, rounds=rounds, warm_up=False)
