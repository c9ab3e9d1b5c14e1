"""The optional contract of dialects that count the tokens of a request."""

from __future__ import annotations

from bridge.codec.context import Context
from bridge.codec.dialect import Dialect
from bridge.codec.wire import WireRequest, WireResponse
from bridge.model.request import Request


class CountingDialect(Dialect):
    """A dialect whose surface has `COUNT`, and whose backends can be asked for the tokens of a request."""

    # ------------------------------------------------------------- as the front

    def decode_count_request(self, wire: WireRequest, context: Context) -> Request:
        """Return the request whose tokens are to be counted; by default, it looks like one to run.

        Raises `RequestError`.
        """
        return self.decode_request(wire, context)

    def encode_count(self, tokens: int, estimated: bool) -> WireResponse:
        """Return the response with the number of input tokens; `estimated` if no backend counted them."""
        raise NotImplementedError

    # ------------------------------------------------------------- as the back

    def count_request(self, request: Request, context: Context) -> WireRequest:
        """Return the request that asks a backend to count."""
        raise NotImplementedError

    def decode_count(self, wire: WireResponse) -> int:
        """Return the count in a backend's answer. Raises `BackendError` when there is none."""
        raise NotImplementedError
