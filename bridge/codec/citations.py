"""Citations of a text, for dialects other than the backend's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.model import SHARED, Extras

_FIELDS = ("url", "title", "start_index", "end_index")


def with_citations(extras: Extras | None, citations: Sequence[Any]) -> Extras | None:
    """Return `extras` with these citations for all dialects: those of web pages in the form of chat completions, any
    others as their vendor wrote them.
    """
    if not citations:
        return extras
    return {**(extras or {}), SHARED: {"annotations": [_in_chat_form(each) for each in citations]}}


def _in_chat_form(citation: Any) -> Any:
    if not isinstance(citation, dict) or not isinstance(citation.get("url"), str):
        return citation
    fields = {name: citation[name] for name in _FIELDS if citation.get(name) is not None}
    return {"type": "url_citation", "url_citation": fields}
