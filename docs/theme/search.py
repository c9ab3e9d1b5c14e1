"""In the search, guides come before generated pages, translations and the pages of single programs."""

from __future__ import annotations

from typing import Any

_BOOSTS = {
    "reference/": 0.1,
    "promises.": 0.3,
    **dict.fromkeys(("connect/", "zh/", "errors.", "fidelity.", "profile.", "performance-budgets."), 0.5),
}
"""The weight of pages by the beginning of their path; 1 is that of all others."""


def on_page_markdown(markdown: str, page: Any, **_: Any) -> None:
    """Called by MkDocs with the text of each page."""
    for start, boost in _BOOSTS.items():
        if page.file.src_uri.startswith(start):
            page.meta["search"] = {"boost": boost}
