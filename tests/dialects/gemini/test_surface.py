"""Served over HTTP: addresses, keys, the array form, counting, models, and leaving."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pydantic import ValidationError

from bridge.contract import Support
from bridge.dialects.gemini import dialect
from bridge.dialects.gemini.options import BackOptions, FrontOptions
from bridge.model import ToolCall
from bridge.testing import Exchange
from tests.server.harness import ask, fake_backend, post, serving

from .helpers import user

PAGE = Path(__file__).parents[3] / "docs" / "dialects" / "gemini.md"
DEMO: dict[str, Any] = {"backends": {"demo": {"dialect": "demo"}}}
ROUTE = {"dialect": "gemini", "path": "/", "backend": "demo"}
TEXT = "/v1beta/models/demo:generateContent"
STREAM = "/v1beta/models/demo:streamGenerateContent"
AUTH = {"keys": [{"name": "me", "key": "client-key"}]}


_UNUSUAL = re.compile(r"\b(told|tells|talk|wish|warm|goes? (with|back)|withheld)\b")


def text_in(response: Any) -> str:
    return "".join(p.get("text", "") for p in response["candidates"][0]["content"]["parts"])


def test_the_card() -> None:
    for entry in [*dialect.capabilities.answers.values(), *dialect.capabilities.requests.values()]:
        assert (entry.support is Support.EXACT) is not bool(entry.reason)


@pytest.mark.parametrize("options", [FrontOptions, BackOptions])
def test_options_are_described(options: type[FrontOptions] | type[BackOptions]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, field in options.model_fields.items():
        assert field.description
        assert f"| `{name}` |" in page
        assert not _UNUSUAL.search(field.description), name
    with pytest.raises(ValidationError):
        options.model_validate({"nonsense": 1})


@pytest.mark.parametrize("mount", ["/", "/gemini"])
async def test_every_address(mount: str) -> None:
    async with serving({**DEMO, "routes": [{**ROUTE, "path": mount}]}) as base:
        base += mount.rstrip("/")
        for version in ("v1", "v1beta", "v1alpha", "v1beta1"):
            assert text_in((await post(f"{base}/{version}/models/demo:generateContent", user())).json)
            listed = (await ask("GET", f"{base}/{version}/models?pageSize=10")).json
            assert [m["name"] for m in listed["models"]] == ["models/demo"]
            one = await ask("GET", f"{base}/{version}/models/demo")
            assert one.json["name"] == "models/demo"
        vertex = "/v1/projects/p/locations/l/publishers/google/models/demo:generateContent"
        assert text_in((await post(base + vertex, user())).json)
        assert text_in((await post(f"{base}/v1beta/models/demo%3AgenerateContent", user())).json)
        count = await post(f"{base}/v1beta/models/demo:countTokens", user())
        assert count.json["totalTokens"] > 0
        assert count.headers["x-bridge-estimated"] == "tokens"
        for path in ("/v1beta/models/demo:embedContent", "/v1beta/cachedContents", "/upload/v1beta/files"):
            missing = await post(base + path, {})
            assert (missing.status, missing.json["error"]["status"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize("mount", ["/v1beta", "/v1", "/gemini/v1"])
async def test_a_route_at_a_version(mount: str) -> None:
    routes = [{**ROUTE, "path": mount}, {"dialect": "openai-chat", "path": mount, "backend": "demo"}]
    async with serving({**DEMO, "routes": routes}) as base:
        assert text_in((await post(f"{base}{mount}/models/demo:generateContent", user())).json)
        listed = await ask("GET", f"{base}{mount}/models", b"", {"x-goog-api-key": "any"})
        assert listed.json["models"][0]["name"] == "models/demo"


async def test_both_forms_of_a_stream() -> None:
    async with serving({**DEMO, "routes": [ROUTE]}) as base:
        events = await post(f"{base}{STREAM}?alt=sse", user())
        assert events.headers["content-type"].startswith("text/event-stream")
        lines = [json.loads(line[6:]) for line in events.body.split(b"\n\n") if line]
        assert lines[-1]["candidates"][0]["finishReason"] == "STOP"
        assert b"event:" not in events.body
        array = await post(base + STREAM, user())
        assert array.headers["content-type"].startswith("application/json")
        assert len(array.json) == len(lines)
        assert "".join(map(text_in, array.json)) == "".join(map(text_in, lines))


async def test_events_of_a_durable_run_have_no_ids_for_googles_sdks_do_not_read_them() -> None:
    async with serving({**DEMO, "routes": [{**ROUTE, "durable": True}]}) as base:
        reply = await post(f"{base}{STREAM}?alt=sse", user())
        assert {line[:6] for line in reply.body.split(b"\n") if line} == {b"data: "}
        (whole,) = (await post(base + STREAM, user())).json
        assert text_in(whole)


async def test_keys_in_the_header_and_in_the_query(capsys: pytest.CaptureFixture[str], caplog: Any) -> None:
    config = {**DEMO, "routes": [ROUTE], "server": {"auth": AUTH}}
    with caplog.at_level("DEBUG"):
        async with serving(config) as base:
            for path, headers in (
                (TEXT, {"x-goog-api-key": "client-key"}),
                (f"{TEXT}?key=client-key", {}),
                (f"{STREAM}?alt=sse&key=client-key", {}),
                (TEXT, {"authorization": "Bearer client-key"}),
            ):
                sent = {"content-type": "application/json", **headers}
                assert (await ask("POST", base + path, json.dumps(user()).encode(), sent)).status == 200
            assert (await ask("GET", f"{base}/v1beta/models?key=client-key")).status == 200
            for path in (TEXT, f"{TEXT}?key=wrong-key", f"{TEXT}?access_token=client-key"):
                refused = await post(base + path, user())
                assert (refused.status, refused.json["error"]["status"]) == (401, "UNAUTHENTICATED")
                assert b"wrong-key" not in refused.body
    said = caplog.text + "".join(capsys.readouterr())
    assert "client-key" not in said
    assert "wrong-key" not in said


async def test_a_key_in_the_query_is_for_this_dialect_alone() -> None:
    routes = [ROUTE, {"dialect": "openai-chat", "path": "/v1", "backend": "demo"}]
    async with serving({**DEMO, "routes": routes, "server": {"auth": AUTH}}) as base:
        asked = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}]}
        assert (await post(f"{base}/v1/chat/completions?key=client-key", asked)).status == 401


async def test_at_v1_the_header_tells_whose_models_are_meant() -> None:
    routes = [ROUTE, {"dialect": "openai-chat", "path": "/v1", "backend": "demo"}]
    async with serving({**DEMO, "routes": routes}) as base:
        google = await ask("GET", f"{base}/v1/models", b"", {"x-goog-api-key": "any"})
        assert google.json["models"][0]["name"] == "models/demo"
        assert (await ask("GET", f"{base}/v1/models")).json["object"] == "list"
        assert text_in((await post(f"{base}/v1/models/demo:generateContent", user())).json)


@pytest.mark.parametrize("suffix", ["", "/", "/v1beta", "/v1beta/", "/v1"])
async def test_the_backends_address_with_and_without_its_version(suffix: str) -> None:
    async with fake_backend("gemini") as backend:
        backend.says("Hello")
        config = {
            "backends": {"it": {"dialect": "gemini", "url": backend.url + suffix, "api_key": "back-key"}},
            "routes": [{**ROUTE, "backend": "it"}],
        }
        async with serving(config) as base:
            reply = await post(f"{base}{STREAM}?alt=sse&key=client", user(), x_goog_api_key="client-key")
            assert b"Hello" in reply.body
        (seen,) = backend.seen
        version = "v1" if suffix == "/v1" else "v1beta"
        assert seen.path == f"/{version}/models/demo:streamGenerateContent?alt=sse"
        assert seen.headers["x-goog-api-key"] == "back-key"


async def test_a_client_that_leaves_ends_the_run() -> None:
    async with fake_backend() as backend:

        async def script(exchange: Exchange) -> None:
            await exchange.head()
            await exchange.send(b'data: {"candidates":[{"content":{"parts":[{"text":"x"}],"role":"model"}}]}\r\n\r\n')
            await exchange.left()

        backend.plays(script)
        config = {
            "backends": {"it": {"dialect": "gemini", "url": backend.url}},
            "routes": [{**ROUTE, "backend": "it"}],
        }
        async with serving(config) as base, aiohttp.ClientSession() as session:
            async with session.post(f"{base}{STREAM}?alt=sse", json=user()) as response:
                assert b'"x"' in await response.content.readany()
            async with asyncio.timeout(5):
                await backend.seen[0].gone.wait()


async def test_a_tool_loop_between_gemini_and_gemini_and_its_signature() -> None:
    async with fake_backend("gemini") as backend:
        signed = ToolCall("c1", "f", '{"a":1}', extras={"signature": {"google": "c2ln"}})
        backend.turns([signed], ["It is done."])
        config = {
            "backends": {"it": {"dialect": "gemini", "url": backend.url}},
            "routes": [{**ROUTE, "backend": "it"}],
        }
        async with serving(config) as base:
            body = user(tools=[{"functionDeclarations": [{"name": "f"}]}])
            said = (await post(base + TEXT, body)).json["candidates"][0]["content"]
            (part,) = said["parts"]
            assert part == {"functionCall": {"id": "c1", "name": "f", "args": {"a": 1}}, "thoughtSignature": "c2ln"}
            answer = {"functionResponse": {"name": "f", "response": {"result": "ok"}}}
            body["contents"] += [said, {"role": "user", "parts": [answer]}]
            assert text_in((await post(base + TEXT, body)).json) == "It is done."
        asked = backend.seen[1].json["contents"]
        assert asked[1]["parts"] == [part]
        assert asked[2]["parts"] == [{"functionResponse": {"id": "c1", "name": "f", "response": {"result": "ok"}}}]
