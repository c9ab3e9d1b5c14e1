"""Constants and small readers that both directions share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Self

from bridge.model import (
    Extras,
    FileRef,
    FinishReason,
    Inline,
    Media,
    MediaKind,
    Source,
    Url,
    UsageReported,
    mime_of,
)
from bridge.model.jsontext import dict_of, dicts_of, text_of
from bridge.model.media_types import fitted, type_of_name
from bridge.toolkit.check import SpelledNode
from bridge.toolkit.citations import Positions
from bridge.toolkit.counts import is_count
from bridge.toolkit.logprobs import entries, with_bytes
from bridge.toolkit.media import DEFAULT_TYPES, kind_of
from bridge.toolkit.signed_parts import signature_of, signed
from bridge.toolkit.words import reason_of

NAME = "gemini"
SIGNATURE = "thoughtSignature"
"""The field of a part, and the key of its extras, that holds the opaque value of Gemini's thinking."""
ASIDES = "asides"
"""The key of parts that only Gemini understands, in a message's extras: pairs of an index among its parts and the part.
"""
NOTES = "notes"
"""The key for a client's values in this wire's notation that the model has as well."""
MADE = "call_made"
"""How ids begin that are made here for calls without one: they are not sent to servers, which do not know them."""
MODEL_PREFIX = "models/"


class Spelled(SpelledNode):
    """An object of the schema: names may be camelCase or snake_case, and a single object may replace a list of one."""

    __slots__ = ()

    def objects(self, name: str) -> Iterator[Self]:
        value = self.get(name)
        if isinstance(value, dict):
            yield self.of(value, self.at(name))
        else:
            yield from super().objects(name)


def own(extras: Extras | None) -> dict[str, Any]:
    """Return this dialect's extras of a part or an event, the signature of a part included; an empty dict if there are
    none.
    """
    if not extras:
        return {}
    signature = signature_of(extras)
    values: dict[str, Any] = extras.get(NAME) or {}
    return {**values, SIGNATURE: signature} if signature else values


def noted(values: dict[str, Any]) -> Extras | None:
    """Return `extras` with these values for this dialect, a signature under the key of all dialects; None if there are
    none.
    """
    signature = text_of(values.get(SIGNATURE))
    rest = {name: value for name, value in values.items() if name != SIGNATURE}
    return signed({NAME: rest} if rest else None, signature)


def given(values: dict[str, Any]) -> dict[str, Any]:
    """The fields that are not null, which means absent here."""
    return {name: value for name, value in values.items() if value is not None}


# ------------------------------------------------------------------ finish reasons

_WORDS = {FinishReason.LENGTH: "MAX_TOKENS", FinishReason.CONTENT_FILTER: "SAFETY"}


_CALLED = "FUNCTION_CALL"
"""The finish reason of some servers for answers with calls. The API has no such value; strict clients drop the calls.
"""


def finish_word(reason: FinishReason | None, known: Any = None) -> str:
    """The wire's word. `known` is the backend's own, which is kept where it means the same."""
    word = _WORDS.get(reason, "STOP") if reason else "STOP"
    if not isinstance(known, str) or known in ("", _CALLED):
        return word
    return known if reason_of(known) is reason_of(word) else word


# ------------------------------------------------------------------ media

_UPLOADED = re.compile(r"https://generativelanguage\.googleapis\.com/v[a-z0-9]{1,8}/files/")
_URL_SAFE = str.maketrans("-_", "+/")


def standard(data: str) -> str:
    """Base64 in the ordinary alphabet and padded; clients send either alphabet, with padding or without."""
    data = data.translate(_URL_SAFE).rstrip("=")
    return data + "=" * (-len(data) % 4)


