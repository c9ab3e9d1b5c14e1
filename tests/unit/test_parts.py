"""Parts: above all the many spellings of a `data:` URL, which is never a `Url`."""

from __future__ import annotations

import pytest
from hypothesis import given

from bridge.model import (
    FileRef,
    Inline,
    Media,
    MediaKind,
    Request,
    Source,
    Url,
    mime_of,
    seal,
    source_of,
    unseal,
    url_of,
)
from bridge.model.parts import parse_data_url
from tests.strategies import media, requests


@pytest.mark.parametrize(
    ("url", "mime", "content"),
    [
        ("data:image/png;base64,QUJD", "image/png", b"ABC"),
        ("DATA:image/png;BASE64,QUJD", "image/png", b"ABC"),
        ("data:text/plain;charset=utf-8;base64,QUJD", "text/plain", b"ABC"),
        ("data:text/plain;charset=utf-8; base64 ,QUJD", "text/plain", b"ABC"),
        ("data:;base64,QUJD", None, b"ABC"),
        ("data:image/png;base64,", "image/png", b""),
        ("data:image/png;base64,QQ%3D%3D", "image/png", b"A"),
        ("data:image/png;base64,Pj4%2B", "image/png", b">>>"),
        ("data:image/png;base64,Pj4+", "image/png", b">>>"),
        ("data:text/plain,a%20b+c%2C", "text/plain", b"a b+c,"),
        ("data:text/plain;charset=utf-8,%C3%BC", "text/plain", "ü".encode()),
        ("data:,x", None, b"x"),
        ("data:,a,b", None, b"a,b"),
        ("data:image/svg+xml,<svg/>", "image/svg+xml", b"<svg/>"),
        ("data:text/plain;name=base64.txt,QUJD", "text/plain", b"QUJD"),
    ],
)
def test_data_urls(url: str, mime: str | None, content: bytes) -> None:
    source, said = source_of(url)
    assert isinstance(source, Inline)
    assert source.bytes == content
    assert said == mime


@pytest.mark.parametrize(
    "url", ["https://example.test/a;base64,QQ==", "data:image/png;base64", "data:", "", "datax:,", "x"]
)
def test_anything_else_is_an_address(url: str) -> None:
    assert parse_data_url(url) is None
    assert source_of(url) == (Url(url), None)


@pytest.mark.parametrize(
    ("source", "mime", "url"),
    [
        (Url("https://example.test/a"), "image/png", "https://example.test/a"),
        (Inline("QUJD"), "image/png", "data:image/png;base64,QUJD"),
        (Inline("QUJD"), None, "data:application/octet-stream;base64,QUJD"),
        (FileRef("f"), "image/png", None),
    ],
)
def test_the_url_of_a_medium(source: Source, mime: str | None, url: str | None) -> None:
    assert url_of(Media(MediaKind.IMAGE, source, mime)) == url


@pytest.mark.parametrize(
    ("url", "mime"),
    [
        ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ", "image/png"),
        ("/9j/4AAQSkZJRgABAQEAYABgAAD/2wBDAAMC", "image/jpeg"),
        ("AAAAIGZ0eXBpc29tAAACAGlzb21pc28y", "video/mp4"),
    ],
)
def test_base64_in_the_place_of_a_url_is_bytes(url: str, mime: str) -> None:
    assert source_of(url) == (Inline(url), mime)


@pytest.mark.parametrize("url", ["//cdn.example/photos/iVBORw0KGgoAAAA.png", "iVBOR.png", "/9j/photo_1.jpg"])
def test_an_address_that_begins_like_bytes_is_an_address(url: str) -> None:
    assert source_of(url) == (Url(url), None)


def test_a_data_url_names_the_type_of_its_file_or_of_its_bytes() -> None:
    assert url_of(Media(MediaKind.FILE, Inline("YSxi"), None, "a.csv")) == "data:text/csv;base64,YSxi"
    assert url_of(Media(MediaKind.AUDIO, Inline("SUQzBAAA"))) == "data:audio/mpeg;base64,SUQzBAAA"


