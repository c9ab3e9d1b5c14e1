"""Somebody at a frontend of each dialect who talks over several turns, and sends back what such frontends send back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson
from ag_ui.core import Event as AguiEvent
from pydantic import TypeAdapter

from tests.pairs.clients import Call, Client, Seen, agentscope_client, anthropic_client, openai_client, responses_client

Wire = dict[str, Any]
_EVENTS: TypeAdapter[Any] = TypeAdapter(AguiEvent)


def tool(name: str) -> Wire:
    """A tool as OpenAI writes it; each person says it in the own dialect."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "description": "A tool", "parameters": schema}}


@dataclass
class Question:
    """An interrupt as a client was told of it."""

    id: str
    payload: Any
    call_id: str | None = None


class Person:
    """`thread` names the conversation. `seen` is what the last answer amounted to."""

    route: str
    dialect: str
    knows_interrupts = True

    def __init__(self, base: str, thread: str, tools: tuple[str, ...] = ()) -> None:
        self.base = base
        self.thread = thread
        self.tools = [tool(name) for name in tools]
        self.seen = Seen()
        self.asked: list[Question] = []

    async def say(self, text: str, image: str | None = None) -> Seen:
        raise NotImplementedError

    async def answer(self, results: Mapping[str, str]) -> Seen:
        """Results of calls, by call id."""
        raise NotImplementedError

    async def resume(self, payload: Any) -> Seen:
        """Answers the interrupt as people at this frontend do."""
        raise NotImplementedError


class ChatPerson(Person):
    """The `openai` SDK: the whole talk every time, and no conversation id unless `named`."""

    route = "/chat/v1"
    dialect = "openai-chat"
    knows_interrupts = False
    named = False
    client: Client = staticmethod(openai_client)

    def __init__(self, base: str, thread: str, tools: tuple[str, ...] = ()) -> None:
        super().__init__(base, thread, tools)
        self.messages: list[Wire] = []

    async def say(self, text: str, image: str | None = None) -> Seen:
        parts = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": image}}]
        return await self._send({"role": "user", "content": parts if image else text})

    async def answer(self, results: Mapping[str, str]) -> Seen:
        return await self._send(*({"role": "tool", "tool_call_id": i, "content": t} for i, t in results.items()))

    async def resume(self, payload: Any) -> Seen:
        text = payload if isinstance(payload, str) else orjson.dumps(payload).decode()
        if self.seen.calls:
            return await self.answer({self.seen.calls[-1].id: text})
        return await self.say(text)

    async def _send(self, *new: Wire) -> Seen:
        self.messages += new
        more: Wire = {"tools": self.tools} if self.tools else {}
        if self.named:
            more["metadata"] = {"thread_id": self.thread}
        self.seen = seen = Seen()
        await self.client(self.base, list(self.messages), seen=seen, **more)
        if seen.error is None and (seen.text or seen.calls):
            calls = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in seen.calls
            ]
            self.messages.append(
                {"role": "assistant", "content": seen.text or None, **({"tool_calls": calls} if calls else {})}
            )
        return seen


class NamedChatPerson(ChatPerson):
    named = True


class ClaudePerson(ChatPerson):
    """The `anthropic` SDK: the whole talk every time. `messages` are kept as chat writes them."""

    route = "/claude/v1"
    dialect = "anthropic-messages"
    client = staticmethod(anthropic_client)


class ResponsesPerson(ChatPerson):
    """The same SDK's other API: the whole talk every time, as items."""

    route = "/responses/v1"
    dialect = "openai-responses"
    client: Client = staticmethod(responses_client)


class ContinuingPerson(ResponsesPerson):
    """The same, sending what is new since the last answer that it has, after the id of that answer."""

    last: str | None = None

    async def _send(self, *new: Wire) -> Seen:
        self.messages += new
        more: Wire = {"tools": self.tools} if self.tools else {}
        if self.last is not None:
            more["previous_response_id"] = self.last
        self.seen = seen = Seen()
        await self.client(self.base, list(self.messages), seen=seen, **more)
        if seen.error is None:
            self.messages, self.last = [], seen.answer_id
        return seen


