"""A backend of each dialect that talks: it hears a request as its protocol means it, and says what the scene wants.

Those that keep the talk by an id really keep it, so that what they hear is the talk as such a server would know it,
with every loss and every repetition. They refuse what the real ones refuse.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from tests.server.harness import Exchange, FakeBackend

Wire = dict[str, Any]


# ---------------------------------------------------------------------- what an agent does, in no dialect


@dataclass
class Say:
    text: str


@dataclass
class Think:
    text: str


@dataclass
class Use:
    """A call of a tool that the client offered."""

    id: str
    name: str
    arguments: str


@dataclass
class Ran:
    """A tool that the agent ran itself."""

    id: str
    name: str
    arguments: str
    result: str


@dataclass
class Ask:
    """An interrupt."""

    id: str
    payload: Any
    reason: str = "confirmation"
    call_id: str | None = None


@dataclass
class Fall:
    """The run breaks, and says so."""


@dataclass
class Hang:
    """Nothing more comes until the bridge leaves."""


Step = Say | Think | Use | Ran | Ask | Fall | Hang


@dataclass
class Heard:
    """One request. `talk` is all that the agent knows.

    Its entries: (role, text), ("call", id, name, arguments), ("result", id, text). `resume` is the answer to its
    interrupt, `tools` are the names that were offered.
    """

    talk: list[tuple[Any, ...]]
    tools: list[str]
    resume: Any = None
    resumed: str | None = None
    refused: bool = False
    images: list[str] = field(default_factory=list)

    @property
    def last(self) -> tuple[Any, ...]:
        return self.talk[-1]

    @property
    def spoken(self) -> list[tuple[Any, ...]]:
        """The texts alone."""
        return [entry for entry in self.talk if entry[0] in ("system", "user", "assistant")]


Brain = Callable[[Heard], list[Step]]
BREAKS = "the model fell over"


class Agent:
    """`brain` decides; `heard` holds the requests in order.

    `remembers`: it keeps the talk by an id. `remembered`: somebody in front of it does, and tells it all.
    """

    dialect: str
    remembers = False
    remembered = False
    interrupts = True
    runs_tools = True
    takes_images = True
    options: Wire = {}  # noqa: RUF012

    def __init__(self, backend: FakeBackend) -> None:
        self.backend = backend
        self.heard: list[Heard] = []
        self.brain: Brain = lambda heard: [Say("ok")]
        self.hanging = asyncio.Event()
        backend.plays(self._play)

    @property
    def url(self) -> str:
        return self.backend.url

    @asynccontextmanager
    async def served(self, folder: Path) -> AsyncIterator[str]:
        """Where it is called while the block runs."""
        yield self.url

    async def left(self, number: int) -> None:
        """Waits until its caller has left this run."""
        await self.backend.seen[number].gone.wait()

    def hear(self, body: Wire) -> Heard:
        """What the request means to this agent, with its memory."""
        raise NotImplementedError

    def remember(self, body: Wire, steps: list[Step]) -> None:
        """The run came to its end."""

    def wire(self, steps: list[Step]) -> Iterator[Wire | bytes]:
        raise NotImplementedError

    async def _play(self, exchange: Exchange) -> None:
        body = exchange.seen.json
        heard = self.hear(body)
        self.heard.append(heard)
        steps = self.brain(heard)
        await exchange.head()
        for event in self.wire(steps):
            data = event if isinstance(event, bytes) else orjson.dumps(event)
            await exchange.send(b"data: " + data + b"\n\n")
        if any(isinstance(s, Hang) for s in steps):
            self.hanging.set()
            await exchange.left()
            return
        self.remember(body, steps)
        await exchange.end()


def halves(text: str) -> list[str]:
    return [piece for piece in (text[: len(text) // 2], text[len(text) // 2 :]) if piece]


# ---------------------------------------------------------------------- openai-chat


class Chat(Agent):
    dialect = "openai-chat"
    interrupts = False
    runs_tools = False

    @property
    def url(self) -> str:
        return f"{self.backend.url}/v1"

    def hear(self, body: Wire) -> Heard:
        names = [t["function"]["name"] for t in body.get("tools") or []]
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", n) for n in names)
        heard = Heard([], names)
        waiting: list[str] = []
        for message in body["messages"]:
            if message["role"] == "tool":
                waiting.remove(message["tool_call_id"])
                heard.talk.append(("result", message["tool_call_id"], message["content"]))
                continue
            # As the real service: 400 "must be followed by tool messages responding to each 'tool_call_id'".
            assert not waiting, f"calls without results: {waiting}"
            _say(heard, message["role"], message.get("content"))
            for call in message.get("tool_calls") or []:
                function = call["function"]
                assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", function["name"])
                heard.talk.append(("call", call["id"], function["name"], function["arguments"]))
                waiting.append(call["id"])
        assert not waiting, f"calls without results: {waiting}"
        return heard

    def wire(self, steps: list[Step]) -> Iterator[Wire | bytes]:
        base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m-1"}

        def chunk(delta: Wire, finish: str | None = None) -> Wire:
            return {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

        yield chunk({"role": "assistant", "content": ""})
        calls = 0
        for step in steps:
            match step:
                case Say(text):
                    yield from (chunk({"content": piece}) for piece in halves(text))
                case Think(text):
                    yield from (chunk({"reasoning_content": piece}) for piece in halves(text))
                case Use(call_id, name, arguments):
                    function = {"name": name, "arguments": ""}
                    yield chunk(
                        {"tool_calls": [{"index": calls, "id": call_id, "type": "function", "function": function}]}
                    )
                    for piece in halves(arguments):
                        yield chunk({"tool_calls": [{"index": calls, "function": {"arguments": piece}}]})
                    calls += 1
                case Fall():
                    yield {"error": {"message": BREAKS, "type": "server_error", "code": None}}
                    return
                case Hang():
                    return
        yield chunk({}, "tool_calls" if calls else "stop")
        yield b"[DONE]"


def _say(heard: Heard, role: str, content: Any) -> None:
    """A message's content: text, or parts with pictures."""
    if isinstance(content, list):
        heard.images += [p["image_url"]["url"] for p in content if p["type"] == "image_url"]
        content = "".join(p["text"] for p in content if p["type"] == "text")
    if content:
        heard.talk.append((role, content))