def test_a_dialect_may_name_its_own_fallback() -> None:
    assert url_of(Media(MediaKind.IMAGE, Inline("QUJD")), "image/jpeg") == "data:image/jpeg;base64,QUJD"


@given(media(source_kinds=(Url, Inline)))
def test_a_medium_survives_its_url(made: Media) -> None:
    url = url_of(made)
    assert url is not None
    source, mime = source_of(url)
    assert source == made.source
    if isinstance(source, Inline):
        assert mime == (mime_of(made) or "application/octet-stream")


@pytest.mark.parametrize("text", ["QUJ", "QU JD", "QUJD\n", "QU-D", "ü"])
def test_inline_bytes_must_be_plain_base64(text: str) -> None:
    with pytest.raises(ValueError):
        _ = Inline(text).bytes


@given(requests())
def test_extras_of_a_dialect(request: Request) -> None:
    assert request.extra("nobody") == {}
    assert request.extra("some-dialect") == (request.extras or {}).get("some-dialect", {})


@pytest.mark.parametrize(
    ("made", "mime"),
    [
        (Media(MediaKind.IMAGE, Inline("iVBORw0KGgo=")), "image/png"),
        (Media(MediaKind.IMAGE, Inline("/9j/4AAQ")), "image/jpeg"),
        (Media(MediaKind.FILE, Inline("JVBERi0xLjQ=")), "application/pdf"),
        (Media(MediaKind.IMAGE, Inline("iVBORw0KGgo="), "image/x-own"), "image/x-own"),
        (Media(MediaKind.FILE, Inline("AAAA")), None),
        (Media(MediaKind.FILE, Url("https://x.test/a.png")), None),
        (Media(MediaKind.FILE, Inline("JVBERi0xLjQ="), None, "Notes.TXT"), "text/plain"),
        (Media(MediaKind.FILE, Inline("JVBERi0xLjQ="), None, "notes"), "application/pdf"),
        (Media(MediaKind.IMAGE, Inline("iVBORw0KGgo="), None, "scan.pdf"), "image/png"),
        (Media(MediaKind.AUDIO, Inline("//uQxAAA")), "audio/mpeg"),
        (Media(MediaKind.AUDIO, Inline("//FQgAAA")), "audio/aac"),
        (Media(MediaKind.AUDIO, Inline("T2dnUwAC")), "audio/ogg"),
        (Media(MediaKind.AUDIO, Inline("AAAAIGZ0eXBNNEEg")), "audio/mp4"),
        (Media(MediaKind.VIDEO, Inline("AAAAIGZ0eXBpc29t")), "video/mp4"),
        (Media(MediaKind.VIDEO, Inline("GkXfo59ChoEB")), "video/webm"),
        (Media(MediaKind.IMAGE, Inline("AAAAIGZ0eXBhdmlm")), "image/avif"),
        (Media(MediaKind.FILE, Inline("UEsDBBQA")), "application/zip"),
        (Media(MediaKind.FILE, Inline("not base64!")), None),
    ],
)
def test_the_type_of_a_medium_as_said_or_as_its_bytes_tell(made: Media, mime: str | None) -> None:
    assert mime_of(made) == mime


@pytest.mark.parametrize(
    ("signature", "redacted"), [(None, None), ("c2ln", None), (None, "c2VjcmV0"), (None, "redacted:x"), ("sig:1", None)]
)
def test_one_value_stands_for_a_signature_or_for_encrypted_reasoning(
    signature: str | None, redacted: str | None
) -> None:
    assert unseal(seal(signature, redacted)) == (signature, redacted)


def test_a_signature_goes_before_encrypted_reasoning() -> None:
    assert seal("c2ln", "c2VjcmV0") == "c2ln"
    assert unseal("") == (None, None)
