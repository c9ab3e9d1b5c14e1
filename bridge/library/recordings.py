"""Whole recordings: from one dialect to another, from bytes to events, and back."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Literal

from bridge.codec import Context, Dialect
from bridge.codec.registry import resolve
from bridge.library.translator import Translator
from bridge.model import Event, RunStarted
from bridge.translation import AnswerDecoder, Reader, Writer

What = Literal["stream", "request", "response"]
"""The kind of a recorded body: a streamed answer, a request, or an answer in one piece."""


def translate(data: bytes, source: str | Dialect, target: str | Dialect, *, what: What = "stream") -> bytes:
    """Translate a recorded body from dialect `source` to dialect `target`.

    `what` is "stream" (a streamed answer), "request", or "response" (an answer without a stream). A truncated stream
    becomes a stream that ends with an error of `target`. Raises `RequestError` for an invalid request, `BackendError`
    for an invalid response, and `ConfigError` for an unknown dialect.
    """
    translator = Translator(source, target)
    if what == "stream":
        return translator.feed(data) + translator.close()
    if what == "request":
        return translator.request(data, client=source)
    if what == "response":
        return translator.response(data)
    raise ValueError(f"what: expected 'stream', 'request' or 'response', got {what!r}")


def decode(data: bytes, source: str | Dialect, *, run_id: str | None = None, created_at: float = 0.0) -> list[Event]:
    """Return the events of a recorded answer of dialect `source`, streamed or not: one well-formed run.

    `fold` turns them into complete messages, `pretty` into readable lines. A truncated or invalid answer is a run that
    ends with `RunFailed`. `run_id` and `created_at` (Unix seconds) make the result reproducible. Raises `ConfigError`
    for an unknown dialect.
    """
    dialect = resolve(source)
    context = Context(run_id or uuid.uuid4().hex, None, created_at, dialect.back_options())
    head = RunStarted(context.run_id, created_at=created_at)
    reader = Reader(head, decoder=AnswerDecoder(dialect, context))
    return reader.receive(data) + reader.close()


def encode(
    events: Iterable[Event], target: str | Dialect, *, run_id: str | None = None, created_at: float = 0.0
) -> bytes:
    """Return a run as a streamed answer of dialect `target`. `unfold` returns the events of an `Answer`.

    The events must be one well-formed run (`bridge.model.verify` checks that). `run_id` and `created_at` are used
    if the events have none. Raises `ConfigError` for an unknown dialect.
    """
    dialect = resolve(target)
    context = Context(run_id or uuid.uuid4().hex, None, created_at, dialect.front_options())
    return Writer(dialect, context).write(list(events))
