"""Failures <-> the error inside a stream; the body of an HTTP error is that of every API of OpenAI.

A stream that fails ends with two events, as that of the API does (vercel/ai#13480). `response.failed` carries
`response.error`: its `code` is one of a closed list, so the bridge's own code is its `type`. Many libraries ignore it:
the `openai` packages raise only for an event with an `error` object, which the `error` event before it therefore has
beside the flat fields of the API's reference.
"""

from __future__ import annotations

from typing import Any

from bridge.dialects.openai.errors import ERRORS, WORDS, error_object
from bridge.errors import ErrorCode, Failure
from bridge.model.jsontext import dict_of, text_of

_CODES = frozenset(
    {
        "server_error",
        "rate_limit_exceeded",
        "invalid_prompt",
        "data_residency_mismatch",
        "bio_policy",
        "misalignment_policy_violation",
        "vector_store_timeout",
        "invalid_image",
        "invalid_image_format",
        "invalid_base64_image",
        "invalid_image_url",
        "image_too_large",
        "image_too_small",
        "image_parse_error",
        "image_content_policy_violation",
        "invalid_image_mode",
        "image_file_too_large",
        "unsupported_image_media_type",
        "empty_image_file",
        "failed_to_download_image",
        # Not in the closed list, but the API sends it (openai/codex#4675), and Codex acts on it
        "context_length_exceeded",
        "image_file_not_found",
    }
)
"""The values of `code` that typed clients accept."""

_COARSE = (None, "server_error", "invalid_prompt")
_OURS = frozenset(word for _, word in WORDS.values() if word)
_INVALID = frozenset(
    {ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED, ErrorCode.CONTEXT_LENGTH, ErrorCode.CONTENT_FILTER}
)


def stream_error(failure: Failure) -> dict[str, Any]:
    """The `error` of a failed response object."""
    error = error_object(failure)
    word = error["code"] or str(failure.code)
    if word in _CODES:
        code = word
    elif failure.code is ErrorCode.RATE_LIMITED:
        code = "rate_limit_exceeded"
    else:
        code = "invalid_prompt" if failure.code in _INVALID else "server_error"
    param = {"param": error["param"]} if error["param"] else {}
    return {"code": code, "message": error["message"], "type": word, **param}


def error_event(failure: Failure) -> dict[str, Any]:
    """The fields of the `error` event, flat and nested."""
    error = error_object(failure)
    return {"code": error["code"], "message": error["message"], "param": error["param"], "error": error}


def failure_in(error: Any) -> Failure:
    """Return the failure in the `error` of a failed response, or in an `error` event; it may be nested or a plain
    text.
    """
    fields = dict_of(error) if not isinstance(error, str) else {"message": error}
    fields = {**fields, **dict_of(fields.get("error"))}
    code, kind = fields.get("code"), text_of(fields.get("type")) or None
    if kind == "error":
        kind = None  # the name of the event
    if code in _COARSE and kind in _OURS:
        code, kind = kind, None
    failure = ERRORS.failure({**fields, "code": code, "type": kind})
    if failure.code is ErrorCode.BACKEND_ERROR and code == "invalid_prompt":
        failure.code = ErrorCode.INVALID_REQUEST
    return failure
