"""A state of one's own, with a divergence of its own: how many different visitors has a site had?

Linear counting: every visitor sets one of m bits, chosen by a hash; from the number of bits that are still free
follows how many different visitors there were. The bits are a class of ours (bits.py), and so is what "far from
the last backup" means for them: the number of bits that would be lost.

Run it with: .venv/bin/python examples/own_state.py
"""

import math
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bits import Bits, unpacked

import afspark as af
from afspark.model.states import conformance
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure

BITS = 1 << 14


class Visitors(af.Operator):
    """Estimates the number of different visitors."""

    alpha = 1.0  # one item sets at most one bit

    def states(self):
        return {"seen": af.Own(Bits, BITS)}

    def process(self, items, states):
        states["seen"].own.set(scattered(items.column("visitor").to_numpy()))

    def results(self, shares):
        images = [image for share in shares for image in share.cells["seen"].column("image").to_pylist()]
        bits = np.zeros(BITS, bool)
        for image in images:
            bits |= unpacked(pa.ipc.open_stream(image).read_next_batch(), BITS)
        missing = sum(share.missing["seen"] for share in shares)
        found = np.count_nonzero(bits)
        return pa.table({"visitors": [estimate(found)], "at_most": [estimate(found + missing)]})


def scattered(numbers: np.ndarray) -> np.ndarray:
    """A bit for each number, as if by chance, but the same in every process: never use Python's ``hash`` here."""
    mixed = numbers.astype(np.uint64)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(factor)
    return mixed >> np.uint64(64 - 14)


def estimate(bits_set: float) -> float:
    return round(-BITS * math.log1p(-bits_set / BITS))


def parse(lines: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"visitor": pc.cast(lines.column("value"), pa.int64())})


def set_some(state, random: np.random.Generator) -> None:
    """One random update, for the conformance suite."""
    state.own.set(random.integers(0, 64, 5))


def main() -> None:
    conformance.check_all(af.Own(Bits, 64), set_some)
    print("Bits passes", len(conformance.CHECKS), "checks of a state")

    folder = Path(tempfile.mkdtemp())
    (folder / "visits").mkdir()
    draw, everybody = np.random.default_rng(3), set()
    for number in range(8):
        visits = draw.integers(0, 6_000, 2_000)
        everybody.update(visits.tolist())
        (folder / "visits" / f"{number}.txt").write_text("".join(f"{visit}\n" for visit in visits))

    spark = af.session("local[2]", config={"spark.ui.enabled": "false"})
    spark.sparkContext.addPyFile(str(Path(__file__).with_name("bits.py")))  # workers import the class from there
    query = (
        af.read_stream(spark)
        .text(str(folder / "visits"))
        .map(parse)
        .apply(Visitors(), tolerance=af.Approximate(theta=400))
        .writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        .option("batchBytes", 15_000)
        .trigger(availableNow=True)
        .inject(FaultPlan(frozenset({InjectedFailure(3, FaultPhase.BETWEEN)})))
        .start()
    )
    query.awaitTermination()

    print("different visitors:", len(everybody))
    query.results().show()
    print("bits that failures can have taken:", query.bounds())
    query.release()


if __name__ == "__main__":
    main()
