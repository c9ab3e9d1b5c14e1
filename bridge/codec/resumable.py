"""The optional contract of dialects whose clients come back to the run of a thread by naming the thread alone."""

from __future__ import annotations

from bridge.codec.dialect import Dialect
from bridge.codec.wire import WireRequest


class ResumableDialect(Dialect):
    """A dialect whose `SUBSCRIBE` reads the run of a thread that has not ended, from its beginning.

    The response is 204 if nothing runs, as it is on routes that are not durable.
    """

    def decode_resume(self, wire: WireRequest) -> str:
        """Return the id of the thread. Raises `RequestError`."""
        raise NotImplementedError
