"""The fake backends, as people use them who test what they built: in every dialect, over a socket and without one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from bridge import (
    Bridge,
    BridgeError,
    ErrorCode,
    Failure,
    FinishReason,
    Message,
    Request,
    RunFinished,
    Text,
    ToolCall,
    Translator,
    decode,
    fold,
)
from bridge.contract import Feature, Operation, Support, offers, registry
from bridge.server import running
from bridge.testing import Exchange, ScriptedAgent, ScriptedBackend, bridge_of, fake_backend, free_port
from tests.server.harness import post

BUSY = Failure(ErrorCode.RATE_LIMITED, "busy", headers={"retry-after": "7"})
every_dialect = pytest.mark.parametrize(
    "name", [n for n in registry.over_http() if registry.get(n).called and registry.get(n).called_over_http]
)
AT_ONCE = [name for name in registry.names() if offers(registry.get(name).surface, Operation.RUN)]


def question(text: str = "hi") -> Request:
    return Request([Message("user", [Text(text)])], model="m", thread_id="t")


def over(name: str, url: str) -> Bridge:
    """A bridge whose only backend is the fake one."""
    return Bridge.from_config(
        {
            "backends": {"fake": {"dialect": name, "url": url}},
            "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "fake"}],
            "stores": {"history": "off"},
        }
    )


# ---------------------------------------------------------------------- over a socket


@every_dialect
async def test_it_says_what_it_is_told_and_notes_what_it_was_asked(name: str) -> None:
    async with fake_backend(name) as backend, over(name, backend.url) as bridge:
        backend.says("Hello ", "world", ToolCall("c1", "get_weather", "{}"))
        answer = await bridge.complete(question())
        capabilities = registry.get(name).capabilities
        tells_calls = capabilities.answer(Feature.TOOL_CALL) is Support.EXACT or capabilities.awaits_results
        assert (answer.text, [c.name for c in answer.calls]) == ("Hello world", ["get_weather"] if tells_calls else [])
        assert backend.requests[0].messages[-1].parts == [Text("hi")]
        assert any(seen.json for seen in backend.seen if seen.body)
        backend.fails(BUSY)
        with pytest.raises(BridgeError):
            await bridge.complete(question())


@every_dialect
async def test_a_stream_that_breaks_off_is_a_failure(name: str) -> None:
    async with fake_backend(name) as backend, over(name, backend.url) as bridge:
        backend.breaks_off("half an ", "answer")
        for stream in (True, False):
            asked = question()
            asked.stream = stream
            with pytest.raises(BridgeError) as caught:
                await bridge.complete(asked)
            assert caught.value.code in (ErrorCode.TRUNCATED_STREAM, ErrorCode.BACKEND_UNAVAILABLE)


async def test_turns_come_one_after_another_and_the_last_stays() -> None:
    async with fake_backend("openai-chat") as backend, over("openai-chat", backend.url) as bridge:
        backend.turns(["one"], BUSY, ["three", RunFinished(FinishReason.LENGTH)])
        assert (await bridge.complete(question())).text == "one"
        with pytest.raises(BridgeError) as caught:
            await bridge.complete(question())
        assert (caught.value.code, caught.value.failure.headers) == (ErrorCode.RATE_LIMITED, {"retry-after": "7"})
        for _ in range(2):
            answer = await bridge.complete(question())
            assert (answer.text, answer.reason) == ("three", FinishReason.LENGTH)
        assert len(backend.requests) == 4


async def test_a_request_that_it_cannot_read_is_refused_in_its_dialect() -> None:
    async with fake_backend("openai-chat") as backend:
        backend.says("hi")
        reply = await post(f"{backend.url}/chat/completions", {"model": "m", "messages": 3})
        assert reply.status == 400
        assert "messages" in reply.json["error"]["message"]
        assert backend.requests == []


async def test_what_a_script_raises_is_raised_by_the_block() -> None:
    async def script(exchange: Exchange) -> None:
        assert exchange.seen.json == {"a": 2}, "the body is another one"

    with pytest.raises(AssertionError, match="the body is another one"):
        await _asked(script)


async def _asked(script: Callable[[Exchange], Awaitable[None]] | None) -> None:
    """One request to a backend that plays the script, or none."""
    async with fake_backend() as backend:
        if script is not None:
            backend.plays(script)
        with pytest.raises(aiohttp.ClientError):
            await post(backend.url, {"a": 1})


async def test_it_says_what_is_missing() -> None:
    async with fake_backend() as backend:
        with pytest.raises(TypeError, match="this backend speaks no dialect"):
            backend.says("hi")
    with pytest.raises(RuntimeError, match="before the fake backend had an answer"):
        await _asked(None)
    with pytest.raises(ValueError, match="at least one"):
        ScriptedBackend("openai-chat").turns()


# ---------------------------------------------------------------------- without one


@every_dialect
@pytest.mark.parametrize("front", ["openai-chat", "ag-ui"])
def test_a_translator_between_a_client_and_it(name: str, front: str) -> None:
    backend = ScriptedBackend(name, "Hello ", "world")
    translator = Translator(name, front, model="m")
    translator.request(registry.get(front).example_request("hi").body, client=front)
    assert translator.sent is not None
    reply = backend.reply(translator.sent.body, translator.sent.headers)
    assert reply.status == 200
    out = b"".join(map(translator.feed, reply.pieces)) + translator.close()
    assert fold(decode(out, front)).text == "Hello world"
    assert backend.requests[0].messages[-1].parts == [Text("hi")]


def test_it_answers_whole_what_is_asked_whole_and_fails_in_its_dialect() -> None:
    backend = ScriptedBackend("openai-chat", "Hello")
    asked = registry.get("openai-chat").example_request("hi", stream=False).body
    assert fold(decode(backend.reply(asked).body, "openai-chat")).text == "Hello"
    backend.fails(BUSY)
    refused = backend.reply(asked)
    assert (refused.status, refused.headers["retry-after"]) == (429, "7")
    assert backend.reply(b"nonsense").status == 400


async def test_an_agent_in_this_process_in_every_dialect() -> None:
    agent = ScriptedAgent("Hello ", "world")
    bridge = bridge_of(agent)
    assert [route.path for route in bridge.routes] == [f"/{name}" for name in AT_ONCE]
    async with bridge:
        for name in AT_ONCE:
            assert (await bridge.complete(question(name), route=f"/{name}")).text == "Hello world"
        assert [r.messages[-1].parts for r in agent.requests] == [[Text(name)] for name in AT_ONCE]
        agent.fails(BUSY)
        with pytest.raises(BridgeError) as caught:
            await bridge.complete(question())
        assert caught.value.code is ErrorCode.RATE_LIMITED


async def test_an_agent_in_this_process_behind_the_real_server() -> None:
    bridge = bridge_of(ScriptedAgent("Hello"), "openai-chat", server={"port": free_port()})
    async with running(bridge) as port:
        reply = await post(
            f"http://127.0.0.1:{port}/openai-chat/chat/completions",
            {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
        )
    assert reply.json["choices"][0]["message"]["content"] == "Hello"
