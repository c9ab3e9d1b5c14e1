"""The pages of the documentation that are printed from the code: `python -m tests.docs.pages` writes them anew."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.docs import chinese, configuration, connect, cookbook, errors, links, promises, reference, tables
from tests.docs.tables import ROOT, spanned

HOME = ROOT / "docs" / "index.md"
WITH_FILES = [*cookbook.PAGES, *(ROOT / "docs" / f"{name}.md" for name in ("extending", "your-agent"))]
_COPY = re.compile(r"^<!-- file: (\S+) -->\n(```\w+)\n.*?^```$", re.MULTILINE | re.DOTALL)


def with_files(path: Path) -> str:
    """The page with each block below `<!-- file: path -->` as the file is, without its line for YAML editors."""

    def copy(match: re.Match[str]) -> str:
        text = (ROOT / match[1]).read_text(encoding="utf-8")
        text = re.sub(r"\A# yaml-language-server: .*\n", "", text)
        return f"<!-- file: {match[1]} -->\n{match[2]}\n{text}```"

    return _COPY.sub(copy, path.read_text(encoding="utf-8"))


def home() -> str:
    """The home of the site, with the table of the README that says where to go."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = [line for line in readme.partition("## You have, you want")[2].partition("\n## ")[0].splitlines() if line]
    return spanned(HOME.read_text(encoding="utf-8"), "you-have", "\n".join(rows).replace("](docs/", "]("))


# In the order in which they are written: translated pages hold what is copied into the English ones.
PAGES: dict[Path, Callable[[], str]] = {
    errors.PAGE: errors.page,
    **{path: partial(errors.page_of, code) for code, path in errors.PAGES.items()},
    configuration.PAGE: configuration.page,
    **connect.PAGES,
    tables.PAGE: tables.page,
    **{path: partial(configuration.dialect_page, path) for path in configuration.DIALECTS},
    promises.PAGE: promises.page,
    **{path: partial(reference.page, path) for path in sorted(reference.FOLDER.glob("*.md"))},
    HOME: home,
    links.INDEX_PAGE: links.index_page,
    **{path: partial(with_files, path) for path in WITH_FILES},
    **{path: partial(cookbook.index, path) for path in cookbook.INDEXES},
    **{path: partial(chinese.page, path) for path in chinese.ENGLISH},
}

if __name__ == "__main__":
    for path, page in PAGES.items():
        path.write_text(page(), encoding="utf-8")
