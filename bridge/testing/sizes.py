"""Answers and requests as large as one likes, to see how the cost of a codec grows with them.

for name, make in ANSWERS.items():
    work(make(1000)), work(make(2000))       # events; twice as many must not cost much more than twice as much
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridge.model import (
    SHARED,
    FinishReason,
    Message,
    MessageStatus,
    Origin,
    PartKind,
    Request,
    ResponseFormat,
    Resume,
    Sampling,
    StateOp,
    Text,
    Tool,
    ToolChoice,
    ToolMode,
)
from bridge.model import events as ev
from bridge.model.events import Event
from bridge.model.parts import Inline, Media, MediaKind, ToolCall, ToolResult

_PNG = "iVBORw0KGgoA"
"""The beginning of a PNG file: some dialects look what a picture is."""
UNIT = 1024
"""Characters of one unit where a single thing grows."""
_TIME = 1_700_000_000.0


def _run(body: list[Event]) -> list[Event]:
    return [
        ev.RunStarted("run1", "thread1", "m", _TIME),
        ev.MessageStarted("m1"),
        *body,
        ev.MessageEnded("m1", MessageStatus.COMPLETED, None),
        ev.RunFinished(FinishReason.STOP, _TIME),
    ]


def long_delta(n: int) -> list[Event]:
    """One delta of n KiB of text."""
    text = ev.TextDelta("p1", "x" * (n * UNIT))
    return _run([ev.PartStarted("p1", "m1", PartKind.TEXT), text, ev.PartEnded("p1")])


def image(n: int) -> list[Event]:
    """One picture of n KiB, base64."""
    return _run([ev.ContentAdded("m1", Media(MediaKind.IMAGE, Inline(_PNG + "A" * (n * UNIT)), "image/png"))])


def deltas(n: int) -> list[Event]:
    """n deltas of text."""
    texts = [ev.TextDelta("p1", "some words ") for _ in range(n)]
    return _run([ev.PartStarted("p1", "m1", PartKind.TEXT), *texts, ev.PartEnded("p1")])


def fragments(n: int) -> list[Event]:
    """One tool call whose arguments come in n pieces."""
    pieces: list[Event] = [ev.ArgsDelta("p1", piece) for piece in ('{"a":"', *["some words "] * (n - 2), '"}')]
    return _run([ev.PartStarted("p1", "m1", PartKind.TOOL_CALL, "c1", "f"), *pieces, ev.PartEnded("p1")])


def calls(n: int) -> list[Event]:
    """n tool calls of one message."""
    body: list[Event] = []
    for i in range(n):
        body += [
            ev.PartStarted(f"p{i}", "m1", PartKind.TOOL_CALL, f"c{i}", "f"),
            ev.ArgsDelta(f"p{i}", "{}"),
            ev.PartEnded(f"p{i}"),
        ]
    return _run(body)


def open_calls(n: int) -> list[Event]:
    """n tool calls of one message that are all open at once, and end in reverse."""
    names = [f"p{i}" for i in range(n)]
    return _run(
        [
            *(ev.PartStarted(name, "m1", PartKind.TOOL_CALL, f"c-{name}", "f") for name in names),
            *(ev.ArgsDelta(name, "{}") for name in names),
            *(ev.PartEnded(name) for name in reversed(names)),
        ]
    )


def choices(n: int) -> list[Event]:
    """n choices with a text each, all open at once; they end in reverse."""
    numbers = range(1, n + 1)
    return _run(
        [
            *(ev.MessageStarted(f"m-{i}", choice=i) for i in numbers),
            *(ev.PartStarted(f"p-{i}", f"m-{i}", PartKind.TEXT, choice=i) for i in numbers),
            *(ev.TextDelta(f"p-{i}", "some words") for i in numbers),
            *(ev.PartEnded(f"p-{i}") for i in reversed(numbers)),
            *(ev.MessageEnded(f"m-{i}", choice=i) for i in reversed(numbers)),
        ]
    )


def messages(n: int) -> list[Event]:
    """n messages with a text each."""
    body: list[Event] = []
    for i in range(n):
        body += [ev.MessageStarted(f"m-{i}"), *_text(f"p{i}", f"m-{i}"), ev.MessageEnded(f"m-{i}")]
    return _run(body)


def parts(n: int) -> list[Event]:
    """n parts of one message: thoughts and texts in turn, each text with a reference of its own."""
    body: list[Event] = []
    for i in range(n):
        if i % 2:
            body += _text(f"p{i}", "m1", ev.PartEnded(f"p{i}", extras={SHARED: {"annotations": [_reference(i)]}}))
        else:
            thought = ev.ReasoningDelta(f"p{i}", "so")
            body += [
                ev.PartStarted(f"p{i}", "m1", PartKind.REASONING),
                thought,
                ev.PartEnded(f"p{i}", f"signature {i}"),
            ]
    return _run(body)


def references(n: int) -> list[Event]:
    """One text with n references."""
    listed = {SHARED: {"annotations": [_reference(i) for i in range(n)]}}
    return _run(_text("p1", "m1", ev.PartEnded("p1", extras=listed)))


def pictures(n: int) -> list[Event]:
    """n small pictures between texts."""
    body: list[Event] = []
    for i in range(n):
        picture = Media(MediaKind.IMAGE, Inline(_PNG), "image/png")
        body += [*_text(f"p{i}", "m1"), ev.ContentAdded("m1", picture)]
    return _run(body)


def results(n: int) -> list[Event]:
    """n calls that the backend ran itself, and their results after all of them."""
    body: list[Event] = []
    for i in range(n):
        call = ev.PartStarted(f"p{i}", "m1", PartKind.TOOL_CALL, f"c{i}", "f", Origin.FUNCTION)
        body += [call, ev.ArgsDelta(f"p{i}", "{}"), ev.PartEnded(f"p{i}")]
    return _run([*body, *(ev.ToolResulted(f"c{i}", [Text("found")], "f", message_id=f"r{i}") for i in range(n))])


def questions(n: int) -> list[Event]:
    """n questions to a person, at the end of the run."""
    asked = [ev.Interrupted(f"i{i}", "approval", {"question": f"May I {i}?"}) for i in range(n)]
    started, message, *_ = _run([])
    end = ev.RunFinished(FinishReason.INTERRUPTED, _TIME)
    return [started, message, *_text("p1", "m1"), ev.MessageEnded("m1"), *asked, end]


def states(n: int) -> list[Event]:
    """n changes of the state, steps and custom events, each with names of its own."""
    body: list[Event] = [ev.StateChanged(StateOp.SNAPSHOT, {})]
    for i in range(n):
        patch = [{"op": "add", "path": f"/k{i}", "value": i}]
        body += [ev.StepStarted(f"s{i}"), ev.StateChanged(StateOp.PATCH, patch), ev.StepEnded(f"s{i}")]
        body += [ev.Custom(f"x{i}", {f"k{i}": i}), ev.UsageReported(i, i, 2 * i)]
    return _run(body)


def _text(part: str, message: str, end: ev.PartEnded | None = None) -> list[Event]:
    return [ev.PartStarted(part, message, PartKind.TEXT), ev.TextDelta(part, "some words"), end or ev.PartEnded(part)]


def _reference(i: int) -> dict[str, Any]:
    found = {"url": f"https://example.com/{i}", "title": f"Page {i}", "start_index": 0, "end_index": 4}
    return {"type": "url_citation", "url_citation": found}


def history(n: int) -> Request:
    """n messages, user and assistant in turn."""
    roles = ["assistant" if index % 2 else "user" for index in range(n)]
    return Request([*(Message(role, [Text(f"Words {i}.")]) for i, role in enumerate(roles)), _ask()])


def tool_history(n: int) -> Request:
    """n rounds of a call and its result."""
    messages = [_ask()]
    for i in range(n):
        messages.append(Message("assistant", [ToolCall(f"c{i}", "f", '{"a":1}')]))
        messages.append(Message("tool", [ToolResult(f"c{i}", [Text("found")], "f")]))
    return Request([*messages, _ask()])


def same_ids(n: int) -> Request:
    """n messages that all have one id, as of a client that does not care."""
    return Request([Message("user", [Text("hello")], id="same") for _ in range(n)])


def picture(n: int) -> Request:
    """One question with a picture of n KiB, base64."""
    media = Media(MediaKind.IMAGE, Inline(_PNG + "A" * (n * UNIT)), "image/png")
    return Request([Message("user", [Text("What is it?"), media])])


def many_parts(n: int) -> Request:
    """A message of n texts and n small pictures."""
    picture = Media(MediaKind.IMAGE, Inline(_PNG), "image/png")
    return Request([Message("user", [part for i in range(n) for part in (Text(f"Text {i}."), picture)])])


def many_calls(n: int) -> Request:
    """A message of n calls, and their n results in reverse."""
    calls = [ToolCall(f"c{i}", "f", '{"a":1}') for i in range(n)]
    found = [Message("tool", [ToolResult(f"c{i}", [Text("found")], "f")]) for i in reversed(range(n))]
    return Request([_ask(), Message("assistant", [*calls]), *found, _ask()])


def unanswered(n: int) -> Request:
    """n calls that have no result."""
    calls = [ToolCall(f"c{i}", "f", '{"a":1}') for i in range(n)]
    return Request([_ask(), Message("assistant", [*calls]), _ask()])


def tools(n: int) -> Request:
    """n tools, all of which the model may choose; every second name has characters that some APIs refuse."""
    names = [f"tool{i}" if i % 2 else f"tool.{i}" for i in range(n)]
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    listed = [Tool(name, f"Does {name}.", schema) for name in names]
    return Request([_ask()], tools=listed, tool_choice=ToolChoice(ToolMode.AUTO, names))


def hosted_tools(n: int) -> Request:
    """n optional tools that a provider runs, and n functions; the model may choose all functions."""
    listed = [Tool(f"search{i}", extras={"other": {}}, kind=f"search{i}", optional=True) for i in range(n)]
    functions = [Tool(f"f{i}", "Does.") for i in range(n)]
    choice = ToolChoice(ToolMode.AUTO, [tool.name for tool in functions])
    return Request([_ask()], tools=[*listed, *functions], tool_choice=choice)


def schema(n: int) -> Request:
    """A tool and an output with a schema of n fields, with alternatives and references."""
    fields = {f"f{i}": {"anyOf": [{"type": "string"}, {"$ref": f"#/$defs/d{i}"}]} for i in range(n)}
    defs = {f"d{i}": {"type": "object", "properties": {"x": {"enum": [f"e{i}", None]}}} for i in range(n)}
    whole = {"type": "object", "properties": fields, "required": list(fields), "$defs": defs}
    return Request(
        [_ask()], tools=[Tool("f", "Does.", whole)], response_format=ResponseFormat("json_schema", "a", whole)
    )


def fields(n: int) -> Request:
    """n stop sequences, n fields of metadata, and n messages of the system."""
    said = [Message("system", [Text(f"Rule {i}.")]) for i in range(n)]
    stops = [f"stop{i}" for i in range(n)]
    return Request([*said, _ask()], sampling=Sampling(stop=stops), metadata={f"k{i}": "v" for i in range(n)})


def answers(n: int) -> Request:
    """n answers to questions of the agent about n calls."""
    calls = [ToolCall(f"c{i}", "f", '{"a":1}') for i in range(n)]
    resume = [Resume(f"c{i}", "resolved", True) for i in range(n)]
    return Request([_ask(), Message("assistant", [*calls])], resume=resume)


def _ask() -> Message:
    return Message("user", [Text("And now?")])


ANSWERS: dict[str, Callable[[int], list[Event]]] = {
    make.__name__: make
    for make in (
        *(long_delta, image, deltas, fragments, calls, open_calls, choices, messages, parts, references, pictures),
        *(results, questions, states),
    )
}
REQUESTS: dict[str, Callable[[int], Request]] = {
    make.__name__: make
    for make in (
        *(
            history,
            tool_history,
            same_ids,
            picture,
            many_parts,
            many_calls,
            unanswered,
            tools,
            hosted_tools,
            schema,
            fields,
        ),
        *(answers,),
    )
}
