"""What the chat templates of open models refuse, and how a body is changed for them.

A template writes the messages of a request as the prompt of its model, and stops at what the model was not trained
with: a system message elsewhere than at the start, or any; two messages of one role in a row. Servers pass its words
on, with status 400 or 500. Empty texts are refused by Claude, and by gateways in front of it.
"""

from __future__ import annotations

import re
from typing import Any

from bridge.model.jsontext import dict_of, dicts_of, text_of

Body = dict[str, Any]

OF_TEMPLATE = re.compile(r"jinja|raise_exception|chat template|template ?error", re.IGNORECASE)
"""Words by which a failure of a server is one of a template."""
NOT_FIRST = re.compile(r"system (?:message|role) must be (?:at the |the )?(?:beginnin|first|start)")
NO_SYSTEM = re.compile(
    r"system role (?:is )?not supported|only user and assistant roles are supported"
    r"|system (?:message|prompt)s? (?:is|are) not supported|(?:developer|system) instruction is not enabled"
)
EMPTY_TEXT = re.compile(
    r"text content blocks must be non-empty|messages? must have non-empty content|empty text blocks"
    r"|with role [`'\"]?(?:assistant|system)[`'\"]? must not be empty"
)
NOT_IN_TURNS = re.compile(r"roles must alternate|must alternate between user and assistant")

_SYSTEM = frozenset({"system", "developer"})
_LISTS = ("messages", "input")
_BETWEEN = "\n\n"


def one_system_message(body: Body) -> bool:
    """Join all system messages to one before all others; where a body has `instructions`, there."""
    for name in _LISTS:
        messages = body.get(name)
        system = _system_in(messages)
        if not system or not isinstance(messages, list):
            continue
        given = body.get("instructions")
        if not (isinstance(given, str) and given) and len(system) == 1 and messages[0] is system[0]:
            continue
        others = [each for each in messages if not _is_system(each)]
        text = _BETWEEN.join(filter(None, [text_of(given), *map(_text, system)]))
        if isinstance(given, str) and given:
            body["instructions"], body[name] = text, others
        else:
            body[name] = [{**system[0], "role": "system", "content": text}, *others]
        return True
    return False


def system_as_user(body: Body) -> bool:
    """Put the text of system messages before the first one of the user."""
    if told := [text_of(part.get("text")) for part in dicts_of(dict_of(body.get("systemInstruction")).get("parts"))]:
        first = next((each for each in dicts_of(body.get("contents")) if each.get("role") == "user"), None)
        if first is not None and isinstance(first.get("parts"), list):
            first["parts"].insert(0, {"text": _BETWEEN.join(told)})
            del body["systemInstruction"]
            return True
    messages = body.get("messages")
    system = _system_in(messages)
    if not system or not isinstance(messages, list):
        return False
    others = [each for each in messages if not _is_system(each)]
    at = next((n for n, each in enumerate(others) if dict_of(each).get("role") == "user"), None)
    told_first = {"role": "user", "content": _BETWEEN.join(map(_text, system))}
    if at is None:
        body["messages"] = [told_first, *others]
    else:
        body["messages"] = [*others[:at], _joined(told_first, others[at]), *others[at + 1 :]]
    return True


def in_turns(body: Body) -> bool:
    """Join messages of one role in a row, except those that are about tools."""
    messages = body.get("messages")
    turns: list[list[Any]] = []
    for each in messages if isinstance(messages, list) else ():
        last = turns[-1][-1] if turns else None
        if isinstance(last, dict) and isinstance(each, dict) and _are_one_turn(last, each):
            turns[-1].append(each)
        else:
            turns.append([each])
    if not isinstance(messages, list) or len(turns) == len(messages):
        return False
    body["messages"] = [_joined(*turn) if len(turn) > 1 else turn[0] for turn in turns]
    return True


def without_empty_texts(body: Body) -> bool:
    """Leave out empty texts, and messages of the assistant or the system that are nothing else."""
    changed = False
    for name in _LISTS:
        messages = body.get(name)
        if isinstance(messages, list):
            kept = [each for each in map(_without_empty_text, messages) if each is not None]
            if len(kept) != len(messages) or any(new is not old for new, old in zip(kept, messages, strict=True)):
                body[name], changed = kept, True
    return changed


def _without_empty_text(message: Any) -> Any:
    if not isinstance(message, dict) or not _is_spoken(message):
        return message
    content = message.get("content")
    if isinstance(content, list):
        kept = [part for part in content if dict_of(part).get("text") != ""]
        if kept and len(kept) < len(content):
            return {**message, "content": kept}
        content = kept or ""
    if content not in ("", None):
        return message
    if message.get("tool_calls"):
        return message if message.get("content") is None else {**message, "content": None}
    return message if message.get("role") == "user" else None


def _is_spoken(message: Body) -> bool:
    """Return whether this is a message with text of its own, not a result or another item."""
    return message.get("role") in (*_SYSTEM, "assistant", "user") and message.get("type") in (None, "message")


def _are_one_turn(last: Body, following: Body) -> bool:
    return last.get("role") == following.get("role") in ("user", "assistant") and not last.get("tool_calls")


def _is_system(message: object) -> bool:
    return isinstance(message, dict) and message.get("role") in _SYSTEM


def _system_in(messages: object) -> list[Body]:
    return [each for each in dicts_of(messages) if _is_system(each)]


def _text(message: Body) -> str:
    content = message.get("content")
    parts = [text_of(part.get("text")) for part in dicts_of(content)]
    return content if isinstance(content, str) else _BETWEEN.join(filter(None, parts))


def _joined(*messages: Body) -> Body:
    """Return messages as one: their texts with blank lines between them, or their parts."""
    contents = [message.get("content") for message in messages]
    if all(isinstance(content, str) for content in contents):
        joined: Any = _BETWEEN.join(filter(None, contents))
    else:
        joined = [part for content in contents for part in _parts(content)] or None
    return {**messages[0], **messages[-1], "content": joined}


def _parts(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content if isinstance(content, list) else []
