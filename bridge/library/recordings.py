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
    """A whole recorded body of dialect `source` as dialect `target` would say it.

    `what`: "stream" (a streamed answer), "request", or "response" (an answer in one piece). The result of a stream
    that breaks off is a stream that ends with the target's own error. Raises `RequestError` for a request, and
    `BackendError` for a response, that is none; `ConfigError` for an unknown dialect.
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
    """The events of a recorded answer of dialect `source`, streamed or in one piece: one well-formed run.

    `fold` makes finished messages of them, `pretty` lines to read. An answer that is cut or none at all is a run that
    ends with `RunFailed`. `run_id` and `created_at` (Unix seconds) make the result repeatable. Raises `ConfigError`
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
    """A run as the streamed answer of dialect `target`. `unfold` makes the events of a finished `Answer`.

    The events must be one well-formed run (`bridge.model.verify` checks that). `run_id` and `created_at` are used
    where the events do not say them. Raises `ConfigError` for an unknown dialect.
    """
    dialect = resolve(target)
    context = Context(run_id or uuid.uuid4().hex, None, created_at, dialect.front_options())
    return Writer(dialect, context).write(list(events))
