"""What the suite notices of a dialect that loses details of a request or of an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from bridge.contract import (
    Context,
    Dialect,
    EncoderLike,
    Feature,
    FrameLike,
    Losses,
    WireRequest,
    WireResponse,
    registry,
)
from bridge.model import Request
from bridge.model import events as ev
from bridge.model.jsontext import read_json
from bridge.testing import DialectConformance
from bridge.testing.witnesses import REQUEST_DETAILS
from bridge.toolkit import Encoder

Encode = Callable[[Request, Context], WireRequest]
Change = Callable[[Encode, Request, Context], WireRequest]
CHAT: Any = type(registry.get("openai-chat"))
A2A: Any = type(registry.get("a2a"))


class Suite(DialectConformance):
    __test__ = False  # its tests are called here
    dialects = ("openai-chat",)
    names_losses = True


class Forgetful(Losses):
    """Records nothing."""

    def add(self, feature: Feature, detail: str = "") -> None:
        pass


def requests_of(change: Change) -> Dialect:
    class Changed(CHAT):  # type: ignore[misc]
        def encode_request(self, request: Request, context: Context) -> WireRequest:
            return change(super().encode_request, request, context)

    return Changed()


def in_silence(encode: Encode, request: Request, context: Context) -> WireRequest:
    context.lost = Forgetful()
    return encode(request, context)


def twice(encode: Encode, request: Request, context: Context) -> WireRequest:
    context.lost.add(Feature.IMAGE_URL, "sent as text")
    return encode(request, context)


def without_pictures(encode: Encode, request: Request, context: Context) -> WireRequest:
    wire = encode(request, context)
    context.lost.add(Feature.IMAGE_URL, "sent as text")
    wire.body = wire.body.replace(b"detail.png", b"")
    return wire


def one_model(encode: Encode, request: Request, context: Context) -> WireRequest:
    context.model = "x"
    return encode(request, context)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (in_silence, "a picture by URL in a message of role assistant was lost in silence"),
        (twice, "a picture by URL in a tool result was sent, but is reported as lost: 'sent as text'"),
        (without_pictures, "a picture by URL in a tool result was not sent, but is reported as 'sent as text'"),
    ],
)
def test_a_detail_that_is_lost(change: Change, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        Suite().test_each_detail_of_a_request_is_sent_or_named(requests_of(change))


def test_a_model_of_its_own() -> None:
    with pytest.raises(AssertionError, match=r"context\.model is not sent"):
        Suite().test_the_model_of_the_backend_is_sent_or_named(requests_of(one_model))


def test_the_end_of_a_call_that_was_cut_off() -> None:
    class Ending(Encoder):
        holds_cut_calls = True

        def part_ended(self, event: ev.PartEnded) -> None:
            self.write({"end": "call"})

    class Ends(CHAT):  # type: ignore[misc]
        def encoder(self, context: Context) -> Encoder:
            return Ending(context, self.capabilities)

    with pytest.raises(AssertionError, match="a call that was cut off is written as a complete one"):
        Suite().test_a_call_that_was_cut_off_gets_no_end_of_a_complete_one(Ends())


def answers_of(dialect: str, change: Callable[[ev.UsageReported], ev.UsageReported], *, in_one_piece: bool) -> Dialect:
    """A dialect whose streams, or whose answers in one piece, have other counts than were reported."""
    kind: Any = type(registry.get(dialect))

    def changed(events: Sequence[ev.Event]) -> list[ev.Event]:
        return [change(event) if isinstance(event, ev.UsageReported) else event for event in events]

    class Changing(EncoderLike):
        def __init__(self, inner: EncoderLike) -> None:
            self.inner = inner

        def encode(self, events: Sequence[ev.Event]) -> list[FrameLike]:
            return self.inner.encode(changed(events))

    class Changed(kind):  # type: ignore[misc]
        def encoder(self, context: Context) -> EncoderLike:
            encoder: EncoderLike = super().encoder(context)
            return encoder if in_one_piece else Changing(encoder)

        def assemble(self, events: Sequence[ev.Event], context: Context) -> WireResponse:
            whole: WireResponse = registry.get(dialect).assemble(changed(events) if in_one_piece else events, context)
            return whole

    return Changed()


@pytest.mark.parametrize("count", ["cached", "reasoning"])
@pytest.mark.parametrize(("in_one_piece", "which"), [(False, "that is streamed"), (True, "in one piece")])
@pytest.mark.parametrize("name", ["openai-chat", "gemini", "mcp"])
def test_a_count_that_is_lost(name: str, in_one_piece: bool, which: str, count: str) -> None:
    losing = answers_of(name, lambda usage: replace(usage, cached=None, reasoning=None), in_one_piece=in_one_piece)
    with pytest.raises(AssertionError, match=f"{count} tokens of an answer {which} were lost in silence"):
        Suite().test_each_count_of_an_answer_is_written_or_named(losing, count)


@pytest.mark.parametrize("names", [("cached",), ("cached", "reasoning")])
@pytest.mark.parametrize("feature", [Feature.USAGE, Feature.USAGE_DETAILS])
def test_a_count_that_has_a_place_on_the_wire_and_is_dropped_by_the_card(feature: Feature, names: Any) -> None:
    class Counting(Encoder):
        def usage_reported(self, event: ev.UsageReported) -> None:
            self.write({"usage": {f"{name}_tokens": getattr(event, name) for name in names}, "choices": []})

    class Drops(CHAT):  # type: ignore[misc]
        capabilities = CHAT.capabilities.changed(drop={feature: "not counted"})

        def encoder(self, context: Context) -> Encoder:
            return Counting(context, self.capabilities)

    for count in ("cached", "reasoning"):
        if count not in names:
            Suite().test_each_count_of_an_answer_is_written_or_named(Drops(), count)
            continue
        with pytest.raises(AssertionError, match=f"{count} tokens .* have a place on the wire, but the card drops"):
            Suite().test_each_count_of_an_answer_is_written_or_named(Drops(), count)


class Named(A2A):  # type: ignore[misc]
    """Its answers do not say which conversation they belong to."""

    def encoder(self, context: Context) -> Any:
        context.thread_id = None
        return super().encoder(context)


def test_a_conversation_whose_name_is_not_written() -> None:
    with pytest.raises(AssertionError):
        Suite().test_the_name_of_a_conversation_is_written_and_read(Named())


def test_a_total_that_the_backend_did_not_report() -> None:
    class Adds(Encoder):
        def finished(self, event: ev.RunFinished) -> None:
            usage = {"prompt_tokens": 12, "completion_tokens": 34, "total_tokens": 0}
            self.write({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage})

    class Zero(CHAT):  # type: ignore[misc]
        def encoder(self, context: Context) -> Encoder:
            return Adds(context, self.capabilities)

    with pytest.raises(AssertionError):
        Suite().test_the_total_of_an_answer_is_that_of_the_backend(Zero())


def test_a_value_that_is_not_checked() -> None:
    class Trusting(CHAT):  # type: ignore[misc]
        def parse_response(self, wire: WireResponse, context: Context) -> list[ev.Event]:
            list(read_json(wire.body)["choices"])
            return super().parse_response(wire, context)

    with pytest.raises((TypeError, KeyError)):
        Suite().test_a_value_of_any_type_raises_nothing(Trusting())


@pytest.mark.parametrize("name", REQUEST_DETAILS)
def test_a_request_says_its_detail_and_a_plain_one_does_not(name: str) -> None:
    witness = REQUEST_DETAILS[name][1]
    assert witness.read(witness.request) != witness.read(Request([]))
