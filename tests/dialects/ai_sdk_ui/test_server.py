"""Served for real: headers, statuses, and clients that come back to a run."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import orjson
import pytest

from bridge.model import Interrupted, Text
from tests.server.harness import ask, fake_backend, post, serving

from .helpers import CAPTURES, request_body

HEADER = "x-vercel-ai-ui-message-stream"


def config(url: str | None = None, **route: Any) -> dict[str, Any]:
    backend = {"dialect": "ai-sdk-ui", "url": url} if url else {"dialect": "demo"}
    front = {"dialect": "ai-sdk-ui", "path": "/api/chat", "backend": "it", **route}
    return {"backends": {"it": backend}, "routes": [front]}


def says(text: str, chat: str = "chat-1") -> dict[str, Any]:
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": text}]}
    return {"id": chat, "messages": [message], "trigger": "submit-message"}


def chunks_in(body: bytes) -> list[dict[str, Any]]:
    lines = [line for line in body.split(b"\n") if line.startswith(b"data: ")]
    assert lines[-1] == b"data: [DONE]"
    return [orjson.loads(line[6:]) for line in lines[:-1]]


def words(chunks: list[dict[str, Any]]) -> str:
    return "".join(c["delta"] for c in chunks if c["type"] == "text-delta")


async def test_a_run_has_the_header_of_the_protocol() -> None:
    async with serving(config()) as base:
        reply = await post(f"{base}/api/chat", says("hello"))
        assert (reply.status, reply.headers[HEADER]) == (200, "v1")
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert b'"type":"finish"' in reply.body
        assert words(chunks_in(reply.body)).startswith("You said: hello")
        wrong = await post(f"{base}/api/chat", {"messages": 3})
        assert (wrong.status, wrong.json["error"][:9]) == (400, "messages:")
        failed = await post(f"{base}/api/chat", says("error"))
        assert failed.status >= 400
        assert isinstance(failed.json["error"], str)


async def test_nothing_to_come_back_to_is_no_error() -> None:
    for durable in (False, True):
        async with serving(config(durable=durable)) as base:
            for chat in ("chat-1", "a%20b%2Fc"):
                assert (await ask("GET", f"{base}/api/chat/{chat}/stream")).status == 204


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize(
    ("question", "answers"),
    [(Interrupted("q", "input_required", "Which?"), True), (Interrupted("q", "approval", {"name": "wipe"}), False)],
    ids=["a question", "an approval"],
)
async def test_typed_words_answer_a_question_but_no_approval(
    question: Interrupted, answers: bool, durable: bool
) -> None:
    """The agent remembers no question, and the client has only a field for text."""
    async with fake_backend("ag-ui") as agent:
        agent.turns([question], [Text("Well.")])
        front = {"dialect": "ai-sdk-ui", "path": "/api/chat", "backend": "it", "durable": durable}
        backends = {"it": {"dialect": "ag-ui", "url": agent.url}}
        async with serving({"backends": backends, "routes": [front]}) as base:
            chat = says("hi")
            chunks = chunks_in((await post(f"{base}/api/chat", chat)).body)
            (asked,) = [chunk for chunk in chunks if chunk["type"] == "data-interrupt"]
            said = {"id": chunks[0]["messageId"], "role": "assistant", "parts": [asked]}
            chat["messages"] += [said, {**says("red")["messages"][0], "id": "u2"}]
            assert words(chunks_in((await post(f"{base}/api/chat", chat)).body)) == "Well."
        sent = agent.seen[-1].json
        answer = {"interruptId": "q", "status": "resolved", "payload": "red"}
        assert sent.get("resume") == ([answer] if answers else None)
        assert [each["role"] for each in sent["messages"]] == ["user"] * (1 if answers else 2)


async def test_a_client_comes_back_to_its_run() -> None:
    async with serving(config(durable=True)) as base, aiohttp.ClientSession() as session:
        url = f"{base}/api/chat"
        async with session.post(url, json=says("slow", "my chat")) as response:
            assert response.headers[HEADER] == "v1"
            first = await response.content.readuntil(b'"text-delta"')
        again = await ask("GET", f"{url}/my%20chat/stream")
        assert (again.status, again.headers[HEADER]) == (200, "v1")
        chunks = chunks_in(again.body)
        assert chunks[0]["messageId"].encode() in first, "a new id would be a second message"
        assert chunks[-1] == {**chunks[-1], "type": "finish", "finishReason": "stop"}
        async with asyncio.timeout(10):
            while (await ask("GET", f"{url}/my%20chat/stream")).status != 204:
                await asyncio.sleep(0.05)


async def test_a_run_of_somebody_else_is_not_read() -> None:
    auth = {"keys": [{"name": "ann", "key": "key-of-ann"}, {"name": "bob", "key": "key-of-bob"}]}
    async with serving({**config(durable=True), "server": {"auth": auth}}) as base, aiohttp.ClientSession() as session:
        url, ann = f"{base}/api/chat", {"authorization": "Bearer key-of-ann"}
        async with session.post(url, json=says("slow"), headers=ann) as response:
            await response.content.readuntil(b'"text-delta"')
        other = await ask("GET", f"{url}/chat-1/stream", headers={"authorization": "Bearer key-of-bob"})
        assert other.status == 204
        assert (await ask("GET", f"{url}/chat-1/stream", headers=ann)).status == 200


async def test_from_a_server_to_a_client() -> None:
    async with fake_backend() as backend, serving(config(f"{backend.url}/chat")) as base:
        backend.streams((CAPTURES / "tool-ai7-turn2.sse").read_bytes())
        reply = await post(f"{base}/api/chat", request_body("tool-ai7-turn2"))
        (seen,) = backend.seen
        assert (seen.method, seen.path, seen.headers["accept"]) == ("POST", "/chat", "text/event-stream")
        assert seen.json["messageId"] == "msg-crrx5eiojv"
        chunks = chunks_in(reply.body)
        assert (chunks[0]["messageId"], words(chunks)) == ("msg-crrx5eiojv", 'tool said: {"temp":21}')
        assert chunks[-1]["messageMetadata"]["totalUsage"]["inputTokens"] == 21
        backend.answers(200, b"<html>not here</html>", "text/html")
        assert (await post(f"{base}/api/chat", says("hi"))).status == 502


async def test_a_part_that_the_backend_cannot_take_is_named_where_it_stands() -> None:
    async with fake_backend() as backend:
        setup = config()
        setup["backends"]["it"] = {"dialect": "anthropic-messages", "url": backend.url, "model": "m"}
        async with serving(setup) as base:
            sound = {"type": "file", "mediaType": "audio/wav", "url": "data:audio/wav;base64,UklGRg=="}
            body = says("listen")
            body["messages"][0]["parts"][:0] = [{"type": "source-url"}, sound]
            reply = await post(f"{base}/api/chat", body)
            assert reply.status == 400
            assert "messages[0].parts[1]" in reply.json["error"]
