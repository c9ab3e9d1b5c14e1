"""`Request` -> the body for a server: the whole chat as UI messages.

A turn of the assistant with its results, and those that follow until the user speaks, are one message of several steps.
Only fields that strict servers accept are written.
"""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Any

from bridge.contract import Context, WireRequest, json_request
from bridge.dialects.ai_sdk_ui.capabilities import CAPABILITIES
from bridge.dialects.ai_sdk_ui.fields import write_fields
from bridge.dialects.ai_sdk_ui.options import BackOptions
from bridge.dialects.ai_sdk_ui.read_request import NO_RESULT
from bridge.dialects.ai_sdk_ui.wire import (
    NAME,
    Wire,
    metadata_for,
    metadata_in,
    metadata_of,
    output_of,
    own,
    parsed,
    picked,
    with_metadata,
    with_signature,
    write_file,
)
from bridge.model import (
    Data,
    FileRef,
    Media,
    Message,
    Part,
    Reasoning,
    Request,
    Resume,
    ToolCall,
    ToolResult,
    as_text,
    result_text,
)
from bridge.model.jsontext import dumps, text_of
from bridge.toolkit.message_losses import RESULT, MessageLosses

_STEP: Wire = {"type": "step-start"}


def encode_request(request: Request, context: Context, options: BackOptions) -> WireRequest:
    """Return the request. Raises `Unsupported` for a file that only another backend knows."""
    _LOSSES.note(request.messages, context.lost)
    writer = _Writer(request, context, options)
    messages = writer.write()
    notes = request.extra(NAME).get("notes") or {}
    body: Wire = {
        "id": context.thread_id or request.thread_id or context.run_id,
        "messages": messages,
        "trigger": notes.get("trigger") or "submit-message",
    }
    if messages and messages[-1]["role"] == "assistant":
        body["messageId"] = messages[-1]["id"]
    elif notes.get("messageId"):
        body["messageId"] = notes["messageId"]
    body.update(write_fields(request, context, options.body_fields))
    if writer.system and options.system == "body":
        body["system"] = writer.system
    if writer.resume:
        body["resume"] = [_answer(r) for r in writer.resume]
    for answer in request.resume:
        if run_id := _mastra_run(answer):
            body.update(runId=run_id, resumeData=_resume_data(answer))
    body.update((k, v) for k, v in request.extra(NAME).items() if k != "notes" and k not in body)
    return json_request("", dumps(body), {"accept": "text/event-stream"})


def _mastra_run(answer: Resume) -> str:
    """Return the run of Mastra that waits for this answer; empty for questions of others."""
    notes = (answer.extras or {}).get(NAME, {}).get("notes")
    return text_of(notes.get("runId")) if isinstance(notes, dict) else ""


def _resume_data(answer: Resume) -> Any:
    """Return the answer as `handleChatStream` takes it."""
    if answer.decision != "resolved":
        return {"approved": False}
    return {"approved": True} if answer.payload is None else answer.payload


def _answer(answer: Resume) -> Wire:
    wire = {"id": answer.interrupt_id, "status": answer.decision, "payload": answer.payload}
    return {k: v for k, v in wire.items() if v is not None}


