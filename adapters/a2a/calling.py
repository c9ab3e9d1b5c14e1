"""Requests for agents, and answers in one piece."""

from __future__ import annotations

from bridge.codec import Context, WireRequest, WireResponse
from bridge.errors import Failure, Unsupported
from bridge.model import Event, Request


def encode_request(request: Request, context: Context) -> WireRequest:
    raise Unsupported("a2a cannot be called.")


def parse_response(wire: WireResponse, context: Context) -> list[Event]:
    raise Unsupported("a2a cannot be called.")


def decode_error(wire: WireResponse) -> Failure:
    raise Unsupported("a2a cannot be called.")
