"""What a measurement was made on, kept with its figures."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import numba
import numpy
import pyarrow
import pyspark

import afspark


def environment() -> dict[str, Any]:
    """Versions and the size of the machine; load tells how far the figures can be trusted."""
    return {
        "afspark": afspark.__version__,
        "python": platform.python_version(),
        "spark": pyspark.__version__,
        "pyarrow": pyarrow.__version__,
        "numpy": numpy.__version__,
        "numba": numba.__version__,
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
