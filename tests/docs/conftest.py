"""One demo bridge, served by the real command, for everything that only needs some bridge."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docs.helpers import ROOT, Server, serve


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`config.yaml` as it is, on another port."""
    with serve(tmp_path_factory.mktemp("demo"), ROOT / "config.yaml") as served:
        yield served
        assert served.stop() == 0
        assert "Traceback" not in served.err
