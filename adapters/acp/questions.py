"""Questions of a run to the person at the client: permissions and forms, and what their results mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bridge.contract.optional.rpc import Question
from bridge.dialects.acp.wire import ALLOW_ONCE, ASKED, OPTION_KINDS, REJECT_ONCE, Wire, content_of_agent, text_block
from bridge.model import Interrupted, Resume, interrupt_text, question_of
from bridge.model.events import APPROVALS
from bridge.model.jsontext import dict_of, text_of

PERMISSION, ELICITATION = "session/request_permission", "elicitation/create"
_DEFAULTS: Sequence[Wire] = (
    {"optionId": "allow", "name": "Allow", "kind": ALLOW_ONCE},
    {"optionId": "reject", "name": "Reject", "kind": REJECT_ONCE},
)
_PLAIN = frozenset({"string", "number", "integer", "boolean"})
_ANSWER = "answer"
"""The field of a form whose question is no object."""


@dataclass(frozen=True, slots=True)
class Asking:
    """What a question is asked with: the session, the call that it is about, as an update, and what the client has."""

    session_id: str
    call: Wire
    has_forms: bool


def question(asked: Interrupted, asking: Asking) -> Question | None:
    """Return a question as a request; None if this client can only be told it as a text."""
    payload = dict_of(asked.payload)
    schema = dict_of(payload.get("responseSchema"))
    if options := _options(payload):
        return _permission(asked, asking, options, partial(_named, asked.interrupt_id))
    if _is_decision(schema) or (not schema and asked.reason in APPROVALS):
        return _permission(asked, asking, _DEFAULTS, partial(_decided, asked.interrupt_id))
    if not asking.has_forms:
        # A call or an approval with a form of its own can still be agreed to, in the form's terms where it has some.
        decides = asked.reason in APPROVALS
        return _permission(asked, asking, _DEFAULTS, partial(_decided, asked.interrupt_id)) if decides else None
    form, is_wrapped = _form(schema)
    return None if form is None else _elicitation(asked, asking, form, is_wrapped)


def said(asked: Interrupted) -> str:
    """Return the words of a question; those of one that its answer has told already are only for the title."""
    return question_of(asked)


def is_told(asked: Interrupted) -> bool:
    """Return whether the answer contains the question already."""
    return not interrupt_text(asked)


def agrees(answer: Resume) -> bool:
    """Return whether an answer lets the call run."""
    chosen = dict_of(answer.payload).get("optionId")
    if chosen is not None:
        return bool((answer.extras or {}).get("acp", {}).get("allows"))
    return answer.agrees


# ------------------------------------------------------------------ permissions


def _permission(
    asked: Interrupted, asking: Asking, options: Sequence[Wire], read: Callable[[Sequence[Wire], Any], Resume | None]
) -> Question:
    call = {**asking.call, "content": _shown(asked, asking.call, options)}
    params = {"sessionId": asking.session_id, "toolCall": call, "options": list(options), **_asked(asked)}
    return Question(PERMISSION, params, partial(read, options), _refusal(asked.interrupt_id, options))


def _shown(asked: Interrupted, call: Wire, options: Sequence[Wire]) -> list[Wire]:
    """Return the question as the content of its call.

    An agent of this protocol shows what the call changes; its title says the rest, and the options are buttons.
    """
    payload = dict_of(asked.payload)
    title = text_of(payload.get("title")) if options is not _DEFAULTS else ""
    words = title or said(asked)
    told = [] if title and title == call.get("title") else [{"type": "content", "content": text_block(words)}]
    return [*told, *content_of_agent(payload.get("content"))]


def _asked(asked: Interrupted) -> Wire:
    """Return what another bridge needs to ask the same."""
    return {"_meta": {ASKED: {"reason": asked.reason, "payload": asked.payload, "callId": asked.call_id}}}


def _options(payload: Wire) -> list[Wire]:
    """Return the options that a question brings along, if all of them are of the protocol's form."""
    found = payload.get("options")
    options = [dict_of(option) for option in found] if isinstance(found, list) else []
    known = [
        {"optionId": o["optionId"], "name": text_of(o.get("name")) or o["optionId"], "kind": o["kind"]}
        for o in options
        if isinstance(o.get("optionId"), str) and o.get("kind") in OPTION_KINDS
    ]
    return known if len(known) == len(options) else []


