"""The errors of one dialect as rows: how it spells failures, and what it makes of those of its servers.

Reading is the same for every dialect: `errors.error_in` finds the error in a body, `ErrorTable.code_of` weighs its
words against the status, and the failure has masked texts, the headers that clients may see and the status that they
are to see. What differs from dialect to dialect is data, in the fields of the table; a dialect with more to read in an
error overrides `failure`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from bridge.contract.wire import WireResponse, json_response
from bridge.errors import KEY_REFUSED, RULES, ErrorCode, Failure
from bridge.model.jsontext import dumps, read_json, text_of
from bridge.toolkit.errors import STATUSES, code_in, error_in, is_full_context, status_in, words_in
from bridge.toolkit.inner_errors import unwrapped
from bridge.toolkit.ratelimits import RETRY_AFTER, passed_on
from bridge.toolkit.redact import LONGEST, LONGEST_WORD, masked

Wire = dict[str, Any]

OWN: Mapping[str, ErrorCode] = {
    str(code): code
    for code in ErrorCode
    if code not in (ErrorCode.UNAUTHORIZED, ErrorCode.FORBIDDEN, ErrorCode.INTERNAL, ErrorCode.INVALID_REQUEST)
}
"""Codes of the bridge that mean the same when another bridge sends them, unlike its key check and its crash.

`invalid_request` is a word of other servers as well, which use it with any status.
"""

KEYS = frozenset({401, 402, 403, 407})
"""Statuses that concern the bridge's key or the account behind it."""
UNPROCESSABLE: Mapping[ErrorCode, int] = {ErrorCode.INVALID_REQUEST: 422, ErrorCode.UNSUPPORTED: 422}
"""The status of invalid requests in the APIs that answer them as FastAPI does."""

_ROUTER = re.compile(
    r"(http )?(404 )?((page|file|path|route|url|endpoint|resource) )?not found[.!]?|method not allowed[.!]?"
    r"|invalid url\b.*|no route\b.*|cannot post /.*",
    re.IGNORECASE | re.DOTALL,
)
"""How web frameworks and gateways answer for a path that they do not serve."""
_NOT_THERE = frozenset({404, 405, 501})
_ABOUT_THE_REQUEST = frozenset({ErrorCode.INVALID_REQUEST, ErrorCode.NOT_FOUND, ErrorCode.CONFLICT})
_LIMITS = frozenset({ErrorCode.RATE_LIMITED, ErrorCode.BACKEND_AUTH})
_VAGUE = frozenset({None, ErrorCode.BACKEND_ERROR, ErrorCode.INVALID_REQUEST, ErrorCode.TOO_LARGE})
_REPEATED = frozenset({408, 409, 429})
"""Statuses that SDKs try again, as those from 500 on."""


def members(*names: str) -> Callable[[Wire], Sequence[str]]:
    """Return a reader of the words in these members of an error object, in this order; numbers become texts."""

    def read(error: Wire) -> Sequence[str]:
        found = (error.get(name) for name in names)
        return [str(v) for v in found if v and isinstance(v, (str, int)) and not isinstance(v, bool)]

    return read


def names(*members: str) -> Callable[[Wire], Sequence[str]]:
    """Return a reader of the names in these members: numbers repeat the status, and mean nothing to clients."""

    def read(error: Wire) -> Sequence[str]:
        found = (error.get(member) for member in members)
        return [v for v in found if isinstance(v, str) and v and not v.isdecimal()]

    return read


_WORDS, _NAME = members("code", "type"), names("code")
CODE_OR_TYPE = names("code", "type")
"""What clients get where servers write their word in either member."""


