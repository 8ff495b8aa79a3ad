"""The plan of the house: which room may import which, and the size of its parts.

docs/contributing.md describes the plan; the table below decides.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import afspark

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "afspark"
MAX_LINES = 500

ROOMS = [
    "errors",
    "clock",
    "_version",
    "numbers",
    "model",
    "bounds",
    "store",
    "policies",
    "control",
    "exchange",
    "push",
    "sources",
    "protocol",
    "graph",
    "resident",
    "task",
    "cluster",
    "coordinator",
    "api",
    "testing",
    "lab",
]
"""Each imports only what stands before it."""

SUB_ROOMS: dict[str, list[str]] = {"push": ["wire", "consumer", "receiver", "producer", "adapters"]}
"""The same within a room. What lies in no sub-room may be imported by all of them and imports none."""

FRONT = {"cli", "report", "bench", "__main__"}
ALLOWED: dict[str, set[str]] = {
    **{room: set(ROOMS[:place]) for place, room in enumerate(ROOMS)},
    "algorithms": {"errors", "model"},
}
ALLOWED |= {room: {*ALLOWED, *FRONT} for room in FRONT}
MAY_IMPORT_PYSPARK = {"graph", "task", "cluster", "coordinator", "api", "lab", "cli", "bench"}
# What Spark forks Python workers from has everything imported that users' operators are made of.
MAY_IMPORT_ALGORITHMS = {"afspark.cluster.spark.daemon"}
# Measurements are written as users write their programs.
MAY_IMPORT_THE_PACKAGE = {"bench"}


def imports_of(source: str, module: str, *, is_package: bool) -> Iterator[str]:
    """Dotted names that ``source`` imports anywhere, lazily or for types alike, relative ones resolved."""
    parts = module.split(".")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            here = parts[: len(parts) - node.level + is_package] if node.level else []
            base = ".".join([*here, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def violations(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """What ``module`` imports against the plan; the package's own ``__init__`` may re-export anything."""
    if module == "afspark":
        return []
    room = module.split(".")[1]
    if room not in ALLOWED:
        return [f"{module}: room '{room}' has no place in the plan"]
    allowed = ALLOWED[room] | {room} | ({"algorithms"} if module in MAY_IMPORT_ALGORITHMS else set())
    found = []
    for name in imports_of(source, module, is_package=is_package):
        top, *rest = name.split(".")
        if top in {"pyspark", "py4j"} and room not in MAY_IMPORT_PYSPARK:
            found.append(f"{module}: {name}")
        if top == "afspark" and not rest and room not in MAY_IMPORT_THE_PACKAGE:
            found.append(f"{module}: {name}")
        if top == "afspark" and rest and (rest[0] not in allowed or _goes_down(module, name)):
            found.append(f"{module}: {name}")
    return found


def _goes_down(module: str, name: str) -> bool:
    """Whether an import within a room leads to a sub-room that stands after the importing one."""
    (_, room, *here), (_, other, *there) = module.split("."), name.split(".")
    order = SUB_ROOMS.get(room, [])
    if room != other or not there or there[0] not in order:
        return False
    return not here or here[0] not in order or order.index(here[0]) < order.index(there[0])


def more_than_reexports(source: str) -> list[str]:
    """Statements of an ``__init__`` that are neither docstring, import nor ``__all__``."""
    return [ast.unparse(node) for node in ast.parse(source).body if not _reexports(node)]


def _reexports(node: ast.stmt) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
    return False


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = sorted(PACKAGE.rglob("*.py"))
CODE = sorted(path for folder in ("src", "tests", "examples") for path in (ROOT / folder).rglob("*.py"))


def test_there_is_a_house_to_check() -> None:
    assert {path.name for path in PACKAGE.iterdir() if path.is_dir()} >= {"model", "store", "coordinator", "task"}


