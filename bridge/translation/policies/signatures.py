"""Signatures and encrypted forms of reasoning, each of which only the vendor that made it can read.

For clients of another vendor's dialect, such a value is wrapped into one of the bridge, which names the vendor. A
client returns it unread, and only that vendor's backends get it. Clients that reject reasoning without a signature get
an empty one.

The signature of another part travels with that part. That of a tool call, if the client's dialect has no field for it
there, is wrapped into reasoning without text that precedes the call.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bridge.contract import CallSignatures, Capabilities, Feature, Losses, Support
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    ContentAdded,
    Event,
    Extras,
    Message,
    Part,
    PartEnded,
    PartKind,
    PartStarted,
    Reasoning,
    Request,
    ToolCall,
)
from bridge.model.events import of_types
from bridge.model.jsontext import dumps, read_json
from bridge.toolkit.signed_parts import GOOGLE, SIGNATURE, signature_of, signed, unsigned
from bridge.translation.stage import Stage
from bridge.translation.survey import Survey

_OF_CALL = re.compile(r"bridge-call-1\.([a-z0-9_-]*)\.([A-Za-z0-9_=-]*)", re.ASCII)
_OURS = re.compile(r"bridge-reasoning-1\.([a-z0-9_-]*)\.([A-Za-z0-9_=-]*)", re.ASCII)
_OF_ANOTHER = "an opaque value of another vendor"
_REFUSED = re.compile(r"signature|encrypted[ _]content|extra_content", re.IGNORECASE)
# Read once: a member of an enumeration is slow to look up in Python 3.11.
_REASONING, _TOOL_CALL = PartKind.REASONING, PartKind.TOOL_CALL
_STARTED: frozenset[type] = frozenset({PartStarted})
_MAY_BE_SIGNED: frozenset[type] = frozenset({PartStarted, PartEnded, ContentAdded})


class SealSignatures(Stage):
    """Wraps signatures and encrypted reasoning of the backend's vendor for clients of another one."""

    passes_deltas = True

    def __init__(self, vendor: str, *, wraps: bool, signs: bool) -> None:
        """`vendor`: the backend's. `wraps`: its values are wrapped. `signs`: reasoning without one gets a signature."""
        self._vendor = vendor
        self._wraps = wraps
        self._signs = signs
        self._open: set[str] = set()

    def __call__(self, events: list[Event]) -> list[Event]:
        if not self._open and _REASONING not in [event.kind for event in of_types(events, _STARTED)]:
            return events
        return [self._sealed(e) if isinstance(e, (PartStarted, PartEnded)) else e for e in events]

    def _sealed(self, event: PartStarted | PartEnded) -> Event:
        if isinstance(event, PartStarted):
            if event.kind is _REASONING:
                self._open.add(event.part_id)
            return event
        if event.part_id not in self._open:
            return event
        self._open.discard(event.part_id)
        if event.signature or event.redacted:
            return self._wrapped(event) if self._wraps else event
        return replace(event, signature=_seal("", None)) if self._signs else event

    def _wrapped(self, event: PartEnded) -> Event:
        value = [event.signature, event.redacted, _notes(event.extras)]
        return replace(event, signature=_seal(self._vendor, value), redacted=None)


