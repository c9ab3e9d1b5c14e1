"""Marks each case with the pair that it is of: `tests/pairs/tally.py` counts them."""

from __future__ import annotations

import pytest

from bridge.contract import Dialect


def pytest_itemcollected(item: pytest.Item) -> None:
    params = getattr(item, "callspec", None) and item.callspec.params  # type: ignore[attr-defined]
    if not params or not {"front", "back"} <= set(params):
        return
    front, back = (p.name if isinstance(p, Dialect) else p for p in (params["front"], params["back"]))
    item.user_properties.append(("pair", f"{front} over {back}"))
