"""Keys that the configuration once had: a file with one of them is refused, and the error names what holds instead."""

from __future__ import annotations

REMOVED: dict[str, str] = {
    "routes.options.arguments": "a call is sent once, with its complete arguments",
    "routes.options.done_mark": "streams end with [DONE] where the protocol has it",
    "routes.options.honour_stream": "every answer is streamed, as by the reference server",
    "routes.options.keepalive": "idle streams are kept alive on every route, or with `server.keepalive: off` on none",
    "routes.options.length": "an answer that reached its token limit is completed",
    "routes.options.message_separator": "a blank line separates the texts of two messages of one answer",
    "backends.options.restarts": "the agent of an owner may end by itself 3 times in a minute",
}
"""Key, without the names and numbers of entries -> what holds instead."""


def removed(key: str) -> str | None:
    """Return the error for a key that there once was; None for any other."""
    name = key.partition(".")[2].removeprefix("options.")
    return f"`{name}` is gone: {REMOVED[key]}" if key in REMOVED else None
