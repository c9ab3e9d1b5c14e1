"""Responses of backends: their headers and bodies, and what went wrong with them."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Protocol

import aiohttp
from aiohttp.http_exceptions import ContentEncodingError, LineTooLong

from bridge.errors import BackendError, ErrorCode, Failure, Wrong

DRAIN_SECONDS = 0.25
"""Seconds to wait for the few bytes after an end mark."""
COMPRESSION = "The backend's answer is compressed in a way that cannot be read."
_SCHEME = "the port and the scheme (http or https) in the url"
AT_ONCE = 64 * 1024
"""Bytes of a stream that are taken by one read: decoding more, if it is events of a few bytes, would hold the loop."""


class InvalidAnswer(ConnectionError):
    """The backend sent bytes that are not HTTP, or HTTP without a request."""


class InvalidCompression(InvalidAnswer):
    """The body is not compressed as its headers say, or in a way that was not asked for."""


class LongHead(InvalidAnswer):
    """The headers are longer than the limit."""


class HttpAnswer(Protocol):
    """Return the answer to a request, from its head on. `failure_of` explains `InvalidAnswer` and `ClientError`."""

    status: int
    headers: dict[str, str]

    @property
    def at_end(self) -> bool:
        """The body has ended, and all of it was read."""
        ...

    async def read(self, most: int) -> bytes:
        """Return up to `most` bytes as soon as any are there; nothing at the end."""
        ...

    def unread(self, most: int) -> bytes:
        """Return up to `most` bytes that arrived before the answer broke off."""
        ...

    def pass_on(self, take: Callable[[bytes], bool] | None) -> None:
        """Call `take` with data that arrives while `read` waits, if the client can do that. Where `take` returns False,
        `read` ends, without that data. With None, `read` returns all data.
        """
        ...

    def release(self, drain: bool = False) -> None:
        """Return the connection for the next request if the body has ended; else close it.

        `drain`: the few bytes that are still to come are waited for a moment.
        """
        ...


def headers_of(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {k.lower(): v for k, v in response.headers.items()}


def unread(response: aiohttp.ClientResponse) -> bytes:
    """Return the bytes that came before the connection broke; aiohttp gives them once the error is cleared."""
    response.content.set_exception(None)  # type: ignore[arg-type]
    return response.content.read_nowait()


async def bounded(read: Callable[[int], Awaitable[bytes]], most: int, *, cut: bool = False) -> bytes:
    """Return all that `read` returns. Beyond `most` bytes: what came so far with `cut`, else raises `BackendError`."""
    pieces: list[bytes] = []
    size = 0
    while piece := await read(AT_ONCE):
        size += len(piece)
        if size > most:
            if cut:
                break
            raise BackendError(
                f"The backend's answer is longer than the limit of {most} bytes.", code=ErrorCode.BACKEND_PROTOCOL
            )
        pieces.append(piece)
    return b"".join(pieces)


def _has_long_head(error: BaseException | None) -> bool:
    """Return whether the headers exceeded the limit; aiohttp wraps its error for that twice."""
    if isinstance(error, aiohttp.ClientResponseError):
        error = error.__cause__ and error.__cause__.__cause__
    return isinstance(error, (LongHead, LineTooLong))


def failure_of(error: Exception) -> Failure:
    """Return the failure for an error before an answer began: its kind, never an address that may hold secrets."""
    match error:
        case aiohttp.ClientHttpProxyError():
            reason = f"the proxy answered with status {error.status}"
        case aiohttp.ClientProxyConnectionError():
            reason = "the proxy could not be reached"
        case aiohttp.ClientConnectorDNSError() | socket.gaierror():
            reason = "its host name cannot be resolved"
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError() | ssl.SSLError():
            reason = "the TLS handshake failed"
        case aiohttp.ServerTimeoutError() | TimeoutError():
            return Failure(ErrorCode.BACKEND_TIMEOUT, "The backend could not be reached in time.")
        case aiohttp.ClientConnectorError() | ConnectionRefusedError():
            reason = "the connection was refused"
        case aiohttp.ServerDisconnectedError() | ConnectionResetError() | BrokenPipeError():
            reason = "it closed the connection without an answer"
        case aiohttp.InvalidURL():
            reason = "its address is not valid"
        case ValueError():
            # What cannot be written on the wire never left this process, and reveals nothing about the backend.
            return Failure(ErrorCode.INTERNAL, "The request could not be written for the backend.")
        case InvalidCompression():
            return Failure(ErrorCode.BACKEND_PROTOCOL, COMPRESSION, wrong=Wrong.COMPRESSION)
        case _ if _has_long_head(error):
            return Failure(ErrorCode.BACKEND_PROTOCOL, "The headers of the backend's answer exceed the size limit.")
        case aiohttp.ClientResponseError() | InvalidAnswer():
            return Failure(ErrorCode.BACKEND_PROTOCOL, "The backend's answer is not HTTP.")
        case _:
            reason = "the connection failed"
    return Failure(ErrorCode.BACKEND_UNAVAILABLE, f"The backend is not available: {reason}.")


def outcome_of(error: Exception) -> tuple[str, str]:
    """Return an error before an answer began in words for the log, and what to check in the configuration."""
    match error:
        case aiohttp.ClientHttpProxyError() | aiohttp.ClientProxyConnectionError():
            advice = "the proxy"
        case aiohttp.ClientConnectorDNSError() | socket.gaierror():
            advice = "the host name in the url"
        case aiohttp.ClientConnectorCertificateError() | ssl.SSLCertVerificationError():
            advice = "the url and the certificate"
        case aiohttp.ServerTimeoutError() | TimeoutError():
            advice = "the url and timeouts.connect"
        case aiohttp.ClientSSLError() | ssl.SSLError():
            advice = _SCHEME
        case aiohttp.ClientConnectorError() | ConnectionRefusedError() | aiohttp.InvalidURL():
            advice = "the url"
        case InvalidCompression():
            advice = ""
        case _ if _has_long_head(error):
            advice = ""
        case aiohttp.ClientResponseError() | InvalidAnswer():
            advice = _SCHEME
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError() | ConnectionResetError():
            advice = _SCHEME
        case _:
            advice = ""
    # aiohttp repeats the address, whose query may hold a key.
    reason = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
    return f"failed: {type(error).__name__}: {reason}".removesuffix(": "), advice


def broken_off(error: Exception) -> Failure:
    """Return the failure for an error in the middle of an answer."""
    if isinstance(error, TimeoutError):
        return Failure(ErrorCode.BACKEND_TIMEOUT, "The backend stopped responding.")
    if isinstance(error, InvalidCompression) or isinstance(error.__cause__, ContentEncodingError):
        return Failure(ErrorCode.BACKEND_PROTOCOL, COMPRESSION, wrong=Wrong.COMPRESSION)
    return Failure(ErrorCode.TRUNCATED_STREAM, "The connection to the backend broke in the middle of its answer.")
