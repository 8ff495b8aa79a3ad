"""Keeps Spark's talk off the terminal and in a file, where it can be found if something goes wrong."""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext

_TELLING = re.compile("[Ee]rror|[Ee]xception|[Ii]nvalid|^Caused by: ")
_NOISE = re.compile(r"\s*at |.*\bWARN(ING)?\b")


@contextmanager
def jvm_output(log: Path | None) -> Iterator[None]:
    """A JVM started in the block writes to ``log``, for as long as it lives, and so do all its children.

    Does nothing without ``log`` or if the JVM runs already. Nothing else should print in the block.
    """
    if log is None or SparkContext._gateway is not None:
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    kept = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    try:
        with log.open("ab", buffering=0) as file:
            for descriptor in kept:
                os.dup2(file.fileno(), descriptor)
        yield
    finally:
        for descriptor, original in kept.items():
            os.dup2(original, descriptor)
            os.close(original)


def hush_python() -> None:
    """Silences what pyspark's Python half says about pandas and about failures that are dealt with."""
    warnings.filterwarnings("ignore", module=r"pyspark(\..*)?$")
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    for name in ("py4j", "pyspark"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def first_error(log: Path) -> str:
    """The first line of a log that names an error, or its cause if it says nothing else; "" if there is none."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    telling = [line.strip() for line in lines if _TELLING.search(line) and not _NOISE.match(line)]
    said = [line for line in telling if not line.endswith(":")] or telling
    return said[0].removeprefix('Exception in thread "main" ').removeprefix("Caused by: ") if said else ""
