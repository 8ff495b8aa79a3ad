"""Find a Java that Spark can run on, before Spark tries and fails with a page of stack trace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from afspark.errors import UsageError

MINIMUM_JAVA = 17
"""Oldest Java release Spark 4 starts on."""

SPARK_MODULE = "jdk.incubator.vector"
"""Module that Spark's launcher asks every JVM for. Runtimes trimmed with jlink often lack it."""

REMEDY = f"Install a full JDK {MINIMUM_JAVA} or later, or point JAVA_HOME to one."

_PROBE_SECONDS = 30
_PROPERTY = re.compile(r"^\s*(java\.home|java\.specification\.version) = (.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class JavaRuntime:
    """What a ``java`` program says of itself."""

    home: Path
    major: int
    complete: bool
    """Whether it has the module Spark asks for."""

    @property
    def usable(self) -> bool:
        return self.complete and self.major >= MINIMUM_JAVA


def parse_settings(text: str, *, complete: bool) -> JavaRuntime | None:
    """Read what ``java -XshowSettings:properties -version`` printed; None if it is not that."""
    found = dict(_PROPERTY.findall(text))
    release = re.fullmatch(r"(?:1\.)?(\d+)", found.get("java.specification.version", ""))
    if release is None or "java.home" not in found:
        return None
    return JavaRuntime(home=Path(found["java.home"]), major=int(release[1]), complete=complete)


def probe(program: Path) -> JavaRuntime | None:
    """Run ``program`` and report what it is; None if it cannot be run or is no Java.

    The first attempt asks for Spark's module as Spark does, so a usable Java costs one short process.
    """
    for options in ([f"--add-modules={SPARK_MODULE}"], []):
        try:
            done = subprocess.run(
                [str(program), *options, "-XshowSettings:properties", "-version"],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_PROBE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode == 0:
            return parse_settings(done.stderr + done.stdout, complete=bool(options))
    return None


def find_java_home(environ: Mapping[str, str] = os.environ) -> Path:
    """The home of a Java that can run Spark: ``JAVA_HOME`` first, then ``java`` on ``PATH``.

    Raises :class:`~afspark.errors.UsageError` with the field ``rejected`` (place -> reason) if there is none.
    The environment is not changed; Spark follows ``JAVA_HOME``, so the caller sets it to the result.
    """
    rejected: dict[str, str] = {}
    for place, program in _candidates(environ):
        runtime = probe(program) if program is not None else None
        if runtime is not None and runtime.usable:
            return runtime.home
        rejected[place] = _reason(program, runtime)
    tried = "; ".join(f"{place} {reason}" for place, reason in rejected.items())
    raise UsageError(f"Spark finds no Java it can run on ({tried}).", remedy=REMEDY, rejected=rejected)


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, Path | None]]:
    home = environ.get("JAVA_HOME", "")
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    return [
        ("JAVA_HOME", Path(home, "bin", "java") if home else None),
        ("PATH", Path(on_path) if on_path else None),
    ]


def _reason(program: Path | None, runtime: JavaRuntime | None) -> str:
    if program is None:
        return "names none"
    if runtime is None:
        return f"leads to {program}, which does not run"
    if runtime.major < MINIMUM_JAVA:
        return f"leads to Java {runtime.major}"
    return f"leads to a Java {runtime.major} without the module {SPARK_MODULE}"
