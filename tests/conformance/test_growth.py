"""What grows must not cost more for each piece the more pieces there are: Python's own steps are counted, no time.

A step is a call, or a line that is reached, by a loop as well, in our code or in any Python code that it calls: nothing
in Python grows without either. What C code does within one step is measured by `make growth`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from bridge.contract import Dialect, Losses, WireRequest, registry
from bridge.errors import Unsupported
from bridge.model import Event, FinishReason, Request, Text, ToolCall, jsontext
from bridge.testing import sizes
from bridge.testing.wires import answers_whole, context, encode
from bridge.toolkit import decoder
from bridge.translation import framing
from bridge.translation.library import Translator
from bridge.translation.policies.stages import WithholdServerTools

N = 24
MANY = tuple(name for name in sizes.ANSWERS if name not in ("long_delta", "image"))
ASKED = tuple(name for name in sizes.REQUESTS if name != "picture")
"""What consists of many things; of a single large one Python does not see the size."""

LACKING = {"ag-kit": ("many_parts", "answers"), "ollama": ("answers",), "openai-chat": ("answers",)}
"""What a backend of a dialect cannot be asked."""


@pytest.fixture(autouse=True)
def no_look_at_nesting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look at how deep a JSON text is nested begins at a size, and so would be a step in the growth."""
    for module in (jsontext, decoder):
        monkeypatch.setattr(module, "NESTABLE", 1 << 40)


