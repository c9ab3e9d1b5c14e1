"""The errors of servers, read alike for all dialects: the shapes of error bodies, and the words in them.

Servers send errors in the shape of their API, of the framework that they are written with, or of a gateway in between,
with an error status, with status 200, or inside a stream. `error_in` finds them and returns one object, whose `message`
is a text and whose `code` and `type` are the server's own. `code_in` says what the words mean where a dialect's own
table does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from bridge.errors import BY_STATUS, ErrorCode, Failure
from bridge.model.jsontext import dumps

Wire = dict[str, Any]

STATUSES: Mapping[int, ErrorCode] = {**BY_STATUS, 529: ErrorCode.OVERLOADED}
"""The codes of HTTP statuses, with the one that model APIs use for "overloaded"."""

_MOST = 20
"""The most entries of a list of errors that are read."""

# ------------------------------------------------------------------ texts

_TEXTS = (
    "message", "msg", "error_message", "errorMessage", "error_msg", "errmsg", "err_msg", "errMsg", "status_msg",
    "Message", "detail", "details", "error_description", "description", "reason", "title", "issues",
)  # fmt: skip
"""The fields with the words of an error; the first that has some counts."""
_CODES_OF = ("code", "Code", "error_code", "errorCode", "errcode", "err_code", "errCode", "status_code", "statusCode")
"""The fields with the code of an error."""


def words_in(error: Wire) -> str:
    """Return the words of an error object; empty if it has none."""
    for name in _TEXTS:
        value = error.get(name)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, (dict, list)) and value:
            return invalid_fields(value) or dumps(value).decode()
    return ""


def invalid_fields(value: Any) -> str:
    """Return a list of errors in words, each with its place (Pydantic's `loc` and `msg`, Zod's `path` and `message`);
    empty for anything else.
    """
    entries = value[:_MOST] if isinstance(value, list) else []
    return "; ".join(filter(None, map(_entry, entries)))


def _entry(entry: Any) -> str:
    """Return one entry. The bridge's own messages name the place already, and the input is not repeated."""
    if not isinstance(entry, dict):
        return entry if isinstance(entry, str) else ""
    text, location = entry.get("msg") or entry.get("message"), entry.get("loc") or entry.get("path")
    if not isinstance(text, str):
        return ""
    pieces = [str(piece) for piece in location if piece != "body"] if isinstance(location, list) else []
    own = pieces and text.startswith(pieces[0])
    return f"{'.'.join(pieces)}: {text}" if pieces and text and not own else text


# ------------------------------------------------------------------ shapes


def _first(value: Wire, names: tuple[str, ...]) -> Any:
    return next((value[name] for name in names if value.get(name) is not None), None)


def _object(error: Wire, beside: Wire | None = None) -> Wire:
    """Return an error object with its words as `message`, and its code and type; else those `beside` it."""
    outer = beside or {}
    code = _first(error, _CODES_OF)
    return {
        **error,
        "message": words_in(error) or words_in({k: v for k, v in outer.items() if k != "error"}),
        "code": code if code is not None else _first(outer, _CODES_OF),
        "type": error.get("type") or outer.get("error_type") or outer.get("errorType"),
    }


def _under_error(value: Wire) -> Wire | None:
    """OpenAI, Anthropic, Google, JSON-RPC: `{"error": {...}}`; TGI, Ollama, Spring: `{"error": "text"}`."""
    error = value.get("error")
    if isinstance(error, dict):
        return _object(error, value) if any(v is not None for v in error.values()) else None
    if isinstance(error, list) and error:
        return _object({"message": invalid_fields(error) or dumps(error).decode()}, value)
    if isinstance(error, str) and error.strip():
        rest = {name: each for name, each in value.items() if name not in ("error", "type")}
        said = value.get("message") or value.get("msg")
        return _object({**rest, "message": said if isinstance(said, str) and said else error}, value)
    if error is True:
        return _object({name: each for name, each in value.items() if name != "error"}, value)
    return None


def _base_resp(value: Wire) -> Wire | None:
    """MiniMax: `{"base_resp": {"status_code", "status_msg"}}`, 0 if there is no error."""
    inner = value.get("base_resp")
    if not isinstance(inner, dict) or _is_fine(inner.get("status_code")):
        return None
    code = inner["status_code"]
    word = _MINIMAX.get(str(code), "")
    return {"message": words_in(inner) or f"The backend reported the error {code}.", "code": word or str(code)}


def _header(value: Wire) -> Wire | None:
    """Spark of iFlytek: `{"header": {"code", "message"}}`, 0 if there is no error."""
    inner = value.get("header")
    return _object(inner) if isinstance(inner, dict) and words_in(inner) and not _is_fine(inner.get("code")) else None


