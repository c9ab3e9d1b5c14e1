"""`toolkit.message_losses`: what of the messages a backend does not get follows from its card, and is named once."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.contract import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Feature, Losses, entries
from bridge.errors import Unsupported
from bridge.model import (
    Data,
    FileRef,
    Inline,
    Media,
    MediaKind,
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
from bridge.toolkit.message_losses import RESULT, MessageLosses

EXACT = Capabilities(entries(ANSWER_FEATURES), entries(REQUEST_FEATURES))
POOR = Capabilities(
    entries(ANSWER_FEATURES),
    entries(
        REQUEST_FEATURES,
        text={Feature.DATA: "x", Feature.REFUSAL_HISTORY: "x", Feature.IMAGE_URL: "x"},
        drop={Feature.MESSAGE_NAME: "x", Feature.REASONING_HISTORY: "x", Feature.TOOL_ORIGIN: "x"},
        refuse={Feature.AUDIO_URL: "x", Feature.FILE_REF: "x"},
    ),
)
AUDIO = Media(MediaKind.AUDIO, Url("https://x.example/a"))
PICTURE = Media(MediaKind.IMAGE, Url("https://x.example/a.png"))
UPLOAD = Media(MediaKind.FILE, FileRef("f1"), "application/pdf")


def lost_of(losses: MessageLosses, *messages: Message, as_text: bool = False) -> dict[str, str]:
    lost = Losses()
    losses.note(messages, lost, as_text=as_text)
    return lost.details


def said(*parts: Part, role: str = "user", **more: Any) -> Message:
    return Message(role, [*parts], **more)


def test_a_card_without_exceptions_loses_nothing() -> None:
    parts = (Text("t"), Data(1), Refusal("no"), Reasoning("hm"), ToolCall("c", "f", "{}", Origin.MCP), AUDIO, UPLOAD)
    result = ToolResult("c", [PICTURE], is_error=True)
    assert lost_of(MessageLosses(EXACT), said(*parts, name="n"), said(result, role="tool")) == {}


def test_losses_follow_from_the_card() -> None:
    call, result = ToolCall("c", "f", "{}", Origin.MCP), ToolResult("c", [Data(1)], is_error=True)
    first = said(Data(1), Refusal("no"), Reasoning("hm"), call, PICTURE, role="assistant", name="n")
    assert lost_of(MessageLosses(POOR), first, said(result, role="tool", name="f")) == {
        "message_name": "", "data": "sent as text", "refusal_history": "sent as text", "reasoning_history": "",
        "tool_origin": "", "image_url": "sent as text",
    }  # fmt: skip


def test_the_mark_of_an_error_is_named_where_the_wire_has_none() -> None:
    result = said(ToolResult("c", [], is_error=True), role="tool")
    assert lost_of(MessageLosses(EXACT, marks_errors=False), result) == {
        "tool_history": "the mark that a result is an error"
    }


def test_what_the_writer_decides_is_left_to_it() -> None:
    assert lost_of(MessageLosses(POOR, keeps={Feature.REASONING_HISTORY}), said(Reasoning("hm"))) == {}


@pytest.mark.parametrize(
    ("media", "text"),
    [
        (AUDIO, "no audio by URL"),
        (UPLOAD, "no application/pdf by file id"),
    ],
)
def test_media_that_are_refused_are_named_with_their_place(media: Media, text: str) -> None:
    with pytest.raises(Unsupported) as caught:
        lost_of(MessageLosses(POOR), said(Text("a")), said(Text("b"), media))
    place = "messages[1].content[1]"
    said_so = f"{place}: this backend accepts {text}; send it as text, or leave it out."
    assert (caught.value.message, caught.value.failure.param) == (said_so, place)
    assert set(lost_of(MessageLosses(POOR), said(media), as_text=True).values()) == {"sent as text"}


def test_media_inside_a_result_have_a_place_of_their_own() -> None:
    with pytest.raises(Unsupported) as caught:
        lost_of(MessageLosses(POOR), said(ToolResult("c", [Text("x"), AUDIO]), role="tool"))
    assert caught.value.failure.param == "messages[0].content[0].content[1]"
    assert lost_of(MessageLosses(POOR, told=[RESULT]), said(ToolResult("c", [AUDIO]), role="tool")) == {
        "audio_url": "sent as text"
    }


def test_media_of_the_roles_that_only_speak_become_text() -> None:
    losses = MessageLosses(POOR, told=["assistant"])
    assert lost_of(losses, said(AUDIO, role="assistant")) == {"audio_url": "sent as text"}
    with pytest.raises(Unsupported):
        lost_of(losses, said(AUDIO, role="system"))


def test_a_dialect_says_which_parts_have_a_form() -> None:
    losses = MessageLosses(POOR, takes=lambda part, role: role == "user", told=["assistant"])
    bytes_ = Media(MediaKind.IMAGE, Inline("aGk="))
    assert lost_of(losses, said(Data(1), AUDIO, bytes_)) == {}
    assert lost_of(losses, said(Data(1), bytes_, role="assistant")) == {
        "data": "sent as text", "image_inline": "sent as text"
    }  # fmt: skip


def test_what_only_messages_of_assistants_have() -> None:
    losses = MessageLosses(EXACT, of_assistants=(ToolCall, Reasoning))
    parts = Text("t"), ToolCall("c", "f", "{}"), Reasoning("hm"), Reasoning("", "signature")
    assert lost_of(losses, said(*parts, role="assistant")) == {}
    assert lost_of(losses, said(*parts)) == {
        "tool_history": "a ToolCall in a message of role user",
        "reasoning_history": "a Reasoning in a message of role user",
    }


def test_what_stands_beside_results() -> None:
    losses = MessageLosses(EXACT, takes=lambda part, role: isinstance(part, Data), beside_results=(ToolCall,))
    rest = ToolResult("c", []), ToolCall("c", "f", "{}"), Data(1)
    assert lost_of(losses, said(*rest, role="tool"), said(Text("t"))) == {}
    assert lost_of(losses, said(Text("t"), role="tool")) == {"tool_history": "a Text that is not a tool result"}


def test_reasoning_that_an_option_drops() -> None:
    lost = Losses()
    messages = [said(Reasoning("old"), role="assistant"), said(Reasoning("new"), role="assistant")]
    MessageLosses(EXACT).note(messages, lost, sends=lambda index, message, part: index == 1, history="last")
    assert lost.details == {"reasoning_history": "dropped by option reasoning_history: last"}
    kept = Losses()
    MessageLosses(EXACT).note(messages, kept, sends=lambda *_: True, history="all")
    assert kept.details == {}


def test_system_messages_that_become_text() -> None:
    card = Capabilities(entries(ANSWER_FEATURES), entries(REQUEST_FEATURES, text={Feature.SYSTEM: "x"}))
    assert lost_of(MessageLosses(card), said(Text("t"), role="system")) == {"system": "sent as text"}
    assert lost_of(MessageLosses(card), said(Text("t"))) == {}