def _chosen(options: Sequence[Wire], result: Any) -> Wire | None:
    """Return the option that a result chooses; an empty object for one that does not exist, None for none at all."""
    outcome = dict_of(dict_of(result).get("outcome"))
    if outcome.get("outcome") == "cancelled":
        return None
    return next((option for option in options if option["optionId"] == outcome.get("optionId")), {})


def _named(interrupt_id: str, options: Sequence[Wire], result: Any) -> Resume | None:
    """The answer to a question with options of its own."""
    chosen = _chosen(options, result)
    if chosen is None:
        return None
    return _option_answer(interrupt_id, chosen) if chosen else _refusal(interrupt_id, options)


def _option_answer(interrupt_id: str, option: Wire) -> Resume:
    allows = option["kind"].startswith("allow")
    return Resume(interrupt_id, "resolved", {"optionId": option["optionId"]}, {"acp": {"allows": allows}})


def _decided(interrupt_id: str, options: Sequence[Wire], result: Any) -> Resume | None:
    """The answer to a question that wants a yes or a no."""
    chosen = _chosen(options, result)
    if chosen is None:
        return None
    return Resume(interrupt_id, "resolved", {"approved": chosen.get("kind") == ALLOW_ONCE})


def _refusal(interrupt_id: str, options: Sequence[Wire]) -> Resume:
    """Return the answer that allows nothing: the first option that rejects, where the question has its own."""
    rejects = [option for option in options if not option["kind"].startswith("allow")]
    if options is _DEFAULTS:
        return Resume(interrupt_id, "resolved", {"approved": False})
    return _option_answer(interrupt_id, rejects[0]) if rejects else Resume(interrupt_id, "cancelled")


def _is_decision(schema: Wire) -> bool:
    """Return whether a question wants nothing but a yes or a no."""
    if schema.get("type") == "boolean":
        return True
    fields, needed = dict_of(schema.get("properties")), schema.get("required")
    names = needed if isinstance(needed, list) and needed else list(fields)
    return len(names) == 1 and dict_of(fields.get(str(names[0]))).get("type") == "boolean"


# ------------------------------------------------------------------ forms


def _form(schema: Wire) -> tuple[Wire | None, bool]:
    """Return the form of a question, and whether its answer is the value of a single field.

    A form is a flat object; None for a question that does not fit into one.
    """
    if not schema:
        return _one_field({"type": "string"}), True
    if schema.get("type") in _PLAIN:
        return _one_field(schema), True
    fields = dict_of(schema.get("properties"))
    if schema.get("type") != "object" or not fields or not all(map(_fits, fields.values())):
        return None, False
    form: Wire = {"type": "object", "properties": fields}
    needed = schema.get("required")
    if isinstance(needed, list) and all(isinstance(name, str) for name in needed):
        form["required"] = needed
    return {**form, **{k: schema[k] for k in ("title", "description") if isinstance(schema.get(k), str)}}, False


def _one_field(schema: Wire) -> Wire:
    return {"type": "object", "properties": {_ANSWER: schema}, "required": [_ANSWER]}


def _fits(schema: Any) -> bool:
    field = dict_of(schema)
    if field.get("type") == "array":
        items = dict_of(field.get("items"))
        return isinstance(items.get("enum"), list) or isinstance(items.get("anyOf"), list)
    return field.get("type") in _PLAIN


def _elicitation(asked: Interrupted, asking: Asking, form: Wire, is_wrapped: bool) -> Question:
    params: Wire = {
        "sessionId": asking.session_id,
        "mode": "form",
        "message": said(asked),
        "requestedSchema": form,
        **_asked(asked),
    }
    if asked.call_id:
        params["toolCallId"] = asked.call_id
    read = partial(_filled, asked.interrupt_id, is_wrapped)
    return Question(ELICITATION, params, read, Resume(asked.interrupt_id, "cancelled"))


def _filled(interrupt_id: str, is_wrapped: bool, result: Any) -> Resume:
    answer = dict_of(result)
    if answer.get("action") != "accept":
        return Resume(interrupt_id, "cancelled")
    content = dict_of(answer.get("content"))
    return Resume(interrupt_id, "resolved", content.get(_ANSWER) if is_wrapped else content)
