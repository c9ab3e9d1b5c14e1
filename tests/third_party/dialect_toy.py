"""A dialect that nobody here knows, as a third party would write it: one module and one entry-point line.

Request: `{"ask": "text", "stream": true}`. Answer: `{"say": "text"}` frames, then `{"end": "stop"}`.
"""

from __future__ import annotations

import orjson

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
    WireResponse,
    entries,
    json_response,
)
from bridge.codec.check import Node
from bridge.codec.jsontext import dumps, read_body
from bridge.errors import ErrorCode, Failure
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
    fold,
    result_text,
)

_NO_PLACE = "this wire has text and an end, nothing else"


class Toy(Dialect):
    name = "toy"
    card = Card(
        answers=entries(
            ANSWER_FEATURES,
            drop={f: _NO_PLACE for f in ANSWER_FEATURES if f not in (Feature.TEXT, Feature.REFUSAL)},
        ),
        requests=entries(REQUEST_FEATURES, drop=dict.fromkeys(REQUEST_FEATURES, _NO_PLACE)),
    )
    surface = (Endpoint("POST", "/ask", Operation.RUN), Endpoint("GET", "/alive", Operation.HEALTH))

    def decode_request(self, wire, context):
        body = Node(read_body(wire.body))
        return Request([Message("user", [Text(body.need_string("ask"))])], stream=body.boolean("stream") is not False)

    def encode_request(self, request, context):
        body = {"ask": result_text(request.messages[-1].parts), "stream": request.stream}
        return WireRequest("POST", "/ask", {"content-type": "application/json"}, body=dumps(body))

    def encoder(self, context):
        return ToyEncoder()

    def decoder(self, context):
        return ToyDecoder(context)

    def assemble(self, events, context):
        answer = fold(events)
        if answer.failure:
            return self.encode_error(answer.failure)
        return json_response(dumps({"said": answer.text, "end": answer.reason}))

    def parse_response(self, wire, context):
        decoder = ToyDecoder(context)
        said = orjson.loads(wire.body)
        return decoder.feed([dumps({"say": said["said"]}), dumps({"end": said["end"]})]) + decoder.close()

    def encode_error(self, failure):
        return json_response(dumps({"wrong": failure.message}), failure.http_status, failure.headers)

    def decode_error(self, wire: WireResponse):
        return Failure(ErrorCode.BACKEND_ERROR, "The toy failed.")

    def encode_health(self, alive):
        return json_response(dumps({"alive": alive}))

    def example_request(self, text, stream=True):
        return WireRequest("POST", "/ask", {"content-type": "application/json"}, body=dumps({"ask": text}))


class ToyEncoder:
    def encode(self, events):
        frames = []
        for event in events:
            match event:
                case TextDelta():
                    frames.append(dumps({"say": event.text}))
                case RunFinished():
                    frames.append(dumps({"end": event.reason}))
                case RunFailed():
                    frames.append(dumps({"wrong": event.error.message}))
                case Heartbeat():
                    frames.append(KEEPALIVE)
        return frames

    def close(self):
        return []


class ToyDecoder:
    def __init__(self, context):
        self._builder = context.builder()

    def feed(self, frames):
        for frame in frames:
            try:
                fact = orjson.loads(frame)
                if "say" in fact:
                    self._builder.flow(0, PartKind.TEXT, fact["say"])
                elif "wrong" in fact:
                    self._builder.fail(Failure(ErrorCode.BACKEND_ERROR, fact["wrong"]))
                elif "end" in fact:
                    self._builder.finish(FinishReason(fact["end"]))
                    self._builder.end()
            except (ValueError, TypeError):
                self._builder.fail(Failure(ErrorCode.BACKEND_PROTOCOL, "The toy spoke nonsense."))
        return self._builder.take()

    def close(self, failure=None):
        self._builder.close(failure)
        return self._builder.take()


dialect = Toy()