@pytest.mark.parametrize("path", MODULES, ids=module_of)
def test_imports_follow_the_plan(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert violations(source, module_of(path), is_package=path.name == "__init__.py") == []


INITS = [path for path in MODULES if path.name == "__init__.py" and path.parent != PACKAGE]


def test_the_root_offers_what_its_stub_declares() -> None:
    declared = {
        node.name for node in ast.walk(ast.parse((PACKAGE / "__init__.pyi").read_text())) if isinstance(node, ast.alias)
    }
    assert declared == set(afspark.__all__)
    assert all(getattr(afspark, name) is not None for name in declared)


@pytest.mark.parametrize("path", INITS, ids=module_of)
def test_init_files_only_reexport(path: Path) -> None:
    assert more_than_reexports(path.read_text(encoding="utf-8")) == []


def test_no_two_files_and_no_two_classes_share_a_name() -> None:
    files = Counter(path.name for path in MODULES if path.name not in ("__init__.py", "__main__.py"))
    defined = (node for path in MODULES for node in ast.parse(path.read_text()).body)
    classes = Counter(node.name for node in defined if isinstance(node, ast.ClassDef))
    assert [name for name, count in (files + classes).items() if count > 1] == []


def test_files_stay_short() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in CODE}
    assert {name: length for name, length in lengths.items() if length > MAX_LINES} == {}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("afspark.model.states.state", "import pyspark.sql"),
        ("afspark.store.records", "def f():\n    from py4j.java_gateway import JavaGateway"),
        ("afspark.report.tables", "from pyspark.sql import DataFrame"),
        ("afspark.model.divergence", "from afspark.bounds import thresholds"),
        ("afspark.model.divergence", "from afspark import bounds"),
        ("afspark.model.divergence", "from .. import bounds"),
        ("afspark.model.divergence", "from ..store.format import seal"),
        ("afspark.policies.approximate", "import afspark.resident"),
        ("afspark.policies.adaptive", "from afspark.control.schemes import Scheme"),
        ("afspark.control.controller", "from afspark.protocol.replicas import Replica"),
        ("afspark.control.controller", "import pyspark"),
        ("afspark.algorithms.word_count", "from afspark.cluster import spark"),
        ("afspark.coordinator.loop", "from afspark import Pipeline"),
        ("afspark.coordinator.loop", "import afspark"),
        (
            "afspark.coordinator.loop",
            "if TYPE_CHECKING:\n    from afspark.algorithms.word_count import WordCount",
        ),
        ("afspark.errors", "from afspark.model import Options"),
        ("afspark.attic", ""),
        ("afspark.protocol.requests", "from afspark.task.worker import serve"),
        ("afspark.task.worker", "from afspark.coordinator.recovery import discovery"),
        ("afspark.push.wire.messages", "from afspark.push.receiver.lane import Lane"),
        ("afspark.push.latency", "from afspark.push.wire import messages"),
    ],
)
def test_a_breach_is_seen(module: str, source: str) -> None:
    assert len(violations(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("afspark", "from afspark.coordinator.loop import run\nfrom afspark.model import HashTable"),
        ("afspark.model.states.matrix", "from .base import State\nfrom ..kernels import hashing"),
        ("afspark.store.format", "import json\nfrom afspark.errors import CorruptObject"),
        (
            "afspark.coordinator.loop",
            "import pyspark\nfrom afspark.store import Store\nfrom .recovery import Loss",
        ),
        ("afspark.algorithms.word_count", "from afspark.model import HashTable"),
        (
            "afspark.push.receiver.lane",
            "from afspark.push.wire.messages import Hello\nfrom afspark.push import latency",
        ),
        ("afspark.report.plot", "from afspark.algorithms import word_count\nfrom afspark import api"),
    ],
)
def test_what_the_plan_allows_passes(module: str, source: str) -> None:
    assert violations(source, module) == []


def test_relative_imports_of_a_package_start_at_itself() -> None:
    names = imports_of("from .base import State\nfrom . import matrix", "afspark.model.states", is_package=True)
    assert list(names) == ["afspark.model.states.base.State", "afspark.model.states.matrix"]


@pytest.mark.parametrize("source", ["VERSION = 1", "def f(): ...", "if True:\n    import os", "print('hello')"])
def test_code_in_an_init_is_seen(source: str) -> None:
    assert more_than_reexports(f'"""Doc."""\nfrom afspark.model import x\n__all__ = ["x"]\n{source}') != []
