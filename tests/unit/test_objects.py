"""`ObjectDialect`: answers as its card carries them, and a decoder of its own for streams."""

from __future__ import annotations

from typing import Any

from bridge.contract import ANSWER_FEATURES, Capabilities, Context, Feature, WireResponse
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Builder,
    Custom,
    Event,
    FinishReason,
    MessageEnded,
    MessageStarted,
    PartEnded,
    PartKind,
    PartStarted,
    Raw,
    Reasoning,
    ReasoningDelta,
    RunFailed,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolCall,
    fold,
)
from bridge.model.jsontext import loads
from bridge.testing.wires import context
from bridge.toolkit import Encoder, JsonDecoder, Node, ObjectDialect


class Pieces(JsonDecoder):
    def read(self, event: dict[str, Any], name: str | None) -> None:
        if "piece" in event:
            self.builder.flow(0, PartKind.TEXT, event["piece"])
        elif "message" in event:
            self.builder.flow(0, PartKind.TEXT, "read as a piece")
        else:
            self.builder.finish()
            self.builder.end()


class OwnDecoder(ObjectDialect):
    name = "own-decoder"

    def decoder(self, context: Context) -> JsonDecoder:
        return Pieces(context)


class Both(OwnDecoder):
    def decode_object(self, node: Node, builder: Builder) -> None:
        builder.flow(0, PartKind.TEXT, node.need_string("message"))
        builder.finish()
        builder.end()


def answered(dialect: ObjectDialect, body: bytes) -> Any:
    return fold(dialect.parse_response(WireResponse(200, {}, body), context(None)))


def test_a_whole_answer_is_read_by_decode_object_though_streams_have_a_decoder() -> None:
    answer = answered(Both(), b'{"message": "all of it"}')
    assert (answer.text, answer.failure) == ("all of it", None)


def test_an_invalid_whole_answer_fails() -> None:
    failure = answered(Both(), b'{"message": 1}').failure
    assert failure.code is ErrorCode.BACKEND_PROTOCOL
    assert "message" in failure.message


def test_without_decode_object_a_whole_answer_is_one_frame() -> None:
    answer = answered(OwnDecoder(), b'{"piece": "half"}')
    assert (answer.text, answer.failure.code) == ("half", ErrorCode.TRUNCATED_STREAM)


class Told(ObjectDialect):
    """Writes the name and the text of each event."""

    name = "told"
    capabilities = Capabilities.only({Feature.TEXT, Feature.FINISH_LENGTH}, "no place", text={Feature.REFUSAL})

    def encode_event(self, event: Event) -> dict[str, Any] | None:
        failure = event.error.message if isinstance(event, RunFailed) else None
        return {"is": type(event).__name__, "text": failure or getattr(event, "text", "")}


def run(*middle: Event, reason: FinishReason = FinishReason.STOP) -> list[Event]:
    parts: list[Event] = [PartStarted("t", "m", PartKind.REASONING), ReasoningDelta("t", "hm"), PartEnded("t")]
    parts += [PartStarted("r", "m", PartKind.REFUSAL), TextDelta("r", "No."), PartEnded("r"), *middle]
    return [RunStarted("r1"), MessageStarted("m"), *parts, MessageEnded("m"), RunFinished(reason)]


def test_events_are_written_as_far_as_the_card_carries_them() -> None:
    made = context(None)
    events = run(Custom("mine", 1), Raw("told", {"own": 1}), Raw("other", {}))
    frames = Told().encoder(made).encode(events)
    written = [loads(frame) for frame in frames if isinstance(frame, bytes)]
    content = [PartStarted, TextDelta, PartEnded, Raw]
    kinds = [RunStarted, MessageStarted, *content, MessageEnded, RunFinished]
    assert [each["is"] for each in written] == [kind.__name__ for kind in kinds]
    assert [each["text"] for each in written if each["text"]] == ["No."]
    assert made.lost.names == ["reasoning", "refusal", "custom", "raw"]
    whole = Told().assemble(events, context(None))
    kinds_added = "".join(kind.__name__ for kind in kinds)
    assert (whole.status, loads(whole.body)) == (200, {"is": kinds_added, "text": "No."})


def test_an_end_that_the_card_does_not_name_is_an_error() -> None:
    for reason in (FinishReason.CANCELED, FinishReason.CONTENT_FILTER):
        frames = Told().encoder(context(None)).encode(run(reason=reason))
        last = frames[-1]
        assert isinstance(last, bytes)
        assert loads(last)["is"] == "RunFailed"
        assert Told().assemble(run(reason=reason), context(None)).status >= 400
    assert Told().assemble(run(reason=FinishReason.LENGTH), context(None)).status == 200


class Whole(Encoder):
    """Writes a text as it comes, and all else when it is complete."""

    buffered = (PartKind.REASONING, PartKind.TOOL_CALL)

    def part_started(self, event: PartStarted) -> None:
        self.write({"begins": event.kind})

    def text(self, event: TextDelta) -> None:
        self.write({"text": event.text})

    def part_ended(self, event: PartEnded) -> None:
        self.write({"ends": event.part_id})

    def buffered_part(self, part: Reasoning | ToolCall, end: PartEnded) -> None:
        said = part.text if isinstance(part, Reasoning) else [part.call_id, part.name, part.arguments]
        self.write({"whole": said, "status": end.status})


def test_parts_that_the_wire_has_in_one_piece_come_when_they_end() -> None:
    builder = context(None).builder()
    builder.flow(0, PartKind.REASONING, "h")
    builder.flow(0, PartKind.REASONING, "m")
    builder.flow(0, PartKind.TEXT, "hello")
    for number in (1, 2):
        builder.open_part(number, 0, PartKind.TOOL_CALL, call_id=f"c{number}", name="look")
    for number in (1, 2, 1):
        builder.delta(number, "[")
    builder.end_part(2)
    builder.fail(Failure(ErrorCode.BACKEND_ERROR, "gone"))
    frames = Whole(context(None), Capabilities.only(set(ANSWER_FEATURES), "all")).encode(builder.take())
    written = [loads(frame) for frame in frames if isinstance(frame, bytes)]
    assert written == [
        {"whole": "hm", "status": "completed"},
        {"begins": "text"},
        {"text": "hello"},
        {"ends": "msg_run1-1"},
        {"whole": ["c1", "look", "[["], "status": "failed"},
        {"whole": ["c2", "look", "["], "status": "completed"},
    ]
