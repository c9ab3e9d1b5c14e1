"""What of the messages of a request a backend does not get, as the card of its dialect declares it.

The writers of messages write what the wire has a form for, and anything else as text or not at all. That this is a
loss, and that a medium is refused, is said here, once for all dialects. What a writer alone can know, such as reasoning
without the signature that its API demands, is among the features that it `keeps`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from bridge.codec.capabilities import Capabilities, Feature, Support
from bridge.codec.context import Losses
from bridge.codec.media import request_feature
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
)
from bridge.model.places import unsupported

RESULT = "result"
"""The role of the parts of a tool's result, for `takes`."""
AS_TEXT = "sent as text"
Takes = Callable[[Part, str], bool]
"""Returns whether the wire has a form for a part in a message of this role."""

_FEATURES: dict[type, Feature] = {
    Data: Feature.DATA,
    Reasoning: Feature.REASONING_HISTORY,
    Refusal: Feature.REFUSAL_HISTORY,
    ToolCall: Feature.TOOL_HISTORY,
    ToolResult: Feature.TOOL_HISTORY,
}
_SOURCES: dict[type, str] = {Url: "by URL", Inline: "as bytes", FileRef: "by file id"}


class MessageLosses:
    """The losses of messages at backends of one dialect.

    Arguments:
        card: What the dialect carries.
        takes: Tells media and data that the wire has a form for. Without it, media have one where the card says exact.
        told: The roles in which other media become text, whatever the options are. Elsewhere they are refused.
        keeps: Features about which the writer of messages decides, and whose losses it names itself.
        marks_errors: Whether the wire says that a tool's result is an error.
    """

    __slots__ = ("_card", "_marks_errors", "_names", "_origins", "_supports", "_takes", "_told")

    def __init__(
        self,
        card: Capabilities,
        *,
        takes: Takes | None = None,
        told: Collection[str] = (),
        keeps: Collection[Feature] = (),
        marks_errors: bool = True,
    ) -> None:
        self._card = card
        self._names = card.request(Feature.MESSAGE_NAME) is Support.DROP
        self._origins = card.request(Feature.TOOL_ORIGIN) is Support.DROP
        self._supports = {
            kind: Support.EXACT if feature in keeps else card.request(feature) for kind, feature in _FEATURES.items()
        }
        self._takes = takes
        self._told = frozenset(told)
        self._marks_errors = marks_errors

    def note(self, messages: Sequence[Message], lost: Losses, *, as_text: bool = False) -> None:
        """Record what is lost of these messages.

        `as_text`: media without a form become text. Without it they raise `Unsupported`, with their place.
        """
        for message in messages:
            if message.name and self._names and message.role != "tool":
                lost.add(Feature.MESSAGE_NAME)
            for part in message.parts:
                if type(part) is not Text:
                    self._part(messages, part, message.role, lost, as_text)

    def _part(self, messages: Sequence[Message], part: Part, role: str, lost: Losses, as_text: bool) -> None:
        kind = type(part)
        if isinstance(part, Media):
            self._media(messages, part, role, lost, as_text)
        elif (support := self._supports.get(kind, Support.EXACT)) is not Support.EXACT and not (
            self._takes is not None and self._takes(part, role)
        ):
            lost.add(_FEATURES[kind], AS_TEXT if support is Support.TEXT else "")
        if isinstance(part, ToolCall):
            if part.origin is not Origin.FUNCTION and self._origins:
                lost.add(Feature.TOOL_ORIGIN)
        elif isinstance(part, ToolResult):
            if part.is_error and not self._marks_errors:
                lost.add(Feature.TOOL_HISTORY, "the mark that a result is an error")
            for inner in part.parts:  # data are text in a result anyway
                if isinstance(inner, Media):
                    self._media(messages, inner, RESULT, lost, as_text)

    def _media(self, messages: Sequence[Message], media: Media, role: str, lost: Losses, as_text: bool) -> None:
        feature = request_feature(media)
        support = self._card.request(feature)
        if support is Support.EXACT if self._takes is None else self._takes(media, role):
            return
        if support is Support.TEXT or as_text or role in self._told:
            lost.add(feature, AS_TEXT)
            return
        kind, source = shortened(media.mime or str(media.kind)), _SOURCES[type(media.source)]
        why = f"this backend accepts no {kind} {source}; send it as text, or leave it out."
        raise unsupported(messages, media, why)
