"""Whole answers of backends: one response object -> events."""

from __future__ import annotations

from bridge.contract import Context, WireResponse
from bridge.dialects.openai.errors import ERRORS
from bridge.dialects.openai_responses.read_answer import ResponsesDecoder
from bridge.errors import ErrorCode, Failure
from bridge.model import Event
from bridge.model.jsontext import read_json
from bridge.toolkit.errors import error_in


def parse_response(wire: WireResponse, context: Context) -> list[Event]:
    """Return the run of a whole answer; anything else than a response object is a run that failed."""
    decoder = ResponsesDecoder(context)
    value = read_json(wire.body)
    if isinstance(value, dict) and isinstance(value.get("output"), list):
        return decoder.whole(value)
    error = error_in(value)
    if error is not None:
        return decoder.close(ERRORS.failure(error))
    text = "The backend's answer is neither a response object nor an error object."
    return decoder.close(Failure(ErrorCode.BACKEND_PROTOCOL, text))
