"""Whole answers: chunks -> one response, and one response, or an array of chunks -> events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.contract import Context, WireResponse
from bridge.dialects.gemini.errors import ERRORS
from bridge.dialects.gemini.read_answer import GeminiDecoder
from bridge.dialects.gemini.wire import NOTES, SIGNATURE, own
from bridge.model import Event
from bridge.model.jsontext import read_json

Wire = dict[str, Any]

# ------------------------------------------------------------------ towards clients


def response_of(chunks: Sequence[Wire], context: Context) -> Wire | list[Wire]:
    """Return the response that a client makes of the chunks of a whole answer, in a list where it wants an array."""
    response = _joined(chunks)
    return [response] if wants_array(context) else response


def wants_array(context: Context) -> bool:
    """Return whether the client wants a stream, but not server-sent events."""
    return context.request is not None and own(context.request.extras).get(NOTES, {}).get("array") is True


def _joined(chunks: Sequence[Wire]) -> Wire:
    """Merge the chunks: fields of later ones count, parts are appended, consecutive texts are concatenated."""
    response: Wire = {}
    candidates: dict[int, Wire] = {}
    parts: dict[int, list[Wire]] = {}
    for chunk in chunks:
        for candidate in chunk.get("candidates", ()):
            index = candidate["index"]
            parts.setdefault(index, []).extend(candidate["content"]["parts"])
            candidates.setdefault(index, {}).update(candidate)
        response.update({name: value for name, value in chunk.items() if name != "candidates"})
    for index, candidate in candidates.items():
        candidate["content"] = {"parts": _runs(parts[index]), "role": "model"}
    return {**({"candidates": [candidates[index] for index in sorted(candidates)]} if candidates else {}), **response}


def _runs(parts: list[Wire]) -> list[Wire]:
    """Return parts with texts concatenated. An empty text without extras remains only if there is no other part."""
    out: list[Wire] = []
    pieces: list[str] = []
    for part in parts:
        if part == {"text": ""}:
            continue
        goes_on = isinstance(part.get("text"), str) and SIGNATURE not in part
        if goes_on and pieces and out[-1].get("thought") == part.get("thought"):
            pieces.append(part["text"])
            continue
        _end(out, pieces)
        out.append(dict(part))
        pieces = [part["text"]] if goes_on else []
    _end(out, pieces)
    return out or [{"text": ""}]


def _end(out: list[Wire], pieces: list[str]) -> None:
    """Concatenates the pieces once: appending each to the text before it would take quadratic time."""
    if pieces:
        out[-1]["text"] = "".join(pieces)


# ------------------------------------------------------------------ from backends


def parse_response(wire: WireResponse, context: Context) -> list[Event]:
    """Return the run of a whole answer; anything else than a response is a run that failed."""
    decoder = GeminiDecoder(context)
    value = read_json(wire.body)
    chunks = value if isinstance(value, list) else [value]
    if any(isinstance(chunk, dict) and ("candidates" in chunk or "promptFeedback" in chunk) for chunk in chunks):
        return decoder.chunks(chunks)
    text = "The backend's answer is neither a response nor an error."
    return decoder.close(ERRORS.of_no_answer(value, text))