class ScopePerson(Person):
    """AgentScope's web frontend: what is new, under a session id."""

    route = "/scope"
    dialect = "agentscope"

    async def say(self, text: str, image: str | None = None) -> Seen:
        parts = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": image}}]
        return await self._send([{"role": "user", "content": parts if image else text}])

    async def answer(self, results: Mapping[str, str]) -> Seen:
        return await self._send([{"role": "tool", "tool_call_id": i, "content": t} for i, t in results.items()])

    async def resume(self, payload: Any) -> Seen:
        """The buttons of the frontend say yes or no (agentscope protocol page, section 4)."""
        data = {"approve": payload in (True, "yes"), "id": self.asked[0].id, "approval_request_id": self.asked[0].id}
        return await self._send([], [{"type": "mcp_approval_response", "role": "user", "content": [_data(data)]}])

    async def _send(self, messages: list[Wire], more: list[Wire] | None = None) -> Seen:
        self.seen = Seen()
        extra: Wire = {"tools": self.tools} if self.tools else {}
        await agentscope_client(
            self.base, messages, seen=self.seen, session_id=self.thread, more_input=more or [], **extra
        )
        self.asked = [Question(a["id"], a.get("arguments"), a.get("call_id")) for a in self.seen.asked]
        return self.seen


def _data(value: Wire) -> Wire:
    return {"type": "data", "data": value}


async def _events(url: str, body: Wire, seen: Seen) -> AsyncIterator[bytes]:
    """The data of each event; an answer that is no stream becomes the error of `seen`."""
    async with (
        aiohttp.ClientSession(read_bufsize=2**26) as session,
        session.post(url, json=body) as response,
    ):
        seen.status, seen.headers = response.status, {k.lower(): v for k, v in response.headers.items()}
        if response.status != 200:
            seen.error = (await response.read()).decode()
            return
        rest = b""
        async for data in response.content.iter_any():
            *events, rest = (rest + data).split(b"\n\n")
            for event in events:
                if not event.startswith(b":"):
                    assert event.startswith(b"data: ")
                    yield event[6:]
        assert rest == b""


class KitPerson(Person):
    """AG-Kit, generation 1: what is new, under a conversation id."""

    route = "/kit"
    dialect = "ag-kit"

    def __init__(self, base: str, thread: str, tools: tuple[str, ...] = ()) -> None:
        super().__init__(base, thread, tools)
        self.told: set[str] = set()

    async def say(self, text: str, image: str | None = None) -> Seen:
        assert image is None, "this wire takes no pictures"
        return await self._send(messages=[{"role": "user", "content": text}])

    async def answer(self, results: Mapping[str, str]) -> Seen:
        return await self._send(messages=[{"role": "tool", "toolCallId": i, "content": t} for i, t in results.items()])

    async def resume(self, payload: Any) -> Seen:
        return await self._send(resume={"interruptId": self.asked[0].id, "payload": payload})

    async def _send(self, **body: Any) -> Seen:
        self.seen = seen = Seen(finish="stop")
        tools = [
            {**t["function"], "parameters": orjson.dumps(t["function"]["parameters"]).decode()} for t in self.tools
        ]
        whole = {"conversationId": self.thread, **({"tools": tools} if tools else {}), **body}
        calls: dict[str, Call] = {}
        ended: set[str] = set()
        asked: list[Question] = []
        done = False
        async for data in _events(f"{self.base}{self.route}/send-message", whole, seen):
            assert not done, "something after [DONE]"
            if data == b"[DONE]":
                done = True
                continue
            event = orjson.loads(data)
            match event["type"]:
                case "text":
                    assert set(calls) == ended, "a text between the pieces of a call"
                    seen.text += event["content"]
                case "tool-call-start":
                    assert set(calls) == ended
                    call = calls[event["toolCallId"]] = Call(event["toolCallId"], event["toolCallName"], "")
                    seen.calls.append(call)
                case "tool-call-args":
                    calls[event["toolCallId"]].arguments += event["delta"]
                case "tool-call-end":
                    ended.add(event["toolCallId"])
                    self.told.add(event["toolCallId"])
                case "tool-result":
                    # A call that waited for a person has its result in the run that goes on.
                    assert event["toolCallId"] in self.told
                    seen.results.append((event["toolCallId"], event["result"]))
                case "interrupt":
                    assert isinstance(event["reason"], str)
                    asked.append(Question(event["id"], event["payload"]))
                case "error":
                    seen.error = event["error"]
                case other:
                    raise AssertionError(f"no event of this wire: {other}")
            seen.started.set()
        assert done or seen.status != 200
        self.asked = asked
        return seen


