"""The places where bytes and lists are cut: reads and batches end anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


@st.composite
def splits(draw: Any, data: bytes) -> list[bytes]:
    """Cut the data anywhere into pieces, some of them empty; `b"".join` restores it."""
    if draw(st.integers(0, 7)) == 0:
        return [data[i : i + 1] for i in range(len(data))]
    positions = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[a:b] for a, b in zip([0, *positions], [*positions, len(data)], strict=True)]


@st.composite
def batches(draw: Any, items: Sequence[T]) -> list[list[T]]:
    """The items in batches as reads bring them, some of them empty."""
    positions = sorted(draw(st.lists(st.integers(0, len(items)), max_size=8)))
    return [list(items[a:b]) for a, b in zip([0, *positions], [*positions, len(items)], strict=True)]
