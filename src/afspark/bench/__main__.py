"""``make bench``: all measurements, a table on the screen, figures and environment as JSON."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

import afspark as af
from afspark.bench.environment import environment
from afspark.bench.inputs import BATCH_BYTES, packet_files, text_files
from afspark.bench.interleave import interleave
from afspark.bench.profile import profile
from afspark.bench.push import push
from afspark.bench.statecost import cost_by_size, recovery
from afspark.bench.streams import native, native_packets, native_words, ours
from afspark.bench.tables import print_all
from afspark.bench.upkeep import upkeep

#: Parquet files of about 40 MB, like the text files.
PACKETS_PER_FILE = 6_800_000
#: Native Spark keeps its state in the JVM; too small a heap would slow it down, not us.
DRIVER_MEMORY = "8g"
WORDS_THETA = 10_000
BYTES_THETA = 100_000


SUITES = ["tolerance", "native", "profile", "state", "upkeep", "push"]


class Bench:
    """All suites over one Spark session and one set of input files."""

    def __init__(self, folder: Path, batches: int, rounds: int) -> None:
        self.rounds = rounds
        self.spark = af.session(
            "local[2]", app_name="bench", config={"spark.ui.enabled": "false", "spark.driver.memory": DRIVER_MEMORY}
        )
        self.text = text_files(folder, batches)
        self.packets = packet_files(folder, batches, PACKETS_PER_FILE)
        # A batch is one file for everybody.
        self.packet_bytes = max(file.stat().st_size for file in self.packets.iterdir())

    def _text(self) -> af.Stream:
        return af.read_stream(self.spark).text(str(self.text), blocks=True)

    def _packets(self) -> af.Stream:
        return af.read_stream(self.spark).parquet(str(self.packets))

    def _words(self, tolerance: af.Tolerance, **options: Any) -> Callable[[], dict[str, float]]:
        return partial(ours, self._text, af.WordCount, tolerance, **options)

    def _heavy(self, tolerance: af.Tolerance) -> Callable[[], dict[str, float]]:
        operator = partial(af.HeavyHitters, keys=("src", "dst"), weight="bytes", threshold=10_000_000)
        return partial(ours, self._packets, operator, tolerance, batch_bytes=self.packet_bytes)

    def tolerance(self) -> dict[str, Any]:
        """What fault tolerance costs when nothing fails."""
        words = interleave(
            {
                "none": self._words(af.Nothing()),
                "approximate": self._words(af.Approximate(theta=WORDS_THETA)),
                "minibatch": self._words(af.MiniBatch()),
            },
            rounds=self.rounds,
        )
        heavy = interleave(
            {
                "none": self._heavy(af.Nothing()),
                "approximate": self._heavy(af.Approximate(theta=BYTES_THETA)),
                "minibatch": self._heavy(af.MiniBatch()),
            },
            rounds=self.rounds,
        )
        return {
            name: {
                "figures": contest.to_json(),
                "approximate/none": contest.ratio("approximate", "none", "inputs_per_second"),
                "approximate/minibatch": contest.ratio("approximate", "minibatch", "inputs_per_second"),
            }
            for name, contest in (("wordcount", words), ("heavy-hitters", heavy))
        }

    def native(self) -> dict[str, Any]:
        """Against native Structured Streaming with its exactly-once checkpoint."""
        exact, words = af.MiniBatch(), af.Approximate(theta=WORDS_THETA)
        text = interleave(
            {
                "approximate, at the end": self._words(words),
                "approximate, every batch": self._words(words, emit=True),
                "minibatch, every batch": self._words(exact, emit=True),
                "native hdfs": partial(
                    native, self.spark, partial(native_words, self.spark, self.text), self.text, "hdfs"
                ),
                "native rocksdb": partial(
                    native, self.spark, partial(native_words, self.spark, self.text), self.text, "rocksdb"
                ),
            },
            rounds=max(1, self.rounds // 2),
        )
        packets = interleave(
            {
                "approximate, at the end": self._heavy(af.Approximate(theta=BYTES_THETA)),
                "native hdfs": partial(
                    native, self.spark, partial(native_packets, self.spark, self.packets), self.packets, "hdfs"
                ),
                "native rocksdb": partial(
                    native, self.spark, partial(native_packets, self.spark, self.packets), self.packets, "rocksdb"
                ),
            },
            rounds=max(1, self.rounds // 2),
        )
        return {
            name: {"figures": contest.to_json(), "ratios": _against_best_native(contest)}
            for name, contest in (("wordcount", text), ("heavy-hitters", packets))
        }

    def push(self) -> dict[str, Any]:
        """Pushed items: accepted, acknowledged and counted; fast and slow stores; acknowledgements at half load."""
        approximate = af.Approximate(theta=100_000, items_seconds=4.0, unacked=4_000_000)
        schemes: dict[str, af.Tolerance] = {
            "none": af.Nothing(),
            "approximate": approximate,
            "minibatch": af.MiniBatch(),
            "upstream": af.UpstreamBackup(),
        }
        stores: dict[str, dict[str, float] | None] = {
            "local store": None,
            "store of 100 MB/s, 20 ms": {"storeLatencySeconds": 0.02, "storeBytesPerSecond": 100e6},
        }
        found: dict[str, Any] = {}
        for label, throttle in stores.items():
            runs = {
                name: partial(push, self.spark, tolerance, throttle=throttle) for name, tolerance in schemes.items()
            }
            contest = interleave(runs, rounds=max(1, self.rounds // 2))
            others = [name for name in schemes if name != "approximate"]
            found[label] = {
                "figures": contest.to_json(),
                "ratios": {
                    f"approximate / {name}": contest.ratio("approximate", name, "items_per_second") for name in others
                },
            }
        rate = found["local store"]["figures"]["approximate"]["items_per_second"]["median"] / 2
        found["half load"] = [push(self.spark, approximate, rate=rate, rows=rows) for rows in (16_384, 65_536)]
        return found

    def upkeep(self) -> list[dict[str, Any]]:
        """What keeping the divergence costs, next to the updates."""
        return upkeep()

    def profile(self) -> dict[str, Any]:
        """Where the time of a batch goes."""
        words = af.Approximate(theta=WORDS_THETA)
        counted = partial(self._text().apply, workers=2, tolerance=words)
        operator = partial(af.HeavyHitters, keys=("src", "dst"), weight="bytes", threshold=10_000_000)
        heavy = partial(self._packets().apply, workers=2, tolerance=af.Approximate(theta=BYTES_THETA))
        runs: dict[str, tuple[Callable[[], af.StreamWriter], int]] = {
            "WordCount, results at the end": (lambda: counted(af.WordCount()).writeStream, BATCH_BYTES),
            "WordCount, changed rows every batch": (
                lambda: counted(af.WordCount()).writeStream.outputMode("update").format("noop"),
                BATCH_BYTES,
            ),
            "heavy hitters, results at the end": (lambda: heavy(operator()).writeStream, self.packet_bytes),
        }
        return {name: profile(writer, size) for name, (writer, size) in runs.items()}

    def state(self) -> dict[str, Any]:
        """The state stage alone."""
        return {
            "cost_by_size": {
                kind: cost_by_size([10**4, 10**5, 10**6, 10**7], key=kind) for kind in ("int64", "string")
            },
            "recovery": [recovery(10**5), recovery(10**6)],
        }


def _against_best_native(contest: Any) -> dict[str, float]:
    natives = [name for name in contest.rounds if name.startswith("native")]
    best = max(natives, key=lambda name: contest.median(name, "inputs_per_second"))
    return {
        f"{name} / {best}": contest.ratio(name, best, "inputs_per_second")
        for name in contest.rounds
        if not name.startswith("native")
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="afspark bench", description=__doc__)
    parser.add_argument(
        "suites",
        nargs="*",
        default=SUITES,
        help="which suites to run",
    )
    parser.add_argument("--batches", type=int, default=14, help="40 MB files per run (default 14)")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds (default 5)")
    parser.add_argument("--inputs", type=Path, default=Path(tempfile.gettempdir()) / "afspark-bench-inputs")
    parser.add_argument("--json", type=Path, default=Path("out/bench.json"))
    options = parser.parse_args()
    document: dict[str, Any] = {
        "environment": environment(),
        "settings": {"batches": options.batches, "rounds": options.rounds},
    }
    started = time.time()
    options.json.parent.mkdir(parents=True, exist_ok=True)
    bench = Bench(options.inputs, options.batches, options.rounds)
    for suite in options.suites:
        print(f"{suite}: {getattr(bench, suite).__doc__}", file=sys.stderr, flush=True)
        document[suite] = getattr(bench, suite)()
        document["seconds"] = round(time.time() - started, 1)
        options.json.write_text(json.dumps(document, indent=2))
    print_all(document, Console())
    print(f"figures: {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