# ---------------------------------------------------------------------- anthropic-messages


class Claude(Agent):
    dialect = "anthropic-messages"
    interrupts = False
    runs_tools = False

    def hear(self, body: Wire) -> Heard:
        heard = Heard([], [t["name"] for t in body.get("tools") or []])
        assert isinstance(body["max_tokens"], int)
        if system := body.get("system"):
            heard.talk.append(("system", system))
        waiting: list[str] = []
        role = ""
        for message in body["messages"]:
            assert message["role"] != role, "roles take turns"
            role, content = message["role"], message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            # As the real service: 400 "`tool_use` ids were found without `tool_result` blocks immediately after".
            answered = [b["tool_use_id"] for b in blocks[: len(waiting)] if b["type"] == "tool_result"]
            assert sorted(answered) == sorted(waiting)
            waiting = [b["id"] for b in blocks if b["type"] == "tool_use"]
            self._blocks(heard, role, blocks)
        assert not waiting, f"calls without results: {waiting}"
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", e[2]) for e in heard.talk if e[0] == "call")
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", name) for name in heard.tools)
        return heard

    def _blocks(self, heard: Heard, role: str, blocks: list[Wire]) -> None:
        """Texts of one message that follow each other are one."""
        texts: list[str] = []
        for block in [*blocks, {"type": "end"}]:
            if block["type"] == "text":
                assert block["text"].strip()
                texts.append(block["text"])
                continue
            if texts and block["type"] != "image":
                # People who left in the middle of an answer say the next thing in the same message.
                heard.talk += [(role, text) for text in (texts if role == "user" else ["".join(texts)])]
                texts = []
            match block["type"]:
                case "tool_use":
                    heard.talk.append(("call", block["id"], block["name"], orjson.dumps(block["input"]).decode()))
                case "tool_result":
                    heard.talk.append(("result", block["tool_use_id"], block["content"]))
                case "image":
                    source = block["source"]
                    heard.images.append(f"data:{source['media_type']};base64,{source['data']}")
                case "thinking":
                    assert block["signature"] == "c2ln"

    def wire(self, steps: list[Step]) -> Iterator[Wire | bytes]:
        usage = {"input_tokens": 9, "output_tokens": 1}
        head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": [], "usage": usage}
        yield {"type": "message_start", "message": {**head, "stop_reason": None, "stop_sequence": None}}
        calls = False
        for index, step in enumerate(steps):
            match step:
                case Say(text):
                    deltas = [{"type": "text_delta", "text": piece} for piece in halves(text)]
                    block: Wire = {"type": "text", "text": ""}
                case Think(text):
                    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in halves(text)]
                    deltas.append({"type": "signature_delta", "signature": "c2ln"})
                    block = {"type": "thinking", "thinking": "", "signature": ""}
                case Use(call_id, name, arguments):
                    deltas = [{"type": "input_json_delta", "partial_json": p} for p in ["", *halves(arguments)]]
                    block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
                    calls = True
                case Fall():
                    yield {"type": "error", "error": {"type": "api_error", "message": BREAKS}}
                    return
                case _:
                    return
            yield {"type": "content_block_start", "index": index, "content_block": block}
            yield from ({"type": "content_block_delta", "index": index, "delta": d} for d in deltas)
            yield {"type": "content_block_stop", "index": index}
        delta = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 4}}
        yield {"type": "message_stop"}


