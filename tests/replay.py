"""An HTTP client for official SDKs that gets these bytes, whatever it asks and without a socket."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2

from bridge.contract import WireResponse


class _Pieces(httpx2.SyncByteStream):
    """A response body in pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._pieces)


def replaying(data: bytes | WireResponse, pieces: int = 1) -> httpx2.Client:
    """`data`: an event stream, which comes in about so many `pieces`, or a whole response."""

    def handle(asked: httpx2.Request) -> httpx2.Response:
        if isinstance(data, WireResponse):
            return httpx2.Response(data.status, headers=data.headers, content=data.body)
        size = max(1, len(data) // pieces)
        stream = _Pieces([data[i : i + size] for i in range(0, len(data), size)])
        return httpx2.Response(200, headers={"content-type": "text/event-stream; charset=utf-8"}, stream=stream)

    return httpx2.Client(transport=httpx2.MockTransport(handle))
