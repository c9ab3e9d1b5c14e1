"""The events of reasoning: those of 1.0, or those of the oldest clients."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.dialects.ag_ui.options import FrontOptions
from bridge.model import PartEnded, seal


@dataclass(frozen=True, slots=True)
class ReasoningWords:
    """`id_field` is empty where the events have no id; `encrypts`: there is an event for encrypted values."""

    opening: tuple[str, str]
    content: str
    closing: tuple[str, str]
    id_field: str = ""
    encrypts: bool = False

    def named(self, wire_id: str) -> dict[str, str]:
        return {self.id_field: wire_id} if self.id_field else {}

    @staticmethod
    def secret(event: PartEnded) -> str | None:
        """The opaque value that must come back with this reasoning."""
        return seal(event.signature, event.redacted)


_WORDS: dict[str, ReasoningWords] = {
    "reasoning": ReasoningWords(
        ("REASONING_START", "REASONING_MESSAGE_START"),
        "REASONING_MESSAGE_CONTENT",
        ("REASONING_MESSAGE_END", "REASONING_END"),
        "messageId",
        True,
    ),
    "thinking": ReasoningWords(
        ("THINKING_START", "THINKING_TEXT_MESSAGE_START"),
        "THINKING_TEXT_MESSAGE_CONTENT",
        ("THINKING_TEXT_MESSAGE_END", "THINKING_END"),
    ),
}


def words(options: FrontOptions) -> ReasoningWords | None:
    """Return the events that this route uses; None if reasoning is not sent."""
    return _WORDS.get(options.reasoning_events)
