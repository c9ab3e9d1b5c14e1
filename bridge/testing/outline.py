"""A form of an answer in which two dialects can be compared, and what given capabilities leave of it.

Message borders, ids and the places where deltas were cut differ between wires; the parts in order do not. `outline`
gives that form, `project` applies capabilities to it, and tests check `outline(decode(encode(stream))) ==
project(outline(stream), capabilities)`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bridge.contract.capabilities import Capabilities, Feature, Support
from bridge.model.events import AWAITS_RESULT, Custom, FinishReason, Raw, StateChanged, StepEnded, StepStarted
from bridge.model.fold import Answer
from bridge.model.jsontext import arguments_of, input_of, is_object, loads
from bridge.model.parts import (
    Data,
    FileRef,
    Inline,
    Media,
    Message,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    mime_of,
    url_of,
)
from bridge.model.text import as_markdown, interrupt_text, json_text, result_text
from bridge.toolkit.media import answer_feature

_FEATURES: dict[type[Part], Feature] = {
    Text: Feature.TEXT,
    Refusal: Feature.REFUSAL,
    Reasoning: Feature.REASONING,
    ToolCall: Feature.TOOL_CALL,
    ToolResult: Feature.TOOL_RESULT,
}
Item = tuple[Any, ...]


@dataclass(slots=True)
class Outline:
    """`items` are tagged tuples in order; consecutive texts are one. `usage` is None if it is all zeros."""

    items: list[Item] = field(default_factory=list)
    usage: tuple[int | None, int | None] | None = None
    details: tuple[int | None, int | None] | None = None
    reason: str | None = None
    error: str | None = None
    interrupts: list[Item] = field(default_factory=list)
    others: list[Item] = field(default_factory=list)


def outline(answer: Answer, choice: int = 0) -> Outline:
    """The outline of one choice of an answer."""
    out = Outline()
    for message in answer.messages:
        if message.role == "tool" or answer.choice_of(message) == choice:
            for part in message.parts:
                _append(out.items, _item(part))
    if answer.usage is not None and (answer.usage.input or answer.usage.output):
        out.usage = (answer.usage.input, answer.usage.output)
        out.details = (answer.usage.cached, answer.usage.reasoning)
    out.reason = str(answer.reason) if answer.reason else None
    out.error = str(answer.failure.code) if answer.failure else None
    out.interrupts = [(i.interrupt_id, i.reason, i.payload) for i in answer.interrupts]
    for event in answer.events:
        match event:
            case StateChanged():
                out.others.append(("state", str(event.op), event.value))
            case StepStarted() | StepEnded():
                out.others.append(("step", type(event).__name__, event.name))
            case Custom():
                out.others.append(("custom", event.name, event.value))
            case Raw(repeated=False):
                out.others.append(("raw", event.dialect, event.value))
            case _:
                pass
    return out


def _item(part: Part) -> Item:
    match part:
        case Text():
            return ("text", part.text)
        case Refusal():
            return ("refusal", part.text)
        case Reasoning():
            return ("reasoning", part.text, part.signature)
        case ToolCall():
            # White space around JSON means nothing, and alone it is no JSON.
            return ("tool_call", part.call_id, part.name, part.arguments.strip() or "{}", str(part.origin))
        case ToolResult():
            return ("tool_result", part.call_id, result_text(part.parts))
        case Media():
            where = part.source.file_id if isinstance(part.source, FileRef) else url_of(part)
            return ("media", str(part.kind), where)
        case Data():
            return ("data", part.value)


def _append(items: list[Item], item: Item) -> None:
    """Adds an item; empty text is nothing, and text after text is the same text going on."""
    joins = ("text", "refusal", "reasoning")
    if item[0] in joins and not item[1] and not any(item[2:]):
        return
    if items and item[0] in joins and items[-1][0] == item[0] and not any(items[-1][2:]):
        items[-1] = (item[0], items[-1][1] + item[1], *item[2:])
    else:
        items.append(item)


def _feature(part: Part) -> Feature:
    return _FEATURES.get(type(part)) or answer_feature(part)


def project(answer: Answer, capabilities: Capabilities, choice: int = 0) -> Outline:
    """Return the outline that a client of this dialect must decode from the encoding of this answer."""
    out = outline(answer, choice)
    items, sounds = _project_items(answer, capabilities, choice)
    if capabilities.drops_invalid_calls:
        whole = [item for item in items if item[0] != "tool_call" or is_object(item[3])]
        if len(whole) < len(items) and out.reason in (FinishReason.STOP, FinishReason.TOOL_CALLS):
            out.reason = str(FinishReason.LENGTH)
        items = whole
    if capabilities.answer(Feature.INTERRUPT) is not Support.EXACT:
        out.interrupts = []
        if choice == 0 and answer.reason not in (None, FinishReason.CANCELED):
            _tell_interrupts(items, answer, capabilities)
    out.items = [*items, *sounds]
    waiting = _waiting_calls(answer, choice) if capabilities.awaits_results else []
    out.items += [_without(_item(call), capabilities) for call in waiting]
    if waiting and answer.reason is FinishReason.TOOL_CALLS:
        out.interrupts = [(call.call_id, AWAITS_RESULT, None) for call in waiting]
        out.reason = str(FinishReason.INTERRUPTED)
    # A run ends as its first choice does.
    _project_end(out, capabilities, items if choice == 0 else _project_items(answer, capabilities, 0)[0])
    if capabilities.answer(Feature.USAGE) is not Support.EXACT or (out.error and not capabilities.usage_on_failure):
        out.usage = out.details = None
    if capabilities.answer(Feature.USAGE_DETAILS) is not Support.EXACT:
        out.details = None
    features = {"state": Feature.STATE, "step": Feature.STEP, "custom": Feature.CUSTOM, "raw": Feature.RAW}
    out.others = [o for o in out.others if capabilities.answer(features[o[0]]) is Support.EXACT]
    return out


def _waiting_calls(answer: Answer, choice: int) -> list[ToolCall]:
    """Return the calls that a run which ended with calls or questions waits for."""
    answered = {result.call_id for result in answer.results}
    parts = (part for each in answer.messages if answer.choice_of(each) == choice for part in each.parts)
    calls = [part for part in parts if isinstance(part, ToolCall) and part.call_id not in answered]
    if answer.reason is FinishReason.TOOL_CALLS:
        return calls
    asked = {each.call_id for each in answer.interrupts} if answer.reason is FinishReason.INTERRUPTED else set()
    return [call for call in calls if call.call_id in asked]


def _project_items(answer: Answer, capabilities: Capabilities, choice: int) -> tuple[list[Item], list[Item]]:
    """Return the items in order, and a single audio, which comes after them."""
    items: list[Item] = []
    last: list[Item] = []
    shown: Message | None = None
    inside: set[int] = set()  # results within messages
    is_shown = capabilities.answer(Feature.TOOL_RESULT) is Support.EXACT
    for message in answer.messages:
        if message.role != "tool" and answer.choice_of(message) != choice:
            continue
        ending = answer.endings.get(message.id or "")
        results = dict(ending.results) if ending is not None else {}
        inside.update(map(id, results.values()))
        for index, part in enumerate(message.parts):
            if index in results and shown is not None:
                shown = None if is_shown else results[index]
            support = _support(part, capabilities)
            audio = capabilities.audio_last and support is Support.EXACT and _feature(part) is Feature.AUDIO
            if audio and last:
                support = Support.TEXT
            if support is Support.TEXT:
                item: Item = ("text", as_markdown(part))
            elif support is Support.EXACT:
                if isinstance(part, Media) and not capabilities.media_types:
                    part = Media(part.kind, part.source, mime_of(Media(part.kind, part.source)))
                item = _without(_item(part), capabilities)
            else:
                continue
            if item[0] == "text" and item[1]:
                if shown is not None and shown is not message:
                    item = ("text", capabilities.separator + item[1])
                shown = message
            elif item[0] == "tool_result" and id(message) not in inside:
                shown = None  # what comes after it is a text of its own
            _append(last if audio and support is Support.EXACT else items, item)
    return items, last


def _tell_interrupts(items: list[Item], answer: Answer, capabilities: Capabilities) -> None:
    """Return questions as text; one that is bound to a call is carried by that call."""
    called = {call.call_id for call in answer.calls}
    if capabilities.answer(Feature.INTERRUPT) is Support.TEXT:
        for interrupt in answer.interrupts:
            if interrupt.call_id not in called or capabilities.answer(Feature.TOOL_CALL) is not Support.EXACT:
                separator = capabilities.separator if any(item[0] == "text" for item in items) else ""
                if text := interrupt_text(interrupt):
                    _append(items, ("text", separator + text))


def _support(part: Part, capabilities: Capabilities) -> Support:
    support = capabilities.answer(_feature(part))
    if capabilities.inline_media_only and support is Support.EXACT and isinstance(part, Media):
        return Support.EXACT if isinstance(part.source, Inline) else Support.TEXT
    return support


def _without(item: Item, capabilities: Capabilities) -> Item:
    if item[0] == "reasoning" and capabilities.answer(Feature.REASONING_SIGNATURE) is not Support.EXACT:
        return (item[0], item[1], None)
    if item[0] == "tool_call":
        exact = capabilities.exact_arguments or (capabilities.drops_invalid_calls and not is_object(item[3]))
        arguments = item[3] if exact else arguments_of(input_of(item[3]))
        has_origin = capabilities.answer(Feature.TOOL_ORIGIN) is Support.EXACT
        return (*item[:3], arguments, item[4] if has_origin else "function")
    if item[0] == "tool_result" and not capabilities.exact_results:
        return (*item[:2], _respelled(item[2]))
    return item


def _respelled(text: str) -> str:
    """Return the same JSON value in compact form, for an object or a list; any other text as it is."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return json_text(loads(text))
    except ValueError:
        return text


_ENDS: dict[str, Feature] = {
    FinishReason.LENGTH: Feature.FINISH_LENGTH,
    FinishReason.CONTENT_FILTER: Feature.FINISH_CONTENT_FILTER,
    FinishReason.CANCELED: Feature.FINISH_CANCELED,
    FinishReason.INTERRUPTED: Feature.INTERRUPT,
}


def _project_end(out: Outline, capabilities: Capabilities, items: list[Item]) -> None:
    """The finish word, by what of the answer is left; a refused one becomes an error."""
    if out.reason is None:
        return
    feature = _ENDS.get(out.reason)
    support = Support.EXACT if feature is None else capabilities.answer(feature)
    if support is Support.REFUSE:
        out.reason, out.error = None, out.reason
    elif support is not Support.EXACT or feature is None:
        out.reason = str(FinishReason.INTERRUPTED) if out.interrupts else _plain_end(items)


def _plain_end(items: list[Item]) -> str:
    """`tool_calls` when calls without a result are left, else `stop`."""
    answered = {i[1] for i in items if i[0] == "tool_result"}
    calls = [i for i in items if i[0] == "tool_call" and i[1] not in answered]
    return str(FinishReason.TOOL_CALLS if calls else FinishReason.STOP)