# ---------------------------------------------------------------------- openai-responses


class Responses(Chat):
    dialect = "openai-responses"

    def hear(self, body: Wire) -> Heard:
        assert body["store"] is False
        heard = Heard([], [t["name"] for t in body.get("tools") or []])
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", n) for n in heard.tools)
        _say(heard, "system", body.get("instructions"))
        waiting: list[str] = []
        for item in body["input"]:
            match item["type"]:
                case "message":
                    # As the real service: 400 "No tool output found for function call".
                    assert not waiting, f"calls without results: {waiting}"
                    _say_items(heard, item["role"], item["content"])
                case "function_call":
                    heard.talk.append(("call", item["call_id"], item["name"], item["arguments"]))
                    waiting.append(item["call_id"])
                case "function_call_output":
                    waiting.remove(item["call_id"])
                    heard.talk.append(("result", item["call_id"], item["output"]))
                case "reasoning":
                    assert item.get("content") or item.get("encrypted_content"), "an id that nobody stored"
                case other:
                    raise AssertionError(f"nobody sends {other}")
        assert not waiting, f"calls without results: {waiting}"
        return heard

    def wire(self, steps: list[Step]) -> Iterator[Wire | bytes]:
        head = {"id": "resp_1", "object": "response", "created_at": 1_700_000_000, "model": "m-1"}
        output: list[Wire] = []
        yield {"type": "response.created", "response": {**head, "status": "in_progress", "output": []}}
        for step in steps:
            if isinstance(step, Fall):
                error = {"code": "server_error", "message": BREAKS}
                yield {
                    "type": "response.failed",
                    "response": {**head, "status": "failed", "error": error, "output": []},
                }
                return
            if isinstance(step, Hang):
                return
            item, kind, text = _responses_item(step, len(output))
            place = {"output_index": len(output), "item_id": item["id"]}
            empty = {"message": {"content": []}, "reasoning": {"content": []}, "function_call": {"arguments": ""}}
            yield {"type": "response.output_item.added", **place, "item": {**item, **empty[item["type"]]}}
            yield from ({"type": kind, **place, "content_index": 0, "delta": piece} for piece in halves(text))
            output.append(item)
            yield {"type": "response.output_item.done", **place, "item": item}
        yield {"type": "response.completed", "response": {**head, "status": "completed", "output": output}}


def _responses_item(step: Step, number: int) -> tuple[Wire, str, str]:
    """The item, the type of its deltas, and the text that they cut in two."""
    match step:
        case Say(text):
            content = [{"type": "output_text", "text": text, "annotations": []}]
            item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": content}
            return {**item, "status": "completed"}, "response.output_text.delta", text
        case Think(text):
            content = [{"type": "reasoning_text", "text": text}]
            item = {"type": "reasoning", "id": f"rs_{number}", "summary": [], "content": content}
            return item, "response.reasoning_text.delta", text
        case Use(call_id, name, arguments):
            call = {"call_id": call_id, "name": name, "arguments": arguments, "status": "completed"}
            item = {"type": "function_call", "id": f"fc_{number}", **call}
            return item, "response.function_call_arguments.delta", arguments
    raise AssertionError(f"this wire has no word for {step}")


