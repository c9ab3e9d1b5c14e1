"""Comparison of conversations: which messages are the same, where one continues another, which calls are open.

These functions know no store and no run; `bridge.run.conversation.turns` uses them.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Collection
from dataclasses import replace
from itertools import groupby
from typing import Any

from bridge.contract import Capabilities, Losses
from bridge.contract.demands import NO_RESULT
from bridge.errors import ErrorCode, RequestError, shortened
from bridge.model import (
    Answer,
    FinishReason,
    Message,
    Part,
    PartKind,
    PartStarted,
    Reasoning,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    result_text,
    unfold,
)
from bridge.model.dump import dump
from bridge.model.error_paths import place_of_message
from bridge.model.jsontext import dumps
from bridge.model.parts import LINKED, after_last_answer
from bridge.toolkit import Projection

Mark = tuple[Any, ...]
_MOST_UNANSWERED = 3
"""The most messages of a user, at the end of a conversation, of which each may have had an answer without content."""
_MOST_JOINED = 16
"""The most messages of a user that one later message may repeat: comparing more would cost quadratic time."""


def calls_in(message: Message) -> list[ToolCall]:
    return [p for p in message.parts if isinstance(p, ToolCall)]


def results_in(message: Message) -> list[ToolResult]:
    return [p for p in message.parts if isinstance(p, ToolResult)]


def mark(message: Message) -> Mark:
    """Return the identity of a message: role, text, media, and the calls that it makes or answers.

    Reasoning, ids, names and the spelling of arguments do not count, as clients drop and rewrite them.
    """
    rest: list[Part] = [p for p in message.parts if not isinstance(p, (Text, ToolCall, ToolResult, Reasoning))]
    return (
        "system" if message.role == "developer" else message.role,
        "".join(p.text for p in message.parts if isinstance(p, Text)).strip(),
        [c.call_id for c in calls_in(message)],
        [(r.call_id, result_text(r.parts)) for r in results_in(message)],
        dump(Message("", rest)) if rest else None,
    )


def digest(messages: list[Message]) -> str:
    """Return the SHA-256 of a conversation, in hexadecimal.

    Consecutive messages of the user count as one, and so do consecutive answers, whose white space does not count:
    clients join both in different ways. Answers without content do not count: some clients leave them out.
    """
    marks: list[Mark] = []
    for message in _joined([message for message in messages if not _is_empty_answer(message)]):
        new = mark(message)
        if new[0] == "assistant":
            new = (new[0], "".join(new[1].split()), *new[2:])
        if marks and new[0] == "assistant" == marks[-1][0]:
            last = marks.pop()
            new = ("assistant", last[1] + new[1], last[2] + new[2], last[3] + new[3], new[4])
        marks.append(new)
    return hashlib.sha256(dumps(marks)).hexdigest()


def _is_empty_answer(message: Message) -> bool:
    return message.role == "assistant" and not any(mark(message)[1:])


def _joined(messages: list[Message]) -> list[Message]:
    """Return the messages with consecutive ones of the user as one: Gradio sends a photo and its text as two messages
    first, and as one in later requests.
    """
    joined: list[Message] = []
    for role, group in groupby(messages, key=lambda message: message.role):
        first, *others = group
        if role == "user" and others:
            first, others = Message("user", [part for message in (first, *others) for part in message.parts]), []
        joined += [first, *others]
    return joined


def half_answered(messages: list[Message]) -> tuple[list[Message], str]:
    """Return a whole conversation before its last answer, and the text of that, without white space."""
    end = len(up_to_last_answer(messages))
    start = end
    while start and messages[start - 1].role == "assistant":
        start -= 1
    return messages[:start], squeezed(messages[start:end])


def squeezed(messages: list[Message]) -> str:
    """Return the text of messages without white space."""
    return "".join("".join(p.text for m in messages for p in m.parts if isinstance(p, Text)).split())


def up_to_last_answer(messages: list[Message]) -> list[Message]:
    """Return the part of a whole conversation before the client's last turn; empty at the beginning."""
    end = after_last_answer(messages)
    return messages[:end]


