"""An AgentScope application that keeps its sessions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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


class Scope(Agent):
    """Keeps what it heard by `session_id`."""

    dialect = "agentscope"
    remembers = True

    def __init__(self, backend: FakeBackend) -> None:
        super().__init__(backend)
        self.sessions: dict[str, list[tuple[Any, ...]]] = {}

    def hear(self, body: Wire) -> Heard:
        conversation = self.sessions.setdefault(body["session_id"], [])
        heard = Heard(conversation, [t["function"]["name"] for t in body.get("tools") or []])
        for message in body["input"]:
            self._message(heard, message)
        heard.conversation = list(conversation)
        return heard

    def _message(self, heard: Heard, message: Wire) -> None:
        for part in message["content"]:
            data = part.get("data")
            if message["type"] == "mcp_approval_response":
                heard.resume, heard.resumed = data["approve"], data["id"]
                heard.refused = not data["approve"]
            elif message["type"].endswith("_call_output"):
                open_calls = [e[1] for e in heard.conversation if e[0] == "call"]
                assert data["call_id"] in open_calls, "a result whose call this session does not know"
                heard.conversation.append(("result", data["call_id"], data["output"]))
            elif message["type"].endswith("_call"):
                heard.conversation.append(("call", data["call_id"], data["name"], data["arguments"]))
            elif part["type"] == "text" and message["type"] == "message":
                heard.conversation.append((message["role"], part["text"]))
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