def medium(kind: str, value: dict[str, Any]) -> Media | None:
    """The medium of an `inlineData` or a `fileData`; None when it has neither data nor an address."""
    mime = text_of(value.get("mimeType"))
    source: Source
    if kind == "inlineData":
        if not (data := text_of(value.get("data"))):
            return None
        source = Inline(standard(data))
    else:
        if not (address := text_of(value.get("fileUri"))):
            return None
        public = address.startswith(("http://", "https://")) and not _UPLOADED.match(address)
        source = Url(address) if public else FileRef(address)
    known = "" if mime.endswith("/*") else mime
    return Media(kind_of(mime), source, known or None, text_of(value.get("displayName")) or None)


def media_part(media: Media, *, guessed: bool = False) -> dict[str, Any]:
    """Return the part of a medium. Its media type determines its kind; an unknown one is sent as `image/*` and
    the like, or `guessed` for servers that need a real one. An address may be without one.
    """
    mime = (_guess(media) if guessed else media.mime) or ""
    if kind_of(mime) is not media.kind:
        mime = DEFAULT_TYPES[media.kind] if guessed or media.kind is MediaKind.FILE else f"{media.kind}/*"
    named = {"displayName": media.filename} if media.filename else {}
    match media.source:
        case Inline(base64=data):
            mime = mime or (DEFAULT_TYPES[MediaKind.FILE] if guessed else "")
            return {"inlineData": {"mimeType": mime, "data": data, **named}}
        case Url(url=address) | FileRef(file_id=address):
            typed = {"mimeType": mime} if mime else {}
            return {"fileData": {**typed, "fileUri": address, **named}}


def _guess(media: Media) -> str | None:
    """The media type; of an address also by its extension."""
    if media.mime or not isinstance(media.source, Url):
        return mime_of(media)
    names = media.filename, media.source.url.partition("?")[0].partition("#")[0]
    return next(filter(None, (fitted(type_of_name(name), media.kind) for name in names)), None)


# ------------------------------------------------------------------ log probabilities

LOGPROBS = "logprobsResult"


