"""The judge of what clients of chat completions, Messages and Gemini get: every object by its type, without fields that
the type lacks, and the rules of a stream. `responses_judge` has those of Responses.

Each function returns the faults that it found. `official` judges which fields the documents require.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from bridge.contract import Frame
from bridge.translation.framing import sse
from tests import gemini_types
from tests.responses_judge import response_faults, stream_faults
from tests.sdk_types import faults

Json = dict[str, Any]
Frames = Sequence[tuple[str | None, bytes]]
"""The events of a stream: the name and the payload of each."""

_REASONING = ("reasoning_content", "reasoning", "reasoning_details")
_LACKING = frozenset({
    *(f"{n}: unknown in {k}" for n in _REASONING for k in ("ChoiceDelta", "ChatCompletionMessage")),
    *(f"images: unknown in {kind}" for kind in ("ChoiceDelta", "ChatCompletionMessage")),
    *(f"{name}: unknown in ChoiceDelta" for name in ("annotations", "audio")),
    "extra_content: unknown in ChoiceDeltaToolCall",
    "extra_content: unknown in ChatCompletionMessageFunctionToolCall",
    *(f"estimated: unknown in {kind}" for kind in ("CompletionUsage", "Usage", "MessageDeltaUsage")),
})  # fmt: skip
"""Fields that the types lack and the wires have, and the mark of estimated counts."""


def _typed(value: Json, kind: Any, place: str = "") -> list[str]:
    return [fault for fault in faults(value, kind, place) if fault.rpartition(".")[2] not in _LACKING]


def _is_object_so_far(text: str) -> bool:
    """Return whether a text is a JSON object, or the beginning of one: models do not finish all arguments."""
    try:
        return isinstance(json.loads(text), dict)
    except json.JSONDecodeError as error:
        return text.startswith("{") and not error.msg.startswith("Extra data")


# ------------------------------------------------------------------ chat completions


def chat_stream(frames: Frames, *, usage: bool) -> list[str]:
    """`usage`: the client asked for it."""
    payloads = [data for _, data in frames]
    values = [json.loads(data) for data in payloads if data != b"[DONE]"]
    if not values:
        return ["an empty stream"]
    out: list[str] = []
    failed = "error" in values[-1]
    if failed:
        out += openai_error(values.pop())
    elif payloads[-1] != b"[DONE]" or payloads.count(b"[DONE]") != 1:
        out.append("[DONE] is not the end")
    if usage and not failed:
        last = values.pop()
        out += _typed(last, ChatCompletionChunk, "usage")
        out += _chat_usage(last.get("usage")) if last["choices"] == [] else ["the last chunk is not the usage"]
    choices: dict[int, _Choice] = {}
    for number, chunk in enumerate(values):
        found = _typed(chunk, ChatCompletionChunk)
        if chunk.get("usage") is not None or len(chunk["choices"]) != 1:
            found.append(f"usage, or not one choice: {chunk}")
        if any(chunk.get(name) != values[0].get(name) for name in ("id", "created", "model", "system_fingerprint")):
            found.append("the head changes")
        for choice in chunk["choices"]:
            found += _next(choices, choice["index"]).feed(choice)
        out += [f"[{number}] {fault}" for fault in found]
    if not failed and list(choices) != list(range(len(choices) or 1)):
        out.append(f"the choices are {list(choices)}, in this order")
    return out + [fault for choice in choices.values() if not failed for fault in choice.end()]


def _next(choices: dict[int, _Choice], index: int) -> _Choice:
    return choices.setdefault(index, _Choice())


class _Choice:
    """One choice of a stream, as the SDK's helper adds it up."""

    def __init__(self) -> None:
        self._begun = False
        self._finish: str | None = None
        self._calls: list[list[str]] = []
        """Of each call its type and the pieces of its arguments."""

    def feed(self, choice: Json) -> list[str]:
        """Return what is wrong with the next chunk of the choice."""
        delta, out = choice["delta"], []
        if ("role" in delta) is self._begun:
            out.append("the role is in the first chunk, and nowhere else")
        if self._finish is not None:
            out.append("something after the finish_reason")
        if choice["finish_reason"]:
            self._finish = choice["finish_reason"]
            if delta != {}:
                out.append(f"the finish_reason beside {delta}")
        elif delta == {} and set(choice) == {"index", "delta", "finish_reason", "logprobs"} and not choice["logprobs"]:
            out.append("an empty chunk")
        if self._begun:
            out += [f"{name} is empty" for name in ("content", "refusal", *_REASONING) if delta.get(name) == ""]
        self._begun = True
        for call in delta.get("tool_calls", ()):
            out += self._call(call)
        return out

    def _call(self, call: Json) -> list[str]:
        kind = call.get("type") or (self._calls[-1][0] if self._calls else "function")
        inner = call.get(kind, {})
        if call["index"] == len(self._calls):
            self._calls.append([kind, inner.get("arguments", inner.get("input", ""))])
            return [] if call.get("id") and "type" in call and "name" in inner else [f"a call begins with {call}"]
        if call["index"] != len(self._calls) - 1:
            return [f"a fragment of call {call['index']} of {len(self._calls)}"]
        self._calls[-1].append(inner.get("arguments", inner.get("input", "")))
        return [f"told again: {call}"] if {"id", "type", "name"} & {*call, *inner} else []

    def end(self) -> list[str]:
        """Return what is wrong with the choice as a whole."""
        out = [
            f"a call with the arguments {pieces}" for kind, *pieces in self._calls
            if kind == "function" and not "".join(pieces).strip()
        ]  # fmt: skip
        return out + _finish(self._finish, bool(self._calls))


