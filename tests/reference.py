"""Writes docs/reference.md: every public name with its signature and docstring, from the code alone."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import afspark

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"

_HEAD = """# Reference

Made by `make reference` from the code; `tests/unit/test_reference.py` fails if it is not what the code says. The
[guide](guide.md) explains how the names belong together. Fields of errors are in `afspark.errors`.
"""

#: Beside those of `afspark` itself: what users meet by another way, or import from elsewhere as the pages show.
_PACKAGES = ("errors",)
_ELSEWHERE: dict[str, tuple[str, ...]] = {
    "testing": ("run", "LocalQuery"),
    "lab": tuple(afspark.lab.__all__),
    "report.lab_report": ("write_report",),
    "protocol.fault_plan": ("FaultPhase", "FaultPlan", "InjectedFailure"),
    "model.preconditions": ("check_operator",),
    "model.states.conformance": ("check_all",),
    "cluster.loopback.loopback_cluster": ("LoopbackCluster", "host_names"),
    "sources": ("CsvFiles", "JsonFiles", "MarketEvents", "Posts", "Pushed", "SmartPlugs"),
    "sources.market_files": ("load_events", "write_events"),
}

#: What a type alias cannot say itself.
ALIASES = {"Transform": "What `map` takes, a stateless step: a function from a `RecordBatch` to one or to None."}


def names() -> dict[str, Any]:
    """The public names, each with what it stands for."""
    found = {name: getattr(afspark, name) for name in afspark.__all__}
    for package in _PACKAGES:
        module = import_module(f"afspark.{package}")
        own = {name: one for name, one in vars(module).items() if getattr(one, "__module__", "") == module.__name__}
        found |= {f"{package}.{name}": one for name, one in own.items() if inspect.isclass(one)}
    for package, chosen in _ELSEWHERE.items():
        module = import_module(f"afspark.{package}")
        found |= {f"{package}.{name}": getattr(module, name) for name in chosen}
    return found


def members(value: Any) -> dict[str, Any]:
    """The public methods and properties of a class of ours, without those of a base that has a section of its own."""
    if not inspect.isclass(value):
        return {}
    public = [one for one in names().values() if inspect.isclass(one) and one is not value]
    own = [one for one in reversed(value.__mro__) if one not in public]
    ours = [one for one in own if one.__module__.startswith("afspark.")]
    found = {name: one for owner in ours for name, one in vars(owner).items() if not name.startswith("_")}
    return {
        name: one
        for name, one in sorted(found.items())
        if inspect.isfunction(one) or isinstance(one, property | classmethod | staticmethod)
    }


def documented(value: Any, name: str) -> str:
    """The docstring of a member, or that of what it overrides."""
    for owner in value.__mro__:
        text = inspect.getdoc(vars(owner)[name]) if name in vars(owner) else None
        if text:
            return text
    return ""


def page() -> str:
    return "\n".join([_HEAD, *_sections()]).rstrip() + "\n"


def _sections() -> Iterator[str]:
    for name, value in names().items():
        yield f"## `{name}`\n"
        if isinstance(value, str):
            yield "The version of afspark, as text.\n"
            continue
        if name in ALIASES:
            yield f"{ALIASES[name]}\n"
            continue
        if inspect.isclass(value) and issubclass(value, Enum):
            yield f"```python\n{name}: {', '.join(one.name for one in value)}\n```\n"
        elif not isinstance(value, ModuleType):
            yield f"```python\n{name}{_signature(value)}\n```\n"
        yield _prose(inspect.getdoc(value) or "")
        for member, one in members(value).items():
            signature = "" if isinstance(one, property) else _signature(getattr(one, "__func__", one))
            yield f"- **`{member}{signature}`** {_prose(documented(value, member), indent='  ').lstrip()}"
        yield ""


def _signature(value: Any) -> str:
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return "(…)"
    # Addresses of objects differ from run to run.
    text = re.sub(r"<([\w.]+)[^>]*>", r"<\1>", text)
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    return re.sub(r"^\((?:self|cls)(?:, )?", "(", text)


def _prose(text: str, indent: str = "") -> str:
    """A docstring as Markdown: its code and its lists as they are, and examples as code."""
    plain = text.replace("``", "`")
    lines, inside = [], False
    for line in plain.splitlines():
        example = line.startswith((">>>", "..."))
        if example and not inside:
            lines.append("```python")
        elif inside and not line.strip():
            lines.append("```")
        inside = example or (inside and bool(line.strip()))
        lines.append(line)
    if inside:
        lines.append("```")
    return "\n".join(f"{indent}{line}".rstrip() for line in lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
