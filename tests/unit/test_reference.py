"""The reference has every public name, each with a docstring, and is what the code says."""

from __future__ import annotations

import ast
import inspect
import re

import pytest

from tests.docs_examples import PAGES, examples
from tests.reference import ALIASES, PAGE, documented, members, names, page


@pytest.mark.parametrize(
    "name", [name for name, value in names().items() if not isinstance(value, str) and name not in ALIASES]
)
def test_every_public_name_has_a_docstring(name: str) -> None:
    value = names()[name]
    own = inspect.getdoc(value) if inspect.isclass(value) or callable(value) else value.__doc__
    assert own and not own.startswith(f"{name}("), "dataclasses make one that says nothing"
    assert [member for member in members(value) if not documented(value, member)] == []


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text() == page(), "run make reference"


def test_what_examples_import_is_there() -> None:
    known = {f"afspark.{name}" for name in names()} | {"afspark.testing"}
    for page_ in PAGES:
        for example in examples(page_):
            for node in ast.walk(ast.parse(example.code)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "afspark":
                    given = {f"{node.module}.{one.name}" for one in node.names}
                    assert given <= known, example.name


def test_the_page_has_the_settings_that_it_refers_to() -> None:
    text = PAGE.read_text()
    referred = re.findall(r"settings as in `(\w+)`", " ".join(text.split()))
    assert referred
    assert [name for name in referred if not re.search(rf"^## `(\w+\.)?{name}`$", text, re.MULTILINE)] == []


def test_the_page_has_what_users_ask_for() -> None:
    text = PAGE.read_text()
    for one in ("release()", "flush: bool = True", "batchBytes", "trace"):
        assert one in text, one
