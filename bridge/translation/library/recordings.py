"""Whole recordings: from one dialect to another, from bytes to events, and back."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from functools import partial
from typing import Literal

from bridge.contract import Context, Dialect, Options
from bridge.contract.registry import resolve
from bridge.model import Event, RunStarted, verify
from bridge.translation.decoding import AnswerDecoder
from bridge.translation.library.translator import Translator, as_bytes
from bridge.translation.reader import Reader
from bridge.translation.writer import Writer

What = Literal["stream", "request", "response"]
"""The kind of a recorded body: a streamed answer, a request, or an answer in one piece."""


def translate(
    data: bytes,
    source: str | Dialect,
    target: str | Dialect,
    *,
    what: What = "stream",
    lost: dict[str, str] | None = None,
) -> bytes:
    """Translate a recorded body from dialect `source` to dialect `target`.

    `what` is "stream" (a streamed answer), "request", or "response" (an answer without a stream). A truncated stream
    becomes a stream that ends with an error of `target`. Raises `RequestError` for an invalid request, `BackendError`
    for an invalid response, and `ConfigError` for an unknown dialect. An input in which nothing is of `source` becomes
    an error that says so, and which dialect it looks like. `lost` is filled with what `target` could not carry: names
    of features, each with a detail or an empty string.
    """
    translator = Translator(source, target)
    try:
        if what == "stream":
            return translator.feed(data) + translator.close()
        if what == "request":
            return translator.request(data, client=source)
        if what == "response":
            return translator.response(data)
    finally:
        if lost is not None:
            lost.update(translator.lost_details)
    raise ValueError(f"what: expected 'stream', 'request' or 'response', got {what!r}")


def decode(
    data: bytes, source: str | Dialect, *, run_id: str | None = None, created_at: float | None = None
) -> list[Event]:
    """Return the events of a recorded answer of dialect `source`, streamed or not: one well-formed run.

    `fold` turns them into complete messages, `pretty` into readable lines. A truncated or invalid answer is a run that
    ends with `RunFailed`. `run_id` and `created_at` (Unix seconds, by default now) make the result reproducible. Raises
    `ConfigError` for an unknown dialect.
    """
    dialect, data = resolve(source), as_bytes(data)
    context = _context(run_id, created_at, dialect.back_options())
    head = partial(RunStarted, context.run_id, created_at=context.created_at)
    reader = Reader(head, decoder=AnswerDecoder(dialect, context))
    return reader.receive(data) + reader.close()


def encode(
    events: Iterable[Event], target: str | Dialect, *, run_id: str | None = None, created_at: float | None = None
) -> bytes:
    """Return a run as a streamed answer of dialect `target`. `unfold` returns the events of an `Answer`.

    The events must be one well-formed run (`bridge.model.verify` checks that). `run_id` and `created_at` (by default
    now) are used if the events have none. Raises `ConfigError` for an unknown dialect, and `GrammarError` for events
    that cannot be encoded because they are not well-formed.
    """
    dialect, run = resolve(target), list(events)
    try:
        return Writer(dialect, _context(run_id, created_at, dialect.front_options())).write(run)
    except (LookupError, TypeError, AttributeError):
        verify(run)
        raise


def _context(run_id: str | None, created_at: float | None, options: Options) -> Context:
    return Context(run_id or uuid.uuid4().hex, None, time.time() if created_at is None else created_at, options)
