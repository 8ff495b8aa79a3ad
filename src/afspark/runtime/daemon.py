"""The process that Spark forks Python workers from, with everything heavy imported and compiled before."""

import gc
import sys
from pathlib import Path


def _prefer_compiled() -> None:
    """Imports pyspark from the folder its archive lies in: nothing is ever compiled for good inside an archive."""
    for entry in [entry for entry in sys.path if entry.endswith("pyspark.zip")]:
        package = Path(entry).parents[2]
        if (package / "worker.py").is_file() and str(package.parent) in sys.path:
            sys.path.remove(entry)


if __name__ == "__main__":
    # Collecting garbage among so many new objects takes longer than importing them.
    gc.disable()
    _prefer_compiled()

    from pyspark.daemon import manager

    from afspark.runtime.warmup import warm_up

    warm_up()
    # What workers share with this process stays shared: nobody looks at it again.
    gc.freeze()
    gc.enable()
    manager()
