"""The vocabulary: kinds of tools, blocks and parts."""

from __future__ import annotations

import pytest

from bridge.dialects.acp.wire import KINDS, fenced, kind_of_tool, part_of, read_block, write_block
from bridge.errors import RequestError
from bridge.model import Data, FileRef, Inline, Media, MediaKind, Text, Url
from bridge.toolkit import Node


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("read_file", "read"),
        ("ReadFile", "read"),
        ("list_directory", "read"),
        ("getFile", "read"),
        ("write-file", "edit"),
        ("create_file", "edit"),
        ("deleteUser", "delete"),
        ("rename", "move"),
        ("web_search", "search"),
        ("Bash", "execute"),
        ("run_python", "execute"),
        ("think", "think"),
        ("HTTPFetch", "fetch"),
        ("get_weather", "other"),
        ("create_ticket", "other"),
        ("transfer", "other"),
        ("", "other"),
        ("天气", "other"),
        ("x" * 100_000, "other"),
    ],
)
def test_kinds_follow_from_names(name: str, kind: str) -> None:
    assert kind_of_tool(name) == kind
    assert kind in KINDS


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": "Hello"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png", "uri": "file:///a.png"},
        {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///a/b.py", "name": "b.py", "size": 3},
        {"type": "resource", "resource": {"uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": "aGk="}},
    ],
)
def test_blocks_are_written_as_they_were_read(block: dict[str, object]) -> None:
    assert write_block(read_block(Node(block, "prompt[0]"))) == block


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (Data({"a": 1}), {"type": "text", "text": '{"a":1}'}),
        (
            Media(MediaKind.IMAGE, Inline("/9j/4AAQSkZJRg==")),
            {"type": "image", "data": "/9j/4AAQSkZJRg==", "mimeType": "image/jpeg"},
        ),
        (
            Media(MediaKind.VIDEO, Inline("aGk="), "video/mp4", "a b.mp4"),
            {"type": "resource", "resource": {"uri": "attachment:a%20b.mp4", "mimeType": "video/mp4", "blob": "aGk="}},
        ),
        (
            Media(MediaKind.IMAGE, Url("https://example.test/a.png?x=1")),
            {
                "type": "resource_link",
                "uri": "https://example.test/a.png?x=1",
                "name": "a.png",
                "mimeType": "image/png",
            },
        ),
    ],
)
def test_parts_are_blocks(part: Data | Media, block: dict[str, object]) -> None:
    assert write_block(part) == block


def test_the_fence_of_a_resource_is_not_in_it() -> None:
    text = "a\n```\nb\n`````\nc"
    assert fenced("file:///a", text) == f"file:///a\n``````\n{text}\n``````"
    assert fenced("file:///a", "") == "file:///a\n```\n\n```"


@pytest.mark.parametrize(
    "block", [None, 1, "x", [], {}, {"type": 1}, {"type": "text"}, {"type": "image"}, {"type": "x"}]
)
def test_any_block_of_an_agent_can_be_read(block: object) -> None:
    part = part_of(block)
    assert part in (None, Text(""))


def test_a_block_of_a_client_is_read_strictly() -> None:
    with pytest.raises(RequestError, match=r"prompt\[0\].type: expected one of audio, image"):
        read_block(Node({"type": "video"}, "prompt[0]"))


def test_an_id_of_a_file_is_a_text() -> None:
    assert write_block(Media(MediaKind.FILE, FileRef("f1")))["type"] in ("text", "resource_link", "resource")
