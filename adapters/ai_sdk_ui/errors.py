"""Failures: a body that the client shows as it is before the stream, an `error` chunk inside it.

The protocol has no codes.
"""

from __future__ import annotations

from bridge.contract import WireResponse
from bridge.errors import Failure
from bridge.toolkit.error_table import ErrorTable

ERRORS = ErrorTable(
    unnamed="An error occurred.",
    named=frozenset({404}),
    plain=True,
    inner=True,
)


def encode_error(failure: Failure) -> WireResponse:
    """`{"error": text}`: the official client makes the whole body its error message."""
    return ERRORS.response(failure, {"error": ERRORS.text(failure)})
