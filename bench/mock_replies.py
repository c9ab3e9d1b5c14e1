"""The replies of the mock upstream, made once as bytes: what is sent must cost nothing while it is measured."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

DEFAULTS: dict[str, int | float] = {
    "tokens": 100,  # text deltas in one streamed reply
    "delay_ms": 0.0,  # time between two writes
    "first_ms": 0.0,  # time before the first write
    "group": 1,  # events put in one HTTP chunk
    "batch": 1,  # HTTP chunks put in one write
    "reasoning": 0,  # reasoning deltas before the text
    "tool_calls": 0,  # tool calls after the text
    "tool_parts": 8,  # argument fragments of each tool call
    "pad": 0,  # extra characters added to every text delta
    "stamp": 0,  # 1: every text delta carries its own send time (ns)
    "fail_every": 0,  # every n-th POST is answered with fail_status
    "fail_status": 500,
    "cut_after": 0,  # close the connection after this many events
}
MODEL = "bench-model"
CREATED = 1700000000
CHAT_ID = "chatcmpl-bench000000000000000000000000"
RESPONSE_ID = "response_00000000-0000-4000-8000-000000000000"

# A stamp is written over the first hole when a delta leaves. Where a dialect repeats the text at its end, the repeat
# must show the stamps that were sent, not the time of the repeat; so it has a hole of another letter and equal width.
STAMP_HOLE = b"T" + b"0" * 20
REPEAT_HOLE = b"R" + b"0" * 20


def token(i: int, pad: int = 0) -> str:
    """The i-th text delta. All differ, so that one lost, doubled or out of order is seen by the client."""
    return f"w{i:05d}{'x' * pad} "


def sse(event: Json) -> bytes:
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


def http_json(status: int, body: Any) -> bytes:
    return http_json_bytes(status, json.dumps(body, separators=(",", ":")).encode())


def http_json_bytes(status: int, data: bytes) -> bytes:
    head = f"HTTP/1.1 {status} Mock\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    return head.encode() + data


@dataclass(frozen=True, slots=True)
class Plan:
    """One streamed reply: what each write sends, the block that stands for the repeated text when stamped, and whether
    there are holes for the ids of the request (mock_wires.py)."""

    writes: list[bytes]
    repeat: bytes = b""
    named: bool = False


@dataclass(slots=True)
class Settings:
    """The settings in force, with the deltas that every dialect's reply is made of."""

    values: Json = field(default_factory=lambda: dict(DEFAULTS))

    def update(self, changes: Json) -> None:
        for name, value in changes.items():
            self.values[name] = type(DEFAULTS[name])(value)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def texts(self) -> list[str]:
        if self["stamp"]:
            return [STAMP_HOLE.decode() + " "] * self["tokens"]
        return [token(i, self["pad"]) for i in range(self["tokens"])]

    @property
    def whole(self) -> str:
        """The text as a dialect repeats it at the end."""
        return "".join(self.texts).replace(STAMP_HOLE.decode(), REPEAT_HOLE.decode())

    @property
    def thoughts(self) -> list[str]:
        return [f"r{i:05d} " for i in range(self["reasoning"])]

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Id and arguments of each tool call."""
        args = json.dumps({"city": "Paris", "days": list(range(4 * self["tool_parts"]))})
        return [(f"call_bench{n:04d}", args) for n in range(self["tool_calls"])]

    def fragments(self, arguments: str) -> list[str]:
        step = max(1, -(-len(arguments) // max(1, self["tool_parts"])))
        return [arguments[i : i + step] for i in range(0, len(arguments), step)]

    def plan(self, events: list[bytes]) -> Plan:
        """The events as HTTP chunks in writes; with `cut_after` the last chunk, which ends the message, is missing."""
        group, batch, cut = max(1, self["group"]), max(1, self["batch"]), self["cut_after"]
        if cut:
            events = events[:cut]
        bodies = [b"".join(events[i : i + group]) for i in range(0, len(events), group)]
        chunks = [b"%x\r\n%b\r\n" % (len(b), b) for b in bodies]
        writes = [b"".join(chunks[i : i + batch]) for i in range(0, len(chunks), batch)]
        if not cut:
            writes[-1] += b"0\r\n\r\n"
        return Plan(writes, (REPEAT_HOLE + b" ") * self["tokens"] if self["stamp"] else b"")


# ---- openai-chat


def _chunk(delta: Json, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return sse(
        {
            "id": CHAT_ID,
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": MODEL,
            "service_tier": "default",
            "system_fingerprint": "fp_bench000",
            "choices": [choice],
        }
    )


def _chat_usage(s: Settings) -> Json:
    n = s["tokens"]
    return {"prompt_tokens": 10, "completion_tokens": n, "total_tokens": 10 + n}


def chat_stream(s: Settings, usage: bool) -> Plan:
    return s.plan(chat_events(s, usage))


def chat_events(s: Settings, usage: bool) -> list[bytes]:
    """`usage` adds the chunk without choices that `stream_options.include_usage` asks for."""
    events = [_chunk({"role": "assistant", "content": ""})]
    events += [_chunk({"reasoning_content": t}) for t in s.thoughts]
    events += [_chunk({"content": t}) for t in s.texts]
    for n, (call_id, arguments) in enumerate(s.calls):
        function = {"name": "get_weather", "arguments": ""}
        events.append(_chunk({"tool_calls": [{"index": n, "id": call_id, "type": "function", "function": function}]}))
        for part in s.fragments(arguments):
            events.append(_chunk({"tool_calls": [{"index": n, "function": {"arguments": part}}]}))
    events.append(_chunk({}, "tool_calls" if s.calls else "stop"))
    if usage:
        last = {"id": CHAT_ID, "object": "chat.completion.chunk", "created": CREATED, "model": MODEL}
        events.append(sse({**last, "choices": [], "usage": _chat_usage(s)}))
    return [*events, b"data: [DONE]\n\n"]


def chat_body(s: Settings) -> bytes:
    """The reply in one piece."""
    text = "".join(token(i, s["pad"]) for i in range(s["tokens"]))
    message: Json = {"role": "assistant", "content": text, "refusal": None}
    if s.calls:
        message["tool_calls"] = [
            {"id": i, "type": "function", "function": {"name": "get_weather", "arguments": a}} for i, a in s.calls
        ]
    finish = "tool_calls" if s.calls else "stop"
    body = {
        "id": CHAT_ID,
        "object": "chat.completion",
        "created": CREATED,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": _chat_usage(s),
    }
    return json.dumps(body, separators=(",", ":")).encode()


# ---- agentscope


class _Numbered:
    """Collects events, each with the four common fields first and the next sequence number."""

    def __init__(self) -> None:
        self.events: list[bytes] = []

    def add(self, kind: str, status: str, fields: Json) -> Json:
        number = len(self.events)
        event = {"sequence_number": number, "object": kind, "status": status, "error": None, **fields}
        self.events.append(sse(event))
        return event


def agentscope_stream(s: Settings) -> Plan:
    """What the Python runtime sends: each message opens, its contents grow and complete, it closes with all of them
    repeated; the last response repeats the messages. Every field is written, null where empty."""
    out = _Numbered()
    usage = {"input_tokens": 10, "output_tokens": s["tokens"], "total_tokens": 10 + s["tokens"]}

    def response(status: str, **filled: Any) -> None:
        fields = {"id": RESPONSE_ID, "created_at": CREATED, "completed_at": None, "output": None, "usage": None}
        out.add("response", status, {**fields, "session_id": "bench-session", **filled})

    output: list[Json] = []

    def message(kind: str, part: str, deltas: list[Json], whole: Json, last: bool) -> None:
        own = f"msg_00000000-0000-4000-8000-{len(output):012d}"
        empty = {"id": own, "type": kind, "role": "assistant", "content": None, "code": None, "message": None}
        empty |= {"usage": None, "metadata": {}}
        place = {"type": part, "index": 0}
        out.add("message", "in_progress", empty)
        for delta in deltas:
            out.add("content", "in_progress", {**place, "delta": True, "msg_id": own, **delta})
        done = out.add("content", "completed", {**place, "delta": None, "msg_id": own, **whole})
        closed = {**empty, "content": [done], "usage": usage if last else None}
        output.append(out.add("message", "completed", closed))

    response("created")
    response("in_progress")
    if s.thoughts:
        message("reasoning", "text", [{"text": t} for t in s.thoughts], {"text": "".join(s.thoughts)}, False)
    message("message", "text", [{"text": t} for t in s.texts], {"text": s.whole}, not s.calls)
    for n, (call_id, arguments) in enumerate(s.calls, 1):
        data = {"call_id": call_id, "name": "get_weather", "arguments": ""}
        deltas = [{"data": data}] + [{"data": {"arguments": part}} for part in s.fragments(arguments)]
        message("plugin_call", "data", deltas, {"data": {**data, "arguments": arguments}}, n == len(s.calls))
    response("completed", completed_at=CREATED + 1, output=output, usage=usage)
    return s.plan(out.events)
