"""The error of a model's API inside the text of an agent's error.

Agents report the exception that stopped them as text. The exceptions of the model SDKs hold the status and the body of
the API's answer in the notation of their language:

    Error code: 429 - {'error': {'message': 'Slow down.', 'code': 'rate_limit_exceeded'}}
    status_code: 503, model_name: gpt, body: {'message': 'Overloaded', 'type': 'server_error'}
    RateLimitError("Error code: 429 - {'error': ...}")
    429 {"type":"error","error":{"type":"rate_limit_error","message":"..."}}
    litellm.RateLimitError: AnthropicException - {"type":"error","error":{"message":"..."}}
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from bridge.errors import BY_STATUS, ErrorCode, Failure
from bridge.model.surrogates import repair
from bridge.toolkit.errors import recognized
from bridge.toolkit.redact import LONGEST_WORD, masked

_STATUS = re.compile(
    r"^(?:[\w.]{1,80}: ?)?(?:(?:error code|status[_ ]?code|http(?: status|/[\d.]{1,3})?)\W{1,3})?([45]\d\d)(?=[ .:,]|$)"
    r"|\b(?:error code|status_code)[:=] ?([45]\d\d)\b",
    re.IGNORECASE,
)
_NAMES = {
    "BadRequestError": 400,
    "ContextWindowExceededError": 400,
    "ContentPolicyViolationError": 400,
    "AuthenticationError": 401,
    "UnprocessableEntityError": 422,
    "RateLimitError": 429,
    "ResourceExhausted": 429,
    "ServiceUnavailableError": 503,
    "OverloadedError": 529,
}
"""Exceptions whose name is their status."""
_NAMED = re.compile(rf"(?:\w{{1,40}}\.){{0,4}}({'|'.join(_NAMES)})\b")
_LITERAL = r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
_REPR = re.compile(r"[\w.]{1,80}\(" + _LITERAL, re.DOTALL)
_VALUE = r"""['"]?\s{0,9}[:=]\s{0,9}""" + _LITERAL
_MESSAGE = re.compile(r"""(?<!\w)['"]?(?:message|detail)""" + _VALUE)
_CODE = re.compile(r"""(?<!\w)['"]?code""" + _VALUE)
_WAIT = re.compile(
    r"(?:retry[-_ ]?after|retry[-_ ]?delay|(?:try again|retry) in)\W{1,5}(\d{1,6})(?:\.(\d{1,9}))?\s?(ms|m|s)?\b",
    re.IGNORECASE,
)
_OBJECT = re.compile(r"[{\[]")
_AROUND = " \t\r\n:,-\"'()"
"""Maximum characters between a status, its message and the object."""
_LONGEST = 8000
_SAYS_STATUS = re.compile(r"(?:[\w.]{1,80}: ?)?(?:error code|status[_ ]?code|http)", re.IGNORECASE)
"""What a number that is a status follows; "400 lines" is no error of a request."""
_STATUSES = {**BY_STATUS, 409: ErrorCode.BACKEND_ERROR, 529: ErrorCode.OVERLOADED}


def unwrapped(failure: Failure) -> Failure:
    """Return a backend's failure with the error of the model's API that its message contains: the API's message and, if
    the backend sent no code, the code and `retry-after` of its status. A request that the model refused is the
    client's: told as a failure of the backend, clients would repeat it.
    """
    text = failure.message[:_LONGEST]
    named = _NAMED.match(text)
    if exception := _REPR.match(text):
        text = _text(exception[1])
    found = _STATUS.search(text)
    status = int(found[1] or found[2]) if found else _NAMES[named[1]] if named else 0
    message, begin = _MESSAGE.search(text), _OBJECT.search(text)
    is_sure = status == 429 or status >= 500 or named or (status and (message or _SAYS_STATUS.match(text)))
    if not is_sure and (status or message is None or begin is None or begin.start()):
        return recognized(failure)
    if message and begin:
        words = _text(message[1])
    else:
        plain = text[: begin.start()] if begin else text
        words = (plain[found.end() :] if found and found[1] else "").strip(_AROUND) or plain.strip(_AROUND)
    failure = replace(failure, message=masked(words.strip()) or "The backend reported an error.")
    if failure.code is not ErrorCode.BACKEND_ERROR or not status:
        return failure if status == 429 else recognized(failure)
    word, wait = _CODE.search(text), _WAIT.search(text)
    failure = replace(
        failure,
        code=_STATUSES.get(status, ErrorCode.BACKEND_ERROR if status >= 500 else ErrorCode.INVALID_REQUEST),
        backend_code=masked(_text(word[1]), LONGEST_WORD) if word else failure.backend_code,
        headers={**({"retry-after": _seconds(wait)} if wait else {}), **failure.headers},
    )
    return recognized(failure) if failure.code is ErrorCode.INVALID_REQUEST else failure


def _text(literal: str) -> str:
    """Return the string that a quoted literal of Python, JavaScript or JSON means."""
    try:
        value = ast.literal_eval(literal)
    except (SyntaxError, ValueError):
        return literal[1:-1]
    return repair(value) if isinstance(value, str) else literal[1:-1]


def _seconds(wait: re.Match[str]) -> str:
    """Return whole seconds, rounded up."""
    whole, unit = int(wait[1]), (wait[3] or "").lower()
    if unit == "ms":
        return str(-(-whole // 1000))
    return str((whole + bool(wait[2] and wait[2].strip("0"))) * (60 if unit == "m" else 1))
