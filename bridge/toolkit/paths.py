"""Values of clients and backends in the path of a URL: the name of a model, the id of a task, a tenant.

Such a value stays within the place that the configuration gives it. Servers and proxies resolve `.` and `..`, merge
empty segments, read a backslash as a slash, and some decode a path twice (RFC 3986, 5.2.4 and 6.2.2).
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from bridge.errors import BackendError, BridgeError, ErrorCode, RequestError, shortened

_SLASHES = re.compile(r"[/\\]")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]")


def resource(value: str, field: str) -> str:
    """Return the path of a resource, as "publishers/google/models/m": percent-encoded, with its slashes.

    Raises `RequestError` that names `field`, the client's field with this value: for an empty segment, for one of mere
    dots, for a backslash and for control characters, percent-encoded or not.
    """
    if (fault := _fault(value)) is not None:
        raise RequestError(f"{field}: expected {fault}, got {shortened(value)!r}.", param=field)
    return quote(value, safe="/")


def segment(value: str, field: str, *, by_backend: bool = False) -> str:
    """Return one segment of a path, percent-encoded.

    Raises what `resource` raises; for a value that the backend chose `BackendError`.
    """
    if (fault := _fault(value)) is not None:
        text = f"{field}: expected {fault}, got {shortened(value)!r}."
        error: BridgeError = RequestError(text, param=field)
        raise BackendError(f"The backend's {text}", code=ErrorCode.BACKEND_PROTOCOL) if by_backend else error
    return quote(value, safe="")


def check_path(path: str) -> None:
    """Check the path of a request, as it is written. Raises `RequestError` for a path that leads out of its prefix."""
    if _UNSAFE.search(path) is not None or climbs(path):
        text = f"expected a path without the segments . and .., backslashes and control characters, got {path[:200]!r}"
        raise RequestError(f"The backend's address: {text}.")


def climbs(path: str) -> bool:
    """Return whether a path has a segment `.` or `..`, also for servers that decode encoded slashes and dots."""
    return any(not {".", ".."}.isdisjoint(_SLASHES.split(form)) for form in _forms(path))


def _fault(value: str) -> str | None:
    """What a value should be and is not; None if it may stand in a path."""
    if not value:
        return "a name"
    for form in _forms(value):
        if _UNSAFE.search(form) is not None:
            return "a name without backslashes and control characters"
        if any(not piece.strip(".") for piece in form.split("/")):
            return "a name without empty parts and parts of dots between its slashes"
    return None


def _forms(text: str) -> tuple[str, str]:
    """The text as it is, and percent-decoded."""
    return text, unquote(text)