class AguiPerson(Person):
    """A client of AG-UI 1.0: the whole talk every time, with ids, as its events built it."""

    route = "/agui"
    dialect = "ag-ui"
    version: str | None = "1.0"

    def __init__(self, base: str, thread: str, tools: tuple[str, ...] = ()) -> None:
        super().__init__(base, thread, tools)
        self.messages: list[Wire] = []
        self.runs = 0

    @property
    def url(self) -> str:
        return f"{self.base}{self.route}"

    async def say(self, text: str, image: str | None = None) -> Seen:
        content: Any = text
        if image is not None:
            mime, _, value = image.removeprefix("data:").partition(";base64,")
            source = {"type": "data", "value": value, "mimeType": mime} if value else {"type": "url", "value": image}
            content = [{"type": "text", "text": text}, {"type": "image", "source": source}]
        return await self._send([{"role": "user", "content": content}])

    async def answer(self, results: Mapping[str, str]) -> Seen:
        return await self._send([{"role": "tool", "toolCallId": i, "content": t} for i, t in results.items()])

    async def resume(self, payload: Any) -> Seen:
        entries = [{"interruptId": q.id, "status": "resolved", "payload": payload} for q in self.asked]
        return await self._send([], resume=entries)

    def body(self, new: list[Wire], **more: Any) -> Wire:
        """The request; `new` joins the talk."""
        self.runs += 1
        run = f"{self.thread}-run{self.runs}"
        self.messages += [{"id": f"{run}-{n}", **m} for n, m in enumerate(new)]
        version = {"protocolVersion": self.version} if self.version else {}
        return {
            "threadId": self.thread,
            "runId": run,
            "messages": list(self.messages),
            "tools": [t["function"] for t in self.tools],
            "context": [],
            "state": {},
            "forwardedProps": {},
            **version,
            **more,
        }

    async def _send(self, new: list[Wire], **more: Any) -> Seen:
        body = self.body(new, **more)
        self.seen = seen = Seen(finish="stop")
        fold = AguiFold(seen, self.messages)
        async for data in _events(self.url, body, seen):
            fold.event(orjson.loads(data))
        fold.end()
        self.asked = fold.asked
        return seen


