"""A dialect of your own is one module like this, and a line in the `pyproject.toml` of its package:

    [project.entry-points."bridge.dialects"]
    toy = "dialect_toy:dialect"

The protocol: a server answers `{"ask": "text", "stream": true}` with frames `{"say": "text"}` and a last one
`{"end": "stop"}`, or without a stream with `{"say": "text", "end": "stop"}`; an error is `{"wrong": "why"}`. To test
the dialect, derive a class from `bridge.testing.DialectConformance` with `dialects = [dialect]`.

    python examples/dialect_toy.py
"""

from collections.abc import Mapping
from typing import Any

from bridge import ErrorCode, Event, Failure, decode, pretty, translate
from bridge.contract import Capabilities, Context, Endpoint, Feature, Operation, WireRequest, json_request
from bridge.model import (
    Builder,
    FinishReason,
    Message,
    PartKind,
    Request,
    RunFailed,
    RunFinished,
    Text,
    TextDelta,
    result_text,
)
from bridge.model.jsontext import dumps
from bridge.toolkit import Node, ObjectDialect, body_of, masked

NO_PLACE = "the protocol has only text and an end"


class Toy(ObjectDialect):
    name = "toy"
    capabilities = Capabilities.only({Feature.TEXT, Feature.FINISH_LENGTH}, NO_PLACE, text={Feature.REFUSAL})
    surface = (Endpoint("POST", "/ask", Operation.RUN), Endpoint("GET", "/alive", Operation.HEALTH))

    def decode_request(self, wire: WireRequest, context: Context) -> Request:
        body = body_of(wire)
        return Request([Message("user", [Text(body.need_string("ask"))])], stream=body.boolean("stream") is not False)

    def encode_request(self, request: Request, context: Context) -> WireRequest:
        return self.example_request(result_text(request.messages[-1].parts), request.stream)

    def example_request(self, text: str, stream: bool = True) -> WireRequest:
        return json_request("/ask", dumps({"ask": text, "stream": stream}))

    def encode_event(self, event: Event) -> Mapping[str, Any] | None:
        match event:
            case TextDelta():
                return {"say": event.text}
            case RunFinished():
                return {"end": "length" if event.reason is FinishReason.LENGTH else "stop"}
            case RunFailed():
                return {"wrong": event.error.message}
        return None

    def decode_object(self, node: Node, builder: Builder) -> None:
        if "wrong" in node.value:
            builder.fail(Failure(ErrorCode.BACKEND_ERROR, masked(node.need_string("wrong"))))
        if (text := node.string("say")) is not None:
            builder.flow(0, PartKind.TEXT, text)
        if (end := node.one_of("end", ("stop", "length"))) is not None:
            builder.finish(FinishReason(end))
            builder.end()


dialect = Toy()

if __name__ == "__main__":
    hello = b'data: {"say": "Hello"}\n\ndata: {"end": "stop"}\n\n'
    print(translate(hello, dialect, "openai-chat").decode())
    print(pretty(decode(hello, dialect)))
