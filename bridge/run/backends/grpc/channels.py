"""Connections over gRPC as a dialect wants them, and single messages over them. Messages stay bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from bridge.contract import Dialect, WireResponse
from bridge.contract.optional.sessions import Channel, without_scheme
from bridge.errors import BackendError, ConfigError, Failure

_STATUS = "grpc-status"
_PING_TIMEOUT = 60_000
"""Milliseconds that a client has to answer a ping; one that is busy is not gone."""
_NOT_CONNECTED = {
    "failed to connect to all addresses": "the connection failed",
    "DNS resolution failed": "its host name cannot be resolved",
}
"""The beginning of gRPC's text where no connection was made -> the words for the client."""


def channel_options(settings: Channel) -> list[tuple[str, int]]:
    """The arguments of a channel or server."""
    return [
        ("grpc.max_receive_message_length", settings.max_message),
        ("grpc.max_send_message_length", settings.max_message),
    ]


def ping_options(seconds: float | None) -> list[tuple[str, int]]:
    """The arguments of a server that sends pings on connections with open calls that are silent for so long."""
    if seconds is None:
        return []
    return [
        ("grpc.keepalive_time_ms", max(1, round(seconds * 1000))),
        ("grpc.keepalive_timeout_ms", _PING_TIMEOUT),
        ("grpc.http2.max_pings_without_data", 0),  # no limit
    ]


def open_channel(address: str, settings: Channel) -> grpc.aio.Channel:
    """A channel, made inside the running loop; it connects at first use. Raises `OSError` for unreadable files."""
    return channel_to(without_scheme(address), settings)


def channel_to(target: str, settings: Channel, *more: tuple[str, int | str]) -> grpc.aio.Channel:
    """As `open_channel`, to a gRPC target and with `more` options."""
    options = [*channel_options(settings), *more]
    if not settings.secure:
        return grpc.aio.insecure_channel(target, options=options)
    files = (settings.ca, settings.key, settings.cert)
    credentials = grpc.ssl_channel_credentials(*(Path(name).read_bytes() if name else None for name in files))
    return grpc.aio.secure_channel(target, credentials, options=options)


def server_credentials(settings: Channel) -> Any:
    """Raises `OSError` for files that cannot be read. With `ca` callers have to show a certificate of theirs."""
    if not settings.key or not settings.cert:
        raise ConfigError("tls: a server needs cert and key.")
    pair = (Path(settings.key).read_bytes(), Path(settings.cert).read_bytes())
    ca = Path(settings.ca).read_bytes() if settings.ca else None
    return grpc.ssl_server_credentials([pair], ca, ca is not None)


def add_port(server: grpc.aio.Server, address: str, settings: Channel) -> int:
    """Listen at an address; its port. Raises `RuntimeError` for one that cannot be had, `OSError` for a file."""
    if settings.secure:
        return int(server.add_secure_port(address, server_credentials(settings)))
    return int(server.add_insecure_port(address))


def failure_of(dialect: Dialect, code: grpc.StatusCode, details: str | None) -> Failure:
    """Return the failure that a status means, with the status and its details as the cause for the log."""
    wire = WireResponse(500, {_STATUS: code.name}, (details or "").encode("utf-8", "replace"))
    failure = dialect.decode_error(wire)
    for start, reason in _NOT_CONNECTED.items():
        if code is grpc.StatusCode.UNAVAILABLE and (details or "").startswith(start):
            failure.message = f"The backend is not available: {reason}."
    failure.cause = f"answered {code.name}: {' '.join((details or 'no details').split())}"
    return failure


Metadata = tuple[tuple[str, str], ...]
"""Metadata of a call."""


def metadata_of(dialect: Dialect, key: str | None) -> Metadata:
    """Return the metadata that identifies the bridge to a peer."""
    return tuple(dialect.auth_headers(key).items()) if key else ()


async def call_unary(
    channel: grpc.aio.Channel, dialect: Dialect, path: str, body: bytes, seconds: float, metadata: Metadata = ()
) -> bytes:
    """The answer to a single message. Raises `BackendError`."""
    try:
        answer: bytes = await channel.unary_unary(path)(body, timeout=seconds, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        raise BackendError.of(failure_of(dialect, error.code(), error.details())) from None
    return answer
