"""Answers to interrupts.

An interrupt is a question of the run to a person. Clients that know interrupts answer them by id. Others got the
question as text, or as the waiting call, and answer with their next message or with that call's result
(docs/dialects/ag-kit.md, docs/dialects/ag-ui.md). If the question has a JSON Schema for its answer, a yes, a no or a
text is put into that form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import orjson

from bridge.contract.demands import NO_RESULT
from bridge.errors import ErrorCode, RequestError, shortened
from bridge.model import Interrupted, Message, Request, Resume, Text, json_text, result_text
from bridge.model.events import APPROVALS, AWAITS_RESULT
from bridge.model.parts import Extras
from bridge.model.request import DECISIONS
from bridge.run.conversation.comparison import results_in

_TYPES: dict[type, frozenset[str]] = {
    str: frozenset({"string"}),
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    dict: frozenset({"object"}),
    list: frozenset({"array"}),
    type(None): frozenset({"null"}),
}
"""The JSON Schema types of a value, by its class."""

_DECISIONS = {
    True: frozenset({"approve", "approved", "accept", "accepted", "allow", "allowed", "confirm", "confirmed", "yes"}),
    False: frozenset({"reject", "rejected", "decline", "declined", "deny", "denied", "refuse", "refused", "no"}),
}
"""Words for a yes or a no among the choices of a question."""


@dataclass(slots=True)
class Settled:
    """What a request means for the open interrupts.

    `resume` holds the answers, `messages` the other new messages, `unanswered` the interrupts without an answer.
    """

    resume: list[Resume] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    unanswered: list[Interrupted] = field(default_factory=list)


def settle(open_interrupts: Sequence[Interrupted], request: Request, new: list[Message], *, native: bool) -> Settled:
    """`new` is what the client sent since the run stopped; `native`: its wire can express interrupts.

    An answer without an id answers every interrupt that no other answer names.

    Raises `RequestError` (conflict) for an answer to an interrupt that is not open. A client that repeats earlier
    messages, and so earlier answers, must say something new besides.
    """
    if request.resume:
        answers = _checked(open_interrupts, request.resume, repeats=len(new) < len(request.messages))
        if not answers and not new:
            raise _not_open(request.resume[-1])
        return Settled(formed(open_interrupts, answers), new)
    if not open_interrupts:
        return Settled(messages=new)
    if not native:
        settled = _read_out(open_interrupts, new)
        return replace(settled, resume=formed(open_interrupts, settled.resume))
    # A result is passed on unchanged, unless the backend's dialect recorded what it needs to ask its question again.
    resulted = _by_results([i for i in open_interrupts if _notes(i)], new)
    new, answered = resulted.messages, {r.call_id for m in new for r in results_in(m)}
    waiting = [i for i in open_interrupts if i.call_id not in answered]
    settled = _by_words([i for i in waiting if _is_free(i)], new)
    unanswered = [*(i for i in waiting if not _is_free(i)), *settled.unanswered]
    if any(m.role == "user" for m in settled.messages):
        # A client that goes on without the result of its call will not send it any more.
        settled.resume += [Resume(i.interrupt_id, "resolved", NO_RESULT) for i in unanswered if _awaits_result(i)]
        unanswered = [i for i in unanswered if not _awaits_result(i)]
    resume = formed(open_interrupts, [*resulted.resume, *settled.resume])
    return replace(settled, resume=resume, unanswered=unanswered)


def answer_open_interrupts(request: Request) -> Request:
    """Return the request with its last text as the answer to its `open_interrupts`, if the text can answer them."""
    told = _by_words([each for each in request.open_interrupts if _is_free(each)], request.messages[-1:])
    if not told.resume:
        return request
    request = request.copy()
    request.messages, request.resume = request.messages[:-1], formed(request.open_interrupts, told.resume)
    return request


def _checked(open_interrupts: Sequence[Interrupted], answers: list[Resume], *, repeats: bool) -> list[Resume]:
    ids = {i.interrupt_id: i for i in open_interrupts}
    told = {answer.interrupt_id for answer in answers}
    left = [each for each in ids if each not in told]
    out: list[Resume] = []
    for answer in answers:
        if answer.interrupt_id == "" and left:
            if "" in told:  # the first answer that names none answers all that are left
                out += [replace(answer, interrupt_id=each) for each in left]
                told.discard("")
            continue
        if answer.interrupt_id not in ids:
            if repeats:
                continue
            raise _not_open(answer)
        out.append(answer)
    return out


def _not_open(answer: Resume) -> RequestError:
    named = f"no open interrupt {shortened(answer.interrupt_id)!r}" if answer.interrupt_id else "no open interrupt"
    return RequestError(
        f"{answer.place}: there is {named} in this conversation.", code=ErrorCode.CONFLICT, param=answer.place
    )


def _read_out(open_interrupts: Sequence[Interrupted], new: list[Message]) -> Settled:
    """Return the answers of a client that cannot express interrupts, by a call's result and by its user's text."""
    out = _by_results(open_interrupts, new)
    told = _by_words(out.unanswered, out.messages)
    others = [r for m in told.messages for r in results_in(m)]
    if others and not told.resume:
        # A call of the client's own, for which the agent waits without naming it. The agent may need both.
        value = _value(result_text(others[-1].parts))
        told.resume = [Resume(i.interrupt_id, "resolved", value) for i in told.unanswered if not i.call_id]
        told.unanswered = [i for i in told.unanswered if i.call_id]
    return replace(told, resume=[*out.resume, *told.resume])


def _by_results(asked: Sequence[Interrupted], new: list[Message]) -> Settled:
    """The answers that results of the calls in question give."""
    calls = {i.call_id: i for i in asked if i.call_id}
    left = {i.interrupt_id: i for i in asked}
    out = Settled()
    for message in new:
        results = [r for r in results_in(message) if r.call_id in calls]
        for result in results:
            interrupt = calls[result.call_id]
            if left.pop(interrupt.interrupt_id, None) is not None:
                out.resume.append(Resume(interrupt.interrupt_id, "resolved", _value(result_text(result.parts))))
        taken = {id(result) for result in results}
        rest = [p for p in message.parts if id(p) not in taken]
        if rest or not message.parts:
            out.messages.append(replace(message, parts=rest) if results else message)
    out.unanswered = list(left.values())
    return out


def _by_words(asked: list[Interrupted], new: list[Message]) -> Settled:
    """The answers that the last text of the user gives to all of these questions."""
    words = next((m for m in reversed(new) if m.role == "user" and _is_text(m)), None)
    if not asked or words is None:
        return Settled(messages=new, unanswered=asked)
    text = "".join(p.text for p in words.parts if isinstance(p, Text))
    return Settled([Resume(i.interrupt_id, "resolved", text) for i in asked], [m for m in new if m is not words])


def _awaits_result(asked: Interrupted) -> bool:
    return asked.reason == AWAITS_RESULT


def _is_free(asked: Interrupted) -> bool:
    """Return whether a person answers this question in words, not by a button or a tool's result."""
    payload = asked.payload
    schema = payload.get("responseSchema") if isinstance(payload, dict) else None
    if isinstance(schema, dict) and (schema.keys() - {"type"} or _types(schema) - {"object"}):
        return not any(
            "boolean" in _types(each) and "string" not in _types(each) for each in (schema, *_fields(schema).values())
        )
    if asked.call_id or asked.reason in APPROVALS:
        return False
    return (
        asked.reason == "input_required"
        or isinstance(payload, str)
        or (isinstance(payload, dict) and "question" in payload)
    )


