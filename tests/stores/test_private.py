"""What is kept in files is the business of the user who runs the server, and of nobody else on the machine."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.stores import open_conversations


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_the_database_and_its_folder_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    store = open_conversations(f"sqlite:///{folder}/bridge.db")
    await store.open()
    assert mode(folder) == 0o700
    files = list(folder.iterdir())
    assert "bridge.db-wal" in [f.name for f in files]
    assert {f.name: mode(f) for f in files} == {f.name: 0o600 for f in files}
    await store.close()


async def test_what_somebody_made_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o750)
    file = tmp_path / "data" / "bridge.db"
    file.touch(mode=0o640)
    store = open_conversations(f"sqlite:///{file}")
    await store.open()
    await store.close()
    assert (mode(file.parent), mode(file)) == (0o750, 0o640)
