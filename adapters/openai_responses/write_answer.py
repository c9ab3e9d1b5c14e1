"""Events -> the stream of a response: items one after another, each with its whole life, every event numbered.

Clients refuse an event too few, an index used twice, an id that changes: each item gets the next index, and the last
event repeats all of them. Per token only the text is dumped; the bytes around it are made when the part begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.contract import KEEPALIVE, Context, Feature, Frame
from bridge.contract.wire import fits_line
from bridge.dialects.openai.free_text import input_of
from bridge.dialects.openai_responses import client_tools
from bridge.dialects.openai_responses.capabilities import card
from bridge.dialects.openai_responses.compaction import Compaction, is_object, is_wanted
from bridge.dialects.openai_responses.declared import declared
from bridge.dialects.openai_responses.errors import error_event, stream_error
from bridge.dialects.openai_responses.options import FrontOptions, reasoning_form
from bridge.dialects.openai_responses.raw import RawItems
from bridge.dialects.openai_responses.response import QUEUED, is_background, new_response, overlaid
from bridge.dialects.openai_responses.stored import facts, keep, ours
from bridge.dialects.openai_responses.wire import NAME, SUMMARY, own, write_usage
from bridge.dialects.openai_responses.write_items import (
    ARGUMENTS,
    FREE,
    INPUT,
    MESSAGE,
    REFUSAL,
    SUMMARY_TEXT,
    TEXT,
    THOUGHT,
    Item,
    Wire,
    Writing,
    call_item,
    free_call_item,
    half_done,
    message_item,
    reasoning_item,
    text_part,
)
from bridge.errors import BridgeError, Failure
from bridge.model import FinishReason, MessageStatus, PartKind, seal
from bridge.model import events as ev
from bridge.model.events import Event
from bridge.model.jsontext import dict_of
from bridge.toolkit import Encoder
from bridge.toolkit.citations import citations_in
from bridge.toolkit.logprobs import logprobs_in

_CUT = {FinishReason.LENGTH: "max_output_tokens", FinishReason.CONTENT_FILTER: "content_filter"}


class ResponsesEncoder(Encoder):
    """One per run. `final` is the response object of the last event, None before it."""

    dialect = NAME
    free = FREE
    keeps = (Feature.USAGE,)

    def __init__(self, context: Context) -> None:
        options = FrontOptions.of(context)
        self._background = is_background(context)
        super().__init__(context, card(options.media, background=self._background))
        self.final: Wire | None = None
        self._failure: Failure | None = None
        self._compaction = Compaction(context.make_id) if is_wanted(context.request) else None
        self._number = len(QUEUED) if self._background else 0
        self._response: Wire = {}
        self._output: dict[int, Wire] = {}
        self._count = 0
        self._ids: set[str] = set()
        self._raw = RawItems()
        self._messages: dict[str, ev.MessageStarted] = {}
        self._item: Item | None = None
        self._started: ev.PartStarted | None = None
        self._writing: Writing | None = None
        self._declared = declared(context.request)
        self._free: list[str] | None = None
        self._client: tuple[str, ev.PartStarted] | None = None

    def ready(self, events: Sequence[Event]) -> Sequence[Event]:
        return events if self._compaction is None else self._compaction(events)

    def so_far(self) -> Wire:
        """The response as it is before its last event."""
        output = dict(self._output)
        if self._item is not None:
            output[self._item.index] = half_done(self._item, self._writing)
        return {**self._response, "output": [output[index] for index in sorted(output)]}

    # ------------------------------------------------------------------ per token

    def text(self, event: ev.TextDelta | ev.ReasoningDelta | ev.ArgsDelta) -> None:
        writing = self._writing
        if event.extras and self._noted(event):
            return
        if not event.text:
            return
        if writing is None:
            if self._free is not None:  # its text is inside the arguments, which have to be whole
                self._free.append(event.text)
                return
            writing = self._begin_thought()
        writing.pieces.append(event.text)
        number = self._number
        self._number = number + 1
        self.out.append(Frame(writing.template(event.text, number), writing.words.delta))

    reasoning = arguments = text

    def _noted(self, event: ev.TextDelta | ev.ReasoningDelta | ev.ArgsDelta) -> bool:
        """Write a piece of this dialect with more than text. Return whether it is written completely."""
        notes, writing = own(event.extras), self._writing
        if border := notes.get("border"):
            self._end_thought()
            self._begin_thought(str(border))
            return True
        logprobs = logprobs_in(event.extras)
        if not logprobs or writing is None:
            return False
        writing.logprobs += logprobs
        if not event.text:
            return True
        writing.pieces.append(event.text)
        self._write(writing.words.delta, {**writing.place, "delta": event.text, "logprobs": logprobs})
        return True

    # ------------------------------------------------------------------ writing

    def _write(self, kind: str, fields: Wire) -> None:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        # A backend may choose the kind of an event: one that no line can hold is in the payload only.
        self.write(event, kind if fits_line(kind) else None)

    def _open(self, value: Wire, owner: str = "") -> Item:
        """Opens an item, after closing the one that was open."""
        self._close_item()
        item = self._item = Item(self._take_index(value), value, owner)
        self._write("response.output_item.added", {"output_index": item.index, "item": value})
        return item

    def _close_item(self, status: str = "completed") -> None:
        item, self._item = self._item, None
        if item is None:
            return
        if item.value.get("status") == "in_progress":
            item.value["status"] = status
        self._output[item.index] = item.value
        self._write("response.output_item.done", {"output_index": item.index, "item": item.value})

    def _new_id(self, prefix: str, wanted: Any = None) -> str:
        chosen = ours(wanted, self.context) if isinstance(wanted, str) and wanted else self.context.make_id(prefix)
        while chosen in self._ids:
            chosen = self.context.make_id(prefix)
        self._ids.add(chosen)
        return chosen

    # ------------------------------------------------------------------ messages and their parts

    def message_started(self, event: ev.MessageStarted) -> None:
        self._messages[event.message_id] = event

    def message_ended(self, event: ev.MessageEnded) -> None:
        item = self._item
        if item is not None and item.owner == event.message_id:
            item.value.update(own(event.extras).get("item", {}))
            self._close_item("completed" if event.status is MessageStatus.COMPLETED else "incomplete")

    def _join(self, owner: str) -> Item:
        """The open message item when it is this message's, otherwise a new one."""
        item = self._item
        if item is not None and item.value["type"] == MESSAGE and item.owner == owner:
            return item
        notes = own(self._messages[owner].extras)
        # Ids of items contain the id of a stored response; only items of this dialect keep their own.
        stored_responses = self.context.stored_responses
        borrowed = owner.startswith("msg_") and not (stored_responses is not None and stored_responses.wanted)
        wanted = notes.get("id") or (owner if borrowed else None)
        return self._open(message_item(self._new_id("msg", wanted), notes.get("item", {})), owner)

    def part_started(self, event: ev.PartStarted) -> None:
        self._started = event
        if event.kind is PartKind.TOOL_CALL:
            self._call_started(event)
        elif event.kind is not PartKind.REASONING:
            self._begin_text(self._join(event.message_id), event.kind)

    def _begin_text(self, item: Item, kind: PartKind) -> None:
        words, part = TEXT, text_part("", [])
        if kind is PartKind.REFUSAL:
            words, part = REFUSAL, {"type": "refusal", "refusal": ""}
        writing = self._writing = Writing.of(item, words, len(item.value["content"]))
        self._write("response.content_part.added", {**writing.place, "part": part})

    def _end_text(self, more: Wire) -> None:
        """`more`: the fields of the part that only this dialect knows; its annotations are written one by one."""
        writing, self._writing = self._writing, None
        assert writing is not None
        if writing.words is REFUSAL:
            content: Wire = {"refusal": writing.text}
            part = {"type": "refusal", **content, **more}
        else:
            content = {"text": writing.text, "logprobs": writing.logprobs}
            part = {**text_part(writing.text, writing.logprobs), **more}
        self._write(writing.words.done, {**writing.place, **content})
        annotations = more.get("annotations")
        for number, annotation in enumerate(annotations if isinstance(annotations, list) else []):
            fields = {**writing.place, "annotation_index": number, "annotation": annotation}
            self._write("response.output_text.annotation.added", fields)
        self._write("response.content_part.done", {**writing.place, "part": part})
        writing.item.value["content"].append(part)

    def part_ended(self, event: ev.PartEnded) -> None:
        started, self._started = self._started, None
        assert started is not None
        notes = own(event.extras) or own(started.extras)
        if started.kind is PartKind.TOOL_CALL:
            self._call_ended(notes)
        elif started.kind is PartKind.REASONING:
            self._reasoning_ended(started, event, notes)
        else:
            more = notes.get("part", {})
            if event.extras and "annotations" not in more and self._writing is not None:
                found = citations_in(event.extras, self.lost, sum(map(len, self._writing.pieces)))
                if found:
                    more = {**more, "annotations": [{"type": "url_citation", **each} for each in found]}
            self._end_text(more)

    # ------------------------------------------------------------------ calls

    def _call_started(self, event: ev.PartStarted) -> None:
        notes = own(event.extras)
        known = self._declared.get(event.name or "", {})
        if notes and not (known.get("free") or known.get("named")):  # servers that know functions alone make such calls
            known = {}
        if kind := known.get("client"):
            self._free, self._client = [], (kind, event)
            return
        head = (event.call_id or "", event.name or "")
        if known.get("free"):
            self._free = []
            self._open(free_call_item(self._new_id("ctc"), *head, known.get("named") or {}))
            return
        more = known.get("named") or notes.get("item", {})
        value = call_item(self._new_id("fc", notes.get("id")), *head, more)
        self._writing = Writing.of(self._open(value), ARGUMENTS)

    def _call_ended(self, notes: Wire) -> None:
        if self._client is not None:
            self._client_call(*self._client, "".join(self._free or ()))
            self._client = self._free = None
            return
        writing, item = self._writing, self._item
        assert item is not None
        if self._free is not None:
            text, self._free = input_of("".join(self._free)), None
            item.value["input"] = text
            if text:
                self._write(INPUT.delta, {**item.place, "delta": text})
            self._write(INPUT.done, {**item.place, "input": text})
            self._close_item()
            return
        assert writing is not None
        if not any(map(str.strip, writing.pieces)):  # clients parse the arguments, and white space is no JSON
            writing.pieces.append("{}")
            self._write(ARGUMENTS.delta, {**writing.place, "delta": "{}"})
        item.value["arguments"] = writing.text
        self._write(ARGUMENTS.done, {**writing.place, "name": item.value["name"], "arguments": writing.text})
        item.value.update(notes.get("item", {}))
        self._writing = None
        self._close_item()

    def _client_call(self, kind: str, event: ev.PartStarted, arguments: str) -> None:
        """Write a call of a tool of OpenAI's own, whose item has its arguments; one that does not fit as it came."""
        wire_id = self._new_id(client_tools.KINDS[kind].prefix)
        item = client_tools.call_item(kind, wire_id, event.call_id or "", arguments)
        if item is not None:
            self._open(item)
            self._close_item()
            return
        value = call_item(self._new_id("fc"), event.call_id or "", event.name or "", {})
        self._writing = Writing.of(self._open(value), ARGUMENTS)
        self._free = self._client = None
        self.text(ev.ArgsDelta("", arguments))
        self._call_ended({})

    # ------------------------------------------------------------------ reasoning

    def _reasoning_open(self) -> Item:
        item, started = self._item, self._started
        assert started is not None
        if item is None or item.owner != started.part_id:
            notes = own(started.extras)
            wire_id = self._new_id("rs", notes.get("id"))
            item = self._open(reasoning_item(wire_id, notes.get("item", {})), started.part_id)
        return item

    def _begin_thought(self, form: str | None = None) -> Writing:
        """Write the first piece of reasoning, or of its next part. The helper of the npm package accepts a piece of a
        content part only after the part's begin.
        """
        assert self._started is not None
        item = self._reasoning_open()
        form = form or own(self._started.extras).get("form") or reasoning_form(self.context)
        words = SUMMARY_TEXT if form == SUMMARY else THOUGHT
        writing = self._writing = Writing.of(item, words, len(item.value.setdefault(words.within, [])))
        self._write(f"{words.around}.added", {**writing.place, "part": words.part("")})
        return writing

    def _end_thought(self) -> None:
        writing, self._writing = self._writing, None
        if writing is None:
            return
        words, part = writing.words, writing.words.part(writing.text)
        self._write(words.done, {**writing.place, "text": writing.text})
        self._write(f"{words.around}.done", {**writing.place, "part": part})
        writing.item.value[words.within].append(part)

    def _reasoning_ended(self, started: ev.PartStarted, event: ev.PartEnded, notes: Wire) -> None:
        """An empty one leaves no trace, unless something of it must come back."""
        self._started = started
        self._end_thought()
        secret = seal(event.signature, event.redacted)
        if secret or notes.get("id"):
            self._reasoning_open()
        item, self._started = self._item, None
        if item is not None and item.owner == started.part_id:
            item.value.update(notes.get("item", {}))
            if secret:
                item.value["encrypted_content"] = secret
            self._close_item()

    # ------------------------------------------------------------------ whole things

    def content(self, event: ev.ContentAdded) -> None:
        self._whole_item(own(event.part.extras)["whole"])

    def _whole_item(self, value: Wire) -> None:
        """Write an item that other dialects get as a medium, and clients of this one unchanged."""
        index, told = self._raw.index_of(value.get("id")), self._named(value)
        if index is None:
            self._close_item()
            index = self._take_index(value)
            self._write("response.output_item.added", {"output_index": index, "item": told})
        self._output[index] = told
        self._write("response.output_item.done", {"output_index": index, "item": told})

    def _named(self, item: Wire) -> Wire:
        """A backend's item under the id that clients know."""
        return {**item, "id": ours(item["id"], self.context)} if "id" in item else item

    def _take_index(self, item: Wire, theirs: Any = None) -> int:
        index, self._count = self._count, self._count + 1
        self._raw.note(item.get("id"), theirs, index)
        return index

    def raw(self, event: ev.Raw) -> None:
        """An event of this dialect's own, as it came, with this stream's numbers."""
        value = event.value
        if not isinstance(value, dict) or not isinstance(value.get("type"), str):
            self.lost.add_raw(event)
            return
        fields = {k: v for k, v in value.items() if k not in ("type", "sequence_number")}
        item = dict_of(value.get("item"))
        if "output_index" in value:
            index = self._raw.index_of(item.get("id") or value.get("item_id"), value["output_index"])
            if index is None and item:
                self._close_item()
                index = self._take_index(item, value["output_index"])
            if index is not None:
                fields["output_index"] = index
                if value["type"] == "response.output_item.done":
                    self._output[index] = self._named(item)
        if item:
            fields["item"] = self._named(item)
        if "item_id" in value:
            fields["item_id"] = ours(value["item_id"], self.context)
        self._write(value["type"], fields)

    # ------------------------------------------------------------------ the rest

    def run_started(self, event: ev.RunStarted) -> None:
        self._response = new_response(event, self.context)
        for kind in ("response.in_progress",) if self._background else ("response.created", "response.in_progress"):
            self._write(kind, {"response": self._response})

    def heartbeat(self, event: ev.Heartbeat) -> None:
        # Not `response.created` before the backend's own: that names the response, and clients send its id back as
        # `previous_response_id`. The official SDKs and Codex skip comments, as readers of event streams must.
        self.out.append(KEEPALIVE)

    # ------------------------------------------------------------------ the end

    def finished(self, event: ev.RunFinished) -> None:
        notes = own(event.extras)
        more = dict_of(notes.get("response"))
        if event.reason is FinishReason.CANCELED:
            self._end("cancelled", more)
        elif event.reason in _CUT:
            details = notes.get("incomplete_details") or {"reason": _CUT[event.reason]}
            self._end("incomplete", {**more, "incomplete_details": details})
        else:
            ended = self._response["created_at"] if event.ended_at is None else event.ended_at
            self._end("completed", {**more, "completed_at": int(ended)})

    def failed(self, event: ev.RunFailed) -> None:
        self._end("failed", dict_of(own(event.extras).get("response")), event.error)

    def _end(self, status: str, more: Wire, failure: Failure | None = None) -> None:
        self._close_item("completed" if status == "completed" else "incomplete")
        self._failure = failure
        # Clients that read null take the answer for one that broke off.
        usage = self.counted() if status in ("completed", "incomplete") else self.usage
        self.final = {
            **overlaid(self._response, more),
            **facts(self.context.stored_responses),
            "status": status,
            "error": None if failure is None else stream_error(failure),
            "output": [self._output[index] for index in sorted(self._output)],
            "usage": None if usage is None else write_usage(usage),
        }
        if failure is not None:
            self._write("error", error_event(failure))
        # Clients have no event of this name; the status is in the response.
        self._write(f"response.{'failed' if status == 'cancelled' else status}", {"response": self.final})
        if failure is None and not self._background:
            keep(self.final, self.context)

    def accumulate(self, frames: Sequence[Wire]) -> Wire | None:
        """Return the response of the last event. Raises the failure of a compaction that has no summary."""
        if self._failure is not None:
            raise BridgeError.of(self._failure)
        final = self.final
        if final is not None and is_object(self.context.request):
            return {"object": "response.compaction", **{k: final[k] for k in ("id", "created_at", "output", "usage")}}
        return final
