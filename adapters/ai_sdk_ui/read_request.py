"""The body of a client -> `Request`, checked in one walk.

A body holds the whole chat, or its last message. What the client made of the answers comes back in it: results,
approvals, reasoning with its signatures, and parts that only it can use.
"""

from __future__ import annotations

from typing import Any

from bridge.contract import Context, Feature, WireRequest
from bridge.dialects.ai_sdk_ui.fields import read_fields
from bridge.dialects.ai_sdk_ui.options import FrontOptions
from bridge.dialects.ai_sdk_ui.wire import NAME, noted, noted_part, picked, read_file, read_reasoning, value_text
from bridge.errors import RequestError
from bridge.model import (
    Data,
    FileRef,
    HistoryMode,
    Interrupted,
    Message,
    Part,
    Request,
    Resume,
    Text,
    ToolCall,
    ToolResult,
)
from bridge.model.jsontext import dict_of, text_of
from bridge.toolkit import Node, body_of
from bridge.toolkit.check import wrong

NO_RESULT = "There is no result: the conversation went on without one."
_FIELDS = frozenset({"id", "message", "messages", "trigger", "messageId", "resume"})
_ROLES = ("system", "user", "assistant")
# What backends of this dialect need of a call besides what all others do.
_OF_A_CALL = ("callProviderMetadata", "providerExecuted", "title", "approval")


def decode_request(wire: WireRequest, context: Context, options: FrontOptions) -> Request:
    """Return the request of a client. Raises `RequestError` with the place of what is wrong."""
    body = body_of(wire)
    reader = _Reader(context, resumes=bool(body.get("resume")))
    alone = "messages" not in body.value and "message" in body.value
    if alone:
        nodes = [_last_message(body, options)]
        reader.message(nodes[0], is_last=True)
    else:
        if not body.need_array("messages"):
            wrong("messages", "at least one message", [])
        nodes = list(body.objects("messages"))
        for index, node in enumerate(nodes):
            reader.message(node, is_last=index == len(nodes) - 1)
    request = Request(reader.messages, thread_id=body.string("id") or None, resume=[*reader.resume, *_resume(body)])
    if alone:
        request.history = HistoryMode.LAST
        if nodes[0].get("role") == "assistant":
            request.messages = _added(request)
    if len(nodes) > 1 and nodes[-1].get("role") == "user" and not request.resume:
        request.open_interrupts = _open_interrupts(nodes[-2])
    rest = read_fields(body, options.body_fields, request)
    last = nodes[-1] if nodes else None
    continues = last.string("id") if last is not None and last.get("role") == "assistant" else None
    notes = {"trigger": body.string("trigger"), "messageId": body.string("messageId"), "answer": continues}
    request.extras = {NAME: {**{k: v for k, v in rest.items() if k not in _FIELDS}, "notes": notes}}
    return request


def _last_message(body: Node, options: FrontOptions) -> Node:
    """The only message of a body, which goes on in a chat that is kept by its id."""
    if not options.last_message:
        raise RequestError(
            "messages: required, expected a list with the whole chat, got only `message`; the route's option "
            "last_message allows that.",
            param="messages",
        )
    if not body.need_string("id"):
        raise RequestError("id: expected the id under which the chat is stored, got an empty string.", param="id")
    return body.need_object("message")


def _added(request: Request) -> list[Message]:
    """What a client added to the last answer, which is kept already: the results of its tools.

    It ran the calls of the last step, but those that the backend ran.
    """
    last = max((n for n, m in enumerate(request.messages) if m.role == "assistant"), default=0)
    calls = [p for m in request.messages[last : last + 1] for p in m.parts if isinstance(p, ToolCall)]
    ran = {c.call_id for c in calls if (c.extras or {}).get(NAME, {}).get("providerExecuted") is True}
    added = [m for m in request.messages[last + 1 :] if not any(getattr(p, "call_id", None) in ran for p in m.parts)]
    if not added and not request.resume:
        raise RequestError(
            "message: expected one of the user, or an answer with a tool's result or an approval, got an answer alone.",
            param="message",
        )
    return added


def _resume(body: Node) -> list[Resume]:
    """Answers to questions that are no approvals of a call: data parts named `interrupt`."""
    return [
        Resume(
            node.need_string("id"), node.one_of("status", ("resolved", "cancelled")) or "resolved", node.get("payload")
        )
        for node in body.objects("resume")
    ]


def _open_interrupts(message: Node) -> list[Interrupted]:
    """Return the open questions at the end of an answer. A question that other parts follow has been answered."""
    asked: list[Interrupted] = []
    for part in reversed(list(message.objects("parts"))):
        question = dict_of(part.get("data")) if part.get("type") == "data-interrupt" else {}
        name, reason, call_id = map(text_of, map(question.get, ("id", "reason", "toolCallId")))
        if not name:
            break
        asked.append(Interrupted(name, reason or None, question.get("payload"), call_id or None))
    return asked[::-1]


