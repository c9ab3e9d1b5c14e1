"""Fixtures for tests of dialects over real connections."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.engine import assembly


@pytest.fixture(params=["aiohttp", "httptools"])
def each_http_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of backends are read by each client in turn."""
    assemble = assembly.assemble

    def assembled(config: Any, tracing: Any, _: str) -> Any:
        return assemble(config, tracing, request.param)

    monkeypatch.setattr(assembly, "assemble", assembled)