def _say_items(heard: Heard, role: str, content: Any) -> None:
    if isinstance(content, list):
        heard.images += [p["image_url"] for p in content if p["type"] == "input_image"]
        content = "".join(p["text"] for p in content if p["type"] in ("input_text", "output_text"))
    _say(heard, role, content)


# ---------------------------------------------------------------------- agentscope


class Scope(Agent):
    """Keeps what it heard by `session_id`."""

    dialect = "agentscope"
    remembers = True

    def __init__(self, backend: FakeBackend) -> None:
        super().__init__(backend)
        self.sessions: dict[str, list[tuple[Any, ...]]] = {}

    def hear(self, body: Wire) -> Heard:
        talk = self.sessions.setdefault(body["session_id"], [])
        heard = Heard(talk, [t["function"]["name"] for t in body.get("tools") or []])
        for message in body["input"]:
            self._message(heard, message)
        heard.talk = list(talk)
        return heard

    def _message(self, heard: Heard, message: Wire) -> None:
        for part in message["content"]:
            data = part.get("data")
            if message["type"] == "mcp_approval_response":
                heard.resume, heard.resumed = data["approve"], data["id"]
                heard.refused = not data["approve"]
            elif message["type"].endswith("_call_output"):
                open_calls = [e[1] for e in heard.talk if e[0] == "call"]
                assert data["call_id"] in open_calls, "a result whose call this session does not know"
                heard.talk.append(("result", data["call_id"], data["output"]))
            elif message["type"].endswith("_call"):
                heard.talk.append(("call", data["call_id"], data["name"], data["arguments"]))
            elif part["type"] == "text" and message["type"] == "message":
                heard.talk.append((message["role"], part["text"]))
            elif part["type"] == "image":
                heard.images.append(part["image_url"])

    def remember(self, body: Wire, steps: list[Step]) -> None:
        self.sessions[body["session_id"]] += said(steps)

    def wire(self, steps: list[Step]) -> Iterator[Wire | bytes]:
        head = {"object": "response", "id": "response_1", "created_at": 1_700_000_000, "session_id": "s"}
        output: list[Wire] = []
        events: list[Wire] = [{**head, "status": s, "output": None} for s in ("created", "in_progress")]
        for step in steps:
            if isinstance(step, Fall):
                error = {"code": "AGENT_ERROR", "message": BREAKS}
                events.append({**head, "status": "failed", "error": error, "output": None})
                break
            if isinstance(step, Hang):
                break
            for kind, role, content in _scope_messages(step):
                name = f"msg_{len(output)}"
                opened = {"object": "message", "id": name, "type": kind, "role": role}
                content = {"object": "content", "index": 0, "msg_id": name, **content}
                events.append({**opened, "status": "in_progress", "content": None})
                if "text" in content:
                    events += [
                        {**content, "status": "in_progress", "delta": True, "text": t} for t in halves(content["text"])
                    ]
                done = {**content, "status": "completed", "delta": False}
                output.append({**opened, "status": "completed", "content": [done]})
                events += [done, output[-1]]
        else:
            events.append({**head, "status": "completed", "output": output})
        for number, event in enumerate(events):
            yield {"sequence_number": number, "error": None, **event}


def _scope_messages(step: Step) -> list[tuple[str, str, Wire]]:
    def data(**value: Any) -> Wire:
        return {"type": "data", "data": value}

    match step:
        case Say(text):
            return [("message", "assistant", {"type": "text", "text": text})]
        case Think(text):
            return [("reasoning", "assistant", {"type": "text", "text": text})]
        case Use(call_id, name, arguments):
            return [("plugin_call", "assistant", data(call_id=call_id, name=name, arguments=arguments))]
        case Ran(call_id, name, arguments, result):
            return [
                ("plugin_call", "assistant", data(call_id=call_id, name=name, arguments=arguments)),
                ("plugin_call_output", "tool", data(call_id=call_id, name=name, output=result)),
            ]
        case Ask(interrupt_id, payload):
            asked = {"id": interrupt_id, "server_label": "s", **payload}
            return [("mcp_approval_request", "assistant", data(**asked))]
    return []


def said(steps: list[Step]) -> list[tuple[Any, ...]]:
    """What an agent that remembers keeps of its own answer."""
    out: list[tuple[Any, ...]] = []
    for step in steps:
        match step:
            case Say(text):
                out.append(("assistant", text))
            case Use(call_id, name, arguments):
                out.append(("call", call_id, name, arguments))
            case Ran(call_id, name, arguments, result):
                out += [("call", call_id, name, arguments), ("result", call_id, result)]
    return out


