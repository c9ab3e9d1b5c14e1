"""Two kinds of revisions at one address: heads, sessions, methods, errors."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from .client import META, NEW, New, Old, config, route, served

VERSION, CAPABILITIES = f"{META}protocolVersion", f"{META}clientCapabilities"


def head(body: Any, **changed: str | None) -> dict[str, str]:
    headers: dict[str, str | None] = {
        "mcp-protocol-version": NEW,
        "mcp-method": body["method"],
        "mcp-name": "ask_agent",
    }
    headers |= {name.replace("_", "-"): value for name, value in changed.items()}
    return {name: value for name, value in headers.items() if value is not None}


# ------------------------------------------------------------------ without sessions


async def test_discover_says_what_the_server_is(new: New) -> None:
    answer = await new.ask("server/discover")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    result = answer.result
    assert result["_meta"].pop(f"{META}serverInfo")["name"] == "dialect-bridge"
    assert result == {
        "resultType": "complete",
        "supportedVersions": [NEW],
        "capabilities": {"tools": {"listChanged": False}},
        "ttlMs": 60_000,
        "cacheScope": "private",
        "_meta": {},
    }


async def test_the_list_of_tools_has_one_for_the_backend(new: New) -> None:
    result = (await new.ask("tools/list")).result
    assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 60_000, "private")
    assert "nextCursor" not in result
    (tool,) = result["tools"]
    assert tool["name"] == "ask_agent"
    assert tool["description"]
    assert tool["annotations"] == {
        "readOnlyHint": False,
        "destructiveHint": False,
        "idempotentHint": False,
        "openWorldHint": True,
    }
    schema = tool["inputSchema"]
    assert (schema["type"], schema["required"]) == ("object", ["prompt"])
    assert {name: each["type"] for name, each in schema["properties"].items()} == {
        "prompt": "string",
        "conversation": "string",
    }
    assert "outputSchema" not in tool


@pytest.mark.parametrize("name", ["mcp_protocol_version", "mcp_method", "mcp_name"])
@pytest.mark.parametrize("value", [None, "other"])
async def test_a_header_that_is_missing_or_says_something_else(new: New, name: str, value: str | None) -> None:
    body, _ = new.framed("tools/call", {"name": "ask_agent", "arguments": {"prompt": "hi"}})
    answer = await new.send(body, head(body, **{name: value}))
    assert (answer.status, answer.error["code"], answer.last["id"]) == (400, -32020, body["id"])
    assert name.replace("_", "-") in answer.error["message"]


async def test_a_name_beyond_ascii_comes_in_base64(new: New) -> None:
    coded = f"=?base64?{base64.b64encode(b'ask_agent').decode()}?="
    body, _ = new.framed("tools/call", {"name": "ask_agent", "arguments": {"prompt": "hi"}})
    assert (await new.send(body, head(body, mcp_name=coded))).texts[0] == "hi ['user']"
    body, _ = new.framed("tools/call", {"name": "frag_ä", "arguments": {"prompt": "hi"}})
    coded = f"=?base64?{base64.b64encode('frag_ä'.encode()).decode()}?="
    assert (await new.send(body, head(body, mcp_name=coded))).error["code"] == -32602


async def test_a_revision_that_does_not_exist(new: New) -> None:
    body, _ = new.framed("tools/list")
    body["params"]["_meta"][VERSION] = "2099-01-01"
    answer = await new.send(body, head(body, mcp_protocol_version="2099-01-01"))
    assert (answer.status, answer.error["code"]) == (400, -32022)
    assert answer.error["data"] == {"supported": [NEW], "requested": "2099-01-01"}


@pytest.mark.parametrize("missing", [VERSION, CAPABILITIES, "_meta"])
async def test_metadata_that_is_missing(new: New, missing: str) -> None:
    body, _ = new.framed("tools/list")
    params = body["params"]
    del (params if missing == "_meta" else params["_meta"])[missing]
    answer = await new.send(body, head(body))
    assert (answer.status, answer.error["code"], answer.last["id"]) == (400, -32602, body["id"])


@pytest.mark.parametrize(
    "method",
    [
        "ping", "prompts/list", "resources/list", "resources/read", "tools/nope", "initialize ", "logging/setLevel",
        "completion/complete", "subscriptions/listen", "tasks/get", "tasks/list",
    ],
)  # fmt: skip
async def test_a_method_that_is_not_served_is_not_found(new: New, method: str) -> None:
    body, headers = new.framed(method)
    answer = await new.send(body, {**headers, "mcp-method": method.strip()})
    assert answer.status in (404, 400)
    if method == method.strip():
        assert (answer.status, answer.error["code"], answer.last["id"]) == (404, -32601, body["id"])


async def test_notifications_are_accepted_without_a_body(new: New) -> None:
    body, headers = new.framed("notifications/cancelled", {"requestId": 1})
    del body["id"]
    answer = await new.send(body, headers)
    assert (answer.status, answer.body) == (202, b"")


async def test_there_is_no_stream_to_get(new: New) -> None:
    answer = await new.send(b"", method="GET")
    assert answer.status == 405
    assert "POST" in answer.headers["allow"]


async def test_a_batch_is_refused(new: New) -> None:
    body, headers = new.framed("tools/list")
    answer = await new.send([body, body], headers)
    assert (answer.status, answer.error["code"]) == (400, -32600)


async def test_what_is_no_message(new: New) -> None:
    for sent, code in (
        (b"{bad", -32700),
        (b"\xff", -32700),
        (b"", -32600),
        (b"7", -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":[]}', -32600),
        (b"[", -32700),
    ):
        answer = await new.send(sent)
        assert (answer.status, answer.error["code"]) == (400, code), sent
        assert answer.last["jsonrpc"] == "2.0"
    assert (await new.send(b"{bad")).last["id"] is None


async def test_a_body_of_another_type(new: New) -> None:
    body, headers = new.framed("tools/list")
    answer = await new.send(body, {**headers, "content-type": "text/plain"})
    assert 400 <= answer.status < 500


@pytest.mark.parametrize(
    ("accept", "streams"),
    [
        ("application/json", False),
        ("application/json, text/event-stream; q=0", False),
        ("application/json, text/event-stream;q=0.5", True),
        ("Application/JSON, Text/Event-Stream", True),
        ("text/*", True),
        ("*/*", True),
    ],
)
async def test_a_client_that_takes_no_stream_gets_the_answer_alone(new: New, accept: str, streams: bool) -> None:
    body, headers = new.framed("tools/call", {"name": "ask_agent", "arguments": {"prompt": "say a b"}}, token=1)
    answer = await new.send(body, {**headers, "accept": accept})
    assert (answer.is_stream, len(answer.messages) > 1) == (streams, streams)
    assert answer.texts[0] == "a b "


# ------------------------------------------------------------------ with sessions


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2024-11-05"),
        ("2024-10-07", "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
        (NEW, "2025-11-25"),
    ],
)
async def test_initialize_agrees_on_a_revision(both: tuple[New, Old], asked: str, told: str) -> None:
    answer = await both[1].start(asked)
    result = answer.result
    assert (answer.status, result.pop("serverInfo")["name"]) == (200, "dialect-bridge")
    assert result == {"protocolVersion": told, "capabilities": {"tools": {"listChanged": False}}}
    session = answer.headers["mcp-session-id"]
    assert session.isascii()
    assert session.isprintable()
    assert " " not in session


@pytest.mark.parametrize(
    ("version", "kinds"),
    [
        ("2025-06-18", ["image", "audio", "resource", "resource_link"]),
        ("2025-03-26", ["image", "audio", "resource", "text"]),
        ("2024-11-05", ["image", "resource", "resource", "text"]),
    ],
)
async def test_results_have_only_the_kinds_of_content_of_their_revision(
    both: tuple[New, Old], version: str, kinds: list[str]
) -> None:
    """Clients of a revision refuse a result with a kind that it lacks, and lose the whole answer."""
    await both[1].start(version)
    content = (await both[1].call("media")).result["content"]
    assert [part["type"] for part in content] == ["text", *kinds, "text"]
    audio, link = content[2], content[4]
    if version == "2024-11-05":
        assert (audio["resource"]["mimeType"], audio["resource"]["blob"]) == ("audio/wav", "UklGRg==")
    if link["type"] == "text":
        assert link["text"] == "[b.pdf](https://files.example/b.pdf)"


async def test_results_in_a_session_have_nothing_of_the_other_revision(old: Old) -> None:
    for result in ((await old.ask("tools/list")).result, (await old.call("hi")).result):
        assert not {"resultType", "ttlMs", "cacheScope"} & result.keys()
        assert f"{META}serverInfo" not in result.get("_meta", {})
    assert (await old.ask("ping")).result == {}


async def test_errors_in_a_session_are_answers(old: Old) -> None:
    for method in ("prompts/list", "resources/list", "nope", "server/discover", "logging/setLevel", "tasks/get"):
        answer = await old.ask(method)
        assert (answer.status, answer.error["code"]) == (200, -32601), method
    answer = await old.call("hi", "nope")
    assert (answer.status, answer.error["code"]) == (200, -32602)
    assert (await old.ask("tools/list", {"cursor": "x"})).error["code"] == -32602


async def test_a_request_needs_its_session(both: tuple[New, Old]) -> None:
    old = both[1]
    assert (await old.ask("tools/list")).status == 400
    await old.start()
    old.headers["mcp-session-id"] += "x"
    answer = await old.ask("tools/list")
    assert (answer.status, answer.error["code"]) == (404, -32600)


async def test_an_ended_session_is_unknown(old: Old) -> None:
    assert (await old.send(b"", method="DELETE")).status == 200
    for answer in (await old.ask("ping"), await old.send(b"", method="DELETE")):
        assert answer.status == 404
    del old.headers["mcp-session-id"]
    assert (await old.send(b"", method="DELETE")).status == 400
    await old.start()
    assert (await old.ask("ping")).result == {}


async def test_a_session_outlives_the_process(tmp_path: Path) -> None:
    async with served(config(tmp_path)) as (_, old):
        await old.start()
        session = old.headers["mcp-session-id"]
    async with served(config(tmp_path)) as (_, again):
        again.headers["mcp-session-id"] = session
        assert (await again.ask("ping")).result == {}


async def test_stores_in_memory_leave_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stores = {"history": "sqlite:///:memory:", "runs": "sqlite:///:memory:"}
    async with served({**config(tmp_path), "stores": stores}) as (_, old):
        await old.start()
    assert os.listdir(tmp_path) == []


async def test_a_session_is_of_its_user(tmp_path: Path) -> None:
    keys = {"keys": [{"name": "me", "key": "key-of-me"}, {"name": "you", "key": "key-of-you"}]}
    async with served(config(tmp_path, auth=keys), authorization="Bearer key-of-me") as (_, old):
        await old.start()
        assert (await old.ask("ping")).result == {}
        old.headers["authorization"] = "Bearer key-of-you"
        assert (await old.ask("ping")).status == 404


async def test_the_version_of_a_session_may_be_left_out_but_not_be_wrong(old: Old) -> None:
    said = old.headers.pop("mcp-protocol-version")
    assert (await old.ask("ping")).result == {}
    old.headers["mcp-protocol-version"] = "1.0"
    assert (await old.ask("ping")).status == 400
    old.headers["mcp-protocol-version"] = said


async def test_both_kinds_share_one_address(new: New, old: Old) -> None:
    assert [t["name"] for t in (await new.ask("tools/list")).result["tools"]] == ["ask_agent"]
    assert [t["name"] for t in (await old.ask("tools/list")).result["tools"]] == ["ask_agent"]


async def test_batches_exist_in_one_revision(both: tuple[New, Old]) -> None:
    old = both[1]
    await old.start("2025-03-26")
    one, two = old.message("ping"), old.framed("hi")
    bad = old.message("nope")
    answer = await old.send([one, {"jsonrpc": "2.0", "method": "notifications/x"}, two, bad])
    by_id = {m["id"]: m for m in answer.messages}
    assert by_id[one["id"]]["result"] == {}
    assert by_id[two["id"]]["result"]["content"][0]["text"] == "hi ['user']"
    assert by_id[bad["id"]]["error"]["code"] == -32601
    assert len(answer.messages) == 3
    answer = await old.send([old.framed("say a", token=1), old.framed("say b", token=2)])
    assert answer.is_stream
    assert sorted(m["result"]["content"][0]["text"] for m in answer.messages if "id" in m) == ["a ", "b "]
    plain = {"accept": "application/json"}
    answer = await old.send([old.framed("say a", token=1), old.framed("say b", token=2)], plain)
    assert sorted(m["result"]["content"][0]["text"] for m in answer.messages) == ["a ", "b "]
    quiet = await old.send([{"jsonrpc": "2.0", "method": "notifications/x"}])
    assert (quiet.status, quiet.body) == (202, b"")
    assert (await old.send([])).status == 400
    await old.start("2025-06-18")
    assert (await old.send([one])).error["code"] == -32600


# ------------------------------------------------------------------ who may call


async def test_a_foreign_page_may_not_call(new: New) -> None:
    body, headers = new.framed("tools/list")
    assert (await new.send(body, {**headers, "origin": "https://evil.example"})).status == 403
    for own in (new.url.removesuffix("/mcp"), "http://localhost:6274"):
        assert (await new.send(body, {**headers, "origin": own})).status == 200


async def test_a_page_that_the_configuration_names_may_call(tmp_path: Path) -> None:
    async with served(config(tmp_path, cors={"origins": ["https://good.example"]})) as (new, _):
        body, headers = new.framed("tools/list")
        assert (await new.send(body, {**headers, "origin": "https://good.example"})).status == 200
        assert (await new.send(body, {**headers, "origin": "https://evil.example"})).status == 403


async def test_a_foreign_host_is_refused(new: New) -> None:
    body, headers = new.framed("tools/list")
    assert (await new.send(body, {**headers, "host": "evil.example"})).status == 421


KEYS = {"keys": [{"name": "me", "key": "key-of-me"}]}


async def test_without_a_key_clients_are_told_what_they_need(tmp_path: Path) -> None:
    async with served(config(tmp_path, auth=KEYS)) as (new, _):
        answer = await new.ask("server/discover")
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert answer.headers["content-type"] == "application/json"
        assert answer.error["code"] == -32000
        assert (await new.send(*new.framed("tools/list"), method="POST")).status == 401
        root, url = new.url.removesuffix("/mcp"), new.url
        for path in (
            "/.well-known/oauth-protected-resource/mcp",
            "/.well-known/oauth-protected-resource",
            "/.well-known/oauth-authorization-server",
            "/.well-known/openid-configuration",
        ):
            new.url = root + path
            assert (await new.send(b"", method="GET")).status == 404, path
        new.url = f"{root}/register"
        assert (await new.send({})).status == 404
        new.url, new.headers = url, {"authorization": "Bearer key-of-me"}
        assert (await new.ask("server/discover")).status == 200


async def test_with_an_issuer_clients_find_it(tmp_path: Path) -> None:
    auth = {"jwt": {"secret": "s" * 40, "issuer": "https://login.example"}}
    setup = config(tmp_path, route(), route("/other"), auth=auth)
    async with served(setup) as (new, _):
        answer = await new.ask("tools/list")
        root = new.url.removesuffix("/mcp")
        place = f"{root}/.well-known/oauth-protected-resource/mcp"
        assert (answer.status, answer.headers["www-authenticate"]) == (401, f'Bearer resource_metadata="{place}"')
        new.url = place
        found = await new.send(b"", method="GET")
        assert (found.status, found.last) == (
            200,
            {
                "resource": f"{root}/mcp",
                "authorization_servers": ["https://login.example"],
                "bearer_methods_supported": ["header"],
            },
        )


async def test_a_key_without_the_scope_is_told_so(tmp_path: Path) -> None:
    keys = {"keys": [{"name": "me", "key": "key-of-me", "operations": ["models"]}]}
    async with served(config(tmp_path, auth=keys), authorization="Bearer key-of-me") as (new, _):
        assert (await new.ask("tools/list")).status == 200
        answer = await new.call("hi")
        assert answer.status == 403
        assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]


async def test_limits_are_told_by_the_status(tmp_path: Path) -> None:
    auth = {"keys": [{"name": "me", "key": "key-of-me"}]}
    limits = {"per_key": {"requests_per_minute": 2}}
    async with served(config(tmp_path, auth=auth, limits=limits), authorization="Bearer key-of-me") as (new, _):
        answers = [await new.ask("tools/list") for _ in range(4)]
        assert [a.status for a in answers][:2] == [200, 200]
        assert answers[-1].status == 429
        assert int(answers[-1].headers["retry-after"]) > 0
    async with served(config(tmp_path, max_body="2KiB")) as (new, _):
        assert (await new.call("x" * 4000)).status == 413


async def test_each_message_of_a_batch_counts(tmp_path: Path) -> None:
    auth = {"keys": [{"name": "me", "key": "key-of-me"}]}
    limits = {"per_key": {"requests_per_minute": 4}}
    async with served(config(tmp_path, auth=auth, limits=limits), authorization="Bearer key-of-me") as (_, old):
        await old.start("2025-03-26")
        answer = await old.send([old.framed("hi") for _ in range(6)])
    texts = [m["result"]["content"][0]["text"] for m in answer.messages if "result" in m]
    refused = [m["error"] for m in answer.messages if "error" in m]
    assert texts == ["hi ['user']"] * (6 - len(refused))
    assert len(refused) >= 3
    assert all("limit" in error["message"].lower() or "many" in error["message"].lower() for error in refused)
