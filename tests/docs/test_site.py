"""The documentation as a site: it builds without a warning, holds every public name, and asks no other host."""

from __future__ import annotations

import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import griffe
import pytest

from bridge import ErrorCode
from tests.docs.helpers import ROOT, run
from tests.docs.links import documents
from tests.docs.pages import PAGES
from tests.docs.reference import FOLDER, PUBLIC, public_names, referred

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs"
REFERRED = referred()


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_says_what_it_is(module: str) -> None:
    assert [name for name, member in public_names(module).items() if member.docstring is None] == []


@pytest.mark.parametrize("path", [path for path in PAGES if path.parent == FOLDER], ids=lambda path: path.name)
def test_a_page_of_the_reference_is_current(path: Path) -> None:
    assert PAGES[path]() == path.read_text(encoding="utf-8"), "`make pages` writes it anew"


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_stands_in_the_reference(module: str) -> None:
    assert [name for name in public_names(module) if f"{module}.{name}" not in REFERRED] == []


def test_the_reference_is_readable_where_the_repository_is_read() -> None:
    """Code hosts know no directives of site generators; a signature, words and members stand in the page itself."""
    for page in documents():
        directives = r"^(?::::|!!!|\?\?\?|===) |^--8<--|\]\(#?bridge\.[\w.]+\)|\{:? ?[.#][\w-]+ ?\}"
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        assert re.findall(directives, text, re.MULTILINE) == [], page
    told = (FOLDER / "bridge.md").read_text(encoding="utf-8")
    assert "def translate(" in told
    assert "#### Bridge.complete\n" in told
    for code in ErrorCode:
        assert f"- `{code.name}` = `'{code}'`: " in told


def test_every_method_of_a_public_class_says_what_it_does() -> None:
    """Methods of a dialect and of a suite say it in the class they come from, tests by their names."""
    silent = [
        f"{module}.{name}.{method.name}"
        for module in PUBLIC
        for name, member in public_names(module).items()
        if isinstance(member, griffe.Class) and not module.startswith("bridge.sdk.")
        for method in member.functions.values()
        if not method.name.startswith(("_", "test_")) and method.docstring is None
    ]
    assert silent == []


# ---------------------------------------------------------------------- the site


class _Resources(HTMLParser):
    """What a browser fetches by itself when it shows a page, and the ids that links can point at."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.ids: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        self.ids.add(said.get("id", ""))
        if tag == "link" and said.get("rel") not in ("canonical", "next", "prev"):
            self.fetched.append(said.get("href", ""))
        elif tag != "a":
            self.fetched += [said[name] for name in ("src", "srcset", "data", "action", "poster") if name in said]


def test_make_docs_builds_it() -> None:
    assert run("make", "-n", "docs").stdout.decode().endswith("/mkdocs build --strict\n")


def test_the_site_holds_every_public_name(site: Path) -> None:
    for page in (DOCS / "reference").glob("*.md"):
        built = _Resources(site / "reference" / f"{page.stem}.html")
        assert {name for name, where in REFERRED.items() if where == page} <= built.ids


def test_links_beside_the_documentation_lead_to_the_repository(site: Path) -> None:
    page = "".join(
        path.read_text(encoding="utf-8") for path in (site / "cookbook.html", *(site / "cookbook").iterdir())
    )
    source = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"].get("Source")
    assert (f'href="{source}/blob/main/examples/configs"' in page) is (source is not None)
    assert '/examples/configs"' not in page.replace(f"{source}/blob/main", "")
    assert 'href="zh/cookbook.html"' in page


def test_pictures_are_there(site: Path) -> None:
    for page in ("index.html", "web-ui.html"):
        pictures = [name for name in _Resources(site / page).fetched if name.endswith(".png")]
        assert pictures
        for name in pictures:
            assert 0 < (site / name).stat().st_size < 200_000


def test_no_other_host_is_asked_for_anything(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 6
    for page in pages:
        resources = _Resources(page)
        assert len(resources.fetched) > 2
        assert [r for r in resources.fetched if re.match(r"(?:\w+:)?//", r)] == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_the_licences_of_what_it_is_made_of_go_along(site: Path) -> None:
    told = {path.stem: path.read_text(encoding="utf-8") for path in (site / "licences").iterdir()}
    assert "Permission is hereby granted" in told["mkdocs-material"]
    assert "Apache" in told["material-design-icons"]
