"""The judge of Responses: the types of the SDK and of the documents, the rules that the helper enforces, and that the
deltas of a stream add up to its items and these to its last response.

The SDK's client itself forgives almost everything, since it makes objects without checking them.
"""

from __future__ import annotations

import json
from typing import Any

from openai import AsyncOpenAI
from openai.types.responses import Response, ResponseStreamEvent

from tests.official import judge_response
from tests.sdk_types import faults

Json = dict[str, Any]

_LACKING = frozenset({
    *(f"{name}: unknown in Response" for name in ("store", "presence_penalty", "frequency_penalty")),
    "name: unknown in ResponseFunctionCallArgumentsDoneEvent",
    "bytes: unknown in Logprob",
    "bytes: unknown in LogprobTopLogprob",
    "estimated: unknown in ResponseUsage",
    "error: unknown in ResponseErrorEvent",
})  # fmt: skip
"""Fields that the SDK's types lack and the documents have, or servers send; and the mark of estimated counts."""
_SUM = "usage: the total is another one"
_PARTS = {
    "content_part": "content_index",
    "output_text": "content_index",
    "refusal": "content_index",
    "reasoning_text": "content_index",
    "reasoning_summary_part": "summary_index",
    "reasoning_summary_text": "summary_index",
}
"""The families of events about parts, and the field that counts these parts."""


def judge(events: list[Json]) -> None:
    """Every event by its type, then the whole stream. Fields and sums may be the backend's own."""
    for event in events:
        if "response" in event:
            judge_response(event["response"])
    faults_found = [fault for fault in stream_faults(events) if ": unknown in " not in fault]
    assert [fault for fault in faults_found if not fault.startswith(_SUM)] == []


async def wire_events(client: AsyncOpenAI, response_id: str | None = None, **asked: Any) -> list[Json]:
    """Return the events of a stream as they are on the wire: the SDK raises at `error` and hides what follows it.

    The stream is that of a new response, or of the stored one with this id.
    """
    api = client.responses.with_streaming_response
    begun = api.retrieve(response_id, stream=True) if response_id else api.create(**asked, stream=True)
    async with begun as reply:
        return [json.loads(line[5:]) for line in (await reply.read()).split(b"\n") if line.startswith(b"data:")]


def stream_faults(events: list[Json]) -> list[str]:
    """Return what is wrong with a stream, from its first event to its last."""
    out = [f"[{n}]{fault}" for n, event in enumerate(events) for fault in _typed(event, ResponseStreamEvent)]
    kinds = [event["type"] for event in events]
    last = events[-1].get("response")
    if last is None or kinds[-1] not in ("response.completed", "response.incomplete", "response.failed"):
        return [*out, f"the last event is {kinds[-1]}"]
    queued = ["response.queued"] if last.get("background") else []
    head = ["response.created", *queued, "response.in_progress"]
    if kinds[: len(head)] != head:
        out.append(f"the first events are {kinds[: len(head)]}")
    if [event["sequence_number"] for event in events] != list(range(len(events))):
        out.append("sequence_number does not count the events")
    if len({event["response"]["id"] for event in events if "response" in event}) != 1:
        out.append("the id of the response changes")
    # The API has a status for a cancellation, and no event.
    named = "failed" if last["status"] == "cancelled" else last["status"]
    if kinds[-1] != f"response.{named}":
        out.append(f"{kinds[-1]} with the status {last['status']}")
    ending = 1
    if last["status"] == "failed":
        ending = 2
        if kinds[-2] != "error":
            out.append(f"no error before response.failed, but {kinds[-2]}")
        else:
            out += _error_rules(events[-2])
    items = _Items()
    for number, event in enumerate(events[len(head) : -ending], len(head)):
        out += [f"[{number}] {event['type']}: {fault}" for fault in items.feed(event)]
    if set(items.done) != set(range(len(items.opened))):
        out.append("an item is open at the end")
    if last["output"] != [items.done[index] for index in sorted(items.done)]:
        out.append("the last output is not the items")
    return out + response_rules(last)


def response_faults(response: Json) -> list[str]:
    """Return what is wrong with a response in one piece."""
    return _typed(response, Response) + response_rules(response)


def response_rules(response: Json) -> list[str]:
    """Return what no type says of a response that has ended."""
    out = []
    status, usage = response["status"], response.get("usage")
    if usage is not None and usage["input_tokens"] + usage["output_tokens"] != usage["total_tokens"]:
        out.append(f"{_SUM}: {usage}")
    if (status == "failed") is (response["error"] is None):
        out.append(f"status {status} with the error {response['error']}")
    if (status == "incomplete") is (response["incomplete_details"] is None):
        out.append(f"status {status} with incomplete_details {response['incomplete_details']}")
    return out


