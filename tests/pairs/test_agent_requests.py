"""What the servers of agent protocols refuse is not sent to them, whatever the client's dialect: by the protocols' own
models where there are any, and by the rules that their servers were seen to have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from ag_ui.core import RunAgentInput

from bridge.errors import Unsupported
from bridge.translation.library import Translator
from tests.cases import all_cases
from tests.test_wire_requests import REQUESTS

Json = dict[str, Any]
MEDIA_TYPE = re.compile(r"[a-z]+/[\w.+-]+")
RUN_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def sent(front: str, back: str, body: Any) -> Json:
    translator = Translator(back, front, run_id="run1", created_at=1_700_000_000.0)
    path = "/v1beta/models/m:generateContent" if front == "gemini" else ""
    found = json.loads(translator.request(json.dumps(body).encode(), client=front, path=path))
    assert isinstance(found, dict)
    return found


def _unique(ids: list[Any], what: str) -> list[str]:
    return [] if all(ids) and len(set(ids)) == len(ids) else [f"{what}: {ids}"]


def _objects(texts: list[Any]) -> list[str]:
    return [f"arguments: {text!r}" for text in texts if not isinstance(json.loads(text or "null"), dict)]


def ag_ui(body: Json, binary: bool = False) -> list[str]:
    """The official model of the input; ids name one message and one call."""
    messages = body["messages"]
    if not binary:
        RunAgentInput.model_validate(body)
    calls = [call for message in messages for call in message.get("toolCalls") or []]
    results = {message["toolCallId"] for message in messages if message["role"] == "tool"}
    return [
        *_unique([message["id"] for message in messages], "message ids"),
        *_unique([call["id"] for call in calls], "call ids"),
        *_objects([call["function"]["arguments"] for call in calls]),
        *([] if results <= {call["id"] for call in calls} else ["a result without a call"]),
    ]


def agent_runs(body: Json) -> list[str]:
    """The contract's ids, and its rule for the last message; its media are `binary` parts of earlier versions."""
    faults = [f"{name}: {body[name]}" for name in ("threadId", "runId") if not RUN_ID.fullmatch(body[name])]
    if not body["messages"] or all(message["role"] == "system" for message in body["messages"]):
        faults.append("nobody asks")
    return [*faults, *ag_ui(body, binary=True)]


def agentscope(body: Json) -> list[str]:
    """Roles and contents that the runtime refuses, or on which it fails."""
    roles = {message.get("role") for message in body["input"]} - {"user", "assistant", "system", "tool", None}
    lists = [message["content"] for message in body["input"] if not isinstance(message.get("content"), list)]
    untyped = [part for m in body["input"] for part in m.get("content") or () if not part.get("type")]
    return [f"{fault}" for fault in (roles, lists, untyped) if fault]


def ag_kit(body: Json) -> list[str]:
    """Fields that the reference server demands (422 without)."""
    faults = [] if isinstance(body.get("conversationId"), str) else ["conversationId"]
    for message in body.get("messages") or ():
        needed = {"user": ("content",), "tool": ("content", "toolCallId")}.get(message["role"], ())
        faults += [f"{message['role']}: {name}" for name in needed if not isinstance(message.get(name), str)]
        faults += _objects([call["function"]["arguments"] for call in message.get("toolCalls") or ()])
    for tool in body.get("tools") or ():
        faults += [f"tool: {name}" for name in ("name", "description", "parameters") if tool.get(name) is None]
    return faults


def ai_sdk_ui(body: Json) -> list[str]:
    """What `validateUIMessages` and Pydantic AI refuse."""
    messages = body["messages"]
    faults = [] if messages else ["no messages"]
    faults += _unique([message["id"] for message in messages], "message ids")
    for part in (part for message in messages for part in message["parts"]):
        faults += [f"null: {part}"] if None in part.values() else []
        is_call = part["type"].startswith("tool-") or part["type"] == "dynamic-tool"
        faults += [f"input: {part}"] if is_call and not isinstance(part.get("input", {}), dict) else []
        faults += [f"media type: {part}"] if not MEDIA_TYPE.fullmatch(part.get("mediaType", "a/b")) else []
    return faults


def a2a(body: Json) -> list[str]:
    message = body["params"]["message"]
    return [name for name in ("messageId", "role", "parts") if not message.get(name)]


JUDGES: dict[str, Callable[[Json], list[str]]] = {
    "ag-ui": ag_ui,
    "agent-runs": agent_runs,
    "agentscope": agentscope,
    "agentscope-java": agentscope,
    "ag-kit": ag_kit,
    "ai-sdk-ui": ai_sdk_ui,
    "a2a": a2a,
}


def chat(*messages: Json, **more: Any) -> Json:
    return {"model": "m", "messages": list(messages), **more}


def _called(arguments: str) -> Json:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    result = {"role": "tool", "tool_call_id": "c", "content": ""}
    return chat({"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}, result)


def _shown(media_type: str) -> Json:
    url = {"url": f"data:{media_type};base64,/9j/4AAQSkZJRg=="}
    return chat({"role": "user", "content": [{"type": "image_url", "image_url": url}]})


AWKWARD: dict[str, Json] = {
    "system only": chat({"role": "system", "content": "Say hi."}),
    "developer": chat({"role": "developer", "content": "Be brief."}, {"role": "user", "content": "x"}),
    "the same twice": chat(*[{"role": "user", "content": "x"}] * 3, {"role": "assistant", "content": ""}),
    "empty": chat({"role": "user", "content": ""}),
    "a tool without words": chat({"role": "user", "content": "x"},
                                 tools=[{"type": "function", "function": {"name": "f"}}]),
    **{f"arguments {text!r}": _called(text) for text in ("", " ", "null", "[1]", '{"a":', '"x"', '{"a":1}')},
    **{f"image {kind}": _shown(kind) for kind in ("image/jpg", "image/*", "IMAGE/PJPEG", "image/x-png")},
}  # fmt: skip


@pytest.mark.parametrize("back", JUDGES)
def test_no_server_of_an_agent_is_sent_what_it_refuses(back: str) -> None:
    with all_cases() as case:
        for front, requests in REQUESTS.items():
            for name, body in requests.items():
                with case((front, name)):
                    assert judged(front, back, body) == []


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize("back", JUDGES)
def test_odd_requests_are_brought_to_what_servers_of_agents_take(back: str, name: str) -> None:
    assert judged("openai-chat", back, AWKWARD[name]) == []


def judged(front: str, back: str, body: Any) -> list[str]:
    try:
        return JUDGES[back](sent(front, back, body))
    except Unsupported:
        return []