@dataclass
class AguiFold:
    """Builds messages as the official client does (ag-ui protocol page, section 4), and refuses what it refuses."""

    seen: Seen
    messages: list[Wire]
    open: dict[str, Wire] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)
    asked: list[Question] = field(default_factory=list)
    over: bool = False
    count: int = 0

    def event(self, event: Wire) -> None:
        if event["type"].startswith("THINKING_"):  # of before 1.0: no ids, and no message that comes back
            self.seen.reasoning += event.get("delta", "")
            self.seen.started.set()
            return
        _EVENTS.validate_python(event)
        assert not self.over, "an event after the end"
        assert (event["type"] in ("RUN_STARTED", "RUN_ERROR")) is (self.count == 0) or event["type"] == "RUN_ERROR"
        self.count += 1
        seen = self.seen
        match event["type"]:
            case "TEXT_MESSAGE_START":
                self._open(event["messageId"], {"role": "assistant", "content": ""})
            case "TEXT_MESSAGE_CONTENT":
                assert event["delta"]
                self.open[event["messageId"]]["content"] += event["delta"]
                seen.text += event["delta"]
                seen.started.set()
            case "REASONING_MESSAGE_START":
                self._open(event["messageId"], {"role": "reasoning", "content": ""})
            case "REASONING_MESSAGE_CONTENT":
                assert event["delta"]
                self.open[event["messageId"]]["content"] += event["delta"]
                seen.reasoning += event["delta"]
                seen.started.set()
            case "TEXT_MESSAGE_END" | "REASONING_MESSAGE_END":
                del self.open[event["messageId"]]
            case "TOOL_CALL_START":
                self._call(event)
            case "TOOL_CALL_ARGS":
                assert event["delta"]
                self.calls[event["toolCallId"]].arguments += event["delta"]
            case "TOOL_CALL_END":
                assert self.open.pop(event["toolCallId"]) is not None
                self._write_arguments(event["toolCallId"])
            case "TOOL_CALL_RESULT":
                seen.results.append((event["toolCallId"], event["content"]))
                message = {"id": event["messageId"], "role": "tool", "toolCallId": event["toolCallId"]}
                self._add({**message, "content": event["content"]})
            case "CUSTOM" if event["name"] == "on_interrupt":
                value = event["value"]
                self.asked.append(Question("", orjson.loads(value) if isinstance(value, str) else value))
            case "RUN_FINISHED":
                self._finished(event)
            case "RUN_ERROR":
                self.over = True
                seen.error, seen.error_code = event["message"], event.get("code")

    def _add(self, message: Wire) -> None:
        assert message["id"] not in {m["id"] for m in self.messages}, "a message id used twice in one thread"
        self.messages.append(message)

    def _open(self, name: str, message: Wire) -> None:
        assert not self.open, "two things open at once"
        self.open[name] = {"id": name, **message}
        self._add(self.open[name])

    def _call(self, event: Wire) -> None:
        assert not self.open
        call_id = event["toolCallId"]
        self.open[call_id] = {}
        self.calls[call_id] = Call(call_id, event["toolCallName"], "")
        self.seen.calls.append(self.calls[call_id])
        parent = event.get("parentMessageId") or call_id
        owner = next((m for m in self.messages if m["id"] == parent), None)
        if owner is None:
            owner = {"id": parent, "role": "assistant"}
            self._add(owner)
        function = {"name": event["toolCallName"], "arguments": ""}
        owner.setdefault("toolCalls", []).append({"id": call_id, "type": "function", "function": function})
        self.seen.started.set()

    def _write_arguments(self, call_id: str) -> None:
        for message in self.messages:
            for call in message.get("toolCalls") or []:
                if call["id"] == call_id:
                    call["function"]["arguments"] = self.calls[call_id].arguments

    def _finished(self, event: Wire) -> None:
        assert not self.open
        self.over = True
        outcome = event.get("outcome") or {}
        if outcome.get("type") == "interrupt":
            self.asked = [Question(i["id"], i, i.get("toolCallId")) for i in outcome["interrupts"]]

    def end(self) -> None:
        assert self.over or self.seen.status != 200, "a stream without its end"


class OldAguiPerson(AguiPerson):
    """A client from before 1.0."""

    version = None


class Kit2Person(AguiPerson):
    """AG-Kit, generation 2: AG-UI on AG-Kit's path; what is new only."""

    route = "/kit"
    dialect = "ag-kit"
    version = None

    @property
    def url(self) -> str:
        return f"{self.base}{self.route}/send-message"

    async def resume(self, payload: Any) -> Seen:
        return await self._send([], forwardedProps={"command": {"resume": payload}})

    def body(self, new: list[Wire], **more: Any) -> Wire:
        before = len(self.messages)
        out = super().body(new, **more)
        return {**out, "messages": self.messages[before:]}


PEOPLE: dict[str, type[Person]] = {
    "openai-chat": ChatPerson,
    "openai-chat named": NamedChatPerson,
    "anthropic-messages": ClaudePerson,
    "openai-responses": ResponsesPerson,
    "openai-responses continued": ContinuingPerson,
    "agentscope": ScopePerson,
    "ag-kit": KitPerson,
    "ag-kit-2": Kit2Person,
    "ag-ui": AguiPerson,
    "ag-ui before 1.0": OldAguiPerson,
}


def routes(agent: Any, url: str | None = None, **store: Any) -> Wire:
    """A configuration with every front over this agent, called at `url` where that is not its own."""
    fronts = {p.dialect: p.route for p in PEOPLE.values()}
    backend = {"dialect": agent.dialect, "url": url or agent.url, "api_key": "backend-key", "options": agent.options}
    return {
        "backends": {"it": backend},
        "routes": [{"dialect": d, "path": path, "backend": "it"} for d, path in fronts.items()],
        "stores": store,
    }


async def leave(task: asyncio.Task[Any]) -> None:
    """The person closes the window."""
    task.cancel()
    await asyncio.wait({task})
