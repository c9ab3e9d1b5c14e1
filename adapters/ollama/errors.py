"""Failures <-> `{"error": "text"}`, the only shape of errors in this API: a body, or the last line of a stream."""

from __future__ import annotations

from bridge.contract import WireResponse
from bridge.errors import ErrorCode, Failure, shortened
from bridge.model.jsontext import read_json, text_of
from bridge.toolkit.error_table import ErrorTable, Wire
from bridge.toolkit.errors import error_in

_UNKNOWN_PATH = "unknown_url"
_UNKNOWN_MODEL = "model_not_found"
_TEXT = {"content-type": "text/plain; charset=utf-8"}


class _Errors(ErrorTable):
    def failure(self, error: Wire, status: int | None = None) -> Failure:
        """Return the failure of an error object. The text may be the JSON of the program that runs the model."""
        text = text_of(error.get("message"))
        inner = error_in(read_json(text.encode())) if text.startswith("{") else None
        return super().failure(inner or error, status)


ERRORS = _Errors()


def error_object(failure: Failure) -> Wire:
    """Return the whole object. The text for an unknown model begins with the words that clients look for."""
    text = ERRORS.text(failure)
    model = failure.details.get("model")
    if failure.code is ErrorCode.NOT_FOUND and failure.backend_code == _UNKNOWN_MODEL and model:
        text = f"model {shortened(str(model))!r} not found: {text}"
    return {"error": text}


def encode_error(failure: Failure) -> WireResponse:
    """Return the error response. The router answers for unknown addresses and methods, in plain text."""
    status = ERRORS.status(failure)
    response = ERRORS.response(failure, error_object(failure))
    if failure.backend_code == _UNKNOWN_PATH or (status == 405 and "allow" in failure.headers):
        words = "404 page not found" if status == 404 else "405 method not allowed"
        response.headers |= _TEXT
        response.body = f"{words}\n{ERRORS.text(failure)}".encode()
    return response
