"""The description of the HTTP surface: it names all that is served, and nothing else."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bridge import Bridge
from bridge.contract import Operation, registry
from bridge.server import make_app
from bridge.server.operations.openapi import describe, loosely

SERVED = registry.over_http()
OPEN: dict[str, Any] = {
    "backends": {"demo": {"dialect": "demo"}},
    "routes": [{"dialect": name, "path": f"/{name}/v1", "backend": "demo"} for name in SERVED],
    # Named and never opened.
    "stores": {"history": "sqlite:///none.db", "runs": "sqlite:///none.db", "attachments": "file:///none"},
}


def operations(description: dict[str, Any]) -> set[tuple[str, str]]:
    return {(method.upper(), path) for path, item in description["paths"].items() for method in item}


def test_it_names_what_the_server_has() -> None:
    # The page is for people, and what it asks for itself is nobody else's.
    bridge = Bridge.from_config({**OPEN, "server": {**OPEN.get("server", {}), "page": False}})
    served = {
        (route.method, re.sub(r"\{(\w+):[^{}]*\}", r"{\1}", route.resource.canonical.rstrip("/")))
        for route in make_app(bridge).router.routes()
        if route.resource is not None and route.method not in ("HEAD", "*")
    }
    # OpenAPI has no words for a WebSocket.
    sockets = {
        ("GET", f"{route.path}{endpoint.path}")
        for route in bridge.routes
        for endpoint in route.surface
        if endpoint.operation in (Operation.SOCKET, Operation.CONNECT)
    }
    # aiohttp adds a HEAD to each GET by itself.
    heads = {
        ("HEAD", f"{route.path}{endpoint.path}")
        for route in bridge.routes
        for endpoint in route.surface
        if endpoint.method == "HEAD"
    }
    assert sockets <= served
    assert operations(describe(bridge, "1")) == (served | heads) - sockets


@pytest.mark.parametrize("name", [name for name in SERVED if name != "acp"])
def test_a_run_is_described_by_the_dialects_own_example(name: str) -> None:
    description = describe(Bridge.from_config(OPEN), "1")
    # A dialect may have one for each form of the answer.
    path, *_ = [
        path
        for path, item in description["paths"].items()
        if item.get("post", {}).get("tags") == [name]
        and "example" in str(item["post"].get("requestBody"))
        and not path.endswith(("count_tokens", "input_tokens", "countTokens", "/compact"))
        and "/bots/" not in path
    ]
    content = description["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    assert content["schema"] == loosely(content["example"])
    assert "Hello" in str(content["example"])


def test_two_dialects_at_one_path() -> None:
    routes = [{"dialect": d, "path": "/v1", "backend": "demo"} for d in ("anthropic-messages", "openai-chat")]
    models = describe(Bridge.from_config({**OPEN, "routes": routes}), "1")["paths"]["/v1/models"]["get"]
    assert models["tags"] == ["openai-chat"]
    assert "parameters" not in models


def test_keys_are_named_where_they_are_needed() -> None:
    auth = {"server": {"auth": {"keys": [{"name": "me", "key": "secret-key"}]}}}
    description = describe(Bridge.from_config({**OPEN, **auth}), "1")
    assert description["security"] == [{"bearer": []}, {"apiKey": []}]
    assert "secret-key" not in str(description)
    signed = description["paths"]["/agent-runs/v1/attachments/content/{bucket}/{path}"]["get"]
    assert signed["security"] == []
    assert "security" not in describe(Bridge.from_config(OPEN), "1")


def test_loosely() -> None:
    assert loosely({"a": [1], "b": True, "c": None, "d": "x", "e": []}) == {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"type": "number"}},
            "b": {"type": "boolean"},
            "c": {},
            "d": {"type": "string", "examples": ["x"]},
            "e": {"type": "array"},
        },
        "required": ["a", "b", "c", "d", "e"],
    }