# ---------------------------------------------------------------------- ag-kit


class Kit(Agent):
    """Generation 1: keeps what it heard by `conversationId`."""

    dialect = "ag-kit"
    remembers = True
    takes_images = False

    def __init__(self, backend: FakeBackend) -> None:
        super().__init__(backend)
        self.conversations: dict[str, list[tuple[Any, ...]]] = {}
        self.waiting: set[str] = set()

    def hear(self, body: Wire) -> Heard:
        talk = self.conversations.setdefault(body["conversationId"], [])
        for tool in body.get("tools") or []:
            assert isinstance(json.loads(tool["parameters"]), dict)
            assert isinstance(tool["description"], str)
        for message in body.get("messages") or []:
            # The reference server breaks off on replayed calls (capture g1-assistant-toolcalls).
            assert not message.get("toolCalls")
            if message["role"] == "tool":
                assert message["toolCallId"] in [e[1] for e in talk if e[0] == "call"]
                talk.append(("result", message["toolCallId"], message["content"]))
            else:
                talk.append((message["role"], message["content"]))
        heard = Heard(list(talk), [t["name"] for t in body.get("tools") or []])
        if resume := body.get("resume"):
            assert isinstance(resume["payload"], str)
            heard.resume, heard.resumed = resume["payload"], resume["interruptId"]
            self.waiting.discard(body["conversationId"])
        return heard

    def remember(self, body: Wire, steps: list[Step]) -> None:
        self.conversations[body["conversationId"]] += said(steps)
        if any(isinstance(s, Ask) for s in steps):
            self.waiting.add(body["conversationId"])

    def wire(self, steps: list[Step]) -> Iterator[Wire | bytes]:
        for step in steps:
            match step:
                case Say(text):
                    yield from ({"type": "text", "content": piece} for piece in halves(text))
                case Use(call_id, name, arguments) | Ran(call_id, name, arguments):
                    yield {"type": "tool-call-start", "toolCallId": call_id, "toolCallName": name}
                    for piece in halves(arguments):
                        yield {"type": "tool-call-args", "toolCallId": call_id, "delta": piece}
                    yield {"type": "tool-call-end", "toolCallId": call_id}
                    if isinstance(step, Ran):
                        yield {"type": "tool-result", "toolCallId": call_id, "result": step.result}
                case Ask(interrupt_id, payload, reason):
                    yield {"type": "interrupt", "id": interrupt_id, "reason": reason, "payload": payload}
                case Fall():
                    yield {"type": "error", "error": BREAKS}
                case Hang():
                    return
        yield b"[DONE]"


# ---------------------------------------------------------------------- ag-ui


class Agui(Agent):
    dialect = "ag-ui"

    def hear(self, body: Wire) -> Heard:
        ids = [m["id"] for m in body["messages"]]
        assert len(ids) == len(set(ids))
        heard = Heard([], [t["name"] for t in body["tools"]])
        for message in body["messages"]:
            agui_message(heard, message)
        for entry in body.get("resume") or []:
            heard.resume, heard.resumed = entry.get("payload"), entry["interruptId"]
            heard.refused = entry["status"] == "cancelled"
        return heard

    def wire(self, steps: list[Step]) -> Iterator[Wire | bytes]:
        run = {"threadId": "t", "runId": "r"}
        yield {"type": "RUN_STARTED", **run}
        asked: list[Wire] = []
        for number, step in enumerate(steps):
            match step:
                case Ask(interrupt_id, payload, reason, call_id):
                    call = {"toolCallId": call_id} if call_id else {}
                    asked.append({"id": interrupt_id, "reason": reason, **call, **payload})
                case Fall():
                    yield {"type": "RUN_ERROR", "message": BREAKS}
                    return
                case Hang():
                    return
                case _:
                    yield from agui_events(step, f"m{len(self.heard)}-{number}")
        outcome = {"outcome": {"type": "interrupt", "interrupts": asked}} if asked else {}
        yield {"type": "RUN_FINISHED", **run, **outcome}


