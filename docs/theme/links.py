"""Pages link to files beside docs/ by their path in the repository; on the site such links lead to the repository.

Without an address of the repository (`project.urls` in pyproject.toml) they are text.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_SOURCE = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"].get("Source")
_OUTSIDE = re.compile(r"\[([^\]]+)\]\((\.\./[^)\s]+)\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by MkDocs with the text of each page."""
    folder = Path(page.file.abs_src_path).parent

    def repository(match: re.Match[str]) -> str:
        target = (folder / match[2]).resolve()
        if target.is_relative_to(_ROOT / "docs"):
            return match[0]
        return match[1] if _SOURCE is None else f"[{match[1]}]({_SOURCE}/blob/main/{target.relative_to(_ROOT)})"

    return _OUTSIDE.sub(repository, markdown)
