"""The optional contract of dialects whose clients may send requests as messages of one WebSocket connection."""

from __future__ import annotations

from bridge.codec.dialect import Options
from bridge.codec.stored_responses import StoredAnswersDialect
from bridge.codec.wire import WireRequest, WireResponse


class SocketDialect(StoredAnswersDialect):
    """A dialect whose surface has `SOCKET`: each message of the client is a request, answered by the payloads of its
    stream, a message each.

    A request may go on from the answer before it on the same connection, also where no answers are stored.
    """

    def takes_sockets(self, options: Options | None) -> bool:
        """Return whether routes with these options serve WebSockets."""
        raise NotImplementedError

    def decode_message(self, message: str) -> WireRequest:
        """Return the request that a message stands for. Raises `RequestError`."""
        raise NotImplementedError

    def encode_refusal(self, response: WireResponse) -> bytes:
        """Return the message for a response that would refuse the request over HTTP."""
        raise NotImplementedError
