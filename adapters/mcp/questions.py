"""Questions of agents as elicitation, and the answers of people."""

from __future__ import annotations

from typing import Any, NamedTuple

from bridge.dialects.mcp.wire import Wire
from bridge.model import Interrupted, Resume
from bridge.model.events import APPROVALS
from bridge.model.jsontext import dict_of
from bridge.model.text import question_about, question_of

ANSWER = "answer"
"""The field of a question that is answered in words."""
_KEPT = frozenset(
    {"type", "title", "description", "enum", "enumNames", "minLength", "maxLength", "minimum", "maximum", "default"}
)
_FORMATS = frozenset({"email", "uri", "date", "date-time"})
_TYPES = frozenset({"string", "number", "integer", "boolean"})
_LONGEST = 4000
"""Characters of a question."""


class Form(NamedTuple):
    """The form of a question. `in_words`: the agent gets the text of its one field, not an object."""

    message: str
    schema: Wire
    in_words: bool


def form_of(asked: Interrupted, call: str = "") -> Form:
    """Return the form in which a person answers: that of the agent if it is flat, else a text, or a yes or no.

    `call` is the call that the question is about, if the agent said which.
    """
    message = question_about([call] if call else [], question_of(asked))[:_LONGEST]
    payload = dict_of(asked.payload)
    wanted = next(
        (payload[key] for key in ("responseSchema", "response_schema", "resumeSchema") if key in payload), None
    )
    if (schema := _flat(wanted)) is not None:
        return Form(message, schema, False)
    if wanted is None and (asked.reason in APPROVALS or asked.call_id or "action_requests" in payload):
        return Form(message, _object({"approved": {"type": "boolean", "title": "Approve"}}), False)
    return Form(message, _object({ANSWER: {"type": "string", "title": "Answer"}}), True)


def resume_of(asked: str, in_words: bool, answer: Any, place: str) -> Resume:
    """Return the answer to a question, from the result of its elicitation; a decline is one, too.

    Whatever is no acceptance with values counts as a cancellation: an agent must not act on a misunderstanding.
    """
    told = dict_of(answer)
    content = told.get("content")
    if told.get("action") != "accept" or not isinstance(content, dict):
        return Resume(asked, "cancelled", place=place)
    if not in_words:
        return Resume(asked, "resolved", content, place=place)
    text = content.get(ANSWER)
    if not isinstance(text, str):
        return Resume(asked, "cancelled", place=place)
    return Resume(asked, "resolved", text, place=place)


def _object(properties: Wire) -> Wire:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _flat(schema: Any) -> Wire | None:
    """Return a schema as clients can show it: an object of plain values; None if it is not of that kind."""
    properties = dict_of(schema).get("properties")
    if not isinstance(properties, dict) or not properties:
        return None
    fields: Wire = {}
    for name, value in properties.items():
        if not isinstance(name, str) or (field := _field(value)) is None:
            return None
        fields[name] = field
    required = schema.get("required")
    needed = [name for name in required if name in fields] if isinstance(required, list) else []
    return {"type": "object", "properties": fields, **({"required": needed} if needed else {})}


def _field(value: Any) -> Wire | None:
    field = dict_of(value)
    alternatives = field.get("anyOf")
    if isinstance(alternatives, list):
        # An optional value, as Pydantic writes it.
        kinds = [each for each in alternatives if dict_of(each).get("type") != "null"]
        if len(kinds) != 1 or not isinstance(kinds[0], dict):
            return None
        field = {**field, **kinds[0]}
    choices = field.get("enum")
    if choices is not None and not (isinstance(choices, list) and all(isinstance(each, str) for each in choices)):
        return None
    kind = field.get("type") or ("string" if choices is not None else None)
    if not isinstance(kind, str) or kind not in _TYPES:
        return None
    kept = {key: each for key, each in field.items() if key in _KEPT and each is not None}
    if field.get("format") in _FORMATS:
        kept["format"] = field["format"]
    return {**kept, "type": kind}
