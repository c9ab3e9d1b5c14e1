"""Messages of the model -> `systemInstruction` and `contents` for a backend.

What follows each other in one role becomes one content. Servers take a turn with calls only after a turn of the user,
and only with as many responses in the next content, which `bridge.translation.requirements` sees to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bridge.contract import Context, Feature
from bridge.dialects.gemini.capabilities import CAPABILITIES
from bridge.dialects.gemini.options import BackOptions
from bridge.dialects.gemini.read_messages import KEY
from bridge.dialects.gemini.wire import ASIDES, MADE, SIGNATURE, media_part, own
from bridge.errors import shortened
from bridge.model import (
    Data,
    FileRef,
    Media,
    Message,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    json_text,
)
from bridge.model.error_paths import unsupported
from bridge.model.jsontext import input_of, loads
from bridge.toolkit.message_losses import MessageLosses

Wire = dict[str, Any]

_SYSTEM = frozenset({"system", "developer"})
_SKIP = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
"""The signature `skip_thought_signature_validator`, which Google takes for a call that has none."""
_STORED = ("gs://", "files/", "https://generativelanguage.googleapis.com/")


@dataclass(slots=True)
class _Turn:
    """One content."""

    role: str
    parts: list[Wire] = field(default_factory=list)
    has_calls: bool = False


class ContentWriter:
    """Writes the contents of one request; what cannot be said is recorded in the context."""

    def __init__(self, context: Context, options: BackOptions, skips: bool) -> None:
        """`skips`: a call without a thought signature goes with the value that skips the check."""
        self._options = options
        self._skips = skips
        self._messages: list[Message] = []
        self._turns: list[_Turn] = []
        self._system: list[Wire] = []
        self._names: dict[str, str] = {}

    def write(self, messages: list[Message]) -> tuple[list[Wire], list[Wire]]:
        """The parts of `systemInstruction`, and `contents`. Raises `Unsupported` for a file of another server."""
        self._messages = messages
        for message in messages:
            if message.role in _SYSTEM and not self._turns:
                self._system += [wire for wire in self._parts(message, "system") if wire.get("text")]
                continue
            role = "model" if message.role == "assistant" else "user"
            for wire in self._parts(message, role):
                self._turn(role).parts.append(wire)
        if not self._turns or self._turns[0].role == "model":
            self._turns.insert(0, _Turn("user", [{"text": ""}]))
        return self._system, [{"role": turn.role, "parts": turn.parts or [{"text": ""}]} for turn in self._turns]

    def _turn(self, role: str) -> _Turn:
        """The turn to which the next part of this role belongs."""
        if not self._turns or self._turns[-1].role != role:
            self._turns.append(_Turn(role))
        return self._turns[-1]

    # -------------------------------------------------------------- parts

    def _parts(self, message: Message, role: str) -> Iterator[Wire]:
        """The parts of a message but its results, which are the user's."""
        asides = deque(own(message.extras).get(ASIDES) or ())
        for number, part in enumerate(message.parts):
            while asides and asides[0][0] <= number:
                yield asides.popleft()[1]
            if isinstance(part, ToolResult):
                self._result(part)
            elif wire := self._part(part, role):
                yield wire
        yield from (part for _, part in asides)

    def _part(self, part: Part, role: str) -> Wire | None:
        match part:
            case Text() | Refusal():
                return {"text": part.text, **own(part.extras)} if part.text or role == "user" else None
            case Data():
                return {"text": json_text(part.value)}
            case Media():
                return self._medium(part)
            case Reasoning():
                return self._reasoning(part, role)
            case ToolCall() if role == "model":
                return self._call(part)
        return None

    def _id(self, call_id: str) -> Wire:
        """The id of a call where the server knows it."""
        return {} if call_id.startswith(MADE) or self._options.call_ids == "none" else {"id": call_id}

    def _call(self, call: ToolCall) -> Wire:
        turn = self._turn("model")
        skip = _SKIP if self._skips and not turn.has_calls else None  # only the first call of a turn has one
        beside = dict(own(call.extras))
        if skip:
            beside.setdefault(SIGNATURE, skip)
        turn.has_calls = True
        self._names[call.call_id] = call.name
        arguments = input_of(call.arguments)
        return {"functionCall": {**self._id(call.call_id), "name": call.name, "args": arguments}, **beside}

    def _result(self, result: ToolResult) -> None:
        name = self._names.get(result.call_id) or result.name or result.call_id
        rest = dict(own(result.extras))
        key = rest.pop(KEY, None)
        texts = [part for part in result.parts if not isinstance(part, Media)]
        text = "".join(self._told(part) for part in texts)
        media = [self._medium(part) for part in result.parts if isinstance(part, Media)]
        response = {"error": text} if result.is_error else {key: text} if key else _object(text)
        wire = {**self._id(result.call_id), "name": name, "response": response, **rest}
        if media:
            wire["parts"] = media
        self._turn("user").parts.append({"functionResponse": wire})

    def _told(self, part: Part) -> str:
        if isinstance(part, Data):
            return json_text(part.value)
        return part.text if isinstance(part, (Text, Refusal)) else ""

    def _reasoning(self, part: Reasoning, role: str) -> Wire | None:
        is_own = own(part.extras)
        if role == "model" and self._sends_reasoning(part) and (part.text or is_own):
            return {"text": part.text, **is_own, "thought": True}
        return None

    def _sends_reasoning(self, part: Reasoning) -> bool:
        wanted = self._options.reasoning_history
        return wanted == "always" or (wanted == "own" and bool(own(part.extras)))

    def sends(self, index: int, message: Message, part: Reasoning) -> bool:
        """Return whether reasoning is sent, or has nothing to send."""
        return message.role != "assistant" or not part.text or self._sends_reasoning(part)

    def _medium(self, media: Media) -> Wire:
        """Raises `Unsupported` for an id that only another server knows."""
        if isinstance(media.source, FileRef) and not media.source.file_id.startswith(_STORED):
            name = shortened(media.source.file_id)
            why = f"this backend accepts files by gs:// and files/ addresses, not {name!r}; "
            raise unsupported(self._messages, media, f"{why}send its bytes, or leave it out.")
        return {**media_part(media, guessed=True), **own(media.extras)}


def _takes(part: Part, role: str) -> bool:
    """Return whether a part is a medium: whether a server knows a file, the writer finds out."""
    return isinstance(part, Media)


LOSSES = MessageLosses(
    CAPABILITIES, takes=_takes, keeps=(Feature.REASONING_HISTORY,), of_assistants=(ToolCall, Reasoning)
)


def _object(text: str) -> Wire:
    """A result that is a JSON object stands for itself; anything else is an output."""
    if text.lstrip().startswith("{"):
        try:
            value = loads(text)
        except ValueError:
            return {"output": text}
        if isinstance(value, dict):
            return value
    return {"output": text}
