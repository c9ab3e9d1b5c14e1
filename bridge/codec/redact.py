"""Keeps secrets out of what is passed on. Backends repeat keys in their error texts, some half hidden by stars."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Self

from bridge.errors import Failure

_SECRET = re.compile(
    r"(?i:(?<=bearer )\s*\S+)"
    r"|\b(?:(?:sk|pk|rk|ak|xai)-|gsk_|hf_)[\w*.\-]{4,}"
    r"|\bAIza[\w\-]{10,}"
    r"|\b(?:LTAI|AKIA)[A-Za-z0-9]{12,}"
    r"|\bgh[pousr]_[A-Za-z0-9]{16,}"
    r"|(?<=://)[^\s/@:]*:[^\s/@]+(?=@)"
    r"|\beyJ[\w\-]{8,}\.[\w\-]+\.[\w\-]*"
    r"|(?i:(?<=api[-_ ]key[=:])|(?<=apikey[=:])|(?<=api[-_ ]key[=:] ))[^\s,;'\"]+"
)
LONGEST = 2000


def masked(text: str, longest: int = LONGEST) -> str:
    """The text with everything that looks like a key taken out, and not endlessly long (in characters)."""
    shown = _SECRET.sub("***", text)
    return shown if len(shown) <= longest else shown[:longest] + "..."


def printable(text: str, longest: int = 80) -> str:
    """A foreign name for a log line or an error: at most `longest` characters, the unprintable ones escaped."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:longest])
    return shown if len(text) <= longest else shown + "..."


_SECRET_NAME = re.compile(r"auth|key|secret|token|password|cookie", re.IGNORECASE)
_SHORTEST = 6
"""What is shorter is no key; taking it out of every text would only spoil them."""


class Secrets:
    """The secrets that a backend is sent, word for word: it may repeat one that looks like nothing."""

    def __init__(self, values: Iterable[str]) -> None:
        words = {word for value in values for word in (value, value.rpartition(" ")[2]) if len(word) >= _SHORTEST}
        self._known = (
            re.compile("|".join(re.escape(w) for w in sorted(words, key=len, reverse=True))) if words else None
        )

    @classmethod
    def sent(cls, api_key: str | None, headers: Mapping[str, str]) -> Self:
        """Those in a key and in headers whose names say that they hold one."""
        return cls([api_key or "", *(value for name, value in headers.items() if _SECRET_NAME.search(name))])

    def hide(self, failure: Failure) -> Failure:
        """The same failure, without them."""
        if self._known is not None:
            failure.message = self._known.sub("***", failure.message)
            if failure.backend_code is not None:
                failure.backend_code = self._known.sub("***", failure.backend_code)
        return failure
