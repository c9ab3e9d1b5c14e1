"""`ObjectDialect` with a decoder of its own for streams."""

from __future__ import annotations

from typing import Any

from bridge.codec import Context, JsonDecoder, Node, ObjectDialect, WireResponse
from bridge.errors import ErrorCode
from bridge.model import Builder, PartKind, fold
from bridge.testing.wires import context


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


def answered(dialect: ObjectDialect, body: bytes, status: int = 200) -> Any:
    return fold(dialect.parse_response(WireResponse(status, {}, body), context(None)))


def test_a_whole_answer_is_read_by_decode_object_though_streams_have_a_decoder() -> None:
    answer = answered(Both(), b'{"message": "all of it"}')
    assert (answer.text, answer.failure) == ("all of it", None)


def test_an_invalid_whole_answer_fails() -> None:
    failure = answered(Both(), b'{"message": 1}').failure
    assert failure.code is ErrorCode.BACKEND_PROTOCOL
    assert "message" in failure.message
    assert answered(Both(), b'{"message": "x"}', 429).failure.code is ErrorCode.RATE_LIMITED


def test_without_decode_object_a_whole_answer_is_one_frame() -> None:
    answer = answered(OwnDecoder(), b'{"piece": "half"}')
    assert (answer.text, answer.failure.code) == ("half", ErrorCode.TRUNCATED_STREAM)
