"""Programs and servers by name, and what answers at a URL."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from bridge.contract import registry
from bridge.server.connect import CLIENTS, SERVERS, RouteAddress, named
from bridge.server.connect.probe import Found, is_loopback, probe

CHAT = {"object": "list", "data": [{"id": "small", "object": "model"}, {"id": "large", "object": "model"}]}
MESSAGES = {"data": [{"type": "model", "id": "claude-x"}], "has_more": False}
GEMINI = {"models": [{"name": "models/gemini-x"}]}
CARD = {"name": "Helper", "capabilities": {}, "skills": []}


@contextmanager
def server(answers: dict[str, Any], status: int = 404) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server with these bodies by path; all else is `status`. Gives its address and the headers of each request."""
    seen: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append({name.lower(): value for name, value in self.headers.items()})
            body = answers.get(self.path)
            self.send_response(200 if body is not None else status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode() if not isinstance(body, bytes) else body)

        def log_message(self, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{http.server_port}", seen
        finally:
            http.shutdown()


@pytest.mark.parametrize("name", CLIENTS)
def test_every_program_speaks_a_dialect_that_is_served(name: str) -> None:
    client = CLIENTS[name]
    for dialect in client.dialects:
        assert registry.get(dialect).served
    place = RouteAddress("http://127.0.0.1:8080", "/v1", "small", "secret")
    for snippet in client.snippets:
        text = snippet.at(place)
        assert not any(left in text for left in ("<base>", "<path>", "<origin>", "<root>", "<key>", "<model>"))
    named = '"--route", "/v1"' if client.dialects == ("acp",) else "http://127.0.0.1:8080"
    assert any(named in snippet.at(place) for snippet in client.snippets)


@pytest.mark.parametrize("name", SERVERS)
def test_every_server_speaks_a_dialect_that_is_called(name: str) -> None:
    assert registry.get(SERVERS[name].dialect).called


def test_names_are_found_as_people_write_them() -> None:
    assert named(CLIENTS, "Claude Code") is CLIENTS["claude-code"]
    assert named(CLIENTS, "open_webui") is CLIENTS["open-webui"]
    assert named(SERVERS, "llama.cpp") is SERVERS["llama-cpp"]
    assert named(SERVERS, "nix") is None


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:1/v1", True), ("http://127.0.0.9", True), ("http://[::1]:8", True),
        ("http://10.0.0.1", False), ("https://api.openai.com/v1", False), ("http://localhost.example", False),
    ],
)  # fmt: skip
def test_servers_of_this_machine(url: str, local: bool) -> None:
    assert is_loopback(url) is local


def test_a_server_that_is_as_expected() -> None:
    with server({"/v1/models": CHAT}) as (base, seen):
        assert probe(f"{base}/v1/", "openai-chat") == Found(f"{base}/v1", "openai-chat", ["small", "large"])
        assert probe(f"{base}/v1", "openai-responses").problem == ""
    assert not any({"authorization", "x-api-key"} & set(headers) for headers in seen)


def test_a_missing_v1_is_found() -> None:
    with server({"/v1/models": CHAT}) as (base, _):
        found = probe(base, "openai-chat")
    assert (found.url, found.models) == (f"{base}/v1", ["small", "large"])
    assert found.problem == f"it answers at {base}/v1, not at {base}"


@pytest.mark.parametrize(
    ("answers", "dialect"),
    [({"/v1/models": MESSAGES}, "anthropic-messages"), ({"/v1/models": GEMINI}, "gemini"),
     ({"/.well-known/agent-card.json": CARD}, "a2a")],
)  # fmt: skip
def test_another_dialect_is_named(answers: dict[str, Any], dialect: str) -> None:
    with server(answers) as (base, _):
        assert f"what answers there speaks {dialect}, not openai-chat" in probe(f"{base}/v1", "openai-chat").problem


@pytest.mark.parametrize("body", [b"<html>", [], {"data": [1]}, {"data": {}}, {"models": [{"name": 3}]}, {"name": "x"}])
def test_bodies_that_say_nothing(body: Any) -> None:
    with server({"/v1/models": body, "/.well-known/agent-card.json": body}) as (base, _):
        assert probe(f"{base}/v1", "openai-chat").problem == ""


def test_a_server_that_wants_a_key_and_one_that_is_not_there() -> None:
    with server({}, status=401) as (base, seen):
        assert probe(f"{base}/v1", "openai-chat", "sk-1").problem == f"{base}/v1/models answers 401: it wants a key"
        assert seen[0]["authorization"] == "Bearer sk-1"
    assert probe(f"{base}/v1", "openai-chat").problem.startswith(f"nothing answers at {base}/v1: ")
