"""Puts the licences of what the site is made of beside it: the theme's scripts and icons are copies, and MIT and
Apache-2.0 ask that their notices go along.
"""

from __future__ import annotations

import shutil
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import material


def on_post_build(config: Any) -> None:
    """Called by MkDocs when the site is written."""
    folder = Path(config.site_dir) / "licences"
    folder.mkdir(exist_ok=True)
    files = distribution("mkdocs-material").files or []
    (notice,) = [file for file in files if file.name == "LICENSE" and "licenses" in file.parts]
    shutil.copy(str(notice.locate()), folder / "mkdocs-material.txt")
    icons = Path(material.__path__[0]) / "templates" / ".icons" / "material" / "LICENSE"
    shutil.copy(icons, folder / "material-design-icons.txt")
