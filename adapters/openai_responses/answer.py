"""Whole answers: events -> one response object, and one response object -> events."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.codec import Context, WireResponse, failure_at_end, json_response
from bridge.codec.errors import error_in
from bridge.codec.jsontext import dumps, read_json
from bridge.codec.wire import holds_events, payloads_in
from bridge.dialects.openai.api import ERRORS, encode_error
from bridge.dialects.openai_responses import compaction
from bridge.dialects.openai_responses.capabilities import CAPABILITIES
from bridge.dialects.openai_responses.decoder import ResponsesDecoder
from bridge.dialects.openai_responses.encoder import ResponsesEncoder
from bridge.errors import ErrorCode, Failure
from bridge.model import Event, coalesced


def assemble(events: Sequence[Event], context: Context) -> WireResponse:
    """The response that the last event of the stream would show; a run that failed or was canceled is its error."""
    failure = failure_at_end(events, CAPABILITIES, context.lost)
    if failure is not None:
        return encode_error(failure)
    encoder = ResponsesEncoder(context)
    encoder.encode(coalesced(events))
    if encoder.failure is not None:  # a compaction that has no summary
        return encode_error(encoder.failure)
    final = encoder.final
    if final is not None and compaction.is_object(context.request):
        final = {"object": "response.compaction", **{k: final[k] for k in ("id", "created_at", "output", "usage")}}
    return json_response(dumps(final))


def parse_response(wire: WireResponse, context: Context) -> list[Event]:
    """Return the run of a whole answer; anything else than a response object is a run that failed."""
    decoder = ResponsesDecoder(context)
    if wire.status >= 400:
        return decoder.close(ERRORS.decode(wire))
    value = read_json(wire.body)
    if value is None and holds_events(wire):
        return decoder.feed(payloads_in(wire.body)) + decoder.close()
    if isinstance(value, dict) and isinstance(value.get("output"), list):
        return decoder.whole(value)
    error = error_in(value)
    if error is not None:
        return decoder.close(ERRORS.failure(error))
    text = "The backend's answer is neither a response object nor an error object."
    return decoder.close(Failure(ErrorCode.BACKEND_PROTOCOL, text))
