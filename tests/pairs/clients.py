"""The kinds of clients, each reading an answer as its protocol's real software does.

Both give the same `Seen`, so that one expectation serves every frontend.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import anthropic
import openai
import orjson
from openai.types.responses import Response

from tests.responses_judge import judge

# To load the world's certificates takes 25 ms; a client made for one request shares them with all others.
TLS = ssl.create_default_context()

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


@dataclass
class Call:
    id: str
    name: str
    arguments: str


@dataclass
class Seen:
    """What a client ended up with. `status` is the HTTP status; `error` is set when the answer failed."""

    status: int = 200
    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: list[Call] = field(default_factory=list)
    results: list[tuple[str, str]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    media: list[str] = field(default_factory=list)
    usage: tuple[int, int] | None = None
    finish: str | None = None
    error: str | None = None
    error_code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    choices: dict[int, str] = field(default_factory=dict)
    answer_id: str | None = None
    started: asyncio.Event = field(default_factory=asyncio.Event)


Messages = list[dict[str, Any]]
Client = Callable[..., Awaitable[Seen]]


def _told(taken: int, given: int) -> tuple[int, int] | None:
    """The usage; zeros are what clients get of one that nobody told."""
    return (taken, given) if taken or given else None


# ---------------------------------------------------------------------- openai-chat, by the openai SDK


async def openai_client(
    base: str, messages: Messages, *, stream: bool = True, seen: Seen | None = None, **more: Any
) -> Seen:
    """Through the real `openai` package. `messages` have the shape of chat completions."""
    seen = seen or Seen()
    http = openai.DefaultAsyncHttpxClient(verify=TLS)
    async with openai.AsyncOpenAI(
        base_url=f"{base}/chat/v1", api_key="client-key", max_retries=0, timeout=60, http_client=http
    ) as client:
        try:
            if stream:
                await _openai_stream(client, messages, seen, more)
            else:
                whole = await client.chat.completions.create(model="m", messages=messages, **more)
                _openai_whole(whole, seen)
        except openai.APIStatusError as error:
            seen.status, seen.error, seen.error_code = error.status_code, error.message, error.code
            seen.headers = dict(error.response.headers)
        except openai.APIError as error:
            seen.error, seen.error_code = error.message, error.code
    return seen


async def _openai_stream(client: openai.AsyncOpenAI, messages: Messages, seen: Seen, more: dict[str, Any]) -> None:
    options = {"include_usage": True}
    stream = await client.chat.completions.create(
        model="m", messages=messages, stream=True, stream_options=options, **more
    )
    finishes: list[str] = []
    async for chunk in stream:
        assert chunk.object == "chat.completion.chunk"
        if chunk.usage is not None:
            assert chunk.choices == []
            seen.usage = _told(chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
        for choice in chunk.choices:
            delta = choice.delta
            seen.choices[choice.index] = seen.choices.get(choice.index, "") + (delta.content or "")
            if choice.index:
                continue
            seen.text += delta.content or ""
            seen.reasoning += getattr(delta, "reasoning_content", None) or ""
            seen.refusal += delta.refusal or ""
            for piece in delta.tool_calls or []:
                if piece.index == len(seen.calls):
                    assert piece.id
                    assert piece.function is not None
                    assert piece.function.name is not None
                    seen.calls.append(Call(piece.id, piece.function.name, ""))
                else:
                    # A piece of the last call, never of an earlier one, and never with its id or name again.
                    assert piece.index == len(seen.calls) - 1
                    assert piece.id is None
                seen.calls[piece.index].arguments += (piece.function and piece.function.arguments) or ""
            if choice.finish_reason:
                finishes.append(choice.finish_reason)
        if seen.text or seen.reasoning or seen.calls:
            seen.started.set()
    assert len(finishes) == 1, finishes
    seen.finish = finishes[0]


def _openai_whole(whole: Any, seen: Seen) -> None:
    message = whole.choices[0].message
    seen.text, seen.refusal = message.content or "", message.refusal or ""
    seen.reasoning = getattr(message, "reasoning_content", None) or ""
    seen.calls = [Call(c.id, c.function.name, c.function.arguments) for c in message.tool_calls or []]
    seen.finish = whole.choices[0].finish_reason
    seen.choices = {c.index: c.message.content or "" for c in whole.choices}
    assert whole.usage is not None
    seen.usage = _told(whole.usage.prompt_tokens, whole.usage.completion_tokens)


# ---------------------------------------------------------------------- agentscope, by the rules of its web frontend


def agentscope_input(messages: Messages) -> list[dict[str, Any]]:
    """Chat messages as an AgentScope frontend would send the same talk."""
    out: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            data = {"call_id": message["tool_call_id"], "output": message["content"]}
            out.append(_data("plugin_call_output", "tool", data))
            continue
        content = message.get("content")
        if content:
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else [_part(p) for p in content]
            out.append({"type": "message", "role": message["role"], "content": parts})
        for call in message.get("tool_calls") or []:
            function = call["function"]
            data = {"call_id": call["id"], "name": function["name"], "arguments": function["arguments"]}
            out.append(_data("plugin_call", "assistant", data))
    return out


def _data(kind: str, role: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "role": role, "content": [{"type": "data", "data": data}]}


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return part
    return {"type": "image", "image_url": part["image_url"]["url"]}


async def agentscope_client(
    base: str, messages: Messages, *, stream: bool = True, seen: Seen | None = None, **more: Any
) -> Seen:
    """Folds the events as the project's web frontend does (agentscope.md, section 13)."""
    seen = seen or Seen()
    told = [*agentscope_input(messages), *more.pop("more_input", [])]
    body: dict[str, Any] = {"input": told, "session_id": "s-1", "stream": stream, **more}
    async with (
        aiohttp.ClientSession(read_bufsize=2**26) as session,
        session.post(f"{base}/scope/process", json=body) as response,
    ):
        seen.status, seen.headers = response.status, {k.lower(): v for k, v in response.headers.items()}
        if response.status != 200:
            seen.error = (await response.read()).decode()
            return seen
        fold = _Fold(seen, body["session_id"])
        rest = b""
        async for data in response.content.iter_any():
            *events, rest = (rest + data).split(b"\n\n")
            for event in events:
                if not event.startswith(b":"):
                    assert event.startswith(b"data: ")
                    assert len(event.decode().splitlines()) == 1
                    fold.event(orjson.loads(event[6:]))
        assert rest == b""
        fold.end()
    return seen


