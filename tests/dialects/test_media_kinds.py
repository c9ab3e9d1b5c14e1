"""The kind of a medium arrives, whatever is known of its media type: in answers and in requests, by every dialect."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from bridge.contract import Dialect, Support, WireRequest, registry
from bridge.errors import Unsupported
from bridge.model import Event, Inline, Media, MediaKind, Message, Part, Request, Source, Text, Url, fold
from bridge.testing.wires import context, decode
from bridge.toolkit.media import DEFAULT_TYPES, answer_feature, kind_of, request_feature
from bridge.translation import framing

BOTH = [name for name in registry.served() if registry.get(name).called]
SOURCES = [Inline("bW9vdg=="), Url("https://example.com/a")]


def answer_with(media: Media) -> list[Event]:
    builder = context(None).builder()
    builder.add(0, media)
    builder.finish()
    builder.end()
    return builder.take()


def media_in(parts: Iterable[Part]) -> list[MediaKind]:
    return [part.kind for part in parts if isinstance(part, Media)]


def answered(dialect: Dialect, media: Media) -> tuple[list[MediaKind], bool]:
    """Return the kinds of the media that a client gets, and whether their loss is named."""
    writing = context(dialect.front_options())
    wire = framing.of(dialect.framing).join(dialect.encoder(writing).encode(answer_with(media)))
    return media_in(fold(decode(dialect, [wire])).parts()), answer_feature(media) in writing.lost.names


def asked(dialect: Dialect, media: Media) -> tuple[list[MediaKind], bool]:
    """The same of the media that a backend gets."""
    request = Request([Message("user", [Text("Look"), media])], model="m")
    sending = context(dialect.back_options(), request)
    try:
        wire = dialect.encode_request(request, sending)
    except Unsupported:
        return [], True
    read = dialect.decode_request(WireRequest(headers=wire.headers, body=wire.body), context(dialect.front_options()))
    return media_in(part for message in read.messages for part in message.parts), True


@pytest.mark.parametrize("source", SOURCES, ids=["bytes", "address"])
@pytest.mark.parametrize("kind", MediaKind)
@pytest.mark.parametrize("dialect", [registry.get(name) for name in BOTH], ids=BOTH)
def test_a_medium_of_unknown_type_keeps_its_kind(dialect: Dialect, kind: MediaKind, source: Source) -> None:
    media = Media(kind, source)
    for way, supports, feature in (
        (answered, dialect.capabilities.answers, answer_feature(media)),
        (asked, dialect.capabilities.requests, request_feature(media)),
    ):
        found, lost = way(dialect, media)
        assert found == [kind] or (not found and (lost or supports[feature].support is not Support.EXACT)), way


def test_the_kind_of_a_media_type() -> None:
    for kind, mime in DEFAULT_TYPES.items():
        assert kind_of(mime) is kind_of(f" {mime.upper()};a=b") is kind
    assert [kind_of(mime) for mime in (None, "", "image", "file/x", "text/plain")] == [
        MediaKind.FILE, MediaKind.FILE, MediaKind.IMAGE, MediaKind.FILE, MediaKind.FILE,
    ]  # fmt: skip