def steps(work: Callable[[], object]) -> int:
    """How many calls are made and lines are reached for it. Tracing each instruction would take five times as long."""
    count = 0

    def trace(frame: FrameType, what: str, _: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def check_linear(work: Callable[[int], Callable[[], object]]) -> None:
    """Twice the size is twice the steps, whatever the beginning costs. Warm: caches are filled before.

    An eighth more is let pass. Where reads end may also make a larger size cheaper.
    """
    work(N)()
    work(4 * N)()
    one, two, four = (steps(work(N * factor)) for factor in (1, 2, 4))
    assert four - two <= 2.25 * max(0, two - one) + 60, f"{one} steps for {N}, {two} for {2 * N}, {four} for {4 * N}"


@pytest.mark.parametrize(
    "slow",
    [
        lambda n: [[place + 1 for place in range(n)] for _ in range(n)],
        lambda n: sum(one == other for one in range(n) for other in range(n)),
        lambda n: [any(one == other for other in range(one)) for one in range(n)],
        lambda n: [sorted(range(one), key=lambda each: -each) for one in range(n)],
    ],
    ids=["lists", "a generator", "a search", "calls"],
)
def test_what_grows_with_the_square_is_noticed(slow: Callable[[int], object]) -> None:
    """Also where each step costs as much as in real work, and the square little."""

    def work(n: int) -> None:
        for _ in range(n):
            assert jsontext.is_number(n)
        slow(n)

    with pytest.raises(AssertionError):
        check_linear(lambda n: lambda: work(n))


def writing(dialect: Dialect, events: list[Event]) -> Callable[[], object]:
    """Each event by itself, as slow backends send them."""
    encoder = dialect.encoder(context(dialect.front_options()))
    join = framing.of(dialect.framing).join

    def work() -> None:
        for event in events:
            join(encoder.encode([event]))

    return work


def reading(dialect: Dialect, events: list[Event]) -> Callable[[], object]:
    wire = encode(dialect, events)
    splitter = framing.of(dialect.framing).Splitter()
    decoder = dialect.decoder(context(dialect.back_options()))

    def work() -> None:
        for place in range(0, len(wire), 500):
            decoder.feed(splitter.feed(wire[place : place + 500]))
        decoder.feed(splitter.close())
        decoder.close()

    return work


def sending(dialect: Dialect, request: Request) -> Callable[[], object]:
    return lambda: dialect.encode_request(request, context(dialect.back_options(), request))


def taking(dialect: Dialect, request: Request) -> Callable[[], object]:
    wire = dialect.encode_request(request, context(dialect.back_options(), request))
    body = WireRequest(headers=wire.headers, body=wire.body)
    return lambda: dialect.decode_request(body, context(dialect.front_options()))


WRITTEN = [pytest.param(writing, name, id=f"front-{name}") for name in registry.served()]
"""Dialects that are only called have recordings; those that are only served read no answers and write no requests."""
BOTH = [name for name in registry.served() if registry.get(name).called]
SPOKEN = [*WRITTEN, *(pytest.param(reading, name, id=f"back-{name}") for name in BOTH)]


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize(("role", "dialect"), SPOKEN)
def test_an_answer_of_many_pieces(role: Any, dialect: str, name: str) -> None:
    spoken = registry.get(dialect)
    check_linear(lambda n: role(spoken, sizes.ANSWERS[name](n)))


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("dialect", registry.served())
def test_an_answer_in_one_piece(dialect: str, name: str) -> None:
    spoken = registry.get(dialect)
    if not answers_whole(spoken):
        with pytest.raises(Unsupported, match="only streamed answers"):
            spoken.assemble(sizes.calls(1), context(spoken.front_options()))
        return
    check_linear(lambda n: lambda: spoken.assemble(sizes.ANSWERS[name](n), context(spoken.front_options())))


def hosted(n: int) -> list[Event]:
    """`n` calls that the backend ran itself, and their results after all of them: in one message, and in `n`."""
    builder = context(None).builder()
    for place in range(n):
        builder.add(0, ToolCall(f"one{place}", "f", "{}"))
        builder.add(place + 1, ToolCall(f"more{place}", "f", "{}"))
        builder.end_message(place + 1)
    for place in range(n):
        for kind in ("one", "more", "foreign"):
            builder.result(f"{kind}{place}", [Text("done")])
    builder.finish()
    builder.end()
    return builder.take()


def test_results_of_many_calls_are_told_to_the_builder() -> None:
    check_linear(lambda n: lambda: hosted(n))


@pytest.mark.parametrize(("role", "dialect"), SPOKEN)
def test_many_calls_with_results(role: Any, dialect: str) -> None:
    spoken = registry.get(dialect)
    check_linear(lambda n: role(spoken, hosted(n)))


@pytest.mark.parametrize("show", ["drop", "text", "reasoning"])
def test_many_calls_with_results_are_withheld(show: str) -> None:
    def work(n: int) -> Callable[[], object]:
        events = hosted(n)
        return lambda: [WithholdServerTools(Losses(), frozenset(), show)(events)]

    check_linear(work)


def test_many_choices_with_open_calls() -> None:
    def work(n: int) -> None:
        builder = context(None).builder()
        for choice in range(n):
            builder.message(choice, choice=choice)
            builder.add(choice, ToolCall(f"c{choice}", "f", "{}"))
            builder.end_reason(choice, FinishReason.STOP)
        builder.finish()
        builder.end()

    check_linear(lambda n: lambda: work(n))


def test_many_calls_of_openai_chat_without_an_index() -> None:
    def work(n: int) -> Callable[[], object]:
        chat = registry.get("openai-chat")
        fragments = [f'{{"id":"c{i}","function":{{"name":"f","arguments":"{{}}"}}}}' for i in range(n)]
        frames: list[Any] = [
            f'{{"choices":[{{"index":0,"delta":{{"tool_calls":[{fragment}]}}}}]}}'.encode() for fragment in fragments
        ]

        def read() -> None:
            decoder = chat.decoder(context(chat.back_options()))
            for frame in frames:
                decoder.feed([frame])
            decoder.close()

        return read

    check_linear(work)


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("dialect", BOTH)
@pytest.mark.parametrize("role", [taking, sending], ids=["front", "back"])
def test_a_request_of_many_messages(role: Any, dialect: str, name: str) -> None:
    spoken = registry.get(dialect)
    if name in LACKING.get(dialect, ()):
        with pytest.raises(Unsupported):
            sending(spoken, sizes.REQUESTS[name](2))()
        return
    check_linear(lambda n: role(spoken, sizes.REQUESTS[name](n)))


@pytest.mark.parametrize("name", [name for name in ASKED if name not in LACKING["openai-chat"]])
@pytest.mark.parametrize("back", registry.called())
def test_a_request_of_another_dialect(back: str, name: str) -> None:
    """With all that stands between the two dialects: names of tools, places, repairs of the history."""
    chat = registry.get("openai-chat")

    def work(n: int) -> Callable[[], object]:
        asked = sizes.REQUESTS[name](n)
        body = chat.encode_request(asked, context(chat.back_options(), asked)).body

        def translate() -> None:
            try:
                Translator(back, "openai-chat", run_id="run1").request(body, client="openai-chat")
            except Unsupported:
                return

        return translate

    check_linear(work)


def test_a_message_with_blocks_that_only_its_own_dialect_reads() -> None:
    """Between n texts n calls of tools that Anthropic runs, with their results: they go back to where they were."""

    def work(n: int) -> Callable[[], object]:
        blocks: list[dict[str, Any]] = []
        for i in range(n):
            blocks.append({"type": "text", "text": f"Text {i}."})
            blocks.append({"type": "server_tool_use", "id": f"s{i}", "name": "web_search", "input": {}})
            blocks.append({"type": "web_search_tool_result", "tool_use_id": f"s{i}", "content": []})
        said = [{"role": "user", "content": "x"}, {"role": "assistant", "content": blocks}]
        body = jsontext.dumps({"model": "m", "max_tokens": 5, "messages": said})
        return lambda: Translator("anthropic-messages", "anthropic-messages").request(body)

    check_linear(work)
