"""Removes secrets from what leaves the process. Backends repeat keys in their errors, some half hidden by stars.

Every function cuts its text before it searches, and every pattern is linear, as the texts are untrusted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Self

from bridge.errors import Failure

LONGEST = 2000
"""The most characters of a message that are kept."""
LONGEST_WORD = 200
"""The most characters of a code, a parameter or a detail that are kept."""

_MARGIN = 1024
"""No secret needs more characters than this to be recognized, so one that begins this far before a cut is found."""
_SECRET = re.compile(
    r"(?i:(?<=bearer )\s*(?!<key>)\S+)"  # `<key>` is the placeholder of the bridge's own messages
    r"|\b(?:(?:sk|pk|rk|ak|xai)-|gsk_|hf_)[\w*.\-]{4,}"
    r"|\bAIza[\w\-]{10,}"
    r"|\b(?:LTAI|AKIA)[A-Za-z0-9]{12,}"
    r"|\bgh[pousr]_[A-Za-z0-9]{16,}"
    r"|(?<=://)[^\s/@:]{0,200}:[^\s/@]{1,700}(?=@)"
    r"|\beyJ[\w\-]{8,}[\w\-.]*"
    r"|(?i:(?<=api[-_ ]key[=:])|(?<=apikey[=:])|(?<=api[-_ ]key[=:] ))(?!<key>)[^\s,;'\"]+"
)
# Schemes longer than this keep their beginning; the address after them is hidden all the same.
_QUOTED = re.compile(r"""(?<=got )['"].*['"]""", re.DOTALL)
_ADDRESS = re.compile(r"[a-z0-9+.\-]{0,32}://\S+|\bip(?:v4|v6)?:\S+", re.IGNORECASE)


def masked(text: str, longest: int = LONGEST, *, addresses: bool = False) -> str:
    """Return `text` without anything that looks like a key, cut to `longest` characters and "...".

    With `addresses`, URLs and gRPC addresses are replaced as well.
    """
    window = text[: longest + 2 * _MARGIN]
    text_shown = _ADDRESS.sub("(address)", window) if addresses else window
    text_shown = _SECRET.sub("***", text_shown)
    if len(window) < len(text):
        # The end of the window may be the beginning of a key that was not recognized.
        return text_shown[: min(longest, max(len(text_shown) - _MARGIN, 0))] + "..."
    return text_shown if len(text_shown) <= longest else text_shown[:longest] + "..."


def explained(failure: Failure) -> str:
    """Return a failure for a log line: code, message and cause. `dialect-bridge explain CODE` says more about the code.

    Nothing that the message quotes from a client's body is in it.
    """
    message = _QUOTED.sub("a string", masked(failure.message))
    cause = f" {_sentence(masked(failure.cause))}" if failure.cause else ""
    return f"{failure.code}: {_sentence(message)}{cause}"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def printable(text: str, longest: int = 80) -> str:
    """A foreign name for a log line or an error: at most `longest` characters, the unprintable ones escaped."""
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:longest])
    return escaped if len(text) <= longest else escaped + "..."


_SECRET_NAME = re.compile(r"auth|key|secret|token|password|cookie", re.IGNORECASE)
_SHORTEST = 6
"""Shorter values are not keys; masking them would garble texts."""
_LONGEST_CAUSE = 500
_MOST_LEARNED = 7
"""Earlier secrets of a backend that are kept beside the newest one."""


def _address_pattern(address: str) -> re.Pattern[str] | None:
    """Return a pattern for URLs at an address, and for the address alone if it has a port."""
    if not address:
        return None
    host = re.escape(address)
    alone = rf"|(?<![\w.\-]){host}(?!\w)" if address.rpartition(":")[2].isdecimal() else ""
    return re.compile(rf"[a-z]{{1,9}}://{host}(?![\w.\-])[^\s'\"<>)]*{alone}", re.IGNORECASE)


_DEEPEST = 8
"""Details that are nested deeper are dropped."""


class Secrets:
    """The secrets that a backend is sent, word for word: it may repeat one that looks like nothing.

    `address` is its host, with a port if it has one: clients need not know it.
    """

    def __init__(self, values: Iterable[str], address: str = "") -> None:
        self._given = {w for value in values for w in (value, value.rpartition(" ")[2]) if len(w) >= _SHORTEST}
        self._learned: list[str] = []
        self._know()
        self._address = _address_pattern(address)

    def _know(self) -> None:
        self._words = sorted({*self._given, *self._learned}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, self._words))) if self._words else None

    def learn(self, value: str) -> None:
        """Hide a secret that is sent from now on; the ones before it may still come back."""
        if len(value) >= _SHORTEST and value not in self._learned:
            self._learned = [*self._learned[-_MOST_LEARNED:], value]
            self._know()

    @classmethod
    def sent(cls, api_key: str | None, headers: Mapping[str, str], address: str = "", *more: str) -> Self:
        """Return the secrets in a key, and in headers whose names indicate one, and `more`."""
        named = (value for name, value in headers.items() if _SECRET_NAME.search(name))
        return cls([api_key or "", *named, *more], address)

    def hide(self, failure: Failure) -> Failure:
        """Remove secrets from every field of a backend's failure that clients can get to see, and the backend's own
        address from its message; return it. Headers that hold a secret are dropped.
        """
        failure.message = self.text(failure.message)
        if self._address is not None:
            failure.message = self._address.sub("(address)", failure.message)
        failure.param = self._word(failure.param)
        failure.backend_code = self._word(failure.backend_code)
        failure.headers = {name: value for name, value in failure.headers.items() if self.text(value) == value}
        failure.details = self._value(failure.details, 0)
        return failure

    def explain(self, failure: Failure, call: str, advice: str, backend: str) -> Failure:
        """Set the cause for the log: the call, its outcome, and what an operator should check. Return the failure."""
        advice = f" (check {advice} of backend {backend!r})" if advice else ""
        failure.cause = self.text(call, _LONGEST_CAUSE) + advice
        return failure

    def text(self, text: str, longest: int = LONGEST) -> str:
        """Return the text without secrets, cut to `longest` characters and "..."."""
        if self._known is None:
            return masked(text, longest)
        masked_text = masked(self._known.sub("***", text), longest)
        text_kept = masked_text.removesuffix("...")
        if text_kept == masked_text:
            return masked_text
        # The text may be cut, and so end with the beginning of a secret.
        for word in self._words:
            for size in range(min(len(word), len(text_kept)), _SHORTEST - 1, -1):
                if text_kept.endswith(word[:size]):
                    return f"{text_kept[:-size]}***..."
        return masked_text

    def _word(self, word: str | None) -> str | None:
        return None if word is None else self.text(word, LONGEST_WORD)

    def _value(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if depth > _DEEPEST and isinstance(value, (dict, list)):
            return None
        if isinstance(value, dict):
            return {self.text(str(name)): self._value(each, depth + 1) for name, each in value.items()}
        return [self._value(each, depth + 1) for each in value] if isinstance(value, list) else value
