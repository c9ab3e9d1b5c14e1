"""What of the messages of a request a backend does not get, as the card of its dialect declares it.

The writers of messages write what the wire has a form for, and anything else as text or not at all. That this is a
loss, and that a medium is refused, is said here, once for all dialects. What a writer alone can know, such as reasoning
without the signature that its API demands, is among the features that it `keeps`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from bridge.contract.capabilities import Capabilities, Feature, Support
from bridge.contract.context import Losses
from bridge.errors import shortened
from bridge.model import (
    Data,
    FileRef,
    Inline,
    Media,
    Message,
    Origin,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Url,
    as_text,
)
from bridge.model.error_paths import unsupported
from bridge.toolkit.media import ERROR_MARK, request_feature

RESULT = "result"
"""The role of the parts of a tool's result, for `takes` and `told`. Parts of a tool's message that stand beside its
results have the role `tool`.
"""
ROLES = frozenset({"system", "developer", "user", "assistant", "tool", RESULT})
"""The roles of messages, and `RESULT`."""
AS_TEXT = "sent as text"
Takes = Callable[[Part, str], bool]
"""`takes(part, role)` returns whether the wire has a form for a medium or data there; the role is one of `ROLES`."""

Sends = Callable[[int, Message, Reasoning], bool]
"""`sends(index, message, part)` returns whether reasoning is sent, or has nothing to send; `index` is its message's."""

_FEATURES: dict[type, Feature] = {
    Data: Feature.DATA,
    Reasoning: Feature.REASONING_HISTORY,
    Refusal: Feature.REFUSAL_HISTORY,
    ToolCall: Feature.TOOL_HISTORY,
    ToolResult: Feature.TOOL_HISTORY,
}
_SYSTEM = ("system", "developer")
_TEXT: frozenset[type] = frozenset({Text})
_SOURCES: dict[type, str] = {Url: "by URL", Inline: "as bytes", FileRef: "by file id"}