def states_before(messages: list[Message]) -> list[list[Message]]:
    """Return the conversations of which a whole one may be the next turn, the most likely first.

    The client's last turn follows an answer. If it has several messages, an answer between them may have had no
    content, so that the client left it out.
    """
    answered = up_to_last_answer(messages)
    before = [answered] if answered else []
    for end in range(len(messages) - 1, max(len(answered), len(messages) - 1 - _MOST_UNANSWERED), -1):
        if messages[end].role != "user" or messages[end - 1].role != "user":
            break
        before.append(messages[:end])
    return before


def as_client_sees(answer: Answer, front: Capabilities) -> Message:
    """The answer as a client sends it back: its text, and the calls that it has to run."""
    projection, texts, pieces = Projection(front, Losses()), set[str](), list[str]()
    others = {message.id for message in answer.messages if answer.choice_of(message)}
    for event in (seen for each in unfold(answer) for seen in projection.feed(each)):
        if isinstance(event, PartStarted) and event.kind is PartKind.TEXT and event.message_id not in others:
            texts.add(event.part_id)
        elif isinstance(event, TextDelta) and event.part_id in texts:
            pieces.append(event.text)
    done = {r.call_id for r in answer.results}
    calls = [c for c in answer.calls if c.call_id not in done]
    return Message("assistant", [Text("".join(pieces)), *calls])


def passes_whole(message: Message) -> bool:
    """Return whether only the message's own dialect knows what it is: the store has no such message of its own."""
    extras = message.extras
    return extras is not None and any("whole" in fields for fields in extras.values())


# ---------------------------------------------------------------------- where a conversation goes on


def continues(stored: list[Message], messages: list[Message], ran: Collection[str]) -> int | None:
    """Return the index at which `messages` go beyond what is stored; None if they do not continue it.

    The backend's own messages are not compared: answers, and results of the calls `ran`. Those that directly follow the
    known part count as known. One message of the user may repeat several that are stored.
    """
    position, left = 0, deque(stored)
    while left:
        position = _past_answers(messages, position, ran)
        if position == len(messages):
            return None
        given = messages[position]
        wanted, known = mark(given), [left.popleft()]
        while mark(_joined(known)[0]) != wanted:
            repeats = left and given.role == known[0].role == left[0].role == "user"
            if not repeats or len(known) == _MOST_JOINED:
                return None
            known.append(left.popleft())
        position += 1
    return _past_answers(messages, position, ran)


def _past_answers(messages: list[Message], position: int, ran: Collection[str]) -> int:
    while position < len(messages) and is_answer(messages[position], ran):
        position += 1
    return position


def is_answer(message: Message, ran: Collection[str]) -> bool:
    """Return whether the backend produced this message: an assistant's answer, or only results of calls that it ran."""
    if message.role == "assistant":
        return True
    results = results_in(message)
    return len(results) == len(message.parts) > 0 and all(r.call_id in ran for r in results)


def unknown(stored: list[Message], messages: list[Message]) -> list[Message]:
    """Return the messages that the conversation does not hold yet.

    Clients that should send only what is new may send everything: as it is stored, or with the ids by which AG-Kit's
    second generation compares (docs/dialects/ag-kit.md). Their copies of earlier answers are left out.
    """
    known = [m for m in stored if not passes_whole(m)]
    said = [n for n, m in enumerate(messages) if not passes_whole(m)]
    if 0 < len(known) <= len(said) and all(mark(m) == mark(messages[n]) for m, n in zip(known, said, strict=False)):
        return messages[said[len(known) - 1] + 1 :]
    new = behind(stored, messages, {m.id for m in stored if m.id and m.role != "assistant"})
    # A single message that was answered is sent again, or another one under its id; one that was not is tried again.
    return messages if not new and len(messages) == 1 and stored[-1].id != messages[0].id else new


