"""``afspark bench``: from options to experiments."""

from __future__ import annotations

from pathlib import Path

from afspark.bench.catalogue import chosen
from afspark.bench.command import bench
from afspark.bench.rig import Rig
from afspark.cli.bench_options import BenchOptions
from afspark.errors import UsageError


def measured(options: BenchOptions) -> int:
    """Carries out ``options``; the exit status."""
    chosen(options.experiments)
    page = None if options.page is None else Path(options.page)
    folder = Path(options.out)
    if page is not None and not folder.resolve().is_relative_to(page.resolve().parent):
        raise UsageError(
            f"The page {page} cannot show plots in {folder}.", remedy="Choose an --out below the folder of --page."
        )
    inputs = Path(options.inputs)
    inputs.mkdir(parents=True, exist_ok=True)
    log = None if options.debug else inputs / "spark.log"
    rig = Rig(inputs, options.batches, options.rounds, options.seeds, log, records=options.records, keep=folder)
    return bench(list(options.experiments), rig, folder, page)
