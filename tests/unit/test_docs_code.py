"""The code on the pages is code: examples can be compiled, what they name is there, and commands can be parsed."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

import afspark
from afspark.cli.options import parse
from tests.docs_examples import PAGES, PRELUDES, examples, programs

BLOCK = re.compile(r"^ *```(?:console)?\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^ *(?:\$ )?(?:.*\| )?(?:\.venv/bin/)?afspark (.+)$", re.MULTILINE)
WORDS = ("after", "then", "file", "shown", "goes on")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_are_programs(page: Path) -> None:
    for example, source in programs(page):
        compile(source, example.name, "exec")
    for example in examples(page):
        compile(example.code, example.name, "exec")
        for mark in example.marks:
            assert " = " in mark or mark.startswith(WORDS), f"{example.name}: {mark}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_name_what_is_public(page: Path) -> None:
    for example in examples(page):
        for node in ast.walk(ast.parse(example.code)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "af":
                assert node.attr in afspark.__all__, f"{example.name}: af.{node.attr}"


def test_every_prelude_is_used() -> None:
    used = {example.marked(word) for page in PAGES for example in examples(page) for word in ("after", "then")}
    assert used - {None} | {"inputs"} == {file.stem for file in PRELUDES.glob("*.py")}


def commands(page: Path) -> list[str]:
    """The commands of afspark in blocks that are for a shell, without comments."""
    return [
        re.sub(r"\s+#\s.*", "", line) for block in BLOCK.findall(page.read_text()) for line in COMMAND.findall(block)
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_commands_can_be_given(page: Path) -> None:
    for command in commands(page):
        if "…" not in command and "..." not in command and not command.startswith("error"):
            parse([word for word in shlex.split(command) if word != "&"])


def test_an_example_and_what_is_said_of_it_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Text\n\n<!-- example: after imports, 5 = 3, [1\\, 2] = 4 -->\n\n```python\nf(5, [1, 2])\n```\n\n"
        "- a list\n\n  ```python\n  g()\n  ```\n"
    )
    first, second = examples(page)
    assert (first.name, first.adapted, first.marked("after")) == ("page.md:5", "f(3, 4)\n", "imports")
    assert (second.code, second.marks, second.marked("after")) == ("g()\n", (), None)
