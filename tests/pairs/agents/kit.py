"""AG-Kit in both generations, with a memory by conversation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import orjson

from tests.pairs.agents.agui import agui_events, agui_message
from tests.pairs.agents.scenes import (
    BREAKS,
    Agent,
    Ask,
    Fall,
    Hang,
    Heard,
    Ran,
    Say,
    Step,
    Think,
    Use,
    Wire,
    halves,
    said,
)
from tests.server.harness import FakeBackend


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
        conversation = self.conversations.setdefault(body["conversationId"], [])
        for tool in body.get("tools") or []:
            assert isinstance(json.loads(tool["parameters"]), dict)
            assert isinstance(tool["description"], str)
        for message in body.get("messages") or []:
            # The reference server breaks off on replayed calls (capture g1-assistant-toolcalls).
            assert not message.get("toolCalls")
            if message["role"] == "tool":
                assert message["toolCallId"] in [e[1] for e in conversation if e[0] == "call"]
                conversation.append(("result", message["toolCallId"], message["content"]))
            else:
                conversation.append((message["role"], message["content"]))
        heard = Heard(list(conversation), [t["name"] for t in body.get("tools") or []])
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


class Kit2(Kit):
    """Generation 2: AG-UI on the same path; keeps what it heard by `threadId`, compared by message ids."""

    options: Wire = {"generation": 2}  # noqa: RUF012
    takes_images = True

    def __init__(self, backend: FakeBackend) -> None:
        super().__init__(backend)
        self.known: dict[str, set[str]] = {}

    def hear(self, body: Wire) -> Heard:
        conversation = self.conversations.setdefault(body["threadId"], [])
        known = self.known.setdefault(body["threadId"], set())
        heard = Heard(conversation, [t["name"] for t in body.get("tools") or []])
        for message in body["messages"]:
            if message["id"] not in known:
                known.add(message["id"])
                agui_message(heard, message)
        heard.conversation = list(conversation)
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