def agui_message(heard: Heard, message: Wire) -> None:
    content = message.get("content")
    if message["role"] == "tool":
        heard.talk.append(("result", message["toolCallId"], content))
        return
    if isinstance(content, list):
        for part in content:
            if part["type"] in ("binary", "image"):
                source = part.get("source") or part
                url = source.get("url") or source.get("value")
                data = source.get("data")
                mime = source.get("mimeType")
                heard.images.append(
                    f"data:{mime};base64,{data or url}" if data or source.get("type") == "data" else url
                )
        content = "".join(p["text"] for p in content if p["type"] == "text")
    if content and message["role"] in ("system", "user", "assistant"):
        heard.talk.append((message["role"], content))
    for call in message.get("toolCalls") or []:
        heard.talk.append(("call", call["id"], call["function"]["name"], call["function"]["arguments"]))


def agui_events(step: Step, name: str) -> Iterator[Wire]:
    match step:
        case Say(text):
            yield {"type": "TEXT_MESSAGE_START", "messageId": name, "role": "assistant"}
            for piece in halves(text):
                yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": name, "delta": piece}
            yield {"type": "TEXT_MESSAGE_END", "messageId": name}
        case Think(text):
            yield {"type": "REASONING_START", "messageId": name}
            yield {"type": "REASONING_MESSAGE_START", "messageId": name, "role": "reasoning"}
            for piece in halves(text):
                yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": name, "delta": piece}
            yield {"type": "REASONING_MESSAGE_END", "messageId": name}
            yield {"type": "REASONING_END", "messageId": name}
        case Use(call_id, tool, arguments) | Ran(call_id, tool, arguments):
            yield {"type": "TOOL_CALL_START", "toolCallId": call_id, "toolCallName": tool, "parentMessageId": "calls"}
            for piece in halves(arguments):
                yield {"type": "TOOL_CALL_ARGS", "toolCallId": call_id, "delta": piece}
            yield {"type": "TOOL_CALL_END", "toolCallId": call_id}
            if isinstance(step, Ran):
                yield {
                    "type": "TOOL_CALL_RESULT",
                    "toolCallId": call_id,
                    "messageId": f"{name}-result",
                    "content": step.result,
                }


class Kit2(Kit):
    """Generation 2: AG-UI on the same path; keeps what it heard by `threadId`, compared by message ids."""

    options: Wire = {"generation": 2}  # noqa: RUF012
    takes_images = True

    def __init__(self, backend: FakeBackend) -> None:
        super().__init__(backend)
        self.known: dict[str, set[str]] = {}

    def hear(self, body: Wire) -> Heard:
        talk = self.conversations.setdefault(body["threadId"], [])
        known = self.known.setdefault(body["threadId"], set())
        heard = Heard(talk, [t["name"] for t in body.get("tools") or []])
        for message in body["messages"]:
            if message["id"] not in known:
                known.add(message["id"])
                agui_message(heard, message)
        heard.talk = list(talk)
        command = (body.get("forwardedProps") or {}).get("command") or {}
        if "resume" in command:
            heard.resume = command["resume"]
        return heard

    def remember(self, body: Wire, steps: list[Step]) -> None:
        self.conversations[body["threadId"]] += said(steps)

    def wire(self, steps: list[Step]) -> Iterator[Wire | bytes]:
        run = {"threadId": "t", "runId": "r"}
        yield {"type": "RUN_STARTED", **run}
        for number, step in enumerate(steps):
            match step:
                case Ask(payload=payload):
                    yield {"type": "CUSTOM", "name": "on_interrupt", "value": orjson.dumps(payload).decode()}
                case Think(text):
                    yield {"type": "THINKING_START"}
                    yield {"type": "THINKING_TEXT_MESSAGE_START"}
                    yield {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": text}
                    yield {"type": "THINKING_TEXT_MESSAGE_END"}
                    yield {"type": "THINKING_END"}
                case Fall():
                    yield {"type": "RUN_ERROR", "message": BREAKS}
                    return
                case Hang():
                    return
                case _:
                    yield from agui_events(step, f"m{len(self.heard)}-{number}")
        yield {"type": "RUN_FINISHED", **run}


AGENTS: dict[str, type[Agent]] = {
    "openai-chat": Chat,
    "anthropic-messages": Claude,
    "openai-responses": Responses,
    "agentscope": Scope,
    "ag-kit": Kit,
    "ag-kit-2": Kit2,
    "ag-ui": Agui,
}
