"""The site is built without the network, and every link on it leads somewhere."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

ROOT = Path(__file__).parents[2]


def built(folder: Path, docs: Path | None = None) -> Path:
    settings = {} if docs is None else {"docs_dir": str(docs)}
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), **settings))
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("site"))


def test_every_page_is_there(site: Path) -> None:
    pages = {"index", "changelog", *(page.stem for page in (ROOT / "docs").glob("*.md"))}
    assert pages <= {page.stem for page in site.glob("*.html")}
    assert {file.stem for file in (ROOT / "examples").glob("*.py")} == {
        file.stem for file in site.glob("examples/*.html")
    }


def test_nothing_comes_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]* (?:src|href)="([^"]+)"', page.read_text())
        assert [address for address in loaded if re.match(r"(?:https?:)?//", address)] == [], page.name


def test_lists_and_code_in_them_are_what_they_look_like(site: Path) -> None:
    """As GitHub shows them: nothing is left of the marks."""
    for page in site.glob("*.html"):
        shown = re.sub(r"<(pre|code)[^>]*>.*?</\1>", "", page.read_text(), flags=re.DOTALL)
        assert "```" not in shown and not re.search(r"<p>- ", shown), page.name
        assert "<!-- example" not in re.sub(r"<!--.*?-->", "", shown, flags=re.DOTALL)


def test_a_broken_link_is_an_error(tmp_path: Path) -> None:
    docs = shutil.copytree(ROOT / "docs", tmp_path / "docs")
    with (docs / "guide.md").open("a") as page:
        page.write("\nSee [nowhere](guarantees.md#nowhere).\n")
    with pytest.raises(Abort):
        built(tmp_path / "site", docs)
