"""The two known clients, as far as section 13 describes how they fold a stream: what a user ends up seeing."""

from __future__ import annotations

import json
from typing import Any

from .helpers import CONTENT_CLASSES, SCHEMAS


class WebFrontend:
    """`@agentscope-ai/chat` 1.1.50: splits at an empty line, looks at the last part and never at an index."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.errors: list[dict[str, Any]] = []

    def read(self, data: bytes) -> WebFrontend:
        for block in data.decode().split("\n\n"):
            lines = [line for line in block.split("\n") if line and not line.startswith(":")]
            for line in lines:
                assert ":" in line
            if lines:
                self.event(json.loads(lines[-1].partition(":")[2].strip()))
        return self

    def event(self, event: dict[str, Any]) -> None:
        match event.get("object"):
            case "response":
                self.state = {**event, "output": event["output"] or []}
            case "message":
                self._message(event)
            case "content":
                self._content(event)
            case _:
                self.errors.append(event)

    def _message(self, event: dict[str, Any]) -> None:
        if event["type"] == "heartbeat":
            return
        for message in self.state["output"]:
            if message["id"] == event["id"]:
                message.update({**event, "content": event["content"] or message["content"]})
                return
        self.state["output"].append({**event, "content": event["content"] or []})

    def _content(self, event: dict[str, Any]) -> None:
        message = next((m for m in self.state["output"] if m["id"] == event["msg_id"]), None)
        assert message is not None, "a content without its message is dropped"
        parts = message["content"]
        last = parts[-1] if parts else None
        if event["delta"]:
            if last is not None and last["delta"] is True:
                joined = last["text"] + event["text"] if event["type"] == "text" else None
                last.update(event if joined is None else {**event, "text": joined})
            else:
                parts.append(dict(event))
        elif last is not None:
            last.update(event)
        else:
            parts.append(dict(event))

    @property
    def generating(self) -> bool:
        return self.state.get("status") not in ("completed", "failed")

    def shown(self) -> list[tuple[str, Any]]:
        """What is on the screen, top to bottom."""
        out: list[tuple[str, Any]] = []
        answered = self._parts("plugin_call_output") + self._parts("mcp_call_output")
        outputs = {p["data"]["call_id"]: p["data"]["output"] for p in answered}
        for message in self.state["output"]:
            parts = message["content"]
            if message["type"] == "message":
                out += [(p["type"], p.get("text") or p.get("refusal") or p.get("image_url")) for p in parts]
            elif message["type"] == "reasoning" and parts:
                out.append(("thinking", parts[0]["text"]))
            elif message["type"] in ("plugin_call", "mcp_call") and parts:
                data = parts[0]["data"]
                out.append(("call", (data["name"], data["arguments"], outputs.get(data["call_id"]))))
        return out

    def _parts(self, kind: str) -> list[dict[str, Any]]:
        return [m["content"][0] for m in self.state["output"] if m["type"] == kind and m["content"]]


def python_client(data: bytes) -> list[Any]:
    """The project's client: `splitlines`, exactly `data: `, one line an event, unknown objects dropped."""
    out = []
    for line in data.decode().splitlines():
        if not line.startswith("data: "):
            continue
        try:
            event = json.loads(line[6:])
        except ValueError:
            continue
        match event.get("object"):
            case "response":
                out.append(SCHEMAS.AgentResponse(**event))
            case "message":
                out.append(SCHEMAS.Message(**event))
            case "content":
                out.append(getattr(SCHEMAS, CONTENT_CLASSES.get(event["type"], "Content"))(**event))
    return out