class MessageLosses:
    """The losses of messages at backends of one dialect.

    Arguments:
        card: What the dialect carries.
        takes: Tells media and data that the wire has a form for. Without it, media have one where the card says exact.
        told: The roles, of `ROLES`, in which other media become text whatever the options are. Elsewhere they are
            refused.
        keeps: Features about which the writer of messages decides, and whose losses it names itself.
        marks_errors: Whether the wire says that a tool's result is an error.
        of_assistants: Kinds of parts that only messages of the assistant have.
        beside_results: Kinds of parts that a message of a tool may have beside results; None for any. Those that the
            wire `takes` there are among them anyway.
        picture_detail: Whether the wire says in which detail the model sees a picture.

    Raises `ValueError` for a word in `told` that is not one of `ROLES`.
    """

    __slots__ = (
        "_beside_results", "_card", "_marks_errors", "_names", "_of_assistants", "_origins", "_picture_detail",
        "_supports", "_systems", "_takes", "_takes_calls", "_told",
    )  # fmt: skip

    def __init__(
        self,
        card: Capabilities,
        *,
        takes: Takes | None = None,
        told: Collection[str] = (),
        keeps: Collection[Feature] = (),
        marks_errors: bool = True,
        of_assistants: Collection[type] = (),
        beside_results: Collection[type] | None = None,
        picture_detail: bool = False,
    ) -> None:
        self._card = card
        self._names = card.request(Feature.MESSAGE_NAME) is Support.DROP
        self._origins = card.request(Feature.TOOL_ORIGIN) is Support.DROP
        self._supports = {
            kind: Support.EXACT if feature in keeps else card.request(feature) for kind, feature in _FEATURES.items()
        }
        self._takes_calls = self._supports[ToolCall] is Support.EXACT
        self._takes = takes
        if unknown := sorted(set(told) - ROLES):
            raise ValueError(f"told: expected some of {', '.join(sorted(ROLES))}, got {', '.join(unknown)}")
        self._told = frozenset(told)
        self._of_assistants = frozenset(of_assistants)
        self._beside_results = None if beside_results is None else frozenset({ToolResult, *beside_results})
        self._systems = card.request(Feature.SYSTEM) is Support.TEXT and Feature.SYSTEM not in keeps
        self._marks_errors = marks_errors
        self._picture_detail = picture_detail

    def note(
        self,
        messages: Sequence[Message],
        lost: Losses,
        *,
        of: Sequence[Message] | None = None,
        as_text: bool = False,
        sends: Sends | None = None,
        history: object = None,
    ) -> None:
        """Record what is lost of these messages, or only `of` those among them.

        `as_text`: media without a form become text. Without it they raise `Unsupported`, with their place.
        `sends` tells which reasoning is sent by the option `reasoning_history`, whose value is `history`.
        """
        for index, message in enumerate(messages if of is None else of):
            if message.name and self._names and message.role != "tool":
                lost.add(Feature.MESSAGE_NAME)
            if message.role == "tool" and self._beside_results is not None:
                self._beside(message, lost)
            if self._systems and message.role in _SYSTEM:
                lost.add(Feature.SYSTEM, AS_TEXT)
            parts = message.parts
            if (len(parts) == 1 and type(parts[0]) is Text) or _TEXT.issuperset(map(type, parts)):
                continue
            if self._of_assistants and message.role != "assistant":
                self._of_others(message, lost)
            for part in message.parts:
                if type(part) is Reasoning and sends is not None and not sends(index, message, part):
                    lost.add(Feature.REASONING_HISTORY, f"dropped by option reasoning_history: {history}")
                if type(part) is ToolCall and part.origin is Origin.FUNCTION and self._takes_calls:
                    continue
                self._part(messages, part, message.role, lost, as_text)

    def carried(self, messages: Sequence[Message], lost: Losses, *, as_text: bool = False) -> list[Message]:
        """Record what is lost, as `note` does, and return what the wire has forms for, to be written as it is.

        What is sent as text is a `Text`, in results, too; what is dropped is left out, and so is a message of which
        nothing is left.
        """
        self.note(messages, lost, as_text=as_text)
        out: list[Message] = []
        for message in messages:
            if _TEXT.issuperset(map(type, message.parts)):
                out.append(message)
            elif parts := self._carried_of(message):
                out.append(replace(message, parts=parts))
        return out

    def _carried_of(self, message: Message) -> list[Part]:
        role = message.role
        others = self._of_assistants if role != "assistant" else frozenset[type]()
        beside = self._beside_results if role == "tool" else None
        parts: list[Part] = []
        for part in message.parts:
            kind, is_taken = type(part), self._takes is not None and self._takes(part, role)
            if kind in others or (beside is not None and kind not in beside and not is_taken):
                continue
            if isinstance(part, ToolResult):
                inner = [self._form(each, RESULT) for each in part.parts]
                part = part if inner == part.parts else replace(part, parts=inner)
            if is_taken or self._supports.get(kind, Support.EXACT) is not Support.DROP:
                parts.append(self._form(part, role))
        return parts

    def _form(self, part: Part, role: str) -> Part:
        """Return a part that is sent as it is, or its text."""
        kind = type(part)
        if kind in (Text, ToolCall, ToolResult) or (self._takes is not None and self._takes(part, role)):
            return part
        if isinstance(part, Media):
            is_exact = self._takes is None and self._card.request(request_feature(part)) is Support.EXACT
        else:
            is_exact = role != RESULT and self._supports.get(kind, Support.EXACT) is Support.EXACT
        return part if is_exact else Text(as_text(part))

    def _beside(self, message: Message, lost: Losses) -> None:
        """Name what is lost of a tool's message, as it is no result."""
        for part in message.parts:
            if type(part) not in (self._beside_results or ()) and not (self._takes and self._takes(part, "tool")):
                lost.add(Feature.TOOL_HISTORY, f"a {type(part).__name__} that is not a tool result")

    def _of_others(self, message: Message, lost: Losses) -> None:
        """Name what is lost of a message, as it is not the assistant's."""
        for part in message.parts:
            if type(part) in self._of_assistants and (not isinstance(part, Reasoning) or part.text):
                feature = Feature.REASONING_HISTORY if isinstance(part, Reasoning) else Feature.TOOL_HISTORY
                lost.add(feature, f"a {type(part).__name__} in a message of role {message.role}")

    def _part(self, messages: Sequence[Message], part: Part, role: str, lost: Losses, as_text: bool) -> None:
        kind = type(part)
        if isinstance(part, Media):
            self._media(messages, part, role, lost, as_text)
        elif (support := self._supports.get(kind, Support.EXACT)) is not Support.EXACT and not (
            self._takes is not None and self._takes(part, role)
        ):
            lost.add(_FEATURES[kind], AS_TEXT if support is Support.TEXT else "")
            if support is Support.DROP:
                return
        if isinstance(part, ToolCall):
            if part.origin is not Origin.FUNCTION and self._origins:
                lost.add(Feature.TOOL_ORIGIN)
        elif isinstance(part, ToolResult):
            if part.is_error and not self._marks_errors:
                lost.add(Feature.TOOL_HISTORY, ERROR_MARK)
            for inner in part.parts:  # data are text in a result anyway
                if isinstance(inner, Media):
                    self._media(messages, inner, RESULT, lost, as_text)

    def _media(self, messages: Sequence[Message], media: Media, role: str, lost: Losses, as_text: bool) -> None:
        feature = request_feature(media)
        support = self._card.request(feature)
        if support is Support.EXACT if self._takes is None else self._takes(media, role):
            if not self._picture_detail and media.detail not in (None, "auto"):
                lost.add(feature, "the detail of a picture")
            return
        if support is Support.TEXT or as_text or role in self._told:
            lost.add(feature, AS_TEXT)
            return
        kind, source = shortened(media.mime or str(media.kind)), _SOURCES[type(media.source)]
        place = " in a tool result" if role == RESULT else "" if role == "user" else f" in a message of role {role}"
        why = f"this backend accepts no {kind} {source}{place}; send it as text, or leave it out."
        raise unsupported(messages, media, why)
