"""One dialect by itself, as the suites drive it: a fixed context, events to bytes, bytes to events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge import framing
from bridge.codec import Context, Dialect, Losses, Outline
from bridge.errors import BackendError, Failure
from bridge.model import Event, Request


def context(options: Any, request: Request | None = None) -> Context:
    """The same run every time: id, thread, time and model."""
    return Context("run1", "thread1", 1_700_000_000.0, options, "m", request, Losses())


def encode(dialect: Dialect, events: list[Event]) -> bytes:
    """The stream that a client of this dialect gets."""
    encoder = dialect.encoder(context(dialect.front_options()))
    return framing.of(dialect.framing).join([*encoder.encode(events), *encoder.close()])


def decode(dialect: Dialect, reads: Sequence[bytes], failure: Failure | None = None) -> list[Event]:
    """The events of a backend's stream that comes in these reads and ends cleanly, or for `failure`."""
    splitter = framing.of(dialect.framing).Splitter()
    decoder = dialect.decoder(context(dialect.back_options()))
    events: list[Event] = []
    try:
        for read in reads:
            events += decoder.feed(splitter.feed(read))
        if failure is None:
            events += decoder.feed(splitter.close())
    except BackendError as error:
        # Bytes that cannot be frames end an answer, as every transport sees to.
        failure = error.failure
    return events + decoder.close(failure)


def comparable(out: Outline) -> tuple[Any, ...]:
    """Return what two outlines are compared by.

    Some wires have results beside their calls, others after the whole message, so results are compared separately.
    """
    results = sorted((i for i in out.items if i[0] == "tool_result"), key=repr)
    items: list[tuple[Any, ...]] = []
    for item in (i for i in out.items if i[0] != "tool_result"):
        # What stood on both sides of a result goes on, as `outline` has it; behind a signature something new begins.
        joins = items and items[-1][0] == item[0] in ("text", "refusal", "reasoning") and not any(items[-1][2:])
        if joins:
            items[-1] = (item[0], items[-1][1] + item[1], *item[2:])
        else:
            items.append(item)
    return items, results, out.usage, out.error is not None, out.reason
