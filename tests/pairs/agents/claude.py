"""Anthropic messages: roles take turns, results follow their calls."""

from __future__ import annotations

import re
from collections.abc import Iterator

import orjson

from tests.pairs.agents.scenes import BREAKS, Agent, Fall, Heard, Say, Step, Think, Use, Wire, halves


class Claude(Agent):
    dialect = "anthropic-messages"
    interrupts = False
    runs_tools = False

    def hear(self, body: Wire) -> Heard:
        heard = Heard([], [t["name"] for t in body.get("tools") or []])
        assert isinstance(body["max_tokens"], int)
        if system := body.get("system"):
            heard.conversation.append(("system", system))
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
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", e[2]) for e in heard.conversation if e[0] == "call")
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
                heard.conversation += [(role, text) for text in (texts if role == "user" else ["".join(texts)])]
                texts = []
            match block["type"]:
                case "tool_use":
                    heard.conversation.append(
                        ("call", block["id"], block["name"], orjson.dumps(block["input"]).decode())
                    )
                case "tool_result":
                    heard.conversation.append(("result", block["tool_use_id"], block["content"]))
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
