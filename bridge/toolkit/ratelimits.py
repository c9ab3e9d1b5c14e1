"""The headers of a backend's error that clients get to see: when to try again, and what is left of a limit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set

RETRY_AFTER = frozenset({"retry-after"})
"""Headers that every dialect passes on."""
RETRY_AFTER_MS = RETRY_AFTER | {"retry-after-ms"}
"""Headers that the SDKs of OpenAI and Anthropic read."""
OPENAI = RETRY_AFTER_MS | {
    f"x-ratelimit-{what}-{of}" for what in ("limit", "remaining", "reset") for of in ("requests", "tokens")
}
ANTHROPIC = RETRY_AFTER_MS | {
    f"anthropic-{of}-{what}"
    for what in ("limit", "remaining", "reset")
    for of in (
        "ratelimit-requests", "ratelimit-tokens", "ratelimit-input-tokens", "ratelimit-output-tokens",
        "priority-input-tokens", "priority-output-tokens",
    )
}  # fmt: skip

_LONGEST = 40
_PLAIN = re.compile(
    r"-?\d{1,15}(?:\.\d{1,9})?"
    r"|(?:\d{1,9}(?:\.\d{1,9})?(?:ms|us|µs|ns|[smhd])){1,6}"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)"
    r"|[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT",
    re.ASCII,
)


def passed_on(headers: Mapping[str, str], names: Set[str] = RETRY_AFTER) -> dict[str, str]:
    """Return the headers among `names` whose values are a number, a duration such as `6m0.5s` or a point in time.

    Header names are lower-case. Anything else is left out: a backend may repeat a key in a header of any name. So is a
    negative time to wait, which RFC 9110, section 10.2.3 does not have.
    """
    out = {}
    for name in names & headers.keys():
        value = headers[name].strip()
        if len(value) <= _LONGEST and _PLAIN.fullmatch(value) and not (name in RETRY_AFTER_MS and value[0] == "-"):
            out[name] = value
    return out