def _response(value: Wire) -> Wire | None:
    """Tencent Cloud: `{"Response": {"Error": {"Code", "Message"}}}`; Hunyuan: `{"ErrorMsg": {"Code", "Msg"}}`."""
    inner = value.get("Response")
    inner = inner.get("Error") if isinstance(inner, dict) else value.get("ErrorMsg")
    if not isinstance(inner, dict) or _is_fine(_first(inner, _CODES_OF)):
        return None
    return _object({**inner, "message": inner.get("Message") or inner.get("Msg")})


def _named(value: Wire) -> Wire | None:
    """An error that names itself: `{"object": "error", "message"}` (vLLM), `{"type": "error", "message"}`."""
    if "error" not in (value.get("object"), value.get("type")):
        return None
    kind = value.get("type")
    return {**_object(value), "type": None if kind == "error" else kind}


def _code_and_text(value: Wire) -> Wire | None:
    """DashScope, Baidu, gateways: `{"code", "message"}`, `{"code", "msg"}`, `{"error_code", "error_msg"}`."""
    code = next((value[name] for name in _CODES_OF if name in value), _ABSENT)
    if code is _ABSENT or (code is not None and _is_fine(code)):
        return None
    words = words_in({name: each for name, each in value.items() if name not in ("reason", "title")})
    return _object(value) if words or code is not None else None


def _not_successful(value: Wire) -> Wire | None:
    """Gateways: `{"success": false, "message"}`, `{"ok": false}`, `{"status": "error", "message"}`."""
    status = value.get("status")
    failed = isinstance(status, str) and status.lower() in _FAILED and words_in(value) != ""
    if value.get("success") not in (False, "false") and value.get("ok") is not False and not failed:
        return None
    errors = value.get("errors")
    found = _object({**value, "message": words_in(value) or invalid_fields(errors)})
    return {**found, "message": found["message"] or "The backend reported a failure without a message."}


def _detail(value: Wire) -> Wire | None:
    """FastAPI: `{"detail": "text"}`, `{"detail": {...}}` and `{"detail": [{"loc", "msg"}]}`."""
    detail = value.get("detail")
    if isinstance(detail, dict):
        return _object(detail, value)
    if isinstance(detail, list) and detail:
        first = detail[0] if isinstance(detail[0], dict) else {}
        return {**_object(value), "message": invalid_fields(detail), "type": first.get("type")}
    return {**_object(value), "message": detail} if isinstance(detail, str) and detail.strip() else None


def _errors(value: Wire) -> Wire | None:
    """GraphQL, JSON:API: `{"errors": [{"message"}]}`."""
    errors = value.get("errors")
    if not isinstance(errors, list) or not errors:
        return None
    first = errors[0] if isinstance(errors[0], dict) else {}
    return {**_object(first), "message": invalid_fields(errors) or words_in(first) or dumps(errors).decode()}


def _only_text(value: Wire) -> Wire | None:
    """Mistral and others, with an error status: `{"message"}`, and problem details: `{"title", "detail"}`."""
    return _object(value) if words_in(value) else None


_ABSENT = object()
_FAILED = frozenset({"error", "fail", "failed", "failure"})
_FINE = frozenset({"", "0", "200", "ok", "success", "succeeded", "none"})
_CONTENT = ("choices", "candidates", "content", "output", "parts", "result", "results", "data")
"""Fields of answers: an object that has one of them is no error by its other fields, unless these say so outright."""
_CERTAIN: tuple[Callable[[Wire], Wire | None], ...] = (_under_error, _base_resp, _header, _response, _named)
_LIKELY: tuple[Callable[[Wire], Wire | None], ...] = (_not_successful, _code_and_text, _detail, _errors)


def _is_fine(code: Any) -> bool:
    """Return whether a code means that there is no error, or is none."""
    if isinstance(code, str):
        return code.strip().lower() in _FINE
    return code is None or isinstance(code, (dict, list, bool)) or code in (0, 200)


def _is_event(value: Wire) -> bool:
    """Return whether the object names itself as something else than an error."""
    names = (value.get("type"), value.get("object"))
    return any(isinstance(name, str) and name and "error" not in name.lower() for name in names)


