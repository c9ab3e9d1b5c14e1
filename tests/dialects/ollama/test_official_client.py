"""The official Python client against a route, over sockets: it judges what the bridge writes."""

from __future__ import annotations

import json

import ollama as client
import pytest
from ollama import AsyncClient, Message, ResponseError

from bridge import Failure, Reasoning, ToolCall
from bridge.errors import ErrorCode
from bridge.model import UsageReported

from .helpers import PNG, ollama

HI = [{"role": "user", "content": "hi"}]
SAID = (Reasoning("Hmm."), "It is ", "sunny\x85.", ToolCall("call_a", "look", '{"at": "sky"}'), UsageReported(3, 4))


def look(at: str) -> str:
    """Look somewhere.

    Args:
        at: The place.
    """
    return at


async def test_chat_streamed() -> None:
    async with ollama() as (base, backend):
        backend.says(*SAID)
        async with AsyncClient(base) as talk:
            stream = await talk.chat("m", HI, tools=[look], think=True, stream=True)
            pieces = [piece async for piece in stream]
        request = backend.requests[0]
    assert "".join(piece.message.thinking or "" for piece in pieces) == "Hmm."
    assert "".join(piece.message.content or "" for piece in pieces) == "It is sunny\x85."
    [call] = [call for piece in pieces for call in piece.message.tool_calls or ()]
    assert (call.function.name, dict(call.function.arguments)) == ("look", {"at": "sky"})
    last = pieces[-1]
    assert (last.done, last.done_reason, last.prompt_eval_count, last.eval_count) == (True, "stop", 3, 4)
    assert last.total_duration
    assert last.eval_duration
    [tool] = request.tools or ()
    assert tool.parameters is not None
    assert tool.parameters["required"] == ["at"]
    assert request.reasoning_effort == "medium"


async def test_a_conversation_with_a_tool() -> None:
    """This client throws the ids of calls away, and sends results with the name alone."""
    async with ollama() as (base, backend), AsyncClient(base) as talk:
        backend.turns(SAID, ("Done.",))
        messages = [Message(role="user", content="hi", images=[client.Image(value=PNG)])]
        first = await talk.chat("m", messages, tools=[look])
        messages += [first.message, Message(role="tool", content="blue", tool_name="look")]
        second = await talk.chat("m", messages, tools=[look], format={"type": "object"}, options={"num_predict": 5})
        request = backend.requests[1]
    assert first.message.tool_calls
    assert second.message.content == "Done."
    call, result = request.messages[1].parts[-1], request.messages[2].parts[0]
    assert isinstance(call, ToolCall)
    assert getattr(result, "call_id", None) == call.call_id
    assert request.sampling.max_tokens == 5
    assert request.response_format is not None


async def test_generate_models_and_embeddings() -> None:
    async with ollama() as (base, backend), AsyncClient(base) as talk:
        backend.says("Hel", "lo")
        whole = await talk.generate("m", "hi", system="Be brief.")
        pieces = [piece.response async for piece in await talk.generate("m", "hi", stream=True)]
        loaded = await talk.generate("m")
        backend.answers(200, b'{"data": [{"id": "alpha", "context_length": 5}]}')
        listed = await talk.list()
        shown = await talk.show("alpha")
        pulled = await talk.pull("alpha")
        backend.answers(200, b'{"data": [{"embedding": [1, 2], "index": 0}]}')
        embedded = await talk.embed("e", ["a"])
        old = await talk.embeddings("e", "a")
        running = await talk.ps()
    assert (whole.response, "".join(pieces), loaded.done_reason) == ("Hello", "Hello", "load")
    assert [model.model for model in listed.models] == ["alpha:latest"]
    assert listed.models[0].details is not None
    assert listed.models[0].modified_at is not None
    assert shown.capabilities == ["completion", "vision", "tools"]
    assert shown.modelinfo is not None
    assert shown.modelinfo["bridge.context_length"] == 5
    assert pulled.status == "success"
    assert (embedded.embeddings, old.embedding) == ([[1, 2]], [1, 2])
    assert running.models == []


async def test_errors() -> None:
    async with ollama() as (base, backend), AsyncClient(base) as talk:
        backend.fails(Failure(ErrorCode.RATE_LIMITED, "slow down"))
        with pytest.raises(ResponseError, match="slow down") as caught:
            await talk.chat("m", HI)
        assert caught.value.status_code == 429
        backend.breaks_off("half")
        stream = await talk.chat("m", HI, stream=True)
        with pytest.raises(ResponseError) as broken:
            [piece async for piece in stream]
        assert broken.value.status_code == -1, "an error line"
        with pytest.raises(ResponseError, match="does not manage models"):
            await talk.delete("m")
        backend.answers(200, json.dumps({"data": []}).encode())
        with pytest.raises(ResponseError, match="model 'nope:latest' not found") as missing:
            await talk.show("nope")
        assert missing.value.status_code == 404
