"""Constants and small readers that both directions share."""

from __future__ import annotations

import base64
import re
from typing import Any

from bridge.model import Extras, FinishReason, UsageReported
from bridge.toolkit.caching import CONTROL, control_of, with_control
from bridge.toolkit.counts import counts_in, is_count
from bridge.toolkit.words import reason_of

NAME = "anthropic-messages"
VERSION = "2023-06-01"
VERSION_HEADER = "anthropic-version"
VERTEX_VERSION = "vertex-2023-10-16"
"""What Vertex AI's documentation puts into `anthropic_version` of the body."""
DIRECT = {"type": "direct"}
"""The `caller` of a call that the model made itself. It is required in answers and the default in requests."""
NOTES = "notes"
"""The key for a client's values in this wire's words that the model has as well: `fields` are fields of the body."""
CITATIONS, UNREAD = "citations", "deltas"
"""The key of citations in a part's extras, and of unknown deltas of its block."""


def own(extras: Extras | None) -> dict[str, Any]:
    """Return this dialect's extras of a part or an event; an empty dict if there are none.

    A mark of another dialect's client for the prompt cache is one of this dialect as well.
    """
    if not extras:
        return {}
    values = extras.get(NAME) or {}
    return values if CONTROL in values else {**values, **control_of(extras)}


def noted(values: dict[str, Any]) -> Extras | None:
    """Return `extras` with these values for this dialect, None if there are none."""
    if not values:
        return None
    return with_control({NAME: values}, values)


def given(values: dict[str, Any]) -> dict[str, Any]:
    """The fields that are not null: this wire writes null for "not there"."""
    return {k: v for k, v in values.items() if v is not None}


# ------------------------------------------------------------------ citations

_INDEX = "encrypted_index"


def citation_of(url: str, title: str) -> dict[str, Any]:
    """A citation of a web page that another vendor's model found. It has no index, by which Anthropic finds a page."""
    kind = "web_search_result_location"
    return {"type": kind, "url": url, "title": title or None, "cited_text": "", _INDEX: ""}


def is_made(citation: Any) -> bool:
    """Return whether `citation_of` made a citation, which the API would refuse."""
    return isinstance(citation, dict) and citation.get(_INDEX) == ""


# ------------------------------------------------------------------ stop reasons

REFUSAL, STOP_DETAILS = "refusal", "stop_details"
"""The stop reason of a refused answer, and the field that tells why."""
_WORDS = {FinishReason.LENGTH: "max_tokens", FinishReason.CONTENT_FILTER: REFUSAL}


def stop_word(reason: FinishReason | None, has_calls: bool, known: Any = None) -> str:
    """The wire's word, never null. `known` is the backend's own, which is kept where it means the same.

    `end_turn` after calls would stop the client's agent loop. A run that waits for a person ends as after its calls.
    """
    word = _WORDS.get(reason) if reason else None
    word = word or ("tool_use" if has_calls else "end_turn")
    return known if isinstance(known, str) and known and reason_of(known) is reason_of(word) else word


def details_of(explanation: str) -> dict[str, Any]:
    """The `stop_details` of an answer that a backend of another dialect refused in these words."""
    return {"type": REFUSAL, "category": None, "explanation": explanation}


# ------------------------------------------------------------------ tool calls

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_ESCAPED = "toolx_"


def wire_id(call_id: str) -> str:
    """A call id as this wire takes it, `[a-zA-Z0-9_-]+`. `call_id_of` undoes it."""
    if _ID.fullmatch(call_id) and not call_id.startswith(_ESCAPED):
        return call_id
    return _ESCAPED + base64.urlsafe_b64encode(call_id.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def call_id_of(wire: str) -> str:
    """The call id that `wire_id` made this of; any other id is itself."""
    if not wire.startswith(_ESCAPED):
        return wire
    text = wire.removeprefix(_ESCAPED)
    try:
        call_id = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("utf-8", "surrogatepass")
    except ValueError:
        return wire
    return call_id if wire_id(call_id) == wire else wire


# ------------------------------------------------------------------ usage


class UsageReader:
    """Combines the usage of `message_start` and `message_delta`: later values replace earlier ones, absent ones
    do not.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._rest: dict[str, Any] = {}

    def feed(self, usage: Any, *, at_end: bool) -> None:
        """`at_end`: the usage of a `message_delta` or a whole message."""
        if not isinstance(usage, dict):
            return
        if _COUNTS.isdisjoint(usage) and (counts := counts_in(usage)):
            usage = {**usage, **_spelled(counts)}
        for name, value in usage.items():
            if name in _COUNTS:
                if is_count(value):
                    self._counts[name] = value
            elif value is not None and at_end:
                self._rest[name] = value  # other fields of the start are written to the start again

    def report(self) -> UsageReported | None:
        """The totals; None when the wire only had the zeros that its shape demands."""
        counts = self._counts
        if not any(counts.values()):
            return None
        read = counts.get("cache_read_input_tokens")
        made = counts.get("cache_creation_input_tokens")
        rest = dict(self._rest)
        details = rest.get("output_tokens_details")
        thought = details.get("thinking_tokens") if isinstance(details, dict) else None
        return UsageReported(
            input=counts.get("input_tokens", 0) + (read or 0) + (made or 0),
            output=counts.get("output_tokens", 0),
            cached=read,
            reasoning=thought if is_count(thought) else None,
            extras=noted(rest),
            written=made,
        )


def _spelled(counts: dict[str, int]) -> dict[str, int]:
    """Return counts that a server wrote in the names of another API, whose input contains what was cached."""
    cached = min(counts.get("cached", 0), counts.get("input", 0))
    written = min(counts.get("written", 0), counts.get("input", 0) - cached)
    return {
        "input_tokens": counts.get("input", 0) - cached - written,
        "output_tokens": counts.get("output", 0),
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": written,
    }


_COUNTS = frozenset({"input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"})
_NO_CACHE = {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0}
_DELTA_USAGE = {
    "input_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 0,
    "output_tokens_details": None,
    "server_tool_use": None,
}
_START_USAGE = {
    **_DELTA_USAGE,
    "cache_creation": _NO_CACHE,
    "inference_geo": None,
    "service_tier": None,
}


def start_usage(said: dict[str, Any] | None) -> dict[str, Any]:
    """Return the usage at the start of a message, in full; counts are known only at the end. `said`: a backend's
    own.
    """
    return merged_usage(_START_USAGE, said or {})


def merged_usage(start: dict[str, Any], end: dict[str, Any]) -> dict[str, Any]:
    """Return the usage of a message: its end takes precedence. A sum of cached tokens may have unknown parts."""
    usage = {**start, **given(end)}
    if usage["cache_creation_input_tokens"] and usage["cache_creation"] == _NO_CACHE:
        usage["cache_creation"] = None
    return usage


def write_usage(usage: UsageReported) -> dict[str, Any]:
    """Return the cumulative usage at the end of a message, in full. Unknown counts are zero: clients add
    them up.

    The wire's `input_tokens` does not contain cached tokens; the model's does.
    """
    total, rest = usage.input or 0, own(usage.extras)
    read = min(usage.cached or 0, total)
    made = min(usage.written or 0, total - read)
    out: dict[str, Any] = {
        **_DELTA_USAGE,
        **rest,
        "input_tokens": total - read - made,
        "cache_creation_input_tokens": made,
        "cache_read_input_tokens": read,
        "output_tokens": usage.output or 0,
        **({"estimated": True} if usage.estimated else {}),
    }
    if usage.reasoning is not None:
        out["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return out


# ------------------------------------------------------------------ writing