def _error_rules(event: Json) -> list[str]:
    """The fields that the documents require, null included, and the object that SDKs read, which says the same."""
    flat = {name: event.get(name, "absent") for name in ("code", "message", "param")}
    match event:
        case {"code": _, "message": _, "param": _, "error": {"type": str(), **nested}} if nested == flat:
            return []
    return [f"an error event of another shape: {event}"]


def _typed(value: Json, kind: Any) -> list[str]:
    return [fault for fault in faults(_with_a_listed_code(value), kind) if fault.rpartition(".")[2] not in _LACKING]


def _with_a_listed_code(value: Json) -> Json:
    """Return the event with a code of the closed list in place of the one that the API sends besides
    (openai/codex#4675).
    """
    error = (value.get("response") or {}).get("error") or {}
    if error.get("code") != "context_length_exceeded":
        return value
    return {**value, "response": {**value["response"], "error": {**error, "code": "invalid_prompt"}}}


class _Items:
    """The items of a stream, as its deltas make them. `told` are the parts of each item that are over, by their
    counter.
    """

    def __init__(self) -> None:
        self.opened: list[Json] = []
        self.done: dict[int, Json] = {}
        self._arguments: dict[int, str] = {}
        self._parts: dict[tuple[int, str, int], str] = {}
        self._notes: dict[tuple[int, str, int], list[Any]] = {}
        self._told: dict[tuple[int, str], list[Json]] = {}

    def feed(self, event: Json) -> list[str]:
        """Return what is wrong with the next event."""
        kind, index = event["type"].removeprefix("response."), event.get("output_index")
        if kind == "output_item.added":
            return self._added(index, event["item"])
        if index is None or index >= len(self.opened) or index in self.done:
            return [f"item {index} is not open"]
        item = self.opened[index]
        if kind == "output_item.done":
            self.done[index] = event["item"]
            return self._ended(index, item, event["item"])
        if event.get("item_id") != item["id"]:
            return [f"item_id {event.get('item_id')} in item {item['id']}"]
        family, _, step = kind.rpartition(".")
        if family in ("function_call_arguments", "custom_tool_call_input"):
            return self._argument(index, step, event)
        if family == "output_text.annotation":
            notes = self._notes.setdefault((index, "content_index", event["content_index"]), [])
            notes.append(event["annotation"])
            return [] if event["annotation_index"] == len(notes) - 1 else ["annotation_index does not count"]
        return self._part(index, family, step, event) if family in _PARTS else []

    def _added(self, index: Any, item: Json) -> list[str]:
        out = [] if index == len(self.opened) else [f"output_index {index} of item {len(self.opened)}"]
        if len(self.done) < len(self.opened):
            out.append("the item before is still open")
        if any(other["id"] == item["id"] for other in self.opened):
            out.append(f"the id {item['id']} for the second time")
        self.opened.append(item)
        return out

    def _argument(self, index: int, step: str, event: Json) -> list[str]:
        if step == "delta":
            self._arguments[index] = self._arguments.get(index, "") + event["delta"]
            return [] if event["delta"] else ["an empty delta"]
        whole = event.get("arguments", event.get("input"))
        return [] if whole == self._arguments.get(index, "") else [f"{whole!r} is not what the deltas said"]

    def _part(self, index: int, family: str, step: str, event: Json) -> list[str]:
        counter = _PARTS[family]
        place = (index, counter, event[counter])
        if step == "added":
            known = self._told.setdefault((index, counter), [])
            self._parts[place] = ""
            return [] if event[counter] == len(known) and not _text(event["part"]) else ["not an empty next part"]
        if place not in self._parts:
            return [f"part {event[counter]} is not open"]
        if step == "delta":
            self._parts[place] += event["delta"]
            return [] if event["delta"] else ["an empty delta"]
        if not family.endswith("part"):
            return [] if _text(event) == self._parts[place] else [f"{_text(event)!r} is not what the deltas said"]
        part = event["part"]
        self._told[index, counter].append(part)
        out = [] if _text(part) == self._parts.pop(place) else ["the part is not what the deltas said"]
        if part.get("annotations", []) != self._notes.get(place, []):
            out.append("the annotations of the part were not told one by one")
        return out

    def _ended(self, index: int, item: Json, done: Json) -> list[str]:
        out = []
        if (done["id"], done["type"]) != (item["id"], item["type"]) or done.get("status") == "in_progress":
            out.append(f"the item ends as {done}")
        if any(place[0] == index for place in self._parts):
            out.append("a part is still open")
        if done["type"] in ("message", "reasoning"):
            for field, counter in (("content", "content_index"), ("summary", "summary_index")):
                if (done.get(field) or []) != self._told.get((index, counter), []):
                    out.append(f"{field} is not the parts")
        if done["type"] == "function_call" and done["arguments"] != self._arguments.get(index):
            out.append("the arguments are not what the deltas said")
        return out


def _text(value: Json) -> str:
    text: str = value["refusal"] if "refusal" in value else value["text"]
    return text
