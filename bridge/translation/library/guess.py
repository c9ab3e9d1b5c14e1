"""Which dialect a recorded answer is probably of."""

from __future__ import annotations

from functools import partial

from bridge.contract import Context, registry
from bridge.errors import ConfigError
from bridge.model import Raw, RunFailed, RunStarted
from bridge.model.events import CONTENT
from bridge.translation.decoding import AnswerDecoder
from bridge.translation.reader import Reader

LOOKED_AT = 64 * 1024
"""Bytes at the beginning of an answer by which its dialect is guessed."""


def guessed(data: bytes) -> str | None:
    """Return the dialect that reads the most content in `data`; None if none reads any. Tries all dialects.

    Only the first `LOOKED_AT` bytes count.
    """
    best, most = None, 0
    for name in registry.called():
        count = _content(name, data[:LOOKED_AT])
        if count > most:
            best, most = name, count
    return best


def _content(name: str, data: bytes) -> int:
    """Return how many events with content this dialect reads, less one for each object that it does not know."""
    try:
        dialect = registry.get(name)
        if dialect.over_grpc:
            return 0
        context = Context("guess", options=dialect.back_options())
    except ConfigError:
        return 0  # the package of a dialect may be broken
    reader = Reader(partial(RunStarted, "guess"), decoder=AnswerDecoder(dialect, context))
    events = reader.receive(data) + reader.close()
    known = sum(type(event) in CONTENT for event in events)
    unknown = sum(isinstance(event, Raw) for event in events)
    whole = not isinstance(events[-1], RunFailed) if events else False
    return 2 * (known - unknown) + whole if known else 0
