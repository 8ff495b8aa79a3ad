"""Hooks of mkdocs (mkdocs.yml): the pages as they are read beside the code become those of the site.

README.md is the site's first page, the changelog and the examples are pages of it, and links between them lead there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
#: Pages that lie outside of docs/, by their place on the site.
OUTSIDE = {"index.md": "README.md", "changelog.md": "CHANGELOG.md"}

_LINK = re.compile(r"\]\((?P<up>\.\./)?(?P<path>[^)#\s:]+)(?P<rest>#[^)\s]*)?\)")
_FOLDER = re.compile(r"\[([^\]]*)\]\(([\w-]+)\)")
_ITEM = re.compile(r"- |\d+\. ")


def on_config(config: Any) -> Any:
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor
    return config


def on_files(files: Any, config: Any) -> Any:
    for place, file in OUTSIDE.items():
        files.append(File.generated(config, place, content=(ROOT / file).read_text()))
    for example in sorted((ROOT / "examples").glob("*.py")):
        text = f"# {example.name}\n\n```python\n{example.read_text()}```\n"
        files.append(File.generated(config, f"examples/{example.stem}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    outside = page.file.src_uri in OUTSIDE
    text = _FOLDER.sub(_without_folder, markdown)
    return "\n".join(_indented(_LINK.sub(lambda link: _on_site(link, outside=outside), text).splitlines()))


def anchor(title: str, separator: str) -> str:
    """The anchor of a heading, as GitHub makes it.

    >>> anchor("`Own`: a state, of θ", "-")
    'own-a-state-of-θ'
    """
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", separator)


def _without_folder(link: re.Match[str]) -> str:
    """A folder, whose files a repository lists, is no page."""
    return link[1] if (ROOT / "docs" / link[2]).is_dir() else link[0]


def _on_site(link: re.Match[str], *, outside: bool) -> str:
    """A link between two files as one between two pages."""
    path, rest = link["path"], link["rest"] or ""
    if outside:
        path = path.removeprefix("docs/")
    elif not link["up"]:
        return link[0]
    by_file = {file: page for page, file in OUTSIDE.items()}
    path = re.sub(r"^examples/(\w+)\.py$", r"examples/\1.md", by_file.get(path, path))
    return f"]({path}{rest})"


def _indented(lines: list[str]) -> Iterator[str]:
    """What belongs to an item of a list is indented by two spaces here, and by four where mkdocs looks for it."""
    fenced = listed = False
    for line in lines:
        if line.startswith("```"):
            fenced = not fenced
        if not fenced and line.strip() and not line.startswith(" "):
            listed = _ITEM.match(line) is not None
        yield f"  {line}" if listed and not fenced and line.startswith("  ") else line
