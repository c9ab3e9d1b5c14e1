"""Scripted backends of every dialect: what their protocols' software sends for a scene, and what they were asked.

OpenAI chat and AgentScope are those of `tests/pairs`; AG-UI and AG-Kit are in the form of their recordings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tests.pairs.test_conversations import BACKS, scope_call, scope_stream, scope_text
from tests.server.harness import FakeBackend

Stream = list[bytes]
QUESTION = {"question": "Go on?"}


def frames(*events: dict[str, Any]) -> Stream:
    return [b"data: " + orjson.dumps(e) + b"\n\n" for e in events]


def arguments(city: str) -> str:
    return orjson.dumps({"city": city}).decode()


# ---------------------------------------------------------------------- AG-UI, and AG-Kit's second generation


def run(*events: dict[str, Any], **end: Any) -> Stream:
    ids = {"threadId": "t", "runId": "r"}
    return frames({"type": "RUN_STARTED", **ids}, *events, {"type": "RUN_FINISHED", **ids, **end})


def text(words: str, name: str = "m1") -> list[dict[str, Any]]:
    pieces = [words[:3], words[3:]]
    return [
        {"type": "TEXT_MESSAGE_START", "messageId": name, "role": "assistant"},
        *({"type": "TEXT_MESSAGE_CONTENT", "messageId": name, "delta": p} for p in pieces),
        {"type": "TEXT_MESSAGE_END", "messageId": name},
    ]


def calls(*cities: str) -> list[dict[str, Any]]:
    """All open at once and their arguments interleaved, as one recording has them."""
    kinds = ("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_ARGS", "TOOL_CALL_END")
    out = []
    for step, kind in enumerate(kinds):
        for city in cities:
            event: dict[str, Any] = {"type": kind, "toolCallId": f"call_{city}"}
            if step == 0:
                event |= {"toolCallName": "get_weather", "parentMessageId": "m1"}
            elif step < 3:
                event["delta"] = (arguments(city)[:5], arguments(city)[5:])[step - 1]
            out.append(event)
    return out


def result(city: str, words: str) -> dict[str, Any]:
    ids = {"messageId": "result", "toolCallId": f"call_{city}"}
    return {"type": "TOOL_CALL_RESULT", **ids, "content": words, "role": "tool"}


def reasoning(words: str) -> list[dict[str, Any]]:
    return [
        {"type": "REASONING_START", "messageId": "th"},
        {"type": "REASONING_MESSAGE_START", "messageId": "th", "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": "th", "delta": words},
        {"type": "REASONING_MESSAGE_END", "messageId": "th"},
        {"type": "REASONING_END", "messageId": "th"},
    ]


def thinking(words: str) -> list[dict[str, Any]]:
    """The same in the words of 0.x."""
    return [
        {"type": "THINKING_START"},
        {"type": "THINKING_TEXT_MESSAGE_START"},
        {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": words},
        {"type": "THINKING_TEXT_MESSAGE_END"},
        {"type": "THINKING_END"},
    ]


USAGE = [{"inputTokens": 9, "outputTokens": 4, "totalTokens": 13}]
ASKING = {"type": "CUSTOM", "name": "on_interrupt", "value": orjson.dumps(QUESTION).decode()}
WAITING = {"type": "interrupt", "interrupts": [{"id": "int_1", "reason": "input_required", "message": "Go on?"}]}


def agui_said(body: Any) -> list[tuple[str, Any]]:
    return [(m["role"], m.get("content")) for m in body["messages"]]


def agui_results(body: Any) -> list[tuple[str, str]]:
    return [(m["toolCallId"], m["content"]) for m in body["messages"] if m["role"] == "tool"]


# ---------------------------------------------------------------------- AG-Kit's first generation


def kit(*events: dict[str, Any]) -> Stream:
    return [*frames(*events), b"data: [DONE]\n\n"]


def kit_text(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "content": words[:3]}, {"type": "text", "content": words[3:]}]


def kit_calls(*cities: str) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for city in cities:
        name = {"toolCallId": f"call_{city}"}
        out.append({"type": "tool-call-start", **name, "toolCallName": "get_weather"})
        for piece in ("", arguments(city)[:5], arguments(city)[5:]):
            out.append({"type": "tool-call-args", **name, "delta": piece})
        out.append({"type": "tool-call-end", **name})
    return out


# ---------------------------------------------------------------------- AgentScope, besides what tests/pairs has


def scope_texts(body: Any) -> list[tuple[str, Any]]:
    return [(m["role"], m["content"][0].get("text")) for m in body["input"]]


def scope_output(city: str, words: str) -> dict[str, Any]:
    data = {"call_id": f"call_{city}", "name": "get_weather", "output": words}
    return {"type": "plugin_call_output", "role": "tool", "content": {"type": "data", "data": data}}


def scope_approval() -> dict[str, Any]:
    data = {"id": "int_1", "name": "delete_file", "arguments": "{}", "server_label": "files"}
    return {"type": "mcp_approval_request", "role": "assistant", "content": {"type": "data", "data": data}}


# ---------------------------------------------------------------------- all of them


@dataclass
class Agent:
    """A backend of one dialect. What it cannot say is None, with the reason in the dialect's card.

    `resumed` gives the answer to an interrupt, which is `consent` after "yes".
    `remembers`: it keeps the talk under its thread's id and is sent only what is new.
    """

    section: dict[str, Any]
    say: Callable[[str], Stream]
    call: Callable[..., Stream]
    error: bytes
    said: Callable[[Any], list[tuple[str, Any]]]
    results: Callable[[Any], list[tuple[str, str]]]
    thread: Callable[[Any], str | None]
    think: Callable[[str, str], Stream] | None = None
    server_tool: Callable[[str, str, str], Stream] | None = None
    interrupt: Callable[[], Stream] | None = None
    resumed: Callable[[Any], Any] | None = None
    consent: Any = None
    image: Callable[[Any], str] | None = None
    path: str = ""
    remembers: bool = False
    usage: bool = False

    def config(self, backend: FakeBackend, tmp_path: Path, **section: Any) -> dict[str, Any]:
        """The bridge in front of it, for AG-UI clients, with a memory for agents that have one of their own."""
        it = {"url": f"{backend.url}{self.path}", "api_key": "backend-key", **self.section, **section}
        return {
            "backends": {"it": it},
            "routes": [{"dialect": "ag-ui", "path": "/ag-ui", "backend": "it"}],
            "stores": {"history": f"sqlite:///{tmp_path}/talks.db"},
        }


AGENTS = {
    "openai-chat": Agent(
        {"dialect": "openai-chat"},
        path="/v1",
        say=BACKS["openai-chat"].say,
        think=BACKS["openai-chat"].think,
        call=BACKS["openai-chat"].call,
        error=BACKS["openai-chat"].error,
        said=lambda body: [(m["role"], m.get("content")) for m in body["messages"]],
        results=BACKS["openai-chat"].results_in,
        image=BACKS["openai-chat"].image_in,
        thread=lambda body: None,
        usage=True,
    ),
    "agentscope": Agent(
        {"dialect": "agentscope"},
        say=BACKS["agentscope"].say,
        think=BACKS["agentscope"].think,
        call=BACKS["agentscope"].call,
        server_tool=lambda city, words, answer: scope_stream(
            scope_call(city), scope_output(city, words), scope_text(answer)
        ),
        interrupt=lambda: scope_stream(scope_approval()),
        resumed=lambda body: [m["content"][0]["data"] for m in body["input"] if m["type"] == "mcp_approval_response"],
        consent=[{"approve": True, "id": "int_1", "approval_request_id": "int_1", "reason": "yes"}],
        error=BACKS["agentscope"].error,
        said=scope_texts,
        results=BACKS["agentscope"].results_in,
        image=BACKS["agentscope"].image_in,
        thread=lambda body: str(body["session_id"]),
        remembers=True,
        usage=True,
    ),
    "ag-kit 1": Agent(
        {"dialect": "ag-kit"},
        say=lambda words: kit(*kit_text(words)),
        call=lambda *cities: kit(*kit_calls(*cities)),
        server_tool=lambda city, words, answer: kit(
            *kit_calls(city),
            {"type": "tool-result", "toolCallId": f"call_{city}", "result": words},
            *kit_text(answer),
        ),
        interrupt=lambda: kit({"type": "interrupt", "id": "int_1", "reason": "agent requested", "payload": QUESTION}),
        resumed=lambda body: body["resume"],
        consent={"interruptId": "int_1", "payload": "yes"},
        error=b'data: {"type":"error","error":"the model fell over"}\n\n',
        said=agui_said,
        results=agui_results,
        thread=lambda body: str(body["conversationId"]),
        remembers=True,
    ),
    "ag-kit 2": Agent(
        {"dialect": "ag-kit", "options": {"generation": 2}},
        say=lambda words: run(*text(words)),
        think=lambda thought, words: run(*thinking(thought), *text(words)),
        call=lambda *cities: run(*calls(*cities)),
        server_tool=lambda city, words, answer: run(*calls(city), result(city, words), *text(answer, "m2")),
        interrupt=lambda: run(ASKING),
        resumed=lambda body: body["forwardedProps"]["command"]["resume"],
        consent="yes",
        # Twice, in snake_case, as that server has it.
        error=b"".join(frames(*[{"type": "RUN_ERROR", "message": "the model fell over", "run_id": "r"}] * 2)),
        said=agui_said,
        results=agui_results,
        image=lambda body: "data:{mimeType};base64,{data}".format(**body["messages"][-1]["content"][1]),
        thread=lambda body: str(body["threadId"]),
        remembers=True,
    ),
    "ag-ui": Agent(
        {"dialect": "ag-ui", "options": {"protocol_version": "1.0"}},
        path="/agent",
        say=lambda words: run(*text(words), usage=USAGE),
        think=lambda thought, words: run(*reasoning(thought), *text(words), usage=USAGE),
        call=lambda *cities: run(*calls(*cities), usage=USAGE),
        server_tool=lambda city, words, answer: run(*calls(city), result(city, words), *text(answer, "m2")),
        interrupt=lambda: run(outcome=WAITING),
        resumed=lambda body: body["resume"],
        consent=[{"interruptId": "int_1", "status": "resolved", "payload": "yes"}],
        error=b"".join(frames({"type": "RUN_ERROR", "message": "the model fell over"})),
        said=agui_said,
        results=agui_results,
        image=lambda body: "data:{mimeType};base64,{value}".format(**body["messages"][-1]["content"][1]["source"]),
        thread=lambda body: str(body["threadId"]),
        usage=True,
    ),
}
