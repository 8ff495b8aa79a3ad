"""Python files of users: as modules whose functions build pipelines, and as programs that start queries."""

from __future__ import annotations

import ast
import importlib.util
import runpy
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle

from afspark.errors import AfsparkError, UsageError, first_line

FUNCTION = "pipeline"
"""The function of a user's file that builds its pipeline, if no other is named."""


def load_module(path: Path, remedy: str = "Name a file that is there.") -> ModuleType:
    """The user's file as a module, which travels to workers as it is."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(f"There is no Python file {str(path)!r}.", remedy=remedy, path=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.absolute()))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{path} cannot be imported: {type(error).__name__}: {first_line(error)}.") from error
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


def function_of(module: ModuleType, path: str, name: str) -> Callable[..., Any]:
    """The function of a user's module that builds a pipeline; UsageError if there is none."""
    found = getattr(module, name or FUNCTION, None)
    if callable(found):
        return found
    own = [
        key
        for key, value in vars(module).items()
        if callable(value) and not isinstance(value, type) and not key.startswith("_")
        if getattr(value, "__module__", "") == module.__name__
    ]
    raise UsageError(
        f"{path} has no function {name or FUNCTION!r}.",
        remedy=f"Name one behind a colon: {path}:NAME; it has {', '.join(own) or 'none'}.",
    )


def defines(path: Path, function: str) -> bool:
    """Whether a file defines a function of that name, without running it; UsageError if it cannot be read."""
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except OSError:
        raise UsageError(f"There is no Python file {str(path)!r}.", remedy="Name a file that is there.") from None
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{path} is no Python file: {first_line(error)}.", remedy="Mend it.") from error
    return any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body)


def run_program(path: Path) -> None:
    """Runs a user's program to its end, as ``python path`` does; UsageError for what it raises itself."""
    before = threading.enumerate()
    try:
        with _as_program(path):
            runpy.run_path(str(path), run_name="__main__")
            for thread in threading.enumerate():
                # As Python itself at its end.
                if thread not in before and not thread.daemon:
                    thread.join()
    except (AfsparkError, SystemExit) as error:
        if isinstance(error, AfsparkError):
            raise
    except Exception as error:
        raise UsageError(f"{path} raised {type(error).__name__}: {first_line(error)}.", remedy="Mend it.") from error


@contextmanager
def _as_program(path: Path) -> Iterator[None]:
    arguments, places = sys.argv, list(sys.path)
    sys.argv, sys.path[:0] = [str(path)], [str(path.parent.absolute())]
    try:
        yield
    finally:
        sys.argv, sys.path[:] = arguments, places
