"""Every link of a document leads somewhere, in a checkout and on a package index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from tests.docs import cookbook
from tests.docs.links import INDEX_PAGE, broken, documents, slug, targets
from tests.docs.tables import ROOT


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert broken(path, text) == []
    assert not re.search(r"^--8<--", text, re.MULTILINE), "code hosts include nothing"


@pytest.mark.parametrize(
    ("link", "leads"),
    [
        ("docs/faq.md", True),
        ("docs/faq.md#can-i-use-it-without-the-server", True),
        ("docs/zh/faq.md#can-i-use-it-without-the-server", True),
        ("docs/reference/bridge.md#bridge.Bridge", True),
        ("docs/nowhere.md", False),
        ("docs/faq.md#nothing", False),
        ("#nothing", False),
    ],
)
def test_a_broken_link_is_found(link: str, leads: bool) -> None:
    assert (broken(ROOT / "README.md", f"see [it]({link})") == []) is leads


@pytest.mark.parametrize("index", cookbook.INDEXES, ids=["English", "Chinese"])
def test_a_recipe_is_found_under_the_address_that_it_had(index: Path) -> None:
    """All recipes were on one page; the index has an anchor for each, beside the link to its page."""
    text = index.read_text(encoding="utf-8")
    pages = sorted((index.parent / "cookbook").glob("*.md"))
    assert [page.name for page in pages] == [page.name for page in cookbook.PAGES]
    assert len(pages) > 5
    for page in pages:
        assert cookbook.recipes(page)
        for anchor, _ in cookbook.recipes(page):
            assert re.search(rf'<a id="{anchor}"></a>\[.+\]\(cookbook/{page.name}#{anchor}\)', text), anchor


def test_code_has_no_links() -> None:
    assert targets("`[a](b)` [c](d)\n\n```\n[e](f)\n```\n") == ["d"]


def test_anchors_are_those_of_code_hosts() -> None:
    assert slug("What does `X-Bridge-Lost` mean?") == "what-does-x-bridge-lost-mean"


def test_an_index_shows_a_page_without_relative_links() -> None:
    """It is what builds give to indexes, small, and its links lead to the repository of `project.urls`, if any."""
    page = INDEX_PAGE.read_text(encoding="utf-8")
    project = ProjectMetadata(str(ROOT), PluginManager()).core
    assert project.readme == page
    source = project.urls.get("Source")
    others = [target for target in targets(page) if source is None or not target.startswith(source)]
    assert others == []
    assert (len(targets(page)) > 30) is (source is not None)
    assert len(page) < 20_000


def test_the_changelog_has_the_version_and_what_comes_next() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version = ProjectMetadata(str(ROOT), PluginManager()).core.version
    first, then, *_ = re.findall(r"^## (.+)$", changes, re.MULTILINE)
    assert first == "Unreleased"
    assert re.fullmatch(rf"{re.escape(version)} - \d{{4}}-\d\d-\d\d", then)
    assert "\n### Changed\n" in changes.partition("## Unreleased")[2].partition("\n## ")[0]