@dataclass(frozen=True, kw_only=True)
class ErrorTable:
    """The errors of one dialect. A field at its default means what most APIs do.

    Towards clients: `words` has the wire's word for each code, `default_word` that of all others. `sent` are the
    statuses of codes where they are not those of `errors.RULES`. `unnamed` stands for a failure without a text.
    `tells_retries`: a header tells SDKs not to repeat what would fail again.

    From servers: `codes` has the code for each word, in the case of the table or of the wire; `words_of` reads the
    words of an error object, and `told_of` those of which clients get the first. A word that servers use for
    everything, such as `api_error`, has no row. `statuses` are the codes of all HTTP statuses, in place of `STATUSES`
    (`{**STATUSES, 499: ...}` adds one), `other_refusals` that of other ones below 500. `keys` are statuses that no word
    outweighs. `named` are statuses that say nothing about the request if the error has no word. `plain`: servers refuse
    requests with texts that are no JSON, so that such a body is not taken for a page of a proxy. `kept` are statuses
    that clients get unchanged. `own` are words that add nothing to the bridge's code, and so are not passed on.
    `inner`: the text may hold the error of a model's API (`inner_errors`). `wordless` stands for an error without a
    text inside a stream.
    """

    words: Mapping[ErrorCode, str] = field(default_factory=dict)
    default_word: str = ""
    sent: Mapping[ErrorCode, int] = field(default_factory=dict)
    unnamed: str = "Unknown error."
    tells_retries: bool = False

    codes: Mapping[str, ErrorCode] = field(default_factory=dict)
    words_of: Callable[[Wire], Sequence[str]] = _WORDS
    told_of: Callable[[Wire], Sequence[str]] = _NAME
    statuses: Mapping[int, ErrorCode] = field(default_factory=lambda: STATUSES)
    other_refusals: ErrorCode | None = None
    keys: Set[int] = KEYS
    named: Set[int] = frozenset()
    plain: bool = False
    kept: Set[int] = frozenset()
    own: Set[str] = frozenset(OWN)
    inner: bool = False
    headers: Set[str] = RETRY_AFTER
    wordless: str = "The backend reported an error without a message."

    # ------------------------------------------------------------- towards clients

    def word(self, failure: Failure) -> str:
        """Return the wire's word for a failure."""
        return self.words.get(failure.code, self.default_word)

    def text(self, failure: Failure, longest: int = LONGEST, *, addresses: bool = False) -> str:
        """Return the text of a failure for a client, without keys, and with `addresses` without URLs; never empty."""
        return masked(failure.message, longest, addresses=addresses) or self.unnamed

    def status(self, failure: Failure) -> int:
        """Return the HTTP status for a client: the failure's own, else the table's, else that of its code."""
        return failure.status or self.sent.get(failure.code) or failure.http_status

    def response(self, failure: Failure, body: Any, status: int | None = None) -> WireResponse:
        """Return the error response with this JSON body; `status` replaces that of the failure."""
        status = status or self.status(failure)
        headers = dict(failure.headers)
        if self.tells_retries and not failure.may_retry and (status in _REPEATED or status >= 500):
            headers.setdefault("x-should-retry", "false")
        return json_response(dumps(body), status, headers)

    # ------------------------------------------------------------- from servers

    def decode(self, wire: WireResponse) -> Failure:
        """Return the failure that a response with an error status means for the caller.

        Only an error of the API is quoted: the page of a proxy, or of a router that does not know the path, says
        nothing about the request.
        """
        status = wire.status
        error = error_in(read_json(wire.body), refused=True)
        said = text_of((error or {}).get("message")).strip()
        routed = status in _NOT_THERE and _ROUTER.fullmatch(said) is not None
        if status in self.keys:
            failure = Failure(ErrorCode.BACKEND_AUTH, KEY_REFUSED)
        elif error is None or routed:
            failure = self._page(status, routed)
        else:
            failure = self.failure(error, status)
        return self.with_headers(failure, wire)

    def with_headers(self, failure: Failure, wire: WireResponse) -> Failure:
        """Return the failure with the status of its response, and with those of its headers that clients may see."""
        failure.headers = {**failure.headers, **passed_on(wire.headers, self.headers)}
        failure.details.setdefault("backend_status", wire.status)
        return failure

    def of_no_answer(self, value: Any, text: str) -> Failure:
        """Return the failure of a whole body that is no answer: the error in its JSON, else `text`."""
        error = error_in(value)
        return self.failure(error) if error is not None else Failure(ErrorCode.BACKEND_PROTOCOL, text)

    def failure(self, error: Wire, status: int | None = None) -> Failure:
        """Return the failure of an error object: of a response with the HTTP status `status`, or of a stream."""
        text = error.get("message")
        said = masked(text if isinstance(text, str) else words_in(error)) or (
            self.wordless if status is None else _answered(status)
        )
        status = status_in(error) if status is None else status
        code = self.code_of(error, status)
        if code is ErrorCode.BACKEND_AUTH:
            return Failure(code, KEY_REFUSED)
        word = next(iter(self.told_of(error)), "")
        param = error.get("param")
        failure = Failure(
            code,
            said,
            param=masked(param, LONGEST_WORD) if isinstance(param, str) and param else None,
            status=self._kept(code, status),
            backend_code=masked(word, LONGEST_WORD) if word and word not in self.own else None,
        )
        return unwrapped(failure) if self.inner else failure

    def code_of(self, error: Wire, status: int | None = None) -> ErrorCode:
        """Return the code that an error object means.

        A status about the key counts first, then a code of another bridge, then a precise word of the table, then
        the words for a full context, then the status, then what words mean in any dialect.
        """
        if status in self.keys:
            return ErrorCode.BACKEND_AUTH
        words = self.words_of(error)
        if own := next((OWN[word] for word in words if word in OWN), None):
            return own
        by_status, found = self._by_status(status, bool(words)), self._found(words)
        if found in _VAGUE and by_status not in _LIMITS and status != 429 and is_full_context(words_in(error)):
            return ErrorCode.CONTEXT_LENGTH
        if found is ErrorCode.INVALID_REQUEST:
            return by_status or found
        if found or by_status:
            return found or by_status or ErrorCode.BACKEND_ERROR
        told = code_in(error) or ErrorCode.BACKEND_ERROR
        crashed = status is not None and status >= 500 and told is ErrorCode.INVALID_REQUEST
        return ErrorCode.BACKEND_ERROR if crashed else told

    def _found(self, words: Sequence[str]) -> ErrorCode | None:
        """Return the code of the table for these words; one that says no more than that the request is invalid last."""
        hits = [code for word in words if (code := self.codes.get(word) or self.codes.get(word.upper())) is not None]
        return next((code for code in hits if code is not ErrorCode.INVALID_REQUEST), hits[0] if hits else None)

    def _by_status(self, status: int | None, has_word: bool) -> ErrorCode | None:
        if status is None:
            return None
        if status in self.named and not has_word:
            return ErrorCode.BACKEND_ERROR
        return self.statuses.get(status) or (self.other_refusals if 400 <= status < 500 else None)

    def _page(self, status: int, routed: bool) -> Failure:
        """Return the failure of an answer without an error of the API: a text, or a page of a proxy or a router."""
        code = self._by_status(status, has_word=False) or ErrorCode.BACKEND_ERROR
        if routed or code is ErrorCode.BACKEND_PROTOCOL or (code in _ABOUT_THE_REQUEST and not self.plain):
            code = ErrorCode.BACKEND_ERROR  # it is the address that is wrong, or the server that crashed
        return Failure(code, _answered(status), status=self._kept(code, status))

    def _kept(self, code: ErrorCode, status: int | None) -> int | None:
        """Return the status if clients get it unchanged: it blames the same side as the code does."""
        if status is None or status not in self.kept or (status < 500) != (RULES[code].http < 500):
            return None
        return status


def _answered(status: int) -> str:
    return f"The backend answered with status {status}."