class _Reader:
    """Reads the messages in order. A message of the assistant becomes one for each step, with the results behind it."""

    def __init__(self, context: Context, *, resumes: bool) -> None:
        """`resumes`: a question of the last answer is answered beside the messages, and its call stays open."""
        self.messages: list[Message] = []
        self.resume: list[Resume] = []
        self._context = context
        self._resumes = resumes
        # Parts and results of one message, or of one of its steps, each with its place.
        self._parts: list[tuple[Part, str]] = []
        self._results: list[tuple[ToolResult, str]] = []

    def message(self, node: Node, *, is_last: bool) -> None:
        role, name = node.need_one_of("role", _ROLES), node.string("id") or None
        node.need_array("parts")
        if role != "assistant":
            for part in node.objects("parts"):
                self._user_part(part)
            self._add(role, node, name)
            return
        first = len(self.messages)
        for part in node.objects("parts"):
            if part.need_string("type") == "step-start":
                self._end_step(node)
            else:
                self._answer_part(part, is_last)
        self._end_step(node)
        for number, message in enumerate(m for m in self.messages[first:] if m.role == "assistant"):
            message.id = name if number == 0 or name is None else f"{name}-{number}"

    def _end_step(self, node: Node) -> None:
        self._leave_out_copies()
        if self._parts:
            self._add("assistant", node)
            self.messages += [Message("tool", [r], name=r.name, places=(node.path, at)) for r, at in self._results]
        self._results = []

    def _leave_out_copies(self) -> None:
        """Stores keep a call as it was open beside the same with its result; the one with a result counts."""
        by_call: dict[str, list[tuple[ToolResult, str]]] = {}
        for entry in self._results:
            by_call.setdefault(entry[0].call_id, []).append(entry)
        places: set[str] = set()  # of parts that are left out
        for entries in by_call.values():
            waiting = [at for result, at in entries if result.parts == [Text(NO_RESULT)]]
            places.update(waiting if len(waiting) < len(entries) else waiting[:-1])
        if places:
            self._results = [entry for entry in self._results if entry[1] not in places]
            self._parts = [entry for entry in self._parts if entry[1] not in places]

    def _add(self, role: str, node: Node, name: str | None = None) -> None:
        parts, places = [p for p, _ in self._parts], [at for _, at in self._parts]
        self.messages.append(Message(role, parts, name, extras=_metadata(node), places=(node.path, *places)))
        self._parts = []

    # ------------------------------------------------------------------ parts

    def _user_part(self, node: Node) -> None:
        kind = node.need_string("type")
        if kind == "text":
            self._parts.append((Text(node.need_string("text")), node.path))
        elif kind == "file":
            self._parts.append((_file(node), node.path))
        elif kind.startswith("data-"):
            self._parts.append((Data(node.get("data"), noted(node.value)), node.path))
        else:
            self._leave_out(kind)

    def _answer_part(self, node: Node, is_last: bool) -> None:
        kind = node.need_string("type")
        if kind == "text":
            if text := node.need_string("text"):
                extras = noted_part(picked(node.value, "providerMetadata"), node.get("providerMetadata"))
                self._parts.append((Text(text, extras), node.path))
        elif kind == "reasoning":
            part = read_reasoning(node.need_string("text"), node.get("providerMetadata"))
            if part.text or part.signature or part.redacted or part.extras:
                self._parts.append((part, node.path))
        elif kind == "file":
            self._parts.append((_file(node), node.path))
        elif kind == "dynamic-tool" or kind.startswith("tool-"):
            self._call(node, kind, is_last)
        else:
            self._leave_out(kind)

    def _leave_out(self, kind: str) -> None:
        """Sources, data parts and what is unknown: no model reads them, and clients keep them."""
        self._context.lost.add(Feature.EXTRAS, f"parts that models do not read: {kind[:40]}")

    def _call(self, node: Node, kind: str, is_last: bool) -> None:
        call_id = node.need_string("toolCallId")
        # Chats in a store may lack the state; then a part counts by what it has (vercel/ai#18451).
        state = node.string("state") or ("output-available" if "output" in node.value else "input-available")
        dynamic = kind == "dynamic-tool"
        name = node.need_string("toolName") if dynamic else kind.removeprefix("tool-")
        value = node.get("input")
        raw = node.string("rawInput")
        arguments = raw if raw is not None and (value is None or state == "output-error") else value_text(_input(value))
        more = {**picked(node.value, *_OF_A_CALL), **({"dynamic": True} if dynamic else {})}
        extras = noted_part(more, node.get("callProviderMetadata"))
        self._parts.append((ToolCall(call_id, name, arguments, extras=extras), node.path))
        result = self._outcome(node, state, is_last)
        if result is not None:
            text, is_error, extras = result
            self._results.append((ToolResult(call_id, [Text(text)], name, is_error, extras), node.path))

    def _outcome(self, node: Node, state: str, is_last: bool) -> tuple[str, bool, Any] | None:
        """The result of a call; None if it is open, as an approval that this request answers leaves it."""
        if state == "output-available":
            output = node.get("output")
            return value_text(output), False, {NAME: {"output": output}}
        if state == "output-error":
            return node.string("errorText") or "", True, None
        approval = node.object("approval")
        if approval is None and state == "output-denied":
            return "denied", True, {NAME: {"denied": True}}
        if approval is None:
            return None if is_last and self._resumes else (NO_RESULT, True, None)
        approved, reason = approval.boolean("approved"), approval.string("reason")
        denied = state == "output-denied" or (state == "approval-responded" and not approved)
        if is_last and state == "approval-responded":
            payload = {"approved": bool(approved), **({"reason": reason} if reason else {})}
            self.resume.append(Resume(approval.need_string("id"), "resolved", payload))
            return None
        return (reason or "denied", True, {NAME: {"denied": True}}) if denied else (NO_RESULT, True, None)


def _input(value: Any) -> Any:
    return {} if value is None else value


def _metadata(node: Node) -> Any:
    return noted(picked(node.value, "metadata"))


def _file(node: Node) -> Part:
    for name in ("url", "mediaType", "filename"):
        node.string(name)
    media = read_file(node.value)
    reference = node.object("providerReference")
    if reference is None and not node.get("url"):
        wrong(node.at("url"), "a URL", node.get("url"), missing="url" not in node.value)
    if reference is not None and not node.get("url"):
        media.source = FileRef(next((v for v in reference.value.values() if isinstance(v, str)), ""))
    return media