def error_in(value: Any, *, refused: bool = False) -> Wire | None:
    """Return the error in a JSON value as an object with `message`, `code` and `type`; None if there is none.

    `refused` says that the HTTP status is one of an error, so that any text is its words. Otherwise, an object that
    names its type, or has content, is an error only if it says so outright.
    """
    if isinstance(value, list):
        entries = [entry for entry in value[:_MOST] if isinstance(entry, dict)]
        found = next((each for entry in entries if (each := error_in(entry)) is not None), None)
        return found or ({"message": text} if refused and (text := invalid_fields(value)) else None)
    if not isinstance(value, dict):
        return None
    certain = _first_of(_CERTAIN, value)
    if certain is not None and (refused or not _is_event(value) or not isinstance(value.get("error"), str)):
        return certain
    if not refused and (_is_event(value) or any(value.get(name) for name in _CONTENT)):
        return None
    return _first_of((*_LIKELY, _only_text) if refused else _LIKELY, value)


def _first_of(shapes: tuple[Callable[[Wire], Wire | None], ...], value: Wire) -> Wire | None:
    return next((found for shape in shapes if (found := shape(value)) is not None), None)


# ------------------------------------------------------------------ words

_MINIMAX = {
    "1001": "timeout",
    "1002": "rate_limit_exceeded",
    "1004": "invalid_api_key",
    "1008": "insufficient_quota",
    "1026": "content_filter",
    "1027": "content_filter",
    "1039": "rate_limit_exceeded",
    "1041": "rate_limit_exceeded",
    "1042": "invalid_request_error",
    "2013": "invalid_request_error",
    "2045": "rate_limit_exceeded",
    "2049": "invalid_api_key",
    "2056": "insufficient_quota",
}
"""Status codes of MiniMax (API reference, error codes) in the words of OpenAI."""

ROWS: tuple[tuple[ErrorCode, str, str], ...] = (
    (ErrorCode.RATE_LIMITED, "rate_limit_exceeded rate_limit_error insufficient_quota", "OpenAI, Anthropic"),
    (ErrorCode.RATE_LIMITED, "rate_limited too_many_requests throttling throttling_exception", "Mistral; DashScope"),
    (ErrorCode.RATE_LIMITED, "rate_limit quota_exceeded rate_limit_error_exception", "gateways in front of model APIs"),
    (ErrorCode.RATE_LIMITED, "resource_exhausted", "gRPC status"),
    (ErrorCode.RATE_LIMITED, "rate_limit_reached_error exceeded_current_quota_error", "Moonshot AI: error types"),
    (ErrorCode.RATE_LIMITED, "1302 1303 1305", "ding113/claude-code-hub#649, HKUDS/nanobot#3864: Zhipu GLM"),
    (ErrorCode.OVERLOADED, "overloaded_error overloaded server_overloaded", "Anthropic; TGI; OpenAI"),
    (ErrorCode.OVERLOADED, "server_is_overloaded service_unavailable_error", "router-for-me/CLIProxyAPI#2712"),
    (ErrorCode.OVERLOADED, "slow_down engine_overloaded_error", "OpenAI; Moonshot AI: error types"),
    (ErrorCode.OVERLOADED, "unavailable service_unavailable", "gRPC status; gateways in front of model APIs"),
    (ErrorCode.CONTEXT_LENGTH, "context_length_exceeded", "OpenAI: error codes"),
    (ErrorCode.CONTEXT_LENGTH, "exceed_context_size_error", "janhq/jan#8646: llama.cpp"),
    (ErrorCode.CONTEXT_LENGTH, "model_max_prompt_tokens_exceeded", "GitHub Copilot"),
    (ErrorCode.CONTEXT_LENGTH, "model_context_length_exceeded", "AgentScope: error codes"),
    (ErrorCode.CONTENT_FILTER, "content_filter content_policy_violation", "OpenAI, Azure: error codes"),
    (ErrorCode.CONTENT_FILTER, "data_inspection_failed", "DashScope, capture dashscope-error-inline"),
    (ErrorCode.BACKEND_AUTH, "invalid_api_key authentication_error permission_error billing_error", "Anthropic"),
    (ErrorCode.BACKEND_AUTH, "permission_denied unauthenticated", "gRPC status"),
    (ErrorCode.BACKEND_TIMEOUT, "timeout timeout_error deadline_exceeded", "Anthropic; gRPC status; gateways"),
    (ErrorCode.NOT_FOUND, "model_not_found not_found_error", "OpenAI, Anthropic: error codes"),
    (ErrorCode.INVALID_REQUEST, "invalid_request_error invalid_request", "OpenAI, Anthropic: error types"),
)  # fmt: skip
"""Our code, words of servers that mean it, and the source that has them."""
_WORDS = {word: code for code, words, _ in ROWS for word in words.split()}
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LONGEST_WORD = 200

