"""The order rules as the official client's verifier holds them, and those of old clients."""

from __future__ import annotations

from typing import Any

_STREAMS = {
    "TEXT_MESSAGE_START": ("text", "messageId", "open"),
    "TEXT_MESSAGE_CONTENT": ("text", "messageId", "go on"),
    "TEXT_MESSAGE_END": ("text", "messageId", "close"),
    "TOOL_CALL_START": ("call", "toolCallId", "open"),
    "TOOL_CALL_ARGS": ("call", "toolCallId", "go on"),
    "TOOL_CALL_END": ("call", "toolCallId", "close"),
    "REASONING_START": ("span", "messageId", "open"),
    "REASONING_END": ("span", "messageId", "close"),
    "REASONING_MESSAGE_START": ("reasoning", "messageId", "open"),
    "REASONING_MESSAGE_CONTENT": ("reasoning", "messageId", "go on"),
    "REASONING_MESSAGE_END": ("reasoning", "messageId", "close"),
    "STEP_STARTED": ("step", "stepName", "open"),
    "STEP_FINISHED": ("step", "stepName", "close"),
    "SUBAGENT_STARTED": ("subagent", "subagentRunId", "open"),
    "SUBAGENT_FINISHED": ("subagent", "subagentRunId", "close"),
    "SUBAGENT_ERROR": ("subagent", "subagentRunId", "close"),
}
_STRICT = frozenset({"text", "call", "reasoning"})
# What a client of 0.0.35 takes while a text or a call is open.
_INSIDE = frozenset({"RAW"})


class OrderError(AssertionError):
    """The official client would refuse this run."""


def check_order(events: list[dict[str, Any]], *, strict: bool = True, alone: bool = False) -> None:
    """Raises `OrderError`. `strict`: one open text, reasoning or call; `alone`: and nothing else while it is open."""
    opened: dict[tuple[str, str], str | None] = {}
    messages: set[str] = set()
    authors: dict[str, str | None] = {}
    ended = False
    for place, event in enumerate(events):
        kind = event["type"]
        where = f"event {place} ({kind})"
        if ended:
            raise OrderError(f"{where} follows the end")
        if place == 0 and kind not in ("RUN_STARTED", "RUN_ERROR"):
            raise OrderError(f"{where} comes first")
        if place > 0 and kind == "RUN_STARTED":
            raise OrderError(f"{where} inside a run")
        _authors(event, where, authors)
        if kind in _STREAMS:
            _stream(event, where, opened, messages, strict)
        elif kind.endswith("_CHUNK"):
            raise OrderError(f"{where} is not for old clients")
        if alone and kind not in _STREAMS and kind not in _INSIDE and any(g in _STRICT for g, _ in opened):
            raise OrderError(f"{where} inside {opened}")
        if kind == "RUN_FINISHED" and opened:
            raise OrderError(f"{where} with {opened} open")
        if kind == "RUN_ERROR" and opened and strict:
            raise OrderError(f"{where} with {opened} open")
        ended = kind in ("RUN_FINISHED", "RUN_ERROR")
    if not ended:
        raise OrderError("no end")


def _authors(event: dict[str, Any], where: str, authors: dict[str, str | None]) -> None:
    """A message belongs to one subagent, or to the agent itself, and so do the calls in it."""
    author, parent = event.get("subagentRunId"), event.get("parentMessageId")
    if event["type"] == "TEXT_MESSAGE_START":
        authors[event["messageId"]] = author
    if event["type"] == "TOOL_CALL_START" and authors.setdefault(parent or event["toolCallId"], author) != author:
        raise OrderError(f"{where}: in a message of {authors[parent or '']}")
    if event["type"] == "SUBAGENT_STARTED":
        enclosing = event.get("parentSubagentRunId")
        if enclosing is not None and f"subagent {enclosing}" not in authors:
            raise OrderError(f"{where}: inside {enclosing}, which never began")
        authors[f"subagent {author}"] = author


def _stream(
    event: dict[str, Any], where: str, opened: dict[tuple[str, str], str | None], messages: set[str], strict: bool
) -> None:
    group, field, step = _STREAMS[event["type"]]
    key = (group, event[field] if group != "step" else f"{event.get('subagentRunId')} {event[field]}")
    owner = None if group == "subagent" else event.get("subagentRunId")
    if step == "open":
        if key in opened:
            raise OrderError(f"{where}: {key} is open")
        if strict and group in _STRICT and any(g in _STRICT for g, _ in opened):
            raise OrderError(f"{where} while {opened} is open")
        if group in ("text", "subagent"):
            if event[field] in messages:
                raise OrderError(f"{where}: the id was used before")
            messages.add(event[field])
        opened[key] = owner
        return
    if key not in opened:
        raise OrderError(f"{where}: {key} is not open")
    if opened[key] != owner:
        raise OrderError(f"{where}: of another subagent")
    if step == "go on" and event["delta"] == "":
        raise OrderError(f"{where}: empty delta")
    if step == "close":
        del opened[key]
