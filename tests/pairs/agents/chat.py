"""OpenAI chat completions as the service speaks them, tool calls answered or refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.pairs.agents.scenes import BREAKS, Agent, Fall, Hang, Heard, Say, Step, Think, Use, Wire, halves


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
                heard.conversation.append(("result", message["tool_call_id"], message["content"]))
                continue
            # As the real service: 400 "must be followed by tool messages responding to each 'tool_call_id'".
            assert not waiting, f"calls without results: {waiting}"
            say(heard, message["role"], message.get("content"))
            for call in message.get("tool_calls") or []:
                function = call["function"]
                assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", function["name"])
                heard.conversation.append(("call", call["id"], function["name"], function["arguments"]))
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


def say(heard: Heard, role: str, content: Any) -> None:
    """A message's content: text, or parts with pictures."""
    if isinstance(content, list):
        heard.images += [p["image_url"]["url"] for p in content if p["type"] == "image_url"]
        content = "".join(p["text"] for p in content if p["type"] == "text")
    if content:
        heard.conversation.append((role, content))
