"""Fixtures for tests of dialects over real connections."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.run.backends.http_backend import HttpBackend


@pytest.fixture(params=["aiohttp", "httptools"])
def each_http_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Streams of backends are read by each client in turn. The name of the client."""
    client: str = request.param
    init = HttpBackend.__init__

    def chosen(self: HttpBackend, *args: Any, **settings: Any) -> None:
        init(self, *args, **{**settings, "httptools": client == "httptools"})

    monkeypatch.setattr(HttpBackend, "__init__", chosen)
    return client