FULL_CONTEXT: tuple[tuple[str, str], ...] = (
    ("maximum context length", "OpenAI, vLLM, DeepSeek, Mistral"),
    ("context length exceeded", "OpenAI-compatible servers"),
    ("max context length", "Ollama"),
    ("exceeds the context length", "Ollama"),
    ("context window", "OpenAI Responses, MiniMax, llama-cpp-python"),
    ("prompt is too long", "Anthropic, Fireworks"),
    ("prompt too long", "jundot/omlx#26; Ollama"),
    ("exceed context limit", "Anthropic"),
    ("input token count", "Gemini"),
    ("available context size", "janhq/jan#8646: llama.cpp"),
    ("context size has been exceeded", "janhq/jan#8646: llama.cpp"),
    ("exceeded model token limit", "MoonshotAI/kimi-code#207"),
    ("more than max tokens allowed", "anomalyco/opencode#27519"),
    ("maximum prompt length", "xAI"),
    ("max prompt length", "OpenAI-compatible servers"),
    ("prompt token count", "GitHub Copilot"),
    ("prompt exceeds max length", "Zhipu GLM"),
    ("input is too long", "Amazon Bedrock"),
    ("input too long", "OpenAI-compatible servers"),
    ("reduce the length of the messages", "Groq, Cerebras"),
    ("range of input length", "DashScope"),
    ("max_new_tokens` must be", "TGI, Together"),
    ("must be less than max_seq_len", "SiliconFlow"),
    ("the context overflows", "LM Studio"),
    ("context overflows", "LM Studio"),
    ("tokens in the prompt cannot exceed", "Cohere"),
    ("model's context length is only", "vLLM"),
    ("longer than the maximum model length", "xorbitsai/inference#3785: vLLM"),
    ("longer than the model's context length", "QwenLM/Qwen3#1321: SGLang"),
    ("tokens) exceeds the maximum allowed length", "sgl-project/sglang#4048"),
    ("greater than the context length", "anomalyco/opencode#2259: LM Studio"),
    ("exceed max message tokens", "Volcengine Ark"),
    ("max input token limit", "openclaw/openclaw#58839: Amazon Bedrock"),
    ("maximum number of input tokens", "openclaw/openclaw#58839"),
    ("total tokens exceeds the model's max", "openclaw/openclaw#58839: Cohere"),
    ("context overflow", "openclaw/openclaw#3188"),
    ("context_overflow", "openclaw/openclaw#3188"),
)
"""What servers say if a conversation does not fit, in lower case, and the server or report that has it."""
_OTHER_LIMITS = ("per minute", "per hour", "per day", "per second", "rate limit", "(tpm)", "(rpm)", "quota")
"""Words of limits that a shorter conversation does not help against."""
_READ = 4000
"""The most characters of a message that are searched."""


def is_full_context(message: str) -> bool:
    """Return whether these words mean that the conversation exceeds the context of the model."""
    text = message[:_READ].lower()
    return any(words in text for words, _ in FULL_CONTEXT) and not any(words in text for words in _OTHER_LIMITS)


def code_of_word(word: Any) -> ErrorCode | None:
    """Return the code that a server's word means in any dialect, whatever its case and separators."""
    if not isinstance(word, str):
        return None
    plain = _HUMP.sub("_", word[:_LONGEST_WORD]).lower().replace("-", "_").replace(".", "_").replace(" ", "_")
    return _WORDS.get(plain) or _WORDS.get(plain.removesuffix("_exception"))


def status_in(error: Wire) -> int | None:
    """Return the HTTP status that an error object names as its code or status."""
    for value in (error.get("code"), error.get("status")):
        if isinstance(value, str) and len(value) == 3 and value.isascii() and value.isdecimal():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
            return value
    return None


def code_in(error: Wire) -> ErrorCode | None:
    """Return the code that the words of an error object mean, else that of the status that it names; None if neither.

    The words of an error about a request may say that the context is full.
    """
    found = code_of_word(error.get("code"))
    by_status = STATUSES.get(status_in(error) or 0)
    if found in (None, ErrorCode.INVALID_REQUEST) and by_status not in _NO_CONTEXT and is_full_context(words_in(error)):
        return ErrorCode.CONTEXT_LENGTH
    return found or code_of_word(error.get("type")) or by_status


_NO_CONTEXT = frozenset({ErrorCode.RATE_LIMITED, ErrorCode.BACKEND_AUTH})
_VAGUE = frozenset({ErrorCode.BACKEND_ERROR, ErrorCode.INVALID_REQUEST, ErrorCode.TOO_LARGE})


def recognized(failure: Failure) -> Failure:
    """Return a backend's failure as `context_length`, if its words mean that and its code says nothing else."""
    if failure.code in _VAGUE and is_full_context(failure.message):
        return replace(failure, code=ErrorCode.CONTEXT_LENGTH)
    return failure