def formed(open_interrupts: Sequence[Interrupted], answers: list[Resume]) -> list[Resume]:
    """Return the answers, each in the form of its question's `responseSchema` (docs/dialects/ag-ui.md), or as the
    decisions on its `action_requests`, with the notes on the question.
    """
    asked = {i.interrupt_id: i.payload for i in open_interrupts if isinstance(i.payload, dict)}
    notes = {i.interrupt_id: _notes(i) for i in open_interrupts}
    out = []
    for answer in answers:
        if noted := notes.get(answer.interrupt_id):
            answer = replace(answer, extras={**noted, **(answer.extras or {})})
        payload = asked.get(answer.interrupt_id, {})
        schema, actions = payload.get("responseSchema"), payload.get("action_requests")
        if isinstance(actions, list):
            answer = replace(answer, decision="resolved", payload=_decisions(answer, len(actions)))
        elif isinstance(schema, dict) and (answer.decision == "resolved" or _refuses(answer) or _is_closed(schema)):
            formed = _form(answer, schema)
            if formed is not answer.payload:  # the schema has a no of its own, which the agent can go on from
                answer = replace(answer, decision="resolved", payload=formed)
        out.append(answer)
    return out


def _notes(asked: Interrupted) -> Extras:
    """What the backend's dialect noted on its question under "notes", which comes back to it with the answer."""
    return {name: {"notes": fields["notes"]} for name, fields in (asked.extras or {}).items() if "notes" in fields}


def _is_closed(schema: dict[str, Any]) -> bool:
    """Return whether an agent takes nothing else than this form, so that a question that is left is a no in it."""
    return schema.get("additionalProperties") is False and len(_fields(schema)) == 1


def _decisions(answer: Resume, count: int) -> Any:
    """Return an answer as LangChain's middleware takes it: the same decision on each action."""
    payload = answer.payload
    if isinstance(payload, dict) and "decisions" in payload:
        return payload
    words = payload.get("reason") if isinstance(payload, dict) else payload
    reject = {"type": "reject", **({"message": words} if isinstance(words, str) and words else {})}
    return {"decisions": [{"type": "approve"} if answer.agrees else reject] * count}


