"""The Python examples of the pages: found, and run as programs.

What stands in front of an example, in a comment that readers do not see, says how it is run::

    <!-- example: after streams, 5_000_000 = 20_000 -->

==================  ==================================================================================
no comment          it is a program of its own
``after NAME``      it follows ``tests/docs_preludes/NAME.py``, which has what the page takes for granted
``goes on``         it follows the example before it
``file NAME``       it is a file that later examples of the page import
``shown``           it is not run, for the reason that follows
``A = B``           with B for A: sizes and places that are too large or not here (``\\,`` is a comma)
``then NAME``       ``tests/docs_preludes/NAME.py`` comes after it
==================  ==================================================================================

``python -m tests.docs_examples PAGE`` runs those of a page in the present folder.
"""

from __future__ import annotations

import re
import runpy
import sys
import textwrap
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PRELUDES = Path(__file__).parent / "docs_preludes"
#: The reference has signatures in its blocks.
PAGES = tuple(
    page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if page.name != "reference.md"
)

_BLOCK = re.compile(r"(?:^ *<!-- example: ([^\n]*) -->\n\n)?^ *```python\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """One example of a page, and the words in front of it."""

    page: str
    line: int
    code: str
    marks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"

    def marked(self, word: str) -> str | None:
        """What follows ``word`` in its comment; None if that is not there."""
        found = [mark.removeprefix(word).strip() for mark in self.marks if f"{mark} ".startswith(f"{word} ")]
        return found[0] if found else None

    @property
    def adapted(self) -> str:
        code = self.code
        for mark in self.marks:
            shown, equals, run = mark.partition(" = ")
            if equals:
                assert shown in code, f"{self.name} has no {shown}"
                code = code.replace(shown, run)
        return code


def examples(page: Path) -> Iterator[Example]:
    """The Python examples of a page, in order."""
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start(2))
        # A comma that belongs to code has a backslash before it.
        marks = tuple(mark.strip().replace("\\,", ",") for mark in re.split(r"(?<!\\),", found[1] or "") if mark)
        yield Example(page.name, line, textwrap.dedent(found[2]), marks)


def programs(page: Path) -> Iterator[tuple[Example, str]]:
    """The examples that are run, each with its whole source."""
    before = ""
    for example in examples(page):
        if example.marked("shown") is not None or example.marked("file") is not None:
            continue
        prelude = example.marked("after")
        parts = [(PRELUDES / f"{prelude}.py").read_text()] if prelude else []
        if example.marked("goes on") is not None:
            parts.append(before)
        parts.append(example.adapted)
        before = "\n".join(parts)
        after = example.marked("then")
        yield example, "\n".join([before, *([(PRELUDES / f"{after}.py").read_text()] if after else [])])


def run(page: Path) -> list[str]:
    """Runs the examples of a page in the present folder; the names of those that fail."""
    here, failed = Path.cwd(), []
    sys.path.insert(0, str(here))
    runpy.run_path(str(PRELUDES / "inputs.py"), run_name="__main__")
    for example in examples(page):
        name = example.marked("file")
        if name:
            (here / name).write_text(example.adapted)
    for number, (example, source) in enumerate(programs(page)):
        program = here / f"example_{number}.py"
        program.write_text(source)
        try:
            _use(runpy.run_path(str(program), run_name="__main__"))
        except (Exception, SystemExit):  # noqa: BLE001 (whatever it is, the others run too)
            traceback.print_exc()
            failed.append(example.name)
    return failed


def _use(made: dict[str, Any]) -> None:
    """Uses what an example has made: its tests are called, its queries come to their end, its pipelines are checked."""
    import afspark as af
    from afspark.api.stream import StatefulStream

    for name, value in made.items():
        if name.startswith("test_"):
            value()
        elif isinstance(value, StatefulStream):
            value.writeStream.check()
        elif isinstance(value, af.Query) and value.isActive:
            if not value.receivers:
                value.processAllAvailable()
            value.stop()
    for value in made.values():
        if isinstance(value, af.Query) and value.exception() is not None:
            raise value.exception() or AssertionError


if __name__ == "__main__":
    sys.exit(", ".join(run(Path(sys.argv[1]))) or 0)
