"""A dialect of your own is one module like this, and a line in the `pyproject.toml` of its package:

    [project.entry-points."bridge.dialects"]
    toy = "dialect_toy:dialect"

Its wire: `{"ask": "text", "stream": true}` is answered by frames `{"say": "text"}` and then `{"end": "stop"}`, or whole
by `{"say": "text", "end": "stop"}`; a failure is `{"wrong": "why"}`. A test class that inherits
`bridge.testing.DialectConformance` and says `dialects = [dialect]` shows whether it does all that a dialect must.

    python examples/dialect_toy.py
"""

from bridge import ErrorCode, Failure, RequestError, decode, pretty, translate
from bridge.codec import (
    ANSWER_FEATURES,
    KEEPALIVE,
    REQUEST_FEATURES,
    Card,
    Dialect,
    Endpoint,
    Feature,
    Operation,
    WireRequest,
    entries,
    json_response,
)
from bridge.codec.check import Node
from bridge.codec.jsontext import dumps, need_json, read_body
from bridge.model import (
    FinishReason,
    Heartbeat,
    Message,
    PartKind,
    Request,
    RunFailed,
    RunFinished,
    Text,
    TextDelta,
    result_text,
)

NO_PLACE = "this wire has text and an end, nothing else"
UNSAID = set(ANSWER_FEATURES) - {Feature.TEXT, Feature.REFUSAL, Feature.FINISH_LENGTH}


class Toy(Dialect):
    name = "toy"
    card = Card(
        entries(ANSWER_FEATURES, text={Feature.REFUSAL: NO_PLACE}, drop=dict.fromkeys(UNSAID, NO_PLACE)),
        entries(REQUEST_FEATURES, drop=dict.fromkeys(REQUEST_FEATURES, NO_PLACE)),
    )
    surface = (Endpoint("POST", "/ask", Operation.RUN), Endpoint("GET", "/alive", Operation.HEALTH))

    def decode_request(self, wire, context):
        need_json(wire)
        body = Node(read_body(wire.body))
        return Request([Message("user", [Text(body.need_string("ask"))])], stream=body.boolean("stream") is not False)

    def encode_request(self, request, context):
        return self.example_request(result_text(request.messages[-1].parts), request.stream)

    def example_request(self, text, stream=True):
        body = dumps({"ask": text, "stream": stream})
        return WireRequest("POST", "/ask", {"content-type": "application/json"}, body=body)

    def encoder(self, context):
        return ToyEncoder()

    def decoder(self, context):
        return ToyDecoder(context.builder())

    def assemble(self, events, context):
        if isinstance(events[-1], RunFailed):
            return self.encode_error(events[-1].error)
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        return json_response(dumps({"say": text, "end": end_of(events[-1])}))

    def parse_response(self, wire, context):
        decoder = self.decoder(context)
        return decoder.feed([wire.body]) + decoder.close()

    def encode_error(self, failure):
        return json_response(dumps({"wrong": failure.message}), failure.http_status, failure.headers)

    def decode_error(self, wire):
        return Failure(ErrorCode.BACKEND_ERROR, "The toy failed.")

    def encode_health(self, alive):
        return json_response(dumps({"alive": alive}))


def end_of(finished):
    return "length" if finished.reason is FinishReason.LENGTH else "stop"


class ToyEncoder:
    def encode(self, events):
        frames = []
        for event in events:
            match event:
                case TextDelta():
                    frames.append(dumps({"say": event.text}))
                case RunFinished():
                    frames.append(dumps({"end": end_of(event)}))
                case RunFailed():
                    frames.append(dumps({"wrong": event.error.message}))
                case Heartbeat():
                    frames.append(KEEPALIVE)
        return frames

    def close(self):
        return []


class ToyDecoder:
    def __init__(self, builder):
        self.builder = builder

    def feed(self, frames):
        for frame in frames:
            try:
                self.fact(Node(read_body(getattr(frame, "data", frame))))
            except RequestError as error:
                self.builder.fail(Failure(ErrorCode.BACKEND_PROTOCOL, f"The toy spoke nonsense: {error.message}"))
        return self.builder.take()

    def fact(self, body):
        if "wrong" in body.value:
            self.builder.fail(Failure(ErrorCode.BACKEND_ERROR, body.need_string("wrong")))
        if (text := body.string("say")) is not None:
            self.builder.flow(0, PartKind.TEXT, text)
        if (end := body.one_of("end", ("stop", "length"))) is not None:
            self.builder.finish(FinishReason(end))
            self.builder.end()

    def close(self, failure=None):
        self.builder.close(failure)
        return self.builder.take()


dialect = Toy()

if __name__ == "__main__":
    said = b'data: {"say": "Hello"}\n\ndata: {"end": "stop"}\n\n'
    print(translate(said, dialect, "openai-chat").decode())
    print(pretty(decode(said, dialect)))