def _finish(word: str | None, called: bool) -> list[str]:
    wrong = {None, "stop"} if called else {None, "tool_calls"}
    return [f"finish_reason {word}, and calls: {called}"] if word in wrong else []


def chat_whole(value: Json) -> list[str]:
    out = _typed(value, ChatCompletion) + _chat_usage(value.get("usage"))
    for choice in value["choices"]:
        calls = choice["message"].get("tool_calls", ())
        out += _finish(choice["finish_reason"], bool(calls))
        out += [f"a call with the arguments {c['function']['arguments']!r}" for c in calls
                if c["type"] == "function" and not c["function"]["arguments"].strip()]  # fmt: skip
    return out


def _chat_usage(usage: Json | None) -> list[str]:
    if not usage:
        return ["there is no usage"]
    good = usage["prompt_tokens"] + usage["completion_tokens"] == usage["total_tokens"]
    return [] if good else [f"usage: the total is another one: {usage}"]


def openai_error(value: Json) -> list[str]:
    """The shape that both APIs of OpenAI have."""
    match value:
        case {"error": {"message": str(text), "type": str(), "param": str() | None, "code": str() | None}} if text:
            return []
    return [f"an error of another shape: {value}"]


# ------------------------------------------------------------------ Messages

_HOLDERS = {
    "text_delta": ("text",),
    "citations_delta": ("text",),
    "thinking_delta": ("thinking",),
    "signature_delta": ("thinking",),
    "input_json_delta": ("tool_use", "server_tool_use"),
}
"""The blocks in which a delta may stand."""
_ERRORS = (
    "invalid_request_error", "authentication_error", "billing_error", "permission_error", "not_found_error",
    "request_too_large", "rate_limit_error", "api_error", "timeout_error", "overloaded_error",
)  # fmt: skip


def messages_stream(frames: Frames) -> list[str]:
    values = [json.loads(data) for _, data in frames]
    out = [f"event {name} is a {value['type']}" for (name, _), value in zip(frames, values, strict=True)
           if name != value["type"]]  # fmt: skip
    values = [value for value in values if value["type"] != "ping"]
    kinds = [value["type"] for value in values]
    if kinds[:1] != ["message_start"] or kinds.count("message_start") != 1:
        return [*out, f"the events are {kinds}"]
    failed = kinds[-1] == "error"
    if failed:
        out += messages_error(values.pop())
    elif kinds[-2:] != ["message_delta", "message_stop"]:
        return [*out, f"the last events are {kinds[-2:]}"]
    body = values[1:] if failed else values[1:-2]
    blocks: list[Json] = []
    pieces: list[Json] | None = None
    for number, value in enumerate(values):
        out += _typed(value, RawMessageStreamEvent, f"[{number}]")
    for number, value in enumerate(body, 1):
        match value["type"], pieces:
            case "content_block_start", None if value["index"] == len(blocks):
                blocks.append(value["content_block"])
                pieces = []
            case "content_block_delta", list() if value["index"] == len(blocks) - 1:
                pieces.append(value["delta"])
            case "content_block_stop", list() if value["index"] == len(blocks) - 1:
                out += [f"[{number}]: {fault}" for fault in _block(blocks[-1], pieces)]
                pieces = None
            case kind, _:
                out.append(f"[{number}]: {kind} in the wrong place")
    if pieces is not None:
        out.append("a block is open at the end")
    return out if failed else out + _stop(values[-2]["delta"], blocks)