class CarrySignatures(Stage):
    """Puts the signature of a call into reasoning before it, if that is where the client returns it. Notes signatures
    that the client cannot return.
    """

    passes_deltas = True

    def __init__(self, place: CallSignatures, loses: bool, lost: Losses) -> None:
        """`place`: where the client returns the signature of a call. `loses`: what it does not return is lost."""
        self._place = place
        self._loses = loses
        self._lost = lost
        self._calls: set[str] = set()

    def __call__(self, events: list[Event]) -> list[Event]:
        before: dict[str, list[Event]] = {}  # of the calls that reasoning is put before
        for event in of_types(events, _MAY_BE_SIGNED):
            if isinstance(event, PartStarted):
                if event.kind is _TOOL_CALL:
                    self._calls.add(event.part_id)
                    if added := self._before(event):
                        before[event.part_id] = added
            elif isinstance(event, PartEnded):
                # At the end of a call it is too late for reasoning before the call.
                is_call = event.part_id in self._calls
                self._calls.discard(event.part_id)
                if event.extras and not (is_call and self._place is CallSignatures.IN_CALL):
                    self._lose(event.extras, "of a tool call" if is_call else "of a text")
            else:
                self._lose(event.part.extras, "of a medium")
        if not before:
            return events
        out: list[Event] = []
        for event in events:
            if isinstance(event, PartStarted):
                out += before.get(event.part_id, ())
            out.append(event)
        return out

    def _before(self, call: PartStarted) -> list[Event]:
        if self._place is CallSignatures.IN_REASONING and (signature := signature_of(call.extras)) is not None:
            part_id = f"{call.part_id}.signature"
            started = PartStarted(part_id, call.message_id, PartKind.REASONING, choice=call.choice)
            return [started, PartEnded(part_id, _seal_call(signature))]
        if self._place is CallSignatures.NOWHERE:
            self._lose(call.extras, "of a tool call")
        return []

    def _lose(self, extras: Extras | None, what: str) -> None:
        if self._loses and signature_of(extras) is not None:
            self._lost.add(Feature.REASONING_SIGNATURE, what)


def for_backend(request: Request, survey: Survey, front: Capabilities, back: Capabilities, lost: Losses) -> Request:
    """Return the request with the values that a backend of `back` has made, each as that vendor gave it."""
    if SIGNATURE in survey.extras or Reasoning in survey.kinds:
        request = _with_signed_parts(request, back, lost)
    if Reasoning in survey.kinds:
        messages = _changed(request.messages, _Kept(front, back, lost))
        return request if messages is None else replace(request, messages=messages)
    return request


def unwrapped(signature: str | None) -> str | None:
    """Return the signature that is wrapped; any other value unchanged."""
    found = _OURS.fullmatch(signature or "")
    if found is None:
        return signature
    value = _unseal(found[2])
    return None if value is None else value[0]


def without_signatures(request: Request, failure: Failure, lost: Losses) -> Request | None:
    """Return the request without opaque values, for a backend that refused it because of one; None if it did not."""
    if failure.code is not ErrorCode.INVALID_REQUEST:
        return None
    if not _REFUSED.search(f"{failure.message} {failure.backend_code} {failure.param}"):
        return None
    messages = _changed(request.messages, _without_signature)
    if messages is None:
        return None
    lost.add(Feature.REASONING_HISTORY, "an opaque value that the backend refused")
    return replace(request, messages=messages)


# ---------------------------------------------------------------------- requests


class _Kept:
    """Gives reasoning in the form in which the backend may get it."""

    def __init__(self, front: Capabilities, back: Capabilities, lost: Losses) -> None:
        self._back = back.vendor
        self._lost = lost
        carries = back.request(Feature.REASONING_HISTORY) is not Support.DROP
        self._takes_fronts = front.vendor in ("", back.vendor) if back.vendor else carries

    def __call__(self, part: Part) -> Part:
        if not isinstance(part, Reasoning):
            return part
        found = _OURS.fullmatch(part.signature or "")
        if found is None:
            if self._takes_fronts or not _is_opaque(part):
                return part
            self._lost.add(Feature.REASONING_HISTORY, _OF_ANOTHER)
            return Reasoning(part.text)
        vendor, value = found[1], _unseal(found[2])
        if not vendor:
            return Reasoning(part.text)
        if vendor != self._back or value is None:
            self._lost.add(Feature.REASONING_HISTORY, _OF_ANOTHER)
            return Reasoning(part.text)
        signature, redacted, extras = value
        return Reasoning(part.text, signature, redacted, extras)