class _Fold:
    def __init__(self, seen: Seen, session: str) -> None:
        self._seen = seen
        self._session = session
        self._number = 0
        self._messages: dict[str, dict[str, Any]] = {}
        self._last: dict[str, Any] = {}

    def event(self, event: dict[str, Any]) -> None:
        assert self._last.get("status") not in ("completed", "failed", "canceled"), "an event after the end"
        assert event["sequence_number"] == self._number
        self._number += 1
        match event["object"]:
            case "response":
                assert event["session_id"] == self._session
                self._last = event
                if event["status"] not in ("created", "in_progress"):
                    self._messages = {m["id"]: m for m in event["output"] or []}
            case "message":
                self._messages[event["id"]] = event
            case "content":
                assert event["msg_id"] in self._messages, "a content before its message"
                self._seen.started.set()

    def end(self) -> None:
        """The frontend shows what the terminal response holds; nothing else survives it."""
        seen = self._seen
        assert self._last["status"] in ("completed", "failed"), "the frontend's spinner never stops"
        for message in self._messages.values():
            for part in message["content"] or []:
                _take(message["type"], part, seen)
            note = message["metadata"] or {}
            if "choice_index" not in note:
                seen.finish = note.get("finish_reason", seen.finish)
        usage = self._last["usage"]
        if usage:
            seen.usage = (usage["input_tokens"], usage["output_tokens"])
        if self._last["status"] == "failed":
            seen.error, seen.error_code = self._last["error"]["message"], self._last["error"]["code"]
        elif seen.finish is None:
            seen.finish = "stop"


def _take(kind: str, part: dict[str, Any], seen: Seen) -> None:
    data = part.get("data") if part["type"] == "data" else None
    if kind == "reasoning":
        seen.reasoning += part["text"]
    elif isinstance(data, dict) and kind == "mcp_approval_request":
        seen.asked.append(data)
    elif isinstance(data, dict) and kind.endswith("_output"):
        seen.results.append((data["call_id"], data["output"]))
    elif isinstance(data, dict) and kind.endswith("_call"):
        seen.calls.append(Call(data["call_id"], data["name"], data["arguments"]))
    elif part["type"] == "text":
        seen.text += part["text"]
    elif part["type"] == "refusal":
        seen.refusal += part["refusal"]
    elif part["type"] != "data":
        seen.media.append(str(part.get("image_url") or part.get("file_url") or part.get("data")))


