"""Values in streams and requests: awkward texts, JSON, arguments as models write them, media, failures."""

from __future__ import annotations

import base64
from collections.abc import Collection
from functools import cache
from typing import Any

from hypothesis import strategies as st

from bridge.errors import ErrorCode, Failure
from bridge.model import FileRef, FinishReason, Inline, Media, MediaKind, Source, Url

AWKWARD = "\u2028\u2029\x00\x7f\x85\r\n\t\"'\\/<&\ufeff\ufffd\U0001f600é中"
"""Characters that line splitters, JSON writers and terminals stumble over."""

SNIPPETS = (
    "hello",
    "data: x",
    "\n\ndata: [DONE]\n\n",
    "event: error\r\n\r\n",
    '{"a": 1}',
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "<think>",
    "a\u2028b",
    "  ",
    "\x00",
    "\r",
)
"""Texts that look like something else on a wire."""

ALL_KINDS = tuple(MediaKind)
"""Every kind of media."""

ALL_SOURCES: tuple[type, ...] = (Url, Inline, FileRef)
"""Every kind of source of a medium."""

ALL_FINISHES = (
    FinishReason.STOP,
    FinishReason.TOOL_CALLS,
    FinishReason.LENGTH,
    FinishReason.CONTENT_FILTER,
    FinishReason.CANCELED,
)
"""Every finish but `interrupted`, which follows from an interrupt."""

MIMES = {
    MediaKind.IMAGE: "image/png",
    MediaKind.AUDIO: "audio/wav",
    MediaKind.VIDEO: "video/mp4",
    MediaKind.FILE: "application/pdf",
}
"""A media type for each kind."""


# Making a strategy costs more than drawing from it, so that those without state are kept.


@cache
def texts(*, empty: bool = True, awkward: bool = True, max_size: int = 12) -> st.SearchStrategy[str]:
    """Generate valid Unicode of all kinds; without `awkward`, letters and spaces only."""
    least = 0 if empty else 1
    if not awkward:
        return st.text("abc XYZ.", min_size=least, max_size=max_size)
    return st.one_of(
        st.sampled_from(SNIPPETS),
        st.text("ab " + AWKWARD, min_size=least, max_size=max_size),
        st.text(st.characters(codec="utf-8"), min_size=least, max_size=max_size),
    )


@cache
def names() -> st.SearchStrategy[str]:
    """Names that every protocol allows, for tools, steps and authors."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    rest = st.text(letters + "0123456789_", max_size=8)
    # The same as a regular expression draws three times as slowly.
    return st.builds(str.__add__, st.sampled_from(letters), rest)


@cache
def json_values(*, awkward: bool = True) -> st.SearchStrategy[Any]:
    """JSON values that any JSON library reads back unchanged."""
    plain = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**53), 2**53),
        st.floats(allow_nan=False, allow_infinity=False),
        texts(awkward=awkward),
    )
    keys = texts(awkward=awkward, max_size=6)
    inner = st.lists(plain, max_size=2) | st.dictionaries(keys, plain, max_size=2)
    return st.one_of(plain, inner, st.lists(inner, max_size=2), st.dictionaries(keys, inner, max_size=2))


@cache
def json_objects(*, awkward: bool = True) -> st.SearchStrategy[dict[str, Any]]:
    """JSON objects."""
    return st.dictionaries(texts(awkward=awkward, max_size=6), json_values(awkward=awkward), max_size=2)


@cache
def arguments(*, unpaired: bool = True) -> st.SearchStrategy[str]:
    """Arguments as models write them; with `unpaired` also empty, cut off or no JSON at all."""
    good = ('{"city": "Köln"}', "{}", '{"a": [1, {"b": null}], "c": "\\u2028\\n\\"}"}', '{ "spaced" : 1.0 }')
    bad = ("", '{"city": "K', "not json", "[1, 2]", '"text"', '{"a": 1} trailing', "null")
    return st.sampled_from(good + bad if unpaired else good)


def sources(kinds: Collection[type] = ALL_SOURCES) -> st.SearchStrategy[Source]:
    """Addresses, bytes and ids of files."""
    made: dict[type, st.SearchStrategy[Source]] = {
        Url: st.sampled_from(("https://example.test/a.png", "http://example.test/ü?q=1&r=%20#f")).map(Url),
        Inline: st.binary(min_size=1, max_size=6).map(lambda b: Inline(base64.b64encode(b).decode())),
        FileRef: st.sampled_from(("file-1", "file_Ab2")).map(FileRef),
    }
    return st.one_of([made[kind] for kind in ALL_SOURCES if kind in kinds])


def media(
    kinds: Collection[MediaKind] = ALL_KINDS,
    source_kinds: Collection[type] = ALL_SOURCES,
    *,
    mime: bool = True,
    filename: bool = True,
) -> st.SearchStrategy[Media]:
    """Generate media; `mime` and `filename` are optional, and never set if switched off."""
    return _media_of(tuple(k for k in ALL_KINDS if k in kinds), tuple(source_kinds), mime, filename)


@cache
def _media_of(
    kinds: tuple[MediaKind, ...], source_kinds: tuple[type, ...], mime: bool, filename: bool
) -> st.SearchStrategy[Media]:
    name = st.sampled_from((None, "a b.pdf")) if filename else st.none()
    types = {kind: st.sampled_from((None, MIMES[kind])) if mime else st.none() for kind in kinds}
    return st.one_of([st.builds(Media, st.just(k), sources(source_kinds), types[k], name) for k in kinds])


def failures(codes: Collection[ErrorCode] = tuple(ErrorCode)) -> st.SearchStrategy[Failure]:
    """Failures of these codes, with and without their optional fields."""
    return _failures(tuple(codes))


@cache
def _failures(codes: tuple[ErrorCode, ...]) -> st.SearchStrategy[Failure]:
    return st.builds(
        Failure,
        st.sampled_from(codes),
        texts(empty=False),
        param=st.sampled_from((None, "messages[2].content")),
        status=st.sampled_from((None, 422)),
        backend_code=st.sampled_from((None, "insufficient_quota")),
        headers=st.sampled_from(({}, {"retry-after": "3"})).map(dict),
        details=st.sampled_from(({}, {"seen": [1, None]})).map(dict),
    )