def _with_signed_parts(request: Request, back: Capabilities, lost: Losses) -> Request:
    """Return the request with signatures in the parts that they belong to, as far as a backend of `back` reads them
    there.
    """
    if not any(map(_is_signed, (part for message in request.messages for part in message.parts))):
        return request
    takes = back.call_signatures.with_calls
    waiting: str | None = None
    messages: list[Message] = []
    for message in request.messages:
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, Reasoning) and (found := _OF_CALL.fullmatch(part.signature or "")):
                waiting = _unseal_call(found)
                if waiting is None or not takes:
                    lost.add(Feature.REASONING_HISTORY, _OF_ANOTHER)
                continue
            if isinstance(part, ToolCall) and takes:
                part = replace(part, extras=signed(part.extras, waiting))
            elif signature_of(part.extras) is not None and back.call_signatures is not CallSignatures.IN_PART:
                lost.add(Feature.REASONING_HISTORY, _OF_ANOTHER)
                part = replace(part, extras=unsigned(part.extras))
            waiting = None
            parts.append(part)
        if parts or not message.parts:
            messages.append(replace(message, parts=parts))
    return replace(request, messages=messages)


def _is_signed(part: Part) -> bool:
    """Return whether the part has a signature, or is reasoning with that of a call."""
    is_of_call = isinstance(part, Reasoning) and _OF_CALL.fullmatch(part.signature or "") is not None
    return is_of_call or signature_of(part.extras) is not None


def _without_signature(part: Part) -> Part:
    if signature_of(part.extras) is not None:
        part = replace(part, extras=unsigned(part.extras))
    return Reasoning(part.text) if isinstance(part, Reasoning) and _is_opaque(part) else part


def _is_opaque(part: Reasoning) -> bool:
    return bool(part.signature or part.redacted)


def _changed(messages: list[Message], change: Callable[[Part], Part]) -> list[Message] | None:
    """The messages with changed reasoning and calls, without what is empty by that; None if nothing changes."""
    out: list[Message] = []
    is_changed = False
    for message in messages:
        pairs = [(part, change(part)) for part in message.parts]
        if all(new is part for part, new in pairs):
            out.append(message)
            continue
        is_changed = True
        if parts := [new for part, new in pairs if new is part or not _is_empty(new)]:
            out.append(replace(message, parts=parts))
    return out if is_changed else None


def _is_empty(part: Part) -> bool:
    return isinstance(part, Reasoning) and not (part.text or _is_opaque(part))


# ---------------------------------------------------------------------- the value


def _seal_call(signature: str) -> str:
    return f"bridge-call-1.{GOOGLE}.{base64.urlsafe_b64encode(signature.encode()).decode()}"


def _unseal_call(found: re.Match[str]) -> str | None:
    """Return the signature of a call; None for a modified value, or one of another vendor."""
    try:
        return base64.urlsafe_b64decode(found[2]).decode() or None if found[1] == GOOGLE else None
    except ValueError:
        return None


def _seal(vendor: str, value: list[Any] | None) -> str:
    packed = base64.urlsafe_b64encode(dumps(value)).decode() if value is not None else ""
    return f"bridge-reasoning-1.{vendor}.{packed}"


def _unseal(packed: str) -> tuple[str | None, str | None, dict[str, Any] | None] | None:
    """Return the signature, the encrypted form and the notes of a dialect; None for a modified value."""
    try:
        value = read_json(base64.urlsafe_b64decode(packed))
    except (binascii.Error, ValueError):
        return None
    match value:
        case [str() | None, str() | None, dict() | None] if value[0] or value[1]:
            return value[0], value[1], _notes(value[2])
    return None


def _notes(extras: Any) -> dict[str, Any] | None:
    """Return the strings among a dialect's notes. Other values could be objects made by a client."""
    words = {
        name: {k: v for k, v in notes.items() if isinstance(v, str)}
        for name, notes in (extras or {}).items()
        if isinstance(notes, dict)
    }
    return words or None
