"""What is compiled before workers are forked is all that the algorithms need."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
from numba.core.registry import CPUDispatcher
import afspark.model.kernels.logistic, afspark.model.kernels.lines, afspark.model.kernels.sketch
import sys
from afspark.algorithms.grep import Grep
from afspark.algorithms.heavy_hitters import HeavyHitters
from afspark.algorithms.logistic_regression import GlobalRegression, LocalRegression, open_model
from afspark.bench.alone import Kernel, shares_of
from afspark.sources import Clicks, Higgs, Packets, ZipfWords
from afspark.task.warmup import warm_up

def compiled():
    return {
        (module, name, signature)
        for module, content in list(sys.modules.items()) if module.startswith("afspark.model.kernels")
        if module not in ("afspark.model.kernels.generate", "afspark.model.kernels.labelled")
        for name, value in vars(content).items() if isinstance(value, CPUDispatcher)
        for signature in value.signatures
    }

warm_up()
before = compiled()
assert before
for source, operator in (
    (ZipfWords(1 << 18), Grep("et")),
    (ZipfWords(1 << 18), Grep("e[tx]", regex=True)),
    (Packets(1000), HeavyHitters(keys=("src", "dst"), weight="bytes", threshold=1000)),
    (Clicks(1000), LocalRegression()),
    (Higgs(1000), LocalRegression()),
):
    operator.check(source.schema())
    ((chunk,),) = shares_of(source, 1)
    Kernel(operator).run(source.read(chunk))
print(sorted(compiled() - before, key=str))
"""


def test_algorithms_find_their_kernels_compiled() -> None:
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]"
