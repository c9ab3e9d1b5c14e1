"""Citations of a text.

A citation of a web page is, for all dialects, one of chat completions: `{"type": "url_citation", "url_citation":
{"url", "title", "start_index", "end_index"}}`. The indexes count characters of its text part, and are missing where it
cites for the whole part. Citations of other things are as their vendor wrote them, which other dialects cannot express.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from bridge.contract.capabilities import Feature
from bridge.contract.context import Losses
from bridge.model import SHARED, Extras

Citation = dict[str, Any]
"""The object in `url_citation`."""

_FIELDS = ("url", "title", "start_index", "end_index")
_WEB = ("http://", "https://")


def with_citations(extras: Extras | None, citations: Sequence[Any]) -> Extras | None:
    """Return `extras` with these citations for all dialects: those of web pages in the form of chat completions, any
    others as their vendor wrote them.
    """
    if not citations:
        return extras
    return {**(extras or {}), SHARED: {"annotations": [_in_chat_form(each) for each in citations]}}


def _in_chat_form(citation: Any) -> Any:
    """Chat completions nest the fields, Responses and Messages do not; `search_result_location` has `source`."""
    if not isinstance(citation, dict):
        return citation
    inner = citation.get("url_citation")
    fields = inner if isinstance(inner, dict) else citation
    source = citation.get("source")
    if not isinstance(fields.get("url"), str) and isinstance(source, str) and source.startswith(_WEB):
        fields = {**fields, "url": source}
    if not isinstance(fields.get("url"), str):
        return citation
    return {"type": "url_citation", "url_citation": {k: fields[k] for k in _FIELDS if fields.get(k) is not None}}


def annotations_in(extras: Extras | None) -> list[Any]:
    """All citations that `with_citations` kept."""
    found = (extras or {}).get(SHARED, {}).get("annotations")
    return found if isinstance(found, list) else []


def citations_in(extras: Extras | None, lost: Losses, length: int, offset: int = 0) -> list[Citation]:
    """The citations of web pages of a text of this length, each complete; the others are reported as lost.

    `offset`: where the text begins in the one that the client has.
    """
    annotations = annotations_in(extras)
    found = [_complete(each["url_citation"], length, offset) for each in annotations if _is_of_web(each)]
    if len(found) < len(annotations):
        lost.add(Feature.RAW, "citations of other things than web pages")
    return found


def _is_of_web(annotation: Any) -> bool:
    return isinstance(annotation, dict) and isinstance(annotation.get("url_citation"), dict)


def _complete(citation: Citation, length: int, offset: int) -> Citation:
    start, end = citation.get("start_index"), citation.get("end_index")
    if type(start) is not int or type(end) is not int:
        start, end = 0, length
    title = citation.get("title")
    return {
        "url": str(citation.get("url") or ""),
        "title": title if isinstance(title, str) else "",
        "start_index": start + offset,
        "end_index": end + offset,
    }


class Positions:
    """Positions in a text that comes in pieces, in characters and in bytes of UTF-8. Only pieces that are not ASCII
    are kept.
    """

    __slots__ = ("_pieces", "bytes", "characters")

    def __init__(self) -> None:
        self.bytes = self.characters = 0
        self._pieces: list[tuple[int, int, str]] = []

    def add(self, text: str) -> None:
        """The next piece."""
        if text.isascii():
            self.bytes += len(text)
        else:
            self._pieces.append((self.bytes, self.characters, text))
            self.bytes += len(text.encode("utf-8", "replace"))
        self.characters += len(text)

    def character(self, at: int) -> int:
        """The position in characters of one in bytes."""
        piece = bisect_right(self._pieces, at, key=lambda each: each[0]) - 1
        if piece < 0:
            return at
        first, before, text = self._pieces[piece]
        data = text.encode("utf-8", "replace")
        inside = len(data[: at - first].decode("utf-8", "ignore"))
        return before + inside + max(0, at - first - len(data))

    def byte(self, at: int) -> int:
        """The position in bytes of one in characters."""
        piece = bisect_right(self._pieces, at, key=lambda each: each[1]) - 1
        if piece < 0:
            return at
        first, before, text = self._pieces[piece]
        inside = len(text[: at - before].encode("utf-8", "replace"))
        return first + inside + max(0, at - before - len(text))
