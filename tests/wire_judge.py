"""The judge of what clients of the four model APIs get: every object by the SDK's type, and the order of a stream.

Each function returns the faults that it found. `tests.official` judges what the documents require beyond the types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent

from tests.sdk_types import faults

Json = dict[str, Any]

KNOWN = {
    # Reasoning, which chat completions have no field for, and media.
    *(f"{name}: unknown in {kind}" for name in ("reasoning_content", "reasoning", "reasoning_details", "images", "annotations", "audio") for kind in ("ChoiceDelta", "ChatCompletionMessage")),
    *(f"extra_content: unknown in {kind}" for kind in ("ChoiceDeltaToolCall", "ChatCompletionMessageFunctionToolCall")),
    # What the documents of the Responses API require, or its servers send.
    *(f"{name}: unknown in Response" for name in ("store", "presence_penalty", "frequency_penalty")),
    "name: unknown in ResponseFunctionCallArgumentsDoneEvent",
    "bytes: unknown in Logprob",
    "bytes: unknown in LogprobTopLogprob",
    # Counts that the bridge estimated.
    *(f"estimated: unknown in {kind}" for kind in ("CompletionUsage", "ResponseUsage", "Usage", "MessageDeltaUsage", "GenerateContentResponseUsageMetadata")),
}
"""Fields that the types lack and the wire has."""


def known(found: list[str]) -> list[str]:
    return [each for each in found if each.rpartition(".")[2] not in KNOWN]


# ---------------------------------------------------------------- chat completions


def chat_stream(payloads: Sequence[bytes], *, usage: bool) -> list[str]:
    """`usage`: the client asked for it."""
    if not payloads:
        return ["an empty stream"]
    out: list[str] = []
    done = payloads[-1] == b"[DONE]"
    values = [json.loads(p) for p in payloads if p != b"[DONE]"]
    if values and "error" in values[-1]:
        error = values.pop()
        out += _chat_error(error)
    elif not done:
        out.append("no [DONE]")
    else:
        error = None
    if error is None and usage:
        last = values.pop() if values else {}
        out += known(faults(last, ChatCompletionChunk, "usage chunk"))
        if last.get("choices") != [] or not last.get("usage"):
            out.append("the last chunk holds no usage")
        out += _sum(last.get("usage") or {}, "prompt_tokens", "completion_tokens", "total_tokens")
    ids = set()
    seen: dict[int, Json] = {}
    for n, chunk in enumerate(values):
        out += known(faults(chunk, ChatCompletionChunk, f"[{n}]"))
        ids.add(tuple(chunk.get(k) for k in ("id", "created", "model", "object", "system_fingerprint", "service_tier")))
        if chunk.get("usage") is not None:
            out.append(f"[{n}]: usage beside choices")
        if len(chunk["choices"]) != 1:
            out.append(f"[{n}]: {len(chunk['choices'])} choices")
        for choice in chunk["choices"]:
            out += [f"[{n}] {f}" for f in _chat_choice(choice, seen)]
    if len(ids) > 1:
        out.append(f"the head of chunks changes: {ids}")
    if error is None:
        if 0 not in seen:
            out.append("no choice 0")
        for index, state in seen.items():
            if not state["finish"]:
                out.append(f"choice {index}: no finish_reason")
            if state["finish"] == "tool_calls" and not state["calls"]:
                out.append(f"choice {index}: tool_calls without calls")
            if state["finish"] == "stop" and state["calls"]:
                out.append(f"choice {index}: stop with calls")
            for call in state["calls"]:
                if call["type"] == "function":
                    try:
                        json.loads(call["text"])
                    except ValueError:
                        if call["text"] == "":
                            out.append(f"choice {index}: a call with empty arguments")
    return out


def _chat_choice(choice: Json, seen: dict[int, Json]) -> list[str]:
    out = []
    index, delta = choice["index"], choice["delta"]
    if index not in seen:
        if delta.get("role") != "assistant":
            out.append("no role at first")
        if index > 0 and 0 not in seen:
            out.append("choice 0 does not come first")
        if choice.get("finish_reason"):
            out.append("finish in the first chunk")
        seen[index] = {"finish": None, "calls": [], "first": True}
    elif "role" in delta:
        out.append("role repeated")
    state = seen[index]
    if state["finish"]:
        out.append("something after finish_reason")
    if choice.get("finish_reason"):
        state["finish"] = choice["finish_reason"]
        if delta != {}:
            out.append(f"finish with a delta {delta}")
    elif not state["first"] and delta in ({}, {"content": ""}) and not choice.get("logprobs"):
        out.append("empty delta")
    state["first"] = False
    for name in ("content", "refusal", "reasoning_content", "reasoning"):
        if delta.get(name) == "" and "role" not in delta:
            out.append(f"empty {name}")
    for call in delta.get("tool_calls") or []:
        number = call["index"]
        if number == len(state["calls"]):
            if not call.get("id") or call.get("type") not in ("function", "custom"):
                out.append(f"first fragment without id or type: {call}")
            inner = call.get(call.get("type") or "function") or {}
            if "name" not in inner:
                out.append("first fragment without name")
            state["calls"].append({"text": "", "type": call.get("type")})
        elif number != len(state["calls"]) - 1:
            out.append(f"fragment of call {number} after call {len(state['calls']) - 1} began")
        elif "id" in call or "type" in call or "name" in (call.get("function") or {}):
            out.append(f"id, type or name repeated: {call}")
        inner = call.get("function") or call.get("custom") or {}
        state["calls"][min(number, len(state["calls"]) - 1)]["text"] += inner.get("arguments") or inner.get("input") or ""
    return out


def _chat_error(value: Json) -> list[str]:
    error = value["error"]
    good = set(value) == {"error"} and isinstance(error, dict) and set(error) >= {"message", "type", "param", "code"}
    good = good and isinstance(error["message"], str) and isinstance(error["type"], str)
    good = good and all(error[k] is None or isinstance(error[k], str) for k in ("param", "code"))
    return [] if good and error["message"] else [f"error: {value}"]


def chat_whole(value: Json) -> list[str]:
    out = known(faults(value, ChatCompletion))
    for choice in value["choices"]:
        message = choice["message"]
        if not message.get("tool_calls") and choice["finish_reason"] == "tool_calls":
            out.append("tool_calls without calls")
        if message.get("tool_calls") and choice["finish_reason"] == "stop":
            out.append("stop with calls")
        if message.get("tool_calls") == []:
            out.append("an empty list of calls")
        if "content" not in message:
            out.append("no content")
    if [c["index"] for c in value["choices"]] != list(range(len(value["choices"]))):
        out.append("indices of choices")
    return out + _sum(value.get("usage") or {}, "prompt_tokens", "completion_tokens", "total_tokens")


def chat_error(value: Json) -> list[str]:
    return _chat_error(value)


def _sum(usage: Json, first: str, second: str, total: str) -> list[str]:
    try:
        good = usage[first] + usage[second] == usage[total]
    except (KeyError, TypeError):
        return [f"usage: {usage}"]
    return [] if good else [f"usage does not sum up: {usage}"]


# ---------------------------------------------------------------- Responses


def responses_stream(frames: Sequence[tuple[str | None, bytes]]) -> list[str]:
    out: list[str] = []
    values = [json.loads(data) for _, data in frames]
    if not values:
        return ["an empty stream"]
    for n, ((name, _), value) in enumerate(zip(frames, values, strict=True)):
        out += [f"[{n}]{f}" for f in _response_event(value)]
        if name != value["type"]:
            out.append(f"[{n}]: event {name} is a {value['type']}")
        if value.get("sequence_number") != n:
            out.append(f"[{n}]: sequence_number {value.get('sequence_number')}")
    kinds = [v["type"] for v in values]
    if kinds[:2] != ["response.created", "response.in_progress"]:
        out.append(f"head: {kinds[:2]}")
    if kinds[-1] not in ("response.completed", "response.incomplete", "response.failed"):
        out.append(f"end: {kinds[-1]}")
    ended = [k for k in kinds if k in ("response.completed", "response.incomplete", "response.failed", "error")]
    if len(ended) != 1:
        out.append(f"ends: {ended}")
    if len({v["response"]["id"] for v in values if "response" in v}) != 1:
        out.append("the id of the response changes")
    items = _Items()
    for n, value in enumerate(values[2:-1], 2):
        out += [f"[{n}] {value['type']}: {f}" for f in items.feed(value)]
    out += items.end(values[-1]["response"])
    return out


def _response_event(value: Json) -> list[str]:
    found = known(faults(value, ResponseStreamEvent))
    return found


class _Items:
    """The items of a stream, as their deltas build them."""

    def __init__(self) -> None:
        self.items: list[Json] = []
        self.done: dict[int, Json] = {}
        self.parts: dict[tuple[int, str, int], str | None] = {}
        self.notes: dict[tuple[int, int], list[Any]] = {}

    def feed(self, event: Json) -> list[str]:
        kind = event["type"].removeprefix("response.")
        index = event.get("output_index")
        if kind == "output_item.added":
            out = [] if index == len(self.items) else [f"output_index {index}, expected {len(self.items)}"]
            if len(self.done) != len(self.items):
                out.append("the item before is open")
            if event["item"].get("status") not in (None, "in_progress"):
                out.append(f"status {event['item'].get('status')} at the start")
            if event["item"]["id"] in [i["id"] for i in self.items]:
                out.append("id used twice")
            self.items.append({**event["item"], "#args": ""})
            return out
        if index is None or index >= len(self.items):
            return [f"no item {index}"]
        item = self.items[index]
        if index in self.done:
            return ["the item is done"]
        if kind == "output_item.done":
            self.done[index] = event["item"]
            return self._done(index, item, event["item"])
        if event.get("item_id") != item["id"]:
            return [f"item_id {event.get('item_id')}"]
        return self._inside(kind, index, item, event)

    def _inside(self, kind: str, index: int, item: Json, event: Json) -> list[str]:
        if kind in ("content_part.added", "reasoning_summary_part.added"):
            name = "content_index" if kind.startswith("content") else "summary_index"
            place = (index, name, event[name])
            expected = sum(1 for p in self.parts if p[:2] == place[:2])
            self.parts[place] = ""
            text = event["part"].get("text", event["part"].get("refusal"))
            return ([] if event[name] == expected else [f"{name} {event[name]}, expected {expected}"]) + (
                [] if text == "" else ["the part does not begin empty"]
            )
        if kind.startswith("function_call_arguments") or kind.startswith("custom_tool_call_input"):
            if kind.endswith("delta"):
                item["#args"] += event["delta"]
                return [] if event["delta"] else ["empty delta"]
            text = event.get("arguments", event.get("input"))
            item["#over"] = True
            return [] if text == item["#args"] else [f"done {text!r} is not the deltas {item['#args']!r}"]
        name = "summary_index" if "summary" in kind else "content_index"
        if name not in event:
            return []
        place = (index, name, event[name])
        if self.parts.get(place) is None:
            return [f"no open part {place}"]
        if kind.endswith(".delta"):
            self.parts[place] = (self.parts[place] or "") + event["delta"]
            return [] if event["delta"] else ["empty delta"]
        if kind.endswith("annotation.added"):
            notes = self.notes.setdefault(place[::2], [])
            notes.append(event["annotation"])
            return [] if event["annotation_index"] == len(notes) - 1 else ["annotation_index"]
        if kind in ("output_text.done", "refusal.done", "reasoning_text.done", "reasoning_summary_text.done"):
            text = event.get("text", event.get("refusal"))
            return [] if text == self.parts[place] else [f"done {text!r} is not {self.parts[place]!r}"]
        if kind in ("content_part.done", "reasoning_summary_part.done"):
            text = event["part"].get("text", event["part"].get("refusal"))
            out = [] if text == self.parts[place] else ["part.done is not the deltas"]
            if event["part"]["type"] == "output_text" and event["part"]["annotations"] != self.notes.get(place[::2], []):
                out.append("annotations of part.done were not told")
            self.parts[place] = None
            item.setdefault("#parts", {}).setdefault(name, []).append(event["part"])
            return out
        return []

    def _done(self, index: int, item: Json, done: Json) -> list[str]:
        out = []
        if done.get("id") != item.get("id") or done["type"] != item["type"]:
            out.append("another id or type")
        if any(p[0] == index and v is not None for p, v in self.parts.items()):
            out.append("a part is open")
        told = item.get("#parts", {})
        if done["type"] == "message" and done["content"] != told.get("content_index", []):
            out.append("content is not its parts")
        if done["type"] == "reasoning":
            if done["summary"] != told.get("summary_index", []) or (done.get("content") or []) != told.get("content_index", []):
                out.append("reasoning is not its parts")
        if done["type"] == "function_call":
            if done["arguments"] != item["#args"] or not item.get("#over"):
                out.append("arguments are not the deltas")
            if {k: v for k, v in done.items() if k not in ("arguments", "status")} != {
                k: v for k, v in item.items() if k not in ("arguments", "status") and k[0] != "#"
            }:
                out.append(f"the call changed: {done}")
        if done.get("status") == "in_progress":
            out.append("status in_progress at the end")
        return out

    def end(self, response: Json) -> list[str]:
        out = []
        if set(self.done) != set(range(len(self.items))):
            out.append("items are open at the end")
        if response["output"] != [self.done[n] for n in sorted(self.done)]:
            out.append("the output of the last event is not its items")
        return out + _response(response)


def _response(response: Json) -> list[str]:
    out = []
    status = response["status"]
    if response.get("usage") is not None:
        out += _sum(response["usage"], "input_tokens", "output_tokens", "total_tokens")
    if (status == "failed") != (response.get("error") is not None):
        out.append(f"error {response.get('error')} with status {status}")
    if (status == "incomplete") != (response.get("incomplete_details") is not None):
        out.append(f"incomplete_details {response.get('incomplete_details')} with status {status}")
    if status == "completed" and any(i.get("status") not in (None, "completed") for i in response["output"]):
        out.append("an item of a completed response is not completed")
    return out


def responses_whole(value: Json) -> list[str]:
    return known(faults(value, Response)) + _response(value)


# ---------------------------------------------------------------- Messages


def messages_stream(frames: Sequence[tuple[str | None, bytes]]) -> list[str]:
    out: list[str] = []
    values = [json.loads(data) for _, data in frames]
    for n, ((name, _), value) in enumerate(zip(frames, values, strict=True)):
        if name != value["type"]:
            out.append(f"[{n}]: event {name} is a {value['type']}")
        if value["type"] == "error":
            out += messages_error(value)
        elif value["type"] == "message_start":  # the type of blocks refuses what the type of stops lacks
            out += [f"[{n}]{f}" for f in known(faults(value, RawMessageStreamEvent))]
        elif value["type"] != "ping":
            out += [f"[{n}]{f}" for f in known(faults(value, RawMessageStreamEvent))]
    values = [v for v in values if v["type"] != "ping"]
    if not values or values[0]["type"] != "message_start":
        return [*out, "no message_start"]
    failed = values[-1]["type"] == "error"
    blocks: list[Json] = []
    open_block: int | None = None
    for n, value in enumerate(values[1:], 1):
        kind = value["type"]
        if kind == "content_block_start":
            if open_block is not None or value["index"] != len(blocks):
                out.append(f"[{n}]: block {value['index']} starts, {len(blocks)} expected, open {open_block}")
            open_block = value["index"]
            blocks.append(value["content_block"])
            block = value["content_block"]
            if block.get("text") or block.get("thinking") or block.get("signature") or (block["type"] == "tool_use" and block["input"]):
                out.append(f"[{n}]: the block does not begin empty")
            pieces: list[Json] = []
        elif kind == "content_block_delta":
            if value["index"] != open_block:
                out.append(f"[{n}]: delta of {value['index']}, open {open_block}")
            pieces.append(value["delta"])
        elif kind == "content_block_stop":
            if value["index"] != open_block:
                out.append(f"[{n}]: stop of {value['index']}, open {open_block}")
            out += [f"[{n}]: {f}" for f in _block(blocks[-1], pieces)]
            open_block = None
        elif kind == "message_start":
            out.append("message_start repeated")
        elif kind in ("message_delta", "message_stop"):
            if open_block is not None:
                out.append(f"{kind} with an open block")
    kinds = [v["type"] for v in values]
    if failed:
        if "message_delta" in kinds or "message_stop" in kinds or kinds.count("error") != 1:
            out.append("an end beside an error")
        if open_block is not None:
            out.append("a block is open at the error")
    else:
        if kinds[-2:] != ["message_delta", "message_stop"] or kinds.count("message_delta") != 1:
            out.append(f"end: {kinds[-2:]}")
        else:
            called = any(b["type"] == "tool_use" for b in blocks)
            out += _stop(values[-2]["delta"], called)
    return out


_FIELDS = {
    "text_delta": ("text",),
    "citations_delta": ("text",),
    "thinking_delta": ("thinking",),
    "signature_delta": ("thinking",),
    "input_json_delta": ("tool_use", "server_tool_use", "mcp_tool_use"),
}


def _block(block: Json, pieces: list[Json]) -> list[str]:
    out = []
    for piece in pieces:
        if block["type"] not in _FIELDS.get(piece["type"], (block["type"],)):
            out.append(f"{piece['type']} in a {block['type']}")
        for name in ("text", "thinking", "partial_json"):
            if piece.get(name) == "":
                out.append(f"empty {name}")
    if block["type"] == "text" and not pieces:
        out.append("an empty text")
    if block["type"] == "tool_use":
        text = "".join(p.get("partial_json", "") for p in pieces)
        if not re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]):
            out.append(f"id {block['id']}")
        if not text:
            out.append("no input")
        try:
            if not isinstance(json.loads(text), dict):
                out.append(f"input {text}")
        except ValueError:
            out.append(f"input {text}")
    return out


def _stop(end: Json, called: bool) -> list[str]:
    word = end["stop_reason"]
    if word is None:
        return ["no stop_reason"]
    if (word == "tool_use") != called and word in ("tool_use", "end_turn"):
        return [f"stop_reason {word}, called {called}"]
    if (word == "refusal") != (end.get("stop_details") is not None) and end.get("stop_details"):
        return [f"stop_details {end['stop_details']} with {word}"]
    return []


def messages_whole(value: Json) -> list[str]:
    out = known(faults(value, Message))
    out += _stop(value, any(b["type"] == "tool_use" for b in value["content"]))
    out += [f"empty text block {n}" for n, b in enumerate(value["content"]) if b["type"] == "text" and not b["text"]]
    return out


def messages_error(value: Json) -> list[str]:
    good = set(value) <= {"type", "error", "request_id"} and value["type"] == "error"
    kinds = ("invalid_request_error", "authentication_error", "billing_error", "permission_error", "not_found_error",
             "request_too_large", "rate_limit_error", "api_error", "timeout_error", "overloaded_error")
    good = good and value["error"].get("type") in kinds and bool(value["error"].get("message"))
    return [] if good else [f"error: {value}"]


# ---------------------------------------------------------------- Gemini


def gemini_stream(payloads: Sequence[bytes], kind: Any) -> list[str]:
    out: list[str] = []
    values = [json.loads(p) for p in payloads]
    if not values:
        return ["an empty stream"]
    failed = "error" in values[-1]
    if failed:
        out += gemini_error(values.pop())
    finished: set[int] = set()
    heads = set()
    for n, value in enumerate(values):
        out += known(faults(value, kind, f"[{n}]"))
        heads.add((value.get("modelVersion"), value.get("responseId")))
        for candidate in value.get("candidates", []):
            index = candidate.get("index", 0)
            if index in finished:
                out.append(f"[{n}]: candidate {index} after its end")
            if candidate.get("finishReason"):
                finished.add(index)
            out += [f"[{n}]: {f}" for f in _parts(candidate)]
        if "usageMetadata" in value:
            out += _counts(value["usageMetadata"])
    if len(heads) > 1:
        out.append(f"heads {heads}")
    if not failed:
        last = values[-1]
        if "promptFeedback" not in last and not all(c.get("finishReason") for c in last.get("candidates") or [{}]):
            out.append("no finishReason in the last chunk")
        if "usageMetadata" not in last:
            out.append("no usage in the last chunk")
        if "promptFeedback" not in last and 0 not in finished:
            out.append("no finish of candidate 0")
    elif finished:
        out.append("finishReason beside an error")
    return out


_KINDS = {
    "text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult",
    "toolCall", "toolResponse",
}  # fmt: skip


def _parts(candidate: Json) -> list[str]:
    out = []
    content = candidate.get("content") or {}
    if content.get("role") != "model":
        out.append("role")
    if not content.get("parts"):
        out.append("no parts")
    for part in content.get("parts") or []:
        if len(_KINDS & set(part)) != 1 and not part.get("thoughtSignature"):
            out.append(f"part {part}")
        if "functionCall" in part and not isinstance(part["functionCall"].get("args"), dict):
            out.append(f"args {part}")
    return out


def _counts(usage: Json) -> list[str]:
    total = sum(
        usage.get(name) or 0
        for name in ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount")
    )
    return [] if total == usage.get("totalTokenCount", 0) else [f"usage does not sum up: {usage}"]


def gemini_whole(value: Json, kind: Any) -> list[str]:
    out = known(faults(value, kind))
    for candidate in value.get("candidates", []):
        out += _parts(candidate)
        if not candidate.get("finishReason"):
            out.append("no finishReason")
    return out + (_counts(value["usageMetadata"]) if "usageMetadata" in value else ["no usage"])


def gemini_error(value: Json) -> list[str]:
    error = value.get("error") or {}
    good = set(value) == {"error"} and set(error) <= {"code", "message", "status", "details"}
    good = good and type(error.get("code")) is int and 400 <= error["code"] < 600 and bool(error.get("status"))
    return [] if good and error.get("message") else [f"error: {value}"]
