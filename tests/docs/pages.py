"""The pages of the documentation that are printed from the code: `python -m tests.docs.pages` writes them anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.docs import chinese, configuration, errors, promises
from tests.docs.tables import ROOT, spanned

AIP = ROOT / "adapters" / "aip" / "README.md"

PAGES: dict[Path, Callable[[], str]] = {
    errors.PAGE: errors.page,
    configuration.PAGE: configuration.page,
    AIP: lambda: spanned(AIP.read_text(encoding="utf-8"), "options", configuration.options("aip")),
    chinese.PAGE: chinese.page,
    promises.PAGE: promises.page,
}

if __name__ == "__main__":
    for path, page in PAGES.items():
        path.write_text(page(), encoding="utf-8")