class _Writer:
    """Writes the messages of one request. `resume` has the answers to interrupts that no call carries."""

    def __init__(self, request: Request, context: Context, options: BackOptions) -> None:
        self.system = "\n\n".join(result_text(m.parts) for m in request.messages if m.role in ("system", "developer"))
        self.resume = [each for each in request.resume if not _mastra_run(each)]
        self._request = request
        self._lost = context.lost
        self._thread = context.thread_id or request.thread_id or ""
        self._in_text = options.system == "text"
        self._as_message = options.system == "message"
        self._out: list[Wire] = []
        self._ids: set[str] = set()
        self._calls: dict[str, Wire] = {}

    def write(self) -> list[Wire]:
        instructions = self.system if self._in_text else ""
        for message in self._request.messages:
            if message.role in ("system", "developer"):
                if self._as_message:
                    self._add("system", message, [_text(result_text(message.parts))])
            elif message.role == "user":
                parts = self._parts(message)
                if instructions:
                    parts.insert(0, _text(f"{instructions}\n\n"))
                    instructions = ""
                if parts or message is self._request.messages[-1]:
                    self._add("user", message, parts or [_text("")])  # servers refuse a request without messages
            else:
                self._assistant(message)
        if instructions:
            self._out.insert(0, {"id": self._id(None, "user", []), "role": "user", "parts": [_text(instructions)]})
        self._settle()
        return self._out

    def _add(self, role: str, message: Message, parts: list[Wire]) -> None:
        name = self._id(message.id, role, parts if role == "user" else [])
        self._out.append({"id": name, "role": role, **picked(own(message.extras), "metadata"), "parts": parts})

    def _id(self, wanted: str | None, role: str, parts: list[Wire]) -> str:
        """The same id for the same message in the next request, as servers find messages by it."""
        if wanted is None or wanted in self._ids:
            value = [self._thread, len(self._out), role, parts]
            wanted = "msg-" + hashlib.sha256(dumps(value)).hexdigest()[:24]
        self._ids.add(wanted)
        return wanted

    def _assistant(self, message: Message) -> None:
        """A turn goes on in the message of the last one until the user speaks."""
        parts = self._parts(message)
        if not parts:
            return
        if self._out and self._out[-1]["role"] == "assistant":
            self._out[-1]["parts"] += [_STEP, *parts]
        else:
            self._add("assistant", message, [_STEP, *parts])

    def _parts(self, message: Message) -> list[Wire]:
        """The parts of a message but for results, which join their calls."""
        out: list[Wire] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                self._result(part, out)
            else:
                out.append(self._part(part))
        return out

    def _part(self, part: Part) -> Wire:
        match part:
            case ToolCall():
                return self._call(part)
            case Reasoning():
                wire = {"type": "reasoning", "text": part.text, "state": "done"}
                metadata = metadata_for(part.signature, part.redacted, part.extras)
                return with_metadata(wire, with_signature(metadata, part.extras))
            case Media():
                wire = {**write_file(part), **({"filename": part.filename} if part.filename else {})}
                return with_metadata(wire, metadata_in(part.extras))
            case Data() if native := own(part.extras):
                return native
            case Data():
                return with_metadata(_text(as_text(part)), metadata_in(part.extras))
            case _:
                return with_metadata(_text(as_text(part)), metadata_in(part.extras))

    def _call(self, call: ToolCall) -> Wire:
        native = own(call.extras)
        kind = (
            {"type": "dynamic-tool", "toolName": call.name} if native.get("dynamic") else {"type": f"tool-{call.name}"}
        )
        value, is_json = parsed(call.arguments)
        more = picked(native, "providerExecuted", "title", "approval")
        if metadata := with_signature(metadata_of(native.get("callProviderMetadata")), call.extras):
            more["callProviderMetadata"] = metadata
        wire: Wire = {**kind, "toolCallId": call.call_id, "state": "input-available", "input": value, **more}
        if not is_json:
            wire.update(state="output-error", errorText="The arguments are not valid JSON.")
        self._calls[call.call_id] = wire
        return wire

    def _result(self, result: ToolResult, out: list[Wire]) -> None:
        wire = self._calls.get(result.call_id)
        if wire is None:
            wire = self._call(ToolCall(result.call_id, result.name or "tool", "{}"))
            out.append(wire)
        if own(result.extras).get("denied") and "approval" in wire:
            wire["state"] = "output-denied"
        elif result.is_error or wire["state"] == "output-error":
            wire.update(state="output-error", errorText=result_text(result.parts))
        else:
            wire.update(state="output-available", output=output_of(result_text(result.parts), result.extras))

    # ------------------------------------------------------------------ open calls

    def _settle(self) -> None:
        """Calls without a result are answered by an approval, or by a result that says that there is none."""
        waiting = [w for w in self._calls.values() if w["state"] == "input-available"]
        answers = _Answers(self.resume)
        for wire in waiting:
            answer = answers.take(wire, alone=len(waiting) == 1)
            if answer is None:
                wire.update(state="output-error", errorText=NO_RESULT)
                continue
            payload = answer.payload
            reason = payload.get("reason") if isinstance(payload, dict) else payload
            approval: dict[str, Any] = {"id": answer.interrupt_id, "approved": answer.agrees}
            if isinstance(reason, str) and reason and not answer.agrees:
                approval["reason"] = reason
            wire.update(state="approval-responded", approval={**wire.get("approval", {}), **approval})
        self.resume[:] = answers.left


class _Answers:
    """The answers of a request by what they name. `left`: those that were not taken, in order."""

    def __init__(self, answers: list[Resume]) -> None:
        self._left = dict(enumerate(answers))
        self._named: dict[str, deque[int]] = {}
        for place, answer in self._left.items():
            self._named.setdefault(answer.interrupt_id, deque()).append(place)

    @property
    def left(self) -> list[Resume]:
        return list(self._left.values())

    def take(self, wire: Wire, *, alone: bool) -> Resume | None:
        """The answer to the approval of a call; a client of another dialect may name only the approval.

        `alone`: the only call that waits takes the only answer, whatever that names.
        """
        names = {str(name) for name in (wire["toolCallId"], (wire.get("approval") or {}).get("id")) if name}
        queues = [queue for name in names if (queue := self._named.get(name))]
        if queues:
            return self._left.pop(min(queues, key=lambda queue: queue[0]).popleft())
        return self._left.popitem()[1] if alone and len(self._left) == 1 else None


def _takes(part: Part, role: str) -> bool:
    if isinstance(part, Media):
        return role not in (*_SYSTEM, RESULT) and not isinstance(part.source, FileRef)
    return bool(own(part.extras))


_SYSTEM = ("system", "developer")
_LOSSES = MessageLosses(CAPABILITIES, takes=_takes, told=(*_SYSTEM, RESULT))


def _text(text: str) -> Wire:
    return {"type": "text", "text": text}
