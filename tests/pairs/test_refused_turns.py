"""A message that the backend refuses ends its turn, and not the conversation that the bridge keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from bridge.contract import registry
from bridge.errors import ErrorCode, Failure
from bridge.model import Answer, FinishReason, HistoryMode, Message, Request, Text
from bridge.run.conversation.turns import ConversationTurns
from bridge.stores import open_conversations
from tests.pairs.clients import TOOL, agentscope_client
from tests.pairs.keeping import KEEPING, Client, route
from tests.pairs.test_conversations import chat_calls, chat_stream
from tests.server.harness import Exchange, FakeBackend, ask, fake_backend, post, serving

POISON = "poison"
SAID = Answer(messages=[Message("assistant", [Text("fine")])], reason=FinishReason.STOP)
FILTERED = Answer(messages=[Message("assistant", [Text("some words")])], reason=FinishReason.CONTENT_FILTER)
Refuse = Callable[[Exchange], Awaitable[None]]


def answers(status: int, **error: Any) -> Refuse:
    async def refuse(exchange: Exchange) -> None:
        await exchange.answer(status, orjson.dumps({"error": {"message": "refused", **error}}))

    return refuse


def chunk(finish: str | None, **delta: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + orjson.dumps({"id": "c", "model": "m", "choices": [choice]}) + b"\n\n"


def streams(*pieces: bytes) -> Refuse:
    async def refuse(exchange: Exchange) -> None:
        await exchange.stream(*pieces, b"data: [DONE]\n\n")

    return refuse


REFUSALS: dict[str, Refuse] = {
    "content filter": answers(400, code="content_filter", type="invalid_request_error"),
    "context too long": answers(400, code="context_length_exceeded", type="invalid_request_error"),
    "picture too large": answers(413, type="invalid_request_error"),
    "invalid message": answers(422, type="invalid_request_error"),
    "no such input": answers(404, type="invalid_request_error"),
    "error in the stream": streams(
        b'data: {"error":{"message":"refused","type":"invalid_request_error","code":"content_filter"}}\n\n'
    ),
    "filtered at once": streams(chunk("content_filter")),
    "filtered later": streams(chunk(None, content="some words"), chunk("content_filter")),
}


def config(backend: FakeBackend, tmp_path: Path, *routes: dict[str, Any], **section: Any) -> dict[str, Any]:
    return {
        "backends": {"it": {"dialect": "openai-chat", "url": f"{backend.url}/v1", "model": "m", **section}},
        "routes": list(routes),
        "stores": {"history": f"sqlite:///{tmp_path}/talks.db"},
    }


def plays(backend: FakeBackend, refuse: Refuse) -> None:
    """Refuse each request that holds the message, and answer the others."""

    async def script(exchange: Exchange) -> None:
        if POISON.encode() in exchange.seen.body:
            await refuse(exchange)
        elif exchange.seen.json.get("stream"):
            await exchange.stream(*chat_stream({"content": "fine"}))
        else:
            message = {"role": "assistant", "content": "fine"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            await exchange.answer(200, orjson.dumps({"id": "c", "model": "m", "choices": [choice]}))

    backend.plays(script)


def users(backend: FakeBackend) -> list[str]:
    """Return the texts of the user in the last request."""
    said = [m["content"] for m in backend.seen[-1].json["messages"] if m["role"] == "user"]
    return [each if isinstance(each, str) else "".join(p.get("text", "") for p in each) for each in said]


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("dialect", KEEPING)
async def test_a_refused_message_is_not_kept(dialect: str, refusal: str, tmp_path: Path) -> None:
    async with fake_backend() as backend:
        plays(backend, REFUSALS[refusal])
        async with serving(config(backend, tmp_path, route(dialect))) as base:
            client = Client(dialect, base)
            _, refused, *later = await client.talk(["hello", POISON, "again", "at last"])
            assert b"fine" not in refused.body
            assert all(b"fine" in reply.body for reply in later), [reply.body[:300] for reply in later]
            assert users(backend) == ["hello", "again", "at last"]


@pytest.mark.parametrize("dialect", KEEPING)
async def test_the_first_message_of_a_conversation(dialect: str, tmp_path: Path) -> None:
    async with fake_backend() as backend:
        plays(backend, REFUSALS["content filter"])
        async with serving(config(backend, tmp_path, route(dialect))) as base:
            _, later = await Client(dialect, base).talk([POISON, "again"])
            assert b"fine" in later.body
            assert users(backend) == ["again"]


@pytest.mark.parametrize("status", [401, 429, 500])
@pytest.mark.parametrize("dialect", KEEPING)
async def test_a_message_that_is_not_at_fault_is_kept(dialect: str, status: int, tmp_path: Path) -> None:
    async with fake_backend() as backend, serving(config(backend, tmp_path, route(dialect))) as base:
        client = Client(dialect, base)
        backend.answers(status, b"{}")
        await client.talk(["hello"])
        plays(backend, REFUSALS["content filter"])
        await client.talk(["again"])
        assert users(backend) == ["hello", "again"]


async def test_what_cannot_be_said_to_the_backend_is_not_kept(tmp_path: Path) -> None:
    """The bridge itself refuses the message, after the conversation of a queued run has it."""
    async with fake_backend() as backend:
        plays(backend, REFUSALS["content filter"])
        settings = config(backend, tmp_path, route("agent-runs"))
        async with serving(settings) as base:
            client = Client("agent-runs", base)
            await client.talk(["hello"])
            sound = {"type": "binary", "mimeType": "audio/x-unknown", "data": "AAAA"}
            body = {
                "threadId": "t", "runId": "bad", "state": {}, "tools": [], "context": [],
                "messages": [{"id": "mb", "role": "user", "content": [sound, {"type": "text", "text": "hear"}]}],
                "forwardedProps": {"runtime_mode": "chat"},
            }  # fmt: skip
            made = await post(f"{base}/r/runs", body)
            if made.status < 300:
                await ask("GET", f"{base}/r/runs/t/events?runId=bad")
            calls = len(backend.seen)
            (later,) = await client.talk(["again"])
            assert b"fine" in later.body
            assert len(backend.seen) == calls + 1


async def test_a_refused_result_of_a_tool_may_be_sent_again(tmp_path: Path) -> None:
    async with fake_backend() as backend:
        setup = config(backend, tmp_path, {"dialect": "agentscope", "path": "/scope", "backend": "it"})
        async with serving(setup) as base:
            backend.streams(*chat_calls("Paris"))
            await agentscope_client(base, [{"role": "user", "content": "Weather?"}], tools=[TOOL])
            plays(backend, REFUSALS["invalid message"])
            result = {"role": "tool", "tool_call_id": "call_Paris"}
            assert (await agentscope_client(base, [{**result, "content": POISON}])).error
            assert not (await agentscope_client(base, [{**result, "content": "sunny"}])).error
            sent = backend.seen[-1].json["messages"]
            assert [(m["role"], m.get("content")) for m in sent[2:]] == [("tool", "sunny")]


async def test_refused_tools_are_not_kept(tmp_path: Path) -> None:
    """Tools that a client offers once hold for its conversation, unless they are what the backend refuses."""
    async with fake_backend() as backend:
        plays(backend, REFUSALS["invalid message"])
        setup = config(backend, tmp_path, {"dialect": "agentscope", "path": "/scope", "backend": "it"})
        tool = {**TOOL, "function": {**TOOL["function"], "description": POISON}}
        async with serving(setup) as base:
            assert (await agentscope_client(base, [{"role": "user", "content": "one"}], tools=[tool])).error
            assert not (await agentscope_client(base, [{"role": "user", "content": "two"}])).error


@pytest.mark.parametrize("back", ["ag-kit", "agentscope"])
@pytest.mark.parametrize("answer", [Answer(failure=Failure(ErrorCode.CONTENT_FILTER, "refused")), FILTERED])
async def test_a_backend_that_remembers_begins_anew(back: str, answer: Answer) -> None:
    """One among several, so that the bridge keeps the conversation, too: it may remember the refused message."""
    memory = ConversationTurns(open_conversations("sqlite:///:memory:"))
    front, capabilities = registry.get("a2a").capabilities, registry.get(back).capabilities

    async def turn(text: str, answer: Answer) -> tuple[list[str], str | None]:
        """Return what the backend is sent, and in which of its conversations."""
        asked = Request([Message("user", [Text(text)])], thread_id="t", history=HistoryMode.DELTA)
        begun = await memory.begin("", "/r", asked, front, capabilities, f"run-{text}", backend_name="it")
        assert begun is not None
        await begun.keep(answer, answer)
        await begun.close()
        sent = [part.text for m in begun.request.messages for part in m.parts if isinstance(part, Text)]
        return sent, begun.request.thread_id

    _, first = await turn("hello", SAID)
    assert await turn(POISON, answer) == ([POISON], first)
    sent, later = await turn("again", SAID)
    assert sent == ["hello", "fine", "again"]
    assert later != first or later is None
    await memory.close()


async def test_a_stored_response_is_continued_past_a_refused_one(tmp_path: Path) -> None:
    async with fake_backend() as backend:
        plays(backend, REFUSALS["content filter"])
        setup = config(backend, tmp_path, {"dialect": "openai-responses", "path": "/r", "backend": "it"})
        async with serving(setup) as base:
            first = await post(f"{base}/r/responses", {"model": "m", "input": "hello"})
            more = {"model": "m", "previous_response_id": first.json["id"]}
            assert (await post(f"{base}/r/responses", {**more, "input": POISON})).status == 400
            assert (await post(f"{base}/r/responses", {**more, "input": "again"})).status == 200
            assert users(backend) == ["hello", "again"]
