"""Every recorded stream decodes to what the official client made of it, however it is cut."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from ag_ui.core import RunAgentInput

from bridge.dialects.ag_ui import dialect
from bridge.errors import ErrorCode, Failure
from bridge.model import Event, Interrupted, RunFailed, RunFinished, StateChanged, fold, verify
from bridge.testing.outline import outline
from bridge.translation.framing.sse import Splitter, join

from .helpers import (
    INDEX,
    back,
    client_of,
    decode,
    encode,
    flat,
    flat_wire,
    front,
    new_client,
    old_client,
    read,
    request_of,
    response_of,
    said,
    sent,
)

STREAMS = [n for n in INDEX if response_of(n).content_type == "text/event-stream"]
# The official client refuses these; here they are mended.
REFUSED = {"wrong-order": "orphan", "nostart": "no RUN_STARTED before me"}
FAILED = {
    "error": ErrorCode.OVERLOADED,
    "pyd-error": ErrorCode.BACKEND_ERROR,
    "truncate": ErrorCode.TRUNCATED_STREAM,
    "abort": ErrorCode.TRUNCATED_STREAM,
    "drop": ErrorCode.TRUNCATED_STREAM,
}


# The connection broke within a frame, which the transport sees.
BROKEN = {"drop": Failure(ErrorCode.TRUNCATED_STREAM, "broken off")}


def events_of(name: str) -> list[Event]:
    return decode([response_of(name).body], back(request=read(request_of(name).body)), BROKEN.get(name))


@pytest.mark.parametrize("name", STREAMS)
def test_a_capture_says_what_the_client_made_of_it(name: str) -> None:
    client, answer = client_of(name), fold(events_of(name))
    known = {m["id"] for m in json.loads(request_of(name).body)["messages"]}
    made = [m for m in client["messages_after"] if m["id"] not in known]
    if name in REFUSED:
        assert answer.text == REFUSED[name]
    else:
        assert flat(answer.messages) == flat_wire(made)
    if name in FAILED:
        assert answer.failure is not None
        assert answer.failure.code is FAILED[name]
    else:
        assert answer.failure is None
    assert [i.interrupt_id for i in answer.interrupts] == [i["id"] for i in client.get("pending_interrupts", [])]


@pytest.mark.parametrize("name", STREAMS)
def test_reads_do_not_matter(name: str) -> None:
    body, whole, failure = response_of(name).body, events_of(name), BROKEN.get(name)
    ctx = lambda: back(request=read(request_of(name).body))  # noqa: E731
    assert decode([body[i : i + 1] for i in range(len(body))], ctx(), failure) == whole
    decoder, one_by_one = dialect.decoder(ctx()), []
    splitter = Splitter()
    for frame in splitter.feed(body):
        one_by_one += decoder.feed([frame])
    assert [*one_by_one, *decoder.close(failure)] == whole
    chance = random.Random(name)
    for _ in range(5):
        places = sorted(chance.randrange(len(body) + 1) for _ in range(6))
        assert (
            decode([body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)], ctx(), failure)
            == whole
        )


@pytest.mark.parametrize("name", STREAMS)
def test_every_prefix_ends_once(name: str) -> None:
    frames = Splitter().feed(response_of(name).body)
    for end in range(len(frames)):
        decoder = dialect.decoder(back())
        events = verify([*decoder.feed(frames[:end]), *decoder.close()])
        assert isinstance(events[-1], RunFailed)
        decoder = dialect.decoder(back())
        broken = verify([*decoder.feed(frames[:end]), *decoder.close(Failure(ErrorCode.BACKEND_TIMEOUT, "silent"))])
        assert broken[-1].error.code is ErrorCode.BACKEND_TIMEOUT  # type: ignore[union-attr]


@pytest.mark.parametrize("name", STREAMS)
def test_a_capture_goes_on_to_clients_of_every_version(name: str) -> None:
    events = events_of(name)
    new = said(events, new_client(), unknown=("HOLOGRAM_STARTED",))
    assert new[0]["protocolVersion"] == "1.0"
    assert (new[0]["threadId"], new[0]["runId"]) == ("t1", "r1")
    once = outline(fold(events))
    assert outline(fold(decode([join(encode(events, front()))]))) == once
    old = said(events, old_client())
    assert not {"SUBAGENT_STARTED", "HOLOGRAM_STARTED"} & {e["type"] for e in old}
    assert "protocolVersion" not in old[0]
    outcomes = [e["outcome"]["type"] for e in old if "outcome" in e]
    assert outcomes == (["interrupt"] if name == "interrupt-turn1" else [])


@pytest.mark.parametrize("name", [n for n in INDEX if n != "pyd-bad-input"])
def test_a_captured_request_goes_on(name: str) -> None:
    wire = request_of(name)
    request = dialect.decode_request(wire, front())
    body, again = json.loads(wire.body), sent(request, {"protocol_version": "1.0"}, thread_id=request.thread_id)
    RunAgentInput.model_validate(again)
    for message in body["messages"]:
        if message.get("toolCalls") and message.get("content") == "":
            del message["content"]  # an absent content says the same
    assert again == body
    old = sent(request, thread_id=request.thread_id)
    assert "protocolVersion" not in old
    assert old.keys() >= {"threadId", "runId", "state", "messages", "tools", "context", "forwardedProps"}


def test_responses_that_are_no_streams() -> None:
    failure = dialect.decode_error(response_of("http500"))
    assert (failure.code, failure.message, failure.backend_code) == (
        ErrorCode.BACKEND_ERROR,
        "scripted 500",
        "SCRIPTED",
    )
    failure = dialect.decode_error(response_of("pyd-bad-input"))
    assert failure.code is ErrorCode.INVALID_REQUEST
    assert failure.message == "runId: Field required; messages: Field required"


def one(events: list[Event], kind: type) -> Any:
    return next(e for e in events if isinstance(e, kind))


def test_what_some_captures_show_besides() -> None:
    assert one(events_of("cancelled"), RunFinished).reason == "canceled"
    assert one(events_of("state"), StateChanged).value == {"todo": ["a"], "in": {}}
    interrupt = one(events_of("interrupt-turn1"), Interrupted)
    assert (interrupt.reason, interrupt.call_id) == ("tool_call", "call-run-interrupt-turn1-1")
    assert interrupt.payload["message"] == "Send it?"
    assert [e["result"] for e in said(events_of("result"), new_client()) if "result" in e] == [{"answer": 42}]
    tools = said(events_of("pyd-tool-turn1"), new_client())
    assert [e.get("parentMessageId") for e in tools if e["type"] == "TOOL_CALL_START"] == [
        "d16b47c0-0e94-4aa0-ade9-d4d8e11a0db2"
    ]
    assert tools[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["c1"]}
    subagent = said(events_of("subagent"), new_client())
    original = [json.loads(f) for f in Splitter().feed(response_of("subagent").body)]
    assert [e for e in subagent if e.get("subagentRunId")] == [e for e in original if e.get("subagentRunId")]