def behind(stored: list[Message], messages: list[Message], ids: Collection[str | None]) -> list[Message]:
    """Return the messages after the last one with one of these ids; all of them if there is none."""
    last = max((n for n, m in enumerate(messages) if m.id in ids), default=None)
    if last is None:
        return messages
    answered = {r.call_id for m in stored for r in results_in(m)}
    return messages[_past_answers(messages, last + 1, answered) :]


# ---------------------------------------------------------------------- open calls


def open_calls(stored: list[Message], new: list[Message]) -> list[ToolCall]:
    """Return the stored calls without a result, those of `new` included.

    Raises `RequestError` for a result of an unknown call.
    """
    waiting: dict[str, ToolCall] = {}
    for message in stored:
        if LINKED.isdisjoint(map(type, message.parts)):
            continue
        waiting.update((c.call_id, c) for c in calls_in(message))
        for result in results_in(message):
            waiting.pop(result.call_id, None)
    theirs: set[str] = set()
    for message in new:
        if LINKED.isdisjoint(map(type, message.parts)):
            continue
        theirs.update(c.call_id for c in calls_in(message))
        for result in results_in(message):
            if waiting.pop(result.call_id, None) is None and result.call_id not in theirs:
                place = place_of_message(message)
                call = f"no open tool call {shortened(result.call_id)!r} in this conversation."
                raise RequestError(f"{place}: there is {call}" if place else f"There is {call}", param=place)
    return [c for c in waiting.values() if c.call_id not in theirs]


def only_results(messages: list[Message]) -> bool:
    """Return whether these messages hold tool results and nothing else."""
    return bool(messages) and all(m.parts and len(results_in(m)) == len(m.parts) for m in messages)


def no_results(calls: list[ToolCall]) -> list[Message]:
    """Return results for unanswered calls, as backends refuse a conversation in which one is missing."""
    return [Message("tool", [ToolResult(c.call_id, [Text(NO_RESULT)], c.name)], name=c.name) for c in calls]


# ---------------------------------------------------------------------- answers


def messages_of(answer: Answer) -> list[Message]:
    """Return an answer's messages for the conversation: none of a failed one, the received part of a canceled one."""
    messages = [m for m in answer.messages if m.role == "tool" or answer.choice_of(m) == 0]
    if answer.reason not in (None, FinishReason.CANCELED):
        return [m for m in messages if m.parts]
    if answer.failure is not None and answer.failure.code is not ErrorCode.CANCELED:
        return []
    done = {r.call_id for m in messages for r in results_in(m)}
    halves = []
    for message in messages:
        parts = [p for p in message.parts if not isinstance(p, ToolCall) or p.call_id in done]
        if parts:
            halves.append(replace(message, parts=parts))
    return halves


_REFUSALS = frozenset(
    {
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NOT_FOUND,
        ErrorCode.TOO_LARGE,
        ErrorCode.UNSUPPORTED,
        ErrorCode.CONTEXT_LENGTH,
        ErrorCode.CONTENT_FILTER,
    }
)
"""Failures that say that the request is at fault: it would fail again as it is."""


def refused(answer: Answer) -> bool:
    """Return whether the run ended with a refusal of what the client sent: an error of the request's own before any
    content, or a content filter at any time.

    The conversation does not keep such a turn: with its messages, every later request would be refused, too.
    """
    failure = answer.failure
    if failure is None:
        return answer.reason is FinishReason.CONTENT_FILTER
    has_content = any(message.parts for message in answer.messages)
    return failure.code is ErrorCode.CONTENT_FILTER or (failure.code in _REFUSALS and not has_content)


def canceled(answer: Answer) -> bool:
    """Return whether the run was ended from this side."""
    if answer.failure is not None:
        return answer.failure.code is ErrorCode.CANCELED
    return answer.reason is FinishReason.CANCELED


def finished(answer: Answer) -> bool:
    """Return whether the run ended regularly, so that the backend has the request and its own answer."""
    return answer.failure is None and answer.reason not in (None, FinishReason.CANCELED)
