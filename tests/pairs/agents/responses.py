"""OpenAI responses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.pairs.agents.chat import Chat, say
from tests.pairs.agents.scenes import BREAKS, Fall, Hang, Heard, Say, Step, Think, Use, Wire, halves


class Responses(Chat):
    dialect = "openai-responses"

    def hear(self, body: Wire) -> Heard:
        assert body["store"] is False
        heard = Heard([], [t["name"] for t in body.get("tools") or [] if "name" in t])  # hosted tools have none
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", n) for n in heard.tools)
        say(heard, "system", body.get("instructions"))
        waiting: list[str] = []
        for item in body["input"]:
            match item["type"]:
                case "message":
                    # As the real service: 400 "No tool output found for function call".
                    assert not waiting, f"calls without results: {waiting}"
                    _say_items(heard, item["role"], item["content"])
                case "function_call":
                    heard.conversation.append(("call", item["call_id"], item["name"], item["arguments"]))
                    waiting.append(item["call_id"])
                case "function_call_output":
                    waiting.remove(item["call_id"])
                    heard.conversation.append(("result", item["call_id"], item["output"]))
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
    say(heard, role, content)