def read_logprobs(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The log probabilities of a `logprobsResult`, in the form of chat completions."""
    others = dicts_of(result.get("topCandidates"))
    found = []
    for place, chosen in enumerate(dicts_of(result.get("chosenCandidates"))):
        listed = others[place].get("candidates") if place < len(others) else None
        found.append({**_entry(chosen), "top_logprobs": [_entry(each) for each in dicts_of(listed)]})
    return [with_bytes(entry) for entry in entries(found)]


def _entry(candidate: dict[str, Any]) -> dict[str, Any]:
    return {"token": candidate.get("token"), "logprob": candidate.get("logProbability")}


def write_logprobs(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The fields of a candidate for log probabilities: all of its tokens, and their average."""
    result: dict[str, Any] = {"chosenCandidates": [_candidate(each) for each in found]}
    if any(each["top_logprobs"] for each in found):
        result["topCandidates"] = [{"candidates": list(map(_candidate, each["top_logprobs"]))} for each in found]
    return {"avgLogprobs": sum(each["logprob"] for each in found) / len(found), LOGPROBS: result}


def _candidate(entry: dict[str, Any]) -> dict[str, Any]:
    return {"token": entry["token"], "logProbability": entry["logprob"]}


# ------------------------------------------------------------------ citations

_NO_PAGE: dict[str, Any] = {}
_SOURCES = ("citationSources", "citations")


def read_citations(candidate: dict[str, Any], positions: Positions) -> list[dict[str, Any]]:
    """The citations of web pages of a candidate, whose `groundingMetadata` and `citationMetadata` count bytes."""
    grounding, metadata = candidate.get("groundingMetadata"), dict_of(candidate.get("citationMetadata"))
    found = _grounded(grounding, positions) if isinstance(grounding, dict) else []
    for name in _SOURCES:
        for source in dicts_of(metadata.get(name)):
            if uri := text_of(source.get("uri")):
                found.append({"url": uri, "title": source.get("title"), **_span(source, positions)})
    return found


def _grounded(grounding: dict[str, Any], positions: Positions) -> list[dict[str, Any]]:
    """A page for each place that it supports; one that supports none is cited for the whole text."""
    pages = [_page(chunk) for chunk in dicts_of(grounding.get("groundingChunks"))]
    cited: list[tuple[int, dict[str, Any]]] = []
    for support in dicts_of(grounding.get("groundingSupports")):
        segment, indexes = support.get("segment"), support.get("groundingChunkIndices")
        span = _span(segment, positions) if isinstance(segment, dict) else {}
        for index in indexes if isinstance(indexes, list) else ():
            if is_count(index) and index < len(pages) and pages[index]:
                cited.append((index, {**pages[index], **span}))
    named = {index for index, _ in cited}
    return [each for _, each in cited] + [p for index, p in enumerate(pages) if p and index not in named]


def _page(chunk: dict[str, Any]) -> dict[str, Any]:
    page = next(filter(None, (dict_of(chunk.get(kind)) for kind in ("web", "retrievedContext", "maps"))), _NO_PAGE)
    return {"url": page["uri"], "title": page.get("title")} if text_of(page.get("uri")) else {}


def _span(segment: dict[str, Any], positions: Positions) -> dict[str, int]:
    """The characters of a segment. Zero is the default of its numbers and may be left out."""
    start, end = segment.get("startIndex", 0), segment.get("endIndex")
    if not is_count(start) or not is_count(end):
        return {}
    return {"start_index": positions.character(start), "end_index": positions.character(end)}


def write_citations(found: list[dict[str, Any]], positions: Positions) -> dict[str, Any]:
    """The `groundingMetadata` of citations; `positions` are those of the text."""
    places: dict[str, int] = {}
    chunks: list[dict[str, Any]] = []
    supports: list[dict[str, Any]] = []
    for citation in found:
        url = citation["url"]
        if url not in places:
            places[url] = len(chunks)
            chunks.append({"web": {"uri": url, "title": citation["title"]}})
        start, end = (positions.byte(citation[name]) for name in ("start_index", "end_index"))
        segment = {"startIndex": start, "endIndex": end}
        supports.append({"segment": segment, "groundingChunkIndices": [places[url]]})
    return {"groundingChunks": chunks, "groundingSupports": supports}


# ------------------------------------------------------------------ usage

_READ = frozenset({
    "promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "cachedContentTokenCount", "totalTokenCount",
    "estimated",
})  # fmt: skip


def read_usage(usage: dict[str, Any]) -> UsageReported | None:
    """The running totals of a `usageMetadata`; None when it holds no count, or only zeros."""
    counts = {name: value for name, value in usage.items() if is_count(value)}
    if not any(counts.values()):
        return None
    thoughts = counts.get("thoughtsTokenCount")
    return UsageReported(
        input=counts.get("promptTokenCount", 0) + counts.get("toolUsePromptTokenCount", 0),
        output=counts.get("candidatesTokenCount", 0) + (thoughts or 0),
        total=counts.get("totalTokenCount"),
        cached=counts.get("cachedContentTokenCount"),
        reasoning=thoughts,
        extras=noted(given({name: value for name, value in usage.items() if name not in _READ})),
        estimated=usage.get("estimated") is True,
    )


def write_usage(usage: UsageReported) -> dict[str, Any]:
    """The `usageMetadata` of these totals. The wire counts thoughts, and what tools put into the prompt, apart."""
    rest = own(usage.extras)
    given_in, made = usage.input or 0, usage.output or 0
    tools = rest.get("toolUsePromptTokenCount")
    thoughts = None if usage.reasoning is None else min(usage.reasoning, made)
    return given(
        {
            "promptTokenCount": max(0, given_in - (tools if is_count(tools) else 0)),
            "cachedContentTokenCount": usage.cached,
            "candidatesTokenCount": made - (thoughts or 0),
            "thoughtsTokenCount": thoughts,
            "totalTokenCount": usage.total if usage.total is not None else given_in + made,
            "estimated": usage.estimated or None,
            **rest,
        }
    )