def _block(block: Json, pieces: list[Json]) -> list[str]:
    kind = block["type"]
    out = [f"{p['type']} in a {kind}" for p in pieces if kind not in _HOLDERS.get(p["type"], (kind,))]
    texts = [p[name] for p in pieces for name in ("text", "thinking", "partial_json") if name in p]
    if "" in texts or (kind == "text" and not texts) or block.get(kind) or block.get("input"):
        out.append(f"a {kind} with {block} and {texts}")
    if kind == "tool_use":
        if not re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]):
            out.append(f"the id {block['id']!r}")
        if not _is_object_so_far(whole := "".join(texts)):
            out.append(f"the input {whole!r}")
    return out


def _stop(end: Json, blocks: list[Json]) -> list[str]:
    called = any(block["type"] == "tool_use" for block in blocks)
    wrong = {None, "end_turn"} if called else {None, "tool_use"}
    return [f"stop_reason {end['stop_reason']}, and calls: {called}"] if end["stop_reason"] in wrong else []


def messages_whole(value: Json) -> list[str]:
    out = _typed(value, Message) + _stop(value, value["content"])
    return out + ["an empty text" for b in value["content"] if b["type"] == "text" and not b["text"]]


def messages_error(value: Json) -> list[str]:
    match value:
        case {"type": "error", "error": {"type": str(kind), "message": str(text)}} if text and kind in _ERRORS:
            return []
    return [f"an error of another shape: {value}"]


# ------------------------------------------------------------------ Gemini


def gemini_stream(frames: Frames) -> list[str]:
    values = [json.loads(data) for _, data in frames]
    if not values:
        return ["an empty stream"]
    out: list[str] = []
    failed = "error" in values[-1]
    if failed:
        out += gemini_error(values.pop())
    finished: set[int] = set()
    for number, value in enumerate(values):
        found = _typed(value, gemini_types.Response)
        if any(value[name] != values[0][name] for name in ("modelVersion", "responseId")):
            found.append("the head changes")
        for candidate in value.get("candidates", ()):
            if candidate["index"] in finished:
                found.append("something after the finishReason")
            if "finishReason" in candidate:
                finished.add(candidate["index"])
            found += _parts(candidate)
        out += [f"[{number}]{fault}" for fault in found]
    if failed:
        return out + (["a finishReason beside an error"] if finished else [])
    last = values[-1]
    ends = "promptFeedback" in last or all("finishReason" in c for c in last.get("candidates", [{}]))
    return out + ([] if ends else ["no finishReason in the last chunk"]) + _counts(last.get("usageMetadata"))


def gemini_whole(value: Json) -> list[str]:
    out = _typed(value, gemini_types.Response) + _counts(value.get("usageMetadata"))
    for candidate in value.get("candidates", ()):
        out += _parts(candidate) + ([] if "finishReason" in candidate else ["no finishReason"])
    return out


def _parts(candidate: Json) -> list[str]:
    """Clients forget a turn with a chunk that has no part; each part is of one kind."""
    parts = candidate["content"]["parts"]
    beside = {"thought", "thoughtSignature"}
    return [f"a part {part}" for part in parts if len(part.keys() - beside) != 1] if parts else ["no part"]


def _counts(usage: Json | None) -> list[str]:
    if usage is None:
        return ["there is no usage"]
    names = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount")
    good = sum(usage.get(name, 0) for name in names) == usage["totalTokenCount"]
    return [] if good else [f"usageMetadata: the total is another one: {usage}"]


def gemini_error(value: Json) -> list[str]:
    match value:
        case {"error": {"code": int(code), "message": str(text), "status": str()}} if text and 400 <= code < 600:
            return []
    return [f"an error of another shape: {value}"]


# ------------------------------------------------------------------ all of them


def responses_stream(frames: Frames) -> list[str]:
    values = [json.loads(data) for _, data in frames]
    named = [name for name, _ in frames] == [value["type"] for value in values]
    return stream_faults(values) + ([] if named else ["an event has another name"])


Judges = tuple[Callable[[Frames], list[str]], Callable[[Json], list[str]], Callable[[Json], list[str]]]
JUDGES: dict[str, Judges] = {
    "openai-chat": (
        lambda frames: chat_stream(frames, usage=True),
        chat_whole,
        openai_error,
    ),
    "openai-responses": (responses_stream, response_faults, openai_error),
    "anthropic-messages": (messages_stream, messages_whole, messages_error),
    "gemini": (gemini_stream, gemini_whole, gemini_error),
}
"""By dialect the judges of a stream whose client asked for its usage, of an answer in one piece, and of an error."""


def frames_of(data: bytes) -> Frames:
    """The events of a stream without its comments."""
    frames = [f if isinstance(f, Frame) else Frame(f) for f in sse.Splitter().feed(data)]
    return [(frame.event, frame.data) for frame in frames if frame.comment is None]