# ---------------------------------------------------------------------- anthropic-messages, by the anthropic SDK


def anthropic_talk(messages: Messages) -> Messages:
    """Chat messages as a Messages client would send the same talk: results are blocks of a user's message."""
    out: Messages = []
    for message in messages:
        if message["role"] == "tool":
            block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            if out[-1]["role"] == "user":
                out[-1]["content"].append(block)
            else:
                out.append({"role": "user", "content": [block]})
            continue
        content = message.get("content") or []
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else [_block(p) for p in content]
        for call in message.get("tool_calls") or []:
            function = call["function"]
            arguments = orjson.loads(function["arguments"])
            blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments})
        out.append({"role": message["role"], "content": blocks})
    return out


def _block(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return part
    url = part["image_url"]["url"]
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    mime, _, data = url.removeprefix("data:").partition(";base64,")
    return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}


async def anthropic_client(
    base: str, messages: Messages, *, stream: bool = True, seen: Seen | None = None, **more: Any
) -> Seen:
    """Through the real `anthropic` package. `messages` have the shape of chat completions."""
    seen = seen or Seen()
    tools = [
        {"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in more.pop("tools", [])
    ]
    asked: dict[str, Any] = {"model": "m", "max_tokens": 1000, "messages": anthropic_talk(messages), **more}
    if tools:
        asked["tools"] = tools
    http = anthropic.DefaultAsyncHttpxClient(verify=TLS)
    async with anthropic.AsyncAnthropic(
        base_url=f"{base}/claude", api_key="client-key", max_retries=0, timeout=60, http_client=http
    ) as client:
        try:
            if stream:
                await _anthropic_stream(client, asked, seen)
            else:
                _anthropic_message(await client.messages.create(**asked), seen)
        except anthropic.APIStatusError as error:
            body: Any = error.body
            seen.status, seen.error = error.status_code, body["error"]["message"]
            seen.error_code, seen.headers = body["error"]["type"], dict(error.response.headers)
    return seen


async def _anthropic_stream(client: anthropic.AsyncAnthropic, asked: dict[str, Any], seen: Seen) -> None:
    async with client.messages.stream(**asked) as running:
        pieces: dict[int, str] = {}
        async for event in running:
            if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                pieces[event.index] = pieces.get(event.index, "") + event.delta.partial_json
            if event.type == "text":
                seen.text += event.text
            elif event.type == "thinking":
                seen.reasoning += event.thinking
            if seen.text or seen.reasoning:
                seen.started.set()
        final = await running.get_final_message()
    text, reasoning = seen.text, seen.reasoning
    _anthropic_message(final, seen)
    assert (seen.text, seen.reasoning) == (text, reasoning)
    said = [pieces[n] for n, block in enumerate(final.content) if block.type == "tool_use"]
    for call, arguments in zip(seen.calls, said, strict=True):
        assert orjson.loads(arguments) == orjson.loads(call.arguments)
        call.arguments = arguments


def _anthropic_message(message: Any, seen: Seen) -> None:
    """The message, in the words by which the other clients tell theirs."""
    words = {"tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}
    seen.text = "".join(b.text for b in message.content if b.type == "text")
    seen.reasoning = "".join(b.thinking for b in message.content if b.type == "thinking")
    seen.calls = [Call(b.id, b.name, orjson.dumps(b.input).decode()) for b in message.content if b.type == "tool_use"]
    assert message.stop_reason
    seen.finish = words.get(message.stop_reason, "stop")
    usage = message.usage
    read = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    seen.usage = _told(usage.input_tokens + read, usage.output_tokens)


# ---------------------------------------------------------------------- openai-responses, by the openai SDK


def responses_input(messages: Messages) -> list[dict[str, Any]]:
    """Chat messages as a Responses client would send the same talk."""
    out: list[dict[str, Any]] = []
    for message in messages:
        content = message.get("content")
        if message["role"] == "tool":
            out.append({"type": "function_call_output", "call_id": message["tool_call_id"], "output": content})
            continue
        if content:
            parts = content if isinstance(content, str) else [_input_part(p) for p in content]
            out.append({"role": message["role"], "content": parts})
        for call in message.get("tool_calls") or []:
            out.append({"type": "function_call", "call_id": call["id"], **call["function"]})
    return out


def _input_part(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "input_text", "text": part["text"]}
    return {"type": "input_image", "detail": "auto", "image_url": part["image_url"]["url"]}


async def responses_client(
    base: str, messages: Messages, *, stream: bool = True, seen: Seen | None = None, **more: Any
) -> Seen:
    """Through the real `openai` package; every event and every answer is judged by its types, strictly."""
    seen = seen or Seen()
    more.pop("n", None)  # there is one answer only
    asked: dict[str, Any] = {"model": "m", "input": responses_input(messages), **more}
    if "tools" in more:
        asked["tools"] = [{"type": "function", "strict": False, **t["function"]} for t in more["tools"]]
    http = openai.DefaultAsyncHttpxClient(verify=TLS)
    async with openai.AsyncOpenAI(
        base_url=f"{base}/responses/v1", api_key="client-key", max_retries=0, timeout=60, http_client=http
    ) as client:
        try:
            if stream:
                await _responses_stream(client, asked, seen)
            else:
                whole = await client.responses.create(**asked)
                _responses_end(Response.model_validate(whole.to_dict(), strict=True), seen)
        except openai.APIStatusError as error:
            seen.status, seen.error, seen.error_code = error.status_code, error.message, error.code
            seen.headers = dict(error.response.headers)
        except openai.APIError as error:
            seen.error, seen.error_code = error.message, error.code
    return seen


async def _responses_stream(client: openai.AsyncOpenAI, asked: dict[str, Any], seen: Seen) -> None:
    """What came in pieces is what the pieces say; the last event must repeat it."""
    events: list[Any] = []
    async for event in await client.responses.create(**asked, stream=True):
        events.append(event)
        match event.type:
            case "response.output_text.delta":
                seen.text += event.delta
            case "response.refusal.delta":
                seen.refusal += event.delta
            case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
                seen.reasoning += event.delta
            case "response.reasoning_summary_part.added" if seen.reasoning:
                seen.reasoning += "\n\n"
            case "response.function_call_arguments.done":
                assert event.arguments
        if event.type.endswith(".delta"):
            seen.started.set()
    judge([e.to_dict() for e in events])
    whole = Seen()
    _responses_end(events[-1].response, whole)
    assert (whole.text, whole.refusal, whole.reasoning) == (seen.text, seen.refusal, seen.reasoning)
    seen.calls, seen.usage, seen.finish = whole.calls, whole.usage, whole.finish
    seen.error, seen.error_code = whole.error, whole.error_code
    seen.answer_id = whole.answer_id


_CUT = {"max_output_tokens": "length", "content_filter": "content_filter"}


def _responses_end(response: Response, seen: Seen) -> None:
    seen.answer_id = response.id
    for item in response.output:
        if item.type == "message":
            seen.text += "".join(p.text for p in item.content if p.type == "output_text")
            seen.refusal += "".join(p.refusal for p in item.content if p.type == "refusal")
        elif item.type == "reasoning":
            seen.reasoning += "\n\n".join(part.text for part in [*item.summary, *(item.content or [])])
        elif item.type == "function_call":
            seen.calls.append(Call(item.call_id, item.name, item.arguments))
    if response.usage is not None:
        seen.usage = _told(response.usage.input_tokens, response.usage.output_tokens)
    if response.error is not None:
        assert response.status == "failed"
        seen.error, seen.error_code = response.error.message, response.error.type
    elif response.status == "incomplete":
        assert response.incomplete_details is not None
        seen.finish = _CUT[response.incomplete_details.reason or ""]
    else:
        assert response.status == "completed"
        seen.finish = "tool_calls" if seen.calls else "stop"


CLIENTS: dict[str, Client] = {
    "openai-chat": openai_client,
    "agentscope": agentscope_client,
    "anthropic-messages": anthropic_client,
    "openai-responses": responses_client,
}


def routes(backend: str, url: str, **section: Any) -> dict[str, Any]:
    """A configuration with all these fronts over one backend dialect."""
    return {
        "backends": {"it": {"dialect": backend, "url": url, "api_key": "backend-key", **section}},
        "routes": [
            {"dialect": "openai-chat", "path": "/chat/v1", "backend": "it"},
            {"dialect": "agentscope", "path": "/scope", "backend": "it"},
            {"dialect": "anthropic-messages", "path": "/claude/v1", "backend": "it"},
            {"dialect": "openai-responses", "path": "/responses/v1", "backend": "it"},
        ],
    }
