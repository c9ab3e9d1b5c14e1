"""README.md names its pictures from the top of the repository; on the site they stand beside its page."""

from __future__ import annotations

from typing import Any


def on_page_content(html: str, **_: Any) -> str:
    """Called by MkDocs with each page as it was written from Markdown."""
    return html.replace('<img src="docs/', '<img src="')
