"""Two dialects under one mount path: headers tell their requests apart, and each is answered in its own shape."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.harness import ask, serving

VERSION = {"anthropic-version": "2023-06-01"}
CHAT = {"dialect": "openai-chat", "path": "/v1", "backend": "demo"}
MESSAGES = {"dialect": "anthropic-messages", "path": "/v1", "backend": "demo"}


def config(*routes: dict[str, Any], **server: Any) -> dict[str, Any]:
    return {"server": server, "backends": {"demo": {"dialect": "demo"}}, "routes": list(routes)}


@pytest.mark.parametrize("routes", [(CHAT, MESSAGES), (MESSAGES, CHAT)], ids=["chat first", "messages first"])
async def test_a_header_decides_who_answers(routes: tuple[dict[str, Any], ...]) -> None:
    async with serving(config(*routes)) as base:
        plain, versioned = await ask("GET", f"{base}/v1/models"), await ask("GET", f"{base}/v1/models", b"", VERSION)
        assert (plain.json["object"], versioned.json["has_more"]) == ("list", False)
        missing = await ask("GET", f"{base}/v1/models/none", b"", VERSION)
        assert (missing.status, missing.json["type"]) == (404, "error")
        # What no endpoint is meant by: the header still says who asks.
        nothing = await ask("GET", f"{base}/v1/nothing", b"", VERSION)
        assert (nothing.status, nothing.json["error"]["type"]) == (404, "not_found_error")


async def test_without_the_header_a_stranger_gets_the_first_routes_shape() -> None:
    async with serving(config(CHAT, MESSAGES)) as base:
        assert (await ask("GET", f"{base}/v1/nothing")).json["error"]["code"] == "unknown_url"


async def test_a_path_belongs_to_the_route_that_it_begins_with() -> None:
    """Not to a longer mount path in the middle of it."""
    async with serving(config(CHAT, {"dialect": "ai-sdk-ui", "path": "/chat", "backend": "demo"})) as base:
        assert (await ask("GET", f"{base}/v1/chat/completions")).json["error"]["message"].startswith("GET is not")
        assert (await ask("GET", f"{base}/v1/chat/nothing")).json["error"]["code"] == "unknown_url"
        assert isinstance((await ask("GET", f"{base}/app/chat/nothing")).json["error"], str)


async def test_an_endpoint_that_shares_its_path_with_no_other_needs_no_header() -> None:
    async with serving(config(MESSAGES)) as base:
        reply = await ask("GET", f"{base}/v1/models")
        assert [m["id"] for m in reply.json["data"]] == ["demo"]


async def test_the_requests_id_stands_where_the_dialects_clients_look() -> None:
    async with serving(config(CHAT, MESSAGES)) as base:
        sent = {**VERSION, "x-request-id": "mine-1"}
        for method, path in (("GET", "/v1/models"), ("POST", "/v1/messages")):
            reply = await ask(method, base + path, b"", sent)
            assert (reply.headers["request-id"], reply.headers["x-request-id"]) == ("mine-1", "mine-1")
        assert "request-id" not in (await ask("GET", f"{base}/v1/models")).headers


async def test_a_count_is_guarded_and_bounded_as_a_run_is() -> None:
    auth = {"keys": [{"name": "me", "key": "client-key"}]}
    async with serving(config(MESSAGES, auth=auth, max_body="1KiB")) as base:
        path, key = f"{base}/v1/messages/count_tokens", {"x-api-key": "client-key", "content-type": "application/json"}
        assert (await ask("POST", path, b"{}")).status == 401
        refused = await ask("POST", path, b"{" + b" " * 2000 + b"}", key)
        assert (refused.status, refused.json["error"]["type"]) == (413, "request_too_large")
        assert (await ask("POST", path, b"{}", key)).json["error"]["message"].startswith("messages: required")