def _refuses(answer: Resume) -> bool:
    """Return whether a person said no, by a button, rather than left the question."""
    return _is_decision(answer.payload) and not replace(answer, decision="resolved").agrees


def _is_decision(payload: Any) -> bool:
    """Return whether a payload is that of a button."""
    return isinstance(payload, dict) and not payload.keys().isdisjoint(DECISIONS)


def _form(answer: Resume, schema: dict[str, Any]) -> Any:
    """Return a payload in the form of this schema, or unchanged if it has that form or none is found.

    An object with one required field gets the answer there; the text of a "no" becomes its reason if it has one.
    """
    payload, fields = _value_for(answer, schema), _fields(schema)
    if len(fields) != 1:
        return payload
    ((name, field_schema),) = fields.items()
    if isinstance(payload, dict) and name in payload:
        value = _value_for(replace(answer, payload=payload[name]), field_schema)
        if _is_closed(schema) and not payload.keys() <= schema["properties"].keys():
            payload = {key: each for key, each in payload.items() if key in schema["properties"]}
        return payload if value is payload[name] else {**payload, name: value}
    value = _value_for(answer, field_schema)
    if not _takes(field_schema, value):
        return payload
    words = answer.payload.get("reason") if isinstance(answer.payload, dict) else answer.payload
    has_reason = value is False and isinstance(words, str) and "reason" in schema["properties"]
    return {name: value, **({"reason": words} if has_reason else {})}


def _value_for(answer: Resume, schema: dict[str, Any]) -> Any:
    """Return the value of this schema that an answer means: a choice, what a text holds as JSON, a yes or no.

    It is the payload itself if that fits, or nothing else does.
    """
    payload, types = answer.payload, _types(schema)
    if choices := _choices(schema):
        return _chosen(answer, choices)
    if isinstance(payload, str) and types and "string" not in types:
        value = _value(payload)
        if _takes(schema, value):
            return value
    if "boolean" in types and not _takes(schema, payload):
        return answer.agrees
    is_number = isinstance(payload, (int, float)) and not isinstance(payload, bool)
    return json_text(payload) if types == {"string"} and is_number else payload


def _chosen(answer: Resume, choices: list[Any]) -> Any:
    """Return the choice that an answer names, or the one that says yes or no as it does; else its payload."""
    payload = answer.payload
    named = [c for c in choices if isinstance(payload, str) and str(c).lower() == payload.strip().rstrip(".!").lower()]
    decides = isinstance(payload, (str, bool)) or _is_decision(payload)
    meant = [c for c in choices if decides and isinstance(c, str) and c.lower() in _DECISIONS[answer.agrees]]
    found = named or meant
    return found[0] if len(found) == 1 else payload


def _takes(schema: dict[str, Any], value: Any) -> bool:
    choices = _choices(schema)
    return value in choices if choices else not _TYPES[type(value)].isdisjoint(_types(schema))


def _fields(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the fields that an answer needs, with their schemas: the required ones, or all."""
    fields, needed, shared = schema.get("properties"), schema.get("required"), schema.get("$defs")
    if not isinstance(fields, dict):
        return {}
    out = {}
    for name in needed if isinstance(needed, list) and needed else fields:
        found = fields.get(name) if isinstance(name, str) else None
        if isinstance(found, dict):
            # Pydantic writes an enumeration apart.
            path = str(found.get("$ref", "")).removeprefix("#/$defs/")
            apart = shared.get(path) if isinstance(shared, dict) else None
            out[str(name)] = apart if isinstance(apart, dict) else found
    return out


def _kinds(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a schema and its alternatives: Pydantic writes an optional text as `anyOf` a text and null."""
    alternatives = [*_list(schema.get("anyOf")), *_list(schema.get("oneOf"))]
    return [schema, *(each for each in alternatives if isinstance(each, dict))]


def _types(schema: dict[str, Any]) -> frozenset[str]:
    """Return the types that a JSON Schema takes."""
    found = [kind.get("type") for kind in _kinds(schema)]
    names = chain.from_iterable(each if isinstance(each, list) else [each] for each in found)
    return frozenset(name for name in names if isinstance(name, str))


def _choices(schema: dict[str, Any]) -> list[Any]:
    """Return the only values that a JSON Schema takes, where it lists them."""
    return [choice for kind in _kinds(schema) for choice in _list(kind.get("enum"))]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_text(message: Message) -> bool:
    return bool(message.parts) and all(isinstance(p, Text) for p in message.parts)


def _value(text: str) -> Any:
    """A tool's result is text on every wire; what a client means by it is JSON if it is some."""
    try:
        return orjson.loads(text)
    except ValueError:
        return text
