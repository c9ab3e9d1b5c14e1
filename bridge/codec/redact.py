"""Keeps secrets out of what is passed on. Backends repeat keys in their error texts, some half hidden by stars."""

from __future__ import annotations

import re

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
