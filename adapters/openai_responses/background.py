"""Responses that are made in the background: before they begin, while they grow, and how they end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.contract import Context, Frame, FrameLike, StoredAnswer
from bridge.dialects.openai_responses import stored
from bridge.dialects.openai_responses.response import QUEUED, new_response
from bridge.dialects.openai_responses.write_answer import ResponsesEncoder
from bridge.model import Event, RunStarted
from bridge.model.jsontext import dumps


def answer_so_far(events: Sequence[Event], context: Context) -> StoredAnswer:
    """The response after these events; without any it is queued."""
    if not events:
        return stored.in_background(_queued(context), context, ended=False)
    encoder = ResponsesEncoder(context)
    encoder.encode(events)
    ended = encoder.final is not None
    return stored.in_background(encoder.final or encoder.so_far(), context, ended)


def encode_queued(context: Context) -> list[FrameLike]:
    """Return the events before the run begins; those of `ResponsesEncoder` are numbered after them."""
    response = _queued(context)
    events = [{"type": kind, "sequence_number": n, "response": response} for n, kind in enumerate(QUEUED)]
    return [Frame(dumps(event), kind) for event, kind in zip(events, QUEUED, strict=True)]


def _queued(context: Context) -> dict[str, Any]:
    head = RunStarted(context.run_id, context.thread_id, context.model, context.created_at)
    return new_response(head, context, "queued")
