"""Read by every Python process of the tests: Spark starts one per query, which would parse pyspark's archive anew."""

import sys
from pathlib import Path

for _entry in [entry for entry in sys.path if entry.endswith("pyspark.zip")]:
    # The same code lies beside the archive, compiled.
    if (Path(_entry).parents[2] / "worker.py").is_file():
        sys.path.remove(_entry)
