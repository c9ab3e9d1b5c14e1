"""The agent card, errors that HTTP tells, options, and what is declared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bridge.contract import DescribedAgent, Support, WireRequest
from bridge.dialects.a2a import dialect
from bridge.dialects.a2a.described import card
from bridge.dialects.a2a.options import BackOptions, FrontOptions
from bridge.dialects.gemini import dialect as gemini
from bridge.engine.config import parse
from bridge.errors import ConfigError
from tests.server.harness import ask, serving

from .front import DEMO, NEW, call, route, send

PAGE = Path(__file__).parents[3] / "docs" / "dialects" / "a2a.md"
CARD = "/.well-known/agent-card.json"
AUTH = {"keys": [{"name": "me", "key": "client-key"}]}


def test_the_card_of_the_dialect() -> None:
    for entry in [*dialect.capabilities.answers.values(), *dialect.capabilities.requests.values()]:
        assert (entry.support is Support.EXACT) is not bool(entry.reason)


@pytest.mark.parametrize("options", [FrontOptions, BackOptions])
def test_options_are_described(options: type[FrontOptions] | type[BackOptions]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, field in options.model_fields.items():
        assert field.description
        assert f"| `{name}` |" in page
    with pytest.raises(ValidationError):
        options.model_validate({"nonsense": 1})


# ---------------------------------------------------------------------- the agent card


def agent(**options: Any) -> dict[str, Any]:
    return card(DescribedAgent("it", [gemini.capabilities], "https://a.example/x", FrontOptions(**options)))


def test_the_agent_card_has_what_must_be_there() -> None:
    wire = agent()
    assert (wire["name"], wire["version"]) == ("it", "1.0.0")
    assert wire["description"]
    assert wire["supportedInterfaces"] == [
        {"url": "https://a.example/x", "protocolBinding": binding, "protocolVersion": "1.0"}
        for binding in ("JSONRPC", "HTTP+JSON")
    ]
    assert wire["capabilities"] == {"streaming": True, "pushNotifications": False, "extendedAgentCard": False}
    (skill,) = wire["skills"]
    assert all(skill[name] for name in ("id", "name", "description", "tags"))
    assert {"text/plain", "image/*"} <= set(wire["defaultInputModes"])
    assert wire["defaultOutputModes"]
    assert not {"url", "protocolVersion", "securitySchemes", "provider"} & wire.keys()


def test_the_agent_card_says_what_the_route_says() -> None:
    skill = {"id": "s", "name": "Sums", "description": "Adds.", "examples": ["1+1"]}
    wire = agent(
        name="Helper",
        description="Helps.",
        agent_version="2.1",
        skills=[skill],
        provider_name="We",
        provider_url="https://we.example",
        documentation_url="https://we.example/doc",
        bindings=["http"],
    )
    assert (wire["name"], wire["description"], wire["version"]) == ("Helper", "Helps.", "2.1")
    assert wire["skills"] == [{"tags": [], **skill, "examples": ("1+1",)}]
    assert wire["provider"] == {"organization": "We", "url": "https://we.example"}
    assert wire["documentationUrl"] == "https://we.example/doc"
    assert [each["protocolBinding"] for each in wire["supportedInterfaces"]] == ["HTTP+JSON"]


def test_the_agent_card_of_both_versions() -> None:
    wire = agent(versions=["1.0", "0.3"])
    named = [(each["protocolBinding"], each["protocolVersion"]) for each in wire["supportedInterfaces"]]
    assert named == [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "0.3")]
    assert (wire["url"], wire["preferredTransport"], wire["protocolVersion"]) == (
        "https://a.example/x", "JSONRPC", "0.3.0",
    )  # fmt: skip


async def test_the_agent_card_is_public_and_names_the_keys() -> None:
    async with serving({**DEMO, "routes": [route()], "server": {"auth": AUTH}}) as base:
        reply = await ask("GET", f"{base}/a2a{CARD}")
        assert reply.status == 200
        assert reply.json["securitySchemes"] == {
            "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
            "apiKey": {"apiKeySecurityScheme": {"location": "header", "name": "x-api-key"}},
        }
        assert reply.json["securityRequirements"] == [
            {"schemes": {"bearer": {"list": []}}}, {"schemes": {"apiKey": {"list": []}}},
        ]  # fmt: skip
        assert reply.json["supportedInterfaces"][0]["url"] == f"{base}/a2a"
        assert (await ask("GET", f"{base}/a2a/.well-known/agent.json")).json == reply.json, "for clients before 0.3"


@pytest.mark.parametrize(("public_url", "shared"), [("https://agents.example", True), (None, False)])
async def test_the_agent_card_is_cached(public_url: str | None, shared: bool) -> None:
    """For others only if its address is not that of the caller."""
    server = {"public_url": public_url, "auth": "none"} if public_url else {}
    async with serving({**DEMO, "routes": [route()], "server": server}) as base:
        first = await ask("GET", f"{base}/a2a{CARD}")
        assert first.headers["cache-control"] == f"{'public' if shared else 'private'}, max-age=60"
        assert ("Host" in first.headers["vary"]) is not shared
        for tag in (first.headers["etag"], f'W/{first.headers["etag"]}, "other"', "*"):
            again = await ask("GET", f"{base}/a2a{CARD}", headers={"if-none-match": tag})
            assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])
        assert (await ask("GET", f"{base}/a2a{CARD}", headers={"if-none-match": '"other"'})).status == 200


async def test_the_agent_card_has_the_public_address() -> None:
    config = {**DEMO, "routes": [route("/")], "server": {"public_url": "https://agents.example/one/"}}
    async with serving(config) as base:
        reply = await ask("GET", f"{base}{CARD}")
        assert {each["url"] for each in reply.json["supportedInterfaces"]} == {"https://agents.example/one"}


async def test_the_extended_card_is_for_callers_with_a_key() -> None:
    skill = {"id": "s", "name": "Secrets", "description": "Keeps them.", "tags": ["x"]}
    options = {"extended_card": True, "extended_skills": [skill], "versions": ["1.0", "0.3"]}
    config = {**DEMO, "routes": [route(options=options)], "server": {"auth": AUTH}}
    known = {**NEW, "authorization": "Bearer client-key"}
    async with serving(config) as base:
        public = (await ask("GET", f"{base}/a2a{CARD}")).json
        assert public["capabilities"]["extendedAgentCard"] is public["supportsAuthenticatedExtendedCard"] is True
        assert [each["id"] for each in public["skills"]] == ["chat"]
        assert (await ask("GET", f"{base}/a2a/extendedAgentCard", b"", NEW)).status == 401
        extended = (await ask("GET", f"{base}/a2a/extendedAgentCard", b"", known)).json
        assert extended["skills"] == [skill]
        reply = await ask("POST", f"{base}/a2a", call("GetExtendedAgentCard"), known)
        assert (reply.json["id"], reply.json["result"]) == (7, extended)
    async with serving({**DEMO, "routes": [route(options=options)]}) as base:
        said = (await ask("POST", f"{base}/a2a", call("GetExtendedAgentCard"), NEW)).json["error"]
        assert said["code"] == -32007, "nobody is known here"


# ---------------------------------------------------------------------- what HTTP tells


@pytest.mark.parametrize("path", ["", "/message:send", "/message:stream", "/tasks", "/extendedAgentCard"])
async def test_no_key(path: str) -> None:
    async with serving({**DEMO, "routes": [route()], "server": {"auth": AUTH}}) as base:
        method = "GET" if path in ("/tasks", "/extendedAgentCard") else "POST"
        reply = await ask(method, f"{base}/a2a{path}", b"{}" if method == "POST" else b"", NEW)
        assert reply.status == 401
        assert reply.headers["www-authenticate"].startswith("Bearer")
        said = reply.json
        assert (said["error"]["code"] == 401) if path else ((said["jsonrpc"], said["id"]) == ("2.0", None))


async def test_a_key_of_a_route_opens_it() -> None:
    async with serving({**DEMO, "routes": [route()], "server": {"auth": AUTH}}) as base:
        for headers in ({"authorization": "Bearer client-key"}, {"x-api-key": "client-key"}):
            assert (await ask("POST", f"{base}/a2a", send(), {**NEW, **headers})).json["result"]["task"]


@pytest.mark.parametrize("path", ["", "/message:send"])
async def test_a_body_that_is_too_long(path: str) -> None:
    async with serving({**DEMO, "routes": [route()], "server": {"max_body": 1000}}) as base:
        reply = await ask("POST", f"{base}/a2a{path}", send("x" * 2000), NEW)
        assert reply.status == 413
        assert reply.json["error"]["code"] == (413 if path else -32603)


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
async def test_a_limit_of_the_backend(method: str) -> None:
    async with serving({**DEMO, "routes": [route()]}) as base:
        reply = await ask("POST", f"{base}/a2a", send("limited", method=method), NEW)
        if method == "SendMessage":
            assert (reply.status, reply.headers["retry-after"]) == (429, "7")
            assert reply.json["id"] == 7
        else:
            assert b"TASK_STATE_FAILED" in reply.body
            assert b'"code":"rate_limited"' in reply.body


async def test_an_unknown_address() -> None:
    async with serving({**DEMO, "routes": [route()]}) as base:
        reply = await ask("GET", f"{base}/a2a/nothing", b"", NEW)
        assert (reply.status, reply.json["error"]["code"]) == (404, -32601)
        assert (await ask("GET", f"{base}/a2a", b"", NEW)).status == 405
        for method, path, status in (("GET", "/acme/tasks", 404), ("PUT", "/message:send", 405)):
            reply = await ask(method, f"{base}/a2a{path}", b"", NEW)
            assert (reply.status, reply.json["error"]["code"]) == (status, status), "in the shape of HTTP+JSON"


async def test_what_a_backend_cannot_take_is_refused_before_the_call() -> None:
    config = {
        "backends": {"it": {"dialect": "anthropic-messages", "url": "http://127.0.0.1:9", "model": "m"}},
        "routes": [route()],
    }
    film = {"raw": "AAAA", "mediaType": "video/mp4"}
    async with serving(config) as base:
        for method in ("SendMessage", "SendStreamingMessage"):
            said = (await ask("POST", f"{base}/a2a", send("Look", film, method=method), NEW)).json["error"]
            assert said["code"] == -32005
            assert "params.message.parts[1]" in said["message"]
            assert said["data"][0]["reason"] == "CONTENT_TYPE_NOT_SUPPORTED"


def test_bytes_are_not_passed_through() -> None:
    """An answer has the id of its call, and of a task that this bridge knows."""
    config = {
        "backends": {"it": {"dialect": "a2a", "url": "http://127.0.0.1:9"}},
        "routes": [route(passthrough=True)],
    }
    with pytest.raises(ConfigError, match="cannot be combined with a dialect that stores its runs"):
        parse(config)


async def test_a_head_does_not_wait_for_a_stream() -> None:
    async with serving({**DEMO, "routes": [route()]}) as base:
        assert (await ask("HEAD", f"{base}/a2a/tasks/x:subscribe", b"", NEW)).status == 405
        assert (await ask("HEAD", f"{base}/a2a{CARD}")).status == 200


def test_its_example_is_a_call_of_its_own_version() -> None:
    wire: WireRequest = dialect.example_request("Hello", stream=False)
    assert json.loads(wire.body)["method"] == "SendMessage"
    assert wire.headers["a2a-version"] == "1.0"
