"""Events -> chunks, in the strict form of the official API and nothing else.

Real clients concatenate, append and overwrite what they get, so each fact is sent once, in the order they expect. Per
token only the text is dumped (`Template`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bridge.contract import KEEPALIVE, Context, Feature
from bridge.dialects.openai.errors import error_object
from bridge.dialects.openai.free_text import input_of
from bridge.dialects.openai_chat.audio import TRANSCRIPT
from bridge.dialects.openai_chat.capabilities import card_of
from bridge.dialects.openai_chat.options import FrontOptions
from bridge.dialects.openai_chat.shape import (
    audio_of,
    finish_word,
    first_keys,
    id_of,
    image_of,
    model_of,
    wants_details,
    wants_usage,
)
from bridge.dialects.openai_chat.whole_answer import BESIDE, AddedLists, ClientChoice, WholeChoice
from bridge.dialects.openai_chat.wire import CUSTOM, DONE, NAME, fields_of_call, free_text_tools, own, write_usage
from bridge.model import (
    ArgsDelta,
    ContentAdded,
    Extras,
    Heartbeat,
    MessageEnded,
    PartEnded,
    PartKind,
    PartStarted,
    Raw,
    ReasoningDelta,
    RunFailed,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolResulted,
)
from bridge.model.jsontext import dumps
from bridge.toolkit import Encoder
from bridge.toolkit.citations import citations_in
from bridge.toolkit.template import HOLE, Template, filled
from bridge.toolkit.tools import FUNCTION

# Read once: a member of an enumeration is slow to look up in Python 3.11.
_TEXT, _REASONING, _TOOL_CALL = PartKind.TEXT, PartKind.REASONING, PartKind.TOOL_CALL
_DELTAS: dict[PartKind, dict[str, Any]] = {PartKind.TEXT: {"content": HOLE}, PartKind.REFUSAL: {"refusal": HOLE}}
_MOST_CHOICES = 128
"""The largest `n` of the API."""
_CONSTANT = ("system_fingerprint", "service_tier")
_OURS = frozenset({"id", "object", "created", "model", "choices", "usage", "error"})


@dataclass(slots=True)
class _Part:
    """An open part. `delta` is one of its pieces, with a hole for its text, and `template` the whole chunk, None in an
    answer that is added up. `length` counts the characters of the pieces, `start` those of the choice's text before
    them; None of what is no text.
    """

    choice: int
    delta: dict[str, Any]
    template: Template | None
    call: int | None = None
    bare: bool = False
    extras: dict[str, Any] | None = None
    thought: int | None = None
    length: int = 0
    start: int | None = None


@dataclass(slots=True)
class _HeldCall:
    """An open call of a tool with free text as input, which stands inside of the arguments."""

    choice: int
    number: int
    is_flat: bool
    pieces: list[str] = field(default_factory=list)


class ChatEncoder(Encoder):
    """One per run. An answer in one piece is what its chunks add up to, which are not made for it."""

    dialect = NAME
    free = Encoder.free | {ToolResulted, RunFinished, RunFailed}
    keeps = (Feature.IMAGE,)

    def __init__(self, context: Context, options: FrontOptions) -> None:
        super().__init__(context, card_of(options), _lane)
        self._options = options
        self._details = False
        self._head: dict[str, Any] = {}
        self._first: dict[str, Any] | None = None
        """What only the first chunk has."""
        self._choices: dict[int, ClientChoice] = {}
        self._opened = 0
        """All choices below this number are open."""
        self._parts: dict[str, _Part | None] = {}
        """The open parts; None is one that clients have in `audio`, or that is held."""
        self._free: dict[str, bool] | None = None
        self._held: dict[str, _HeldCall] | None = None
        self._beside: list[dict[str, Any]] = []
        """What an answer in one piece has beside its head and its choices; the first value of a field counts."""

    # -------------------------------------------------------------- per token

    def text(self, event: TextDelta | ReasoningDelta | ArgsDelta) -> None:
        part = self._parts[event.part_id]
        if part is None:
            if self._held is not None and (held := self._held.get(event.part_id)) is not None:
                held.pieces.append(event.text)
            return
        text = event.text
        if text:
            if part.start is not None and not part.length:
                separator = self.separator_before(event.part_id)
                part.start += separator
                part.length = -separator
            part.length += len(text)
            if part.bare:
                part.bare = text.isspace()
        beside = own(event.extras) if event.extras else None
        if beside:
            delta = filled(part.delta, text) if text else {}
            self._say(part.choice, delta, {"logprobs": None, **beside, "finish_reason": None})
        elif part.template is not None and text:
            self.out.append(part.template(text))
        elif text:
            self._say(part.choice, filled(part.delta, text))

    reasoning = arguments = text

    # -------------------------------------------------------------- chunks

    def _chunk(self, choices: list[dict[str, Any]], more: dict[str, Any]) -> None:
        if self.in_one_piece:
            self._beside.append(more)
        else:
            self.out.append(dumps({**self._head, "choices": choices, **more}))

    def _say(self, choice: int, delta: dict[str, Any], beside: dict[str, Any] = BESIDE) -> None:
        known = self._choices[choice]
        if isinstance(known, WholeChoice):
            known.add(delta, beside)
        else:
            self._chunk([{"index": choice, "delta": delta, **beside}], {})

    def _template(self, choice: int, delta: dict[str, Any]) -> Template | None:
        if self.in_one_piece:
            return None
        return Template({**self._head, "choices": [{"index": choice, "delta": delta, **BESIDE}]})

    def _open(self, choice: int, content: str | None = "") -> ClientChoice:
        """The role chunk of a choice, once and before all else of it. The SDK's helper keeps choices in a list, so
        those with a lower number are opened first.
        """
        known = self._choices.get(choice)
        if known is not None:
            return known
        if self.in_one_piece:
            made: ClientChoice = WholeChoice()
        else:
            made = ClientChoice()
            while self._opened < min(choice, _MOST_CHOICES):
                earlier, self._opened = self._opened, self._opened + 1
                self._open(earlier)
            more, self._first = self._first or {}, None
            self._chunk([{"index": choice, "delta": {"role": "assistant", "content": content}, **BESIDE}], more)
        self._choices[choice] = made
        return made

    def _addable(self, choice: int, delta: dict[str, Any]) -> dict[str, Any]:
        if self.in_one_piece:
            return delta
        known = self._choices[choice]
        known.added = known.added or AddedLists()
        return _addable(known.added, "", delta)

    # -------------------------------------------------------------- run and messages

    def run_started(self, event: RunStarted) -> None:
        extras = own(event.extras)
        self._details = wants_details(extras, self._options)
        self._head = {
            "id": id_of(event, extras),
            "object": "chat.completion.chunk",
            "created": int(event.created_at),
            "model": model_of(event, self.context),
        }
        if not _OURS.issuperset(extras):
            constant = () if self.in_one_piece else _CONSTANT
            self._head |= {name: extras[name] for name in constant if name in extras}
            self._first = {k: v for k, v in extras.items() if k not in _OURS and k not in constant}
            if self.in_one_piece:
                self._beside.append(self._first)

    def message_ended(self, event: MessageEnded) -> None:
        choice = self._choices.get(event.choice) or self._open(event.choice)
        choice.reason = event.reason or choice.reason

    # -------------------------------------------------------------- parts

    def part_started(self, event: PartStarted) -> None:
        index = event.choice
        if event.kind is _TOOL_CALL:
            self._call_started(event, index)
            return
        choice = self._choices.get(index) or self._open(index)
        if event.extras and TRANSCRIPT in event.extras:
            self._parts[event.part_id] = None
            return
        if event.kind is _REASONING:
            self._parts[event.part_id] = self._reasoning(index)
            return
        delta, start = _DELTAS[event.kind], choice.length if event.kind is _TEXT else None
        self._parts[event.part_id] = _Part(index, delta, self._template(index, delta), start=start)

    def _cite(self, part: _Part, extras: Extras) -> None:
        """Write the citations of a text, those of a chat backend as they came."""
        said = extras.get(NAME, {}).get("annotations") or [
            {"type": "url_citation", "url_citation": each}
            for each in citations_in(extras, self.lost, part.length, part.start or 0)
        ]
        if said:
            self._say(part.choice, self._addable(part.choice, {"annotations": said}))

    def _reasoning(self, index: int) -> _Part:
        name = self._options.reasoning_field
        if self._details:
            choice = self._open(index)
            number, choice.thoughts = choice.thoughts, choice.thoughts + 1
            entry = {"type": "reasoning.text", "index": number, "text": HOLE}
            delta: dict[str, Any] = {"reasoning": HOLE, "reasoning_details": [entry]}
            return _Part(index, delta, self._template(index, delta), thought=number)
        names = ("reasoning_content", "reasoning") if name == "both" else (name.removesuffix("_details"),)
        delta = dict.fromkeys(names, HOLE)
        return _Part(index, delta, self._template(index, delta))

    def _call_started(self, event: PartStarted, index: int) -> None:
        """Write the first fragment: index, id, type and name, each once; the rest is arguments only."""
        choice = self._open(index, None)
        extras = fields_of_call(event.extras)
        name = event.name or ""
        if self._free is None:
            self._free = free_text_tools(self.context.request)
        kind = CUSTOM if extras.get("type") == CUSTOM or name in self._free else FUNCTION
        is_flat = self._free.get(name, False)
        number = choice.calls
        choice.calls += 1
        more = extras.get(FUNCTION)
        fields = {"name": name, **(more if isinstance(more, dict) else {})}
        call = {"index": number, "id": event.call_id, "type": kind, **_call_fields(kind, is_flat, "", fields)}
        self._say(index, {"tool_calls": [{**call, **first_keys(extras)}]})
        if kind == CUSTOM and extras.get("type") != CUSTOM:
            self._held = self._held or {}
            self._held[event.part_id] = _HeldCall(index, number, is_flat)
            self._parts[event.part_id] = None
            return
        delta = {"tool_calls": [{"index": number, **_call_fields(kind, is_flat, HOLE)}]}
        template, bare = self._template(index, delta), kind == FUNCTION
        self._parts[event.part_id] = _Part(index, delta, template, call=number, bare=bare, extras=extras)

    def part_ended(self, event: PartEnded) -> None:
        part = self._parts.pop(event.part_id)
        if part is None:
            if self._held is not None and (held := self._held.pop(event.part_id, None)) is not None:
                text = input_of("".join(held.pieces))
                called = _call_fields(CUSTOM, held.is_flat, text)
                self._say(held.choice, {"tool_calls": [{"index": held.number, **called}]})
            return
        if part.thought is not None and (event.signature or event.redacted):
            self._sign(part, part.thought, event)
        if part.start is not None:
            self._choices[part.choice].length = part.start + part.length
        if part.call is None:
            if event.extras:
                self._cite(part, event.extras)
            return
        if part.bare:
            # Strict clients parse the arguments: white space is no JSON (capture tool-empty-arguments)
            self._say(part.choice, filled(part.delta, "{}"))
        known = part.extras or {}
        late = {k: v for k, v in first_keys(fields_of_call(event.extras)).items() if known.get(k) != v}
        if late:
            self._say(part.choice, {"tool_calls": [{"index": part.call, **late}]})

    def _sign(self, part: _Part, number: int, event: PartEnded) -> None:
        """Write the opaque values of reasoning. Clients add up entries of one index, so each type has its own."""
        details: list[dict[str, Any]] = []
        if event.signature:
            details.append({"type": "reasoning.text", "index": number, "signature": event.signature})
        if event.redacted:
            if part.length or event.signature:
                choice = self._choices[part.choice]
                number, choice.thoughts = choice.thoughts, choice.thoughts + 1
            details.append({"type": "reasoning.encrypted", "index": number, "data": event.redacted})
        self._say(part.choice, {"reasoning_details": details})

    def content(self, event: ContentAdded) -> None:
        index = event.choice
        part = event.part
        extras = own(part.extras)
        if extras.get("streamed"):
            return  # its pieces went by as Raw (capture openai-audio)
        self._open(index)
        image = extras.get("image") or (image_of(part) if self._options.media == "images" else None)
        if image is not None:
            self._say(index, self._addable(index, {"images": [image]}))
        elif (audio := audio_of(part, self.context)) is not None:
            self._say(index, {"audio": audio})
        else:
            self.without_form(event)

    # -------------------------------------------------------------- the rest

    def raw(self, event: Raw) -> None:
        if not isinstance(event.value, dict):
            self.lost.add_raw(event)
            return
        value = event.value
        index = value.get("index", 0)
        self._open(index)
        if isinstance(delta := value.get("delta"), dict):
            if delta := self._addable(index, delta):
                self._say(index, delta)
        elif isinstance(choice_fields := value.get("choice"), dict):
            self._say(index, {}, {**BESIDE, **choice_fields})
        elif isinstance(fields := value.get("chunk"), dict) and fields:
            self._chunk([{"index": 0, "delta": {}, **BESIDE}], fields)

    def heartbeat(self, event: Heartbeat) -> None:
        mode = self._options.keepalive
        if mode == "comment":
            self.out.append(KEEPALIVE)
        elif mode == "chunk" and self._head:
            self._open(0)
            self._say(0, {})

    # -------------------------------------------------------------- the end

    def failed(self, event: RunFailed) -> None:
        """The error event ends the stream: no finish, no usage, no `[DONE]` after it."""
        self.out.append(dumps({"error": error_object(event.error)}))

    def finished(self, event: RunFinished) -> None:
        if 0 not in self._choices:
            self._open(0)
        for index in sorted(self._choices):
            choice = self._choices[index]
            known = event.reason if index == 0 else choice.reason
            word = finish_word(known, choice.calls > 0)
            self._say(index, {}, {"logprobs": None, "finish_reason": word})
        if self.in_one_piece or wants_usage(self.context, self.usage):
            self._chunk([], {"usage": write_usage(self.counted())})
        if not self.in_one_piece:
            self.out.append(DONE)

    def accumulate(self, frames: Sequence[dict[str, Any]]) -> dict[str, Any]:
        more: dict[str, Any] = {}
        for fields in reversed(self._beside):
            more |= fields
        usage = more.pop("usage", None)
        choices = sorted(self._choices.items())
        listed = [choice.plain(index) for index, choice in choices if isinstance(choice, WholeChoice)]
        return {**self._head, "object": "chat.completion", "choices": listed, "usage": usage, **more}


def _lane(event: PartStarted | ContentAdded) -> tuple[int, str]:
    """The field of one choice that pieces of text are appended to, where pieces of two texts would mix."""
    if not isinstance(event, PartStarted):
        return event.choice, _TEXT
    return event.choice, TRANSCRIPT if event.extras and TRANSCRIPT in event.extras else event.kind


def _call_fields(kind: str, is_flat: bool, text: Any, fields: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the name and the arguments of a call, or pieces of them, as `kind` has them. Of a tool with free text as
    input that was declared in the flat form, the text stands in `function`, too: Cursor, which declares it so, reads
    `function.name` of each call (icebear0828/codex-proxy#708).
    """
    if kind == FUNCTION:
        return {FUNCTION: {**(fields or {}), "arguments": text}}
    called = {CUSTOM: {**(fields or {}), "input": text}}
    return {**called, FUNCTION: {**(fields or {}), "arguments": text}} if is_flat else called


def _addable(added: AddedLists, path: str, delta: dict[str, Any]) -> dict[str, Any]:
    """A delta as the SDK's helper can add it up: list entries need an `index`, a number may come once only."""
    out: dict[str, Any] = {}
    for key, value in delta.items():
        path_here = f"{path}.{key}"
        if isinstance(value, dict):
            out[key] = _addable(added, path_here, value)
        elif isinstance(value, list):
            out[key] = [_entry(added, path_here, entry) for entry in value]
        elif not isinstance(value, (int, float)):
            out[key] = value
        elif path_here not in added.numbers:
            added.numbers[path_here] = None
            out[key] = value
    return out


def _entry(added: AddedLists, path: str, entry: Any) -> Any:
    if not isinstance(entry, dict) or type(entry.get("index")) is int:
        return entry
    number = added.entries.get(path, 0)
    added.entries[path] = number + 1
    return {**entry, "index": number}
