"""The names of the protocol, of both kinds of its revisions (docs/dialects/mcp.md)."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from bridge.model.jsontext import dumps

Wire = dict[str, Any]

NAME = "mcp"
STATELESS = "2026-07-28"
"""The revision without sessions: each request says by itself what it has to say."""
SESSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The revisions with sessions, the newest one first."""
WITH_LINKS, WITH_AUDIO = "2025-06-18", "2025-03-26"
"""The first revisions with links to resources, and with audio: clients of earlier ones refuse such results."""
WITH_BATCHES = "2025-03-26"
"""The only revision with batches of messages; and that of a session whose requests name none."""

VERSION_HEADER = "mcp-protocol-version"
SESSION_HEADER = "mcp-session-id"
METHOD_HEADER = "mcp-method"
NAME_HEADER = "mcp-name"

_META = "io.modelcontextprotocol/"
VERSION_KEY = f"{_META}protocolVersion"
CAPABILITIES_KEY = f"{_META}clientCapabilities"
SERVER_KEY = f"{_META}serverInfo"
TASKS = f"{_META}tasks"
"""The extension by which calls may become tasks."""
OWN = "dialect-bridge/"
"""Begins the keys of this bridge in the metadata of results."""

FRESH_MS = 60_000
"""For how long clients may keep the list of tools."""
POLL_MS = 2_000
"""How often clients ask for the state of a task."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REFUSED = -32000
"""The bridge takes no request of this caller now."""
HEADER_MISMATCH = -32020
CAPABILITY_MISSING = -32021
VERSION_UNKNOWN = -32022


class Method(StrEnum):
    """The methods that are served."""

    INITIALIZE = "initialize"
    DISCOVER = "server/discover"
    PING = "ping"
    LIST = "tools/list"
    CALL = "tools/call"
    GET_TASK = "tasks/get"
    UPDATE_TASK = "tasks/update"
    CANCEL_TASK = "tasks/cancel"
    CANCELLED = "notifications/cancelled"


NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that the header Mcp-Name repeats, by method."""


class Head(NamedTuple):
    """What the form of an answer depends on: the id of the request, and the kind of its revision.

    `call` is the whole request, once it was read: what decodes it again does not parse it again.
    """

    id: Any = None
    stateless: bool = False
    call: Any = None


def written(value: Any) -> bytes:
    """Return JSON on one line."""
    return dumps(value)


def result(head: Head, members: Wire) -> Wire:
    """Return the response with a result."""
    return {"jsonrpc": "2.0", "id": head.id, "result": members}


def info(version: str) -> Wire:
    """Return what the server says of itself."""
    return {"name": "dialect-bridge", "title": "Dialect Bridge", "version": version or "0"}


def header_value(text: str) -> str:
    """Return a text as the value of a header: beyond printable ASCII as base64."""
    if text.isascii() and text.isprintable() and text == text.strip():
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode()}?="


def from_header(value: str) -> str:
    """Return the text in the value of a header."""
    if not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, ValueError):
        return value


def timestamp(seconds: float) -> str:
    """Return a time as the protocol writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
