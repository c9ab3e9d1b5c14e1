"""A rule of thumb for tokens: it grows with what there is, and is near what tokenizers say."""

from __future__ import annotations

import pytest

from bridge.model import (
    Data,
    Inline,
    Media,
    MediaKind,
    Message,
    Part,
    Reasoning,
    Refusal,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    Url,
    estimate_tokens,
)

ENGLISH = "The quick brown fox jumps over the lazy dog. " * 100  # about 1000 tokens to any tokenizer
CHINESE = "敏捷的棕色狐狸跳过了懒狗。" * 100  # between 900 and 1800


def of(*parts: Part) -> int:
    return estimate_tokens(Request([Message("user", list(parts))]))


def test_nothing_is_nothing() -> None:
    assert estimate_tokens(Request([])) == 0


@pytest.mark.parametrize(("text", "least", "most"), [(ENGLISH, 900, 1500), (CHINESE, 900, 1800)])
def test_text_is_near_the_truth(text: str, least: int, most: int) -> None:
    assert least < of(Text(text)) < most


@pytest.mark.parametrize(
    "part",
    [
        Text("hello world"),
        Refusal("no way at all"),
        Reasoning("a thought"),
        Reasoning("", None, "cmVkYWN0ZWQ="),
        ToolCall("c", "f", '{"city": "Paris"}'),
        ToolResult("c", [Text("sunny and warm")]),
        Data({"a": "some value"}),
        Media(MediaKind.IMAGE, Url("https://x.test/a")),
        Media(MediaKind.FILE, Inline("AAAA" * 10_000)),
    ],
    ids=lambda p: type(p).__name__,
)
def test_every_kind_of_part_counts(part: Part) -> None:
    assert of(part) > of()
    assert of(part, part) > of(part)


def test_tools_count_with_their_schemas() -> None:
    plain = Request([], tools=[Tool("f")])
    described = Request([], tools=[Tool("f", "what it does", {"type": "object", "properties": {"a": {}}})])
    assert 0 < estimate_tokens(plain) < estimate_tokens(described)


def test_a_long_document_counts_more_than_a_picture() -> None:
    long = Media(MediaKind.FILE, Inline("A" * 1_000_000), "application/pdf")
    assert of(long) > 10 * of(Media(MediaKind.IMAGE, Inline("A" * 1_000_000), "image/png"))
