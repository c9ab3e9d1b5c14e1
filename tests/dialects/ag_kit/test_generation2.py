"""Generation 2 on the same path: which one a body is of, and what differs from AG-UI."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import WireRequest, WireResponse, registry
from bridge.dialects.ag_kit import dialect
from bridge.dialects.ag_kit.options import BackOptions, FrontOptions
from bridge.errors import ErrorCode, Failure, RequestError, Unsupported
from bridge.model import (
    Builder,
    FinishReason,
    Inline,
    Interrupted,
    Media,
    MediaKind,
    Message,
    PartKind,
    Request,
    Resume,
    RunStarted,
    Text,
    fold,
    result_text,
    verify,
)
from bridge.model.events import TERMINAL
from bridge.translation.framing.sse import join
from tests.strategies import json_values

from .helpers import CASES, WAYS, asked, body_of, context, cuts, decode, encode, said

SECOND = BackOptions(generation=2)
HEARD = "I heard {} 你好 😀"


def it(text: str = "", reason: FinishReason | None = FinishReason.STOP, **more: Any) -> dict[str, Any]:
    return {"text": text, "reason": reason, "error": None, "calls": [], "results": [], "interrupts": [], **more}


EXPECTED = {
    "g2-text-turn1": it(HEARD.format('["hi"]')),
    "g2-text-turn2": it(HEARD.format('["hi", "second question"]')),
    "g2-client-tool-call": it(
        "", FinishReason.TOOL_CALLS, calls=[("call_c1", "change-background-color", '{"color": "blue"}')]
    ),
    "g2-client-tool-result": it("Tool said: Background changed to blue"),
    "g2-server-tool": it(
        "Checking. Tool said: Sunny in Paris, 25°C",
        calls=[("call_s1", "get_weather", '{"city": "Paris"}')],
        results=[("call_s1", "Sunny in Paris, 25°C")],
    ),
    "g2-interrupt": it("", FinishReason.INTERRUPTED, interrupts=[{"question": "Go on?"}]),
    "g2-interrupt-resume": it(HEARD.format('["resumed \\"yes\\""]')),
    "g2-error-mid-stream": it("partial ", None, error="model exploded"),
    "g2-run-error-then-finished": it("partial ", None, error="upstream 500"),
    "g2-thinking": it("done"),
    "g2-gen1-body": it(HEARD.format('["hi"]'), None, error="'NoneType' object has no attribute 'get'"),
    "g2-bot-path": it("BOT"),
}


def picture(events: list[Any]) -> dict[str, Any]:
    answer = fold(events)
    return {
        "text": answer.text,
        "reason": answer.reason,
        "error": answer.failure and answer.failure.message,
        "calls": [(c.call_id, c.name, c.arguments) for c in answer.calls],
        "results": [(r.call_id, result_text(r.parts)) for m in answer.messages for r in m.parts if m.role == "tool"],
        "interrupts": [i.payload for i in answer.interrupts],
    }


# ---------------------------------------------------------------------- as the back


def test_every_stream_of_generation_2_has_an_expectation() -> None:
    streams = [n for n, c in CASES.items() if c["generation"] == 2 and c["file"].endswith(".sse")]
    assert sorted(streams) == sorted(EXPECTED)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("options", [None, SECOND], ids=["asked in 1", "asked in 2"])
@pytest.mark.parametrize("name", EXPECTED)
def test_a_capture_becomes_what_it_shows_whatever_was_asked(name: str, options: Any, way: str) -> None:
    expected = EXPECTED[name]
    if expected["text"] == "BOT":
        expected = it("".join(json.loads(line[6:]).get("delta", "") for line in body_of(name).splitlines() if line))
        assert expected["text"]
    assert picture(decode(cuts(body_of(name), way), context(options=options))) == expected


def test_thinking_is_reasoning() -> None:
    assert fold(decode([body_of("g2-thinking")])).reasoning == "hmm"


@pytest.mark.parametrize("name", EXPECTED)
def test_every_prefix_ends_once(name: str) -> None:
    data = body_of(name)
    for end in range(0, len(data), 7):
        events = decode([data[:end]], context(options=SECOND))
        assert sum(type(e) in TERMINAL for e in events) == 1


def test_a_stream_of_generation_2_that_breaks_off_is_truncated() -> None:
    data = body_of("g2-text-turn1").split(b"\n\n")
    for options in (SECOND, None):
        failure = fold(decode([data[0] + b"\n\n"], context(options=options))).failure
        assert failure is not None
        assert failure.code is ErrorCode.TRUNCATED_STREAM
    failure = fold(decode([b""], context(options=SECOND))).failure
    assert failure is not None
    assert failure.code is ErrorCode.TRUNCATED_STREAM


def test_both_vocabularies_in_one_stream_are_one_run() -> None:
    events = said(
        {"type": "text", "content": "a"},
        {"type": "tool-call-start", "toolCallId": "c", "toolCallName": "f"},
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "b"},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    )
    assert sum(isinstance(e, RunStarted) for e in events) == 1
    assert (fold(events).text, fold(events).failure) == ("ab", None)


def test_a_server_of_generation_1_is_read_though_2_was_asked() -> None:
    assert fold(decode([body_of("g1-server-tool")], context(options=SECOND))).text.startswith("Checking. ")
    assert fold(decode([body_of("doc-basic-no-done")], context(options=SECOND))).reason is FinishReason.STOP


@given(
    st.lists(st.sampled_from(["RUN_STARTED", "text", "TEXT_MESSAGE_CONTENT", "CUSTOM", "x", "X"]), max_size=5),
    st.data(),
)
def test_no_wire_raises(kinds: list[str], data: st.DataObject) -> None:
    frames = [orjson.dumps({"type": k, "delta": data.draw(json_values()), "content": "c", "name": "on_interrupt",
                            "value": data.draw(json_values())}) for k in kinds]  # fmt: skip
    decoder = dialect.decoder(context())
    verify([*decoder.feed(frames), *decoder.close()])


def sent(request: Request, **options: Any) -> tuple[str, dict[str, Any], list[str]]:
    ctx = context(request=request, options=BackOptions(generation=2, **options))
    wire = dialect.encode_request(request, ctx)
    return wire.path, json.loads(wire.body), ctx.lost.names


def test_a_request_is_ag_uis_of_before_1_0() -> None:
    picture = Media(MediaKind.IMAGE, Inline("aGk="), "image/png", "a.png")
    request = Request([Message("user", [Text("see"), picture], "u1")], thread_id="t1", run_id="r1")
    path, body, lost = sent(request, bot_id="b")
    assert path == "/v1/aibot/bots/b/send-message"
    assert body["messages"] == [
        {
            "id": "u1",
            "role": "user",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "binary", "mimeType": "image/png", "data": "aGk=", "filename": "a.png"},
            ],
        }
    ]
    assert (body["threadId"], body["runId"], body["forwardedProps"], lost) == ("t1", "r1", {}, [])
    assert "resume" not in body
    assert "protocolVersion" not in body


@pytest.mark.parametrize(
    ("answer", "payload"),
    [
        (Resume("i", "resolved", "yes"), "yes"),
        (Resume("i", "resolved", {"a": 1}), {"a": 1}),
        (Resume("i", "resolved", None), None),
        (Resume("i", "cancelled", None), "cancelled"),
        (Resume("i", "cancelled", "no"), "no"),
    ],
)
def test_an_interrupt_is_answered_in_the_forwarded_props(answer: Resume, payload: Any) -> None:
    _, body, lost = sent(Request([], resume=[answer]))
    assert (body["forwardedProps"], body["messages"], lost) == ({"command": {"resume": payload}}, [], ["resume"])
    with pytest.raises(Unsupported):
        sent(Request([], resume=[answer, answer]))


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("g2-invalid-no-messages", ErrorCode.INVALID_REQUEST, "Invalid field 'messages': Field required"),
        ("g2-setup-error", ErrorCode.BACKEND_ERROR, "cannot build agent"),
    ],
)
def test_an_error_status(name: str, code: ErrorCode, message: str) -> None:
    response = CASES[name]["response"]
    failure = dialect.decode_error(WireResponse(response["status"], response["headers"], body_of(name)))
    assert (failure.code, failure.message) == (code, message)
    assert failure.backend_code in ("INVALID_REQUEST", "INTERNAL_ERROR")


# ---------------------------------------------------------------------- as the front


@pytest.mark.parametrize(
    ("fields", "option", "generation"),
    [
        ({"conversationId": "c"}, None, 1),
        ({"conversationId": "c"}, 2, 1),
        ({"conversationId": "", "threadId": None}, None, 1),
        ({"threadId": "t"}, None, 2),
        ({"threadId": ""}, None, 2),
        ({"runId": "r"}, 1, 2),
        ({"conversationId": "c", "threadId": "t"}, None, 1),
        ({"conversationId": "c", "threadId": "t", "runId": "r"}, None, 2),
        ({"conversationId": "c", "threadId": "t"}, 2, 2),
        ({"conversationId": "c", "runId": "r"}, 1, 1),
    ],
)
def test_the_body_tells_the_generation(fields: dict[str, Any], option: Any, generation: int) -> None:
    request = asked({"messages": [], **fields}, options=FrontOptions(generation=option))
    assert request.extra("ag-kit")["notes"]["generation"] == generation


@pytest.mark.parametrize(("option", "last"), [(None, b"[DONE]"), (1, b"[DONE]"), (2, b'{"type":"RUN_FINISHED"')])
def test_a_stream_that_no_request_asked_for_is_of_the_configured_generation(option: Any, last: bytes) -> None:
    made = context(run_id="back").builder()
    made.finish()
    made.end()
    frames = encode(made.take(), context(options=FrontOptions(generation=option)))
    assert isinstance(frames[-1], bytes)
    assert frames[-1].startswith(last)


@pytest.mark.parametrize("name", [n for n in EXPECTED if n != "g2-gen1-body"])
def test_recorded_requests_come_back_whole(name: str) -> None:
    wanted = CASES[name]["request"]["body"]
    request = asked(wanted)
    ctx = context(request=request, thread_id=request.thread_id, options=SECOND)
    assert json.loads(dialect.encode_request(request, ctx).body) == wanted
    assert ctx.lost.names == (["resume"] if request.resume else [])


def test_what_the_server_makes_up_we_make_up() -> None:
    request = asked(
        {"threadId": "", "messages": [{"role": "user", "content": "a"}, {"id": "x", "role": "user", "content": "b"}]}
    )
    assert (request.thread_id, request.run_id) == ("thread_run1", "run1")
    assert [m.id for m in request.messages] == ["run1-0", "x"]


def test_the_answer_to_an_interrupt() -> None:
    props = {"command": {"resume": {"ok": True}, "other": 1}, "more": 2}
    request = asked({"threadId": "t", "messages": [], "forwardedProps": props})
    assert request.resume == [Resume("", "resolved", {"ok": True})]
    ctx = context(request=request, options=SECOND)
    assert json.loads(dialect.encode_request(request, ctx).body)["forwardedProps"] == props
    first = json.loads(dialect.encode_request(request, context(request=request)).body)
    assert first["resume"] == {"interruptId": "", "payload": '{"ok":true}'}


@pytest.mark.parametrize(
    "body",
    [
        {"threadId": "t"},
        {"threadId": "t", "messages": 5},
        {"runId": "r", "messages": ["x"]},
        {"threadId": 5, "messages": []},
    ],
)
def test_an_invalid_body_is_answered_in_this_generations_shape(body: Any) -> None:
    with pytest.raises(RequestError) as caught:
        asked(body)
    wire = dialect.encode_error(caught.value.failure)
    value = json.loads(wire.body)
    assert wire.status == 400
    assert set(value) == {"error", "requestId"}
    assert value["error"]["code"] == "INVALID_REQUEST"
    assert value["error"]["message"]


def test_the_spelling_of_python_models() -> None:
    props = {"command": {"resume": "yes"}}
    request = asked({"thread_id": "t", "run_id": "r", "messages": [], "forwarded_props": props})
    assert (request.thread_id, request.run_id, request.extra("ag-kit")["notes"]["generation"]) == ("t", "r", 2)
    assert [r.payload for r in request.resume] == ["yes"]


@pytest.mark.parametrize("generation", [None, 1, 2])
def test_a_body_of_neither_generation_begins_a_conversation_of_the_routes(generation: int | None) -> None:
    request = asked({"messages": []}, options=FrontOptions(generation=generation))
    assert request.extras is not None
    assert request.extras["ag-kit"]["notes"]["generation"] == (generation or 1)
    assert request.thread_id


def answered(made: Builder, **options: Any) -> list[dict[str, Any]]:
    request = asked({"threadId": "t", "runId": "r", "messages": []})
    frames = encode(made.take(), context(request=request, thread_id="t", options=FrontOptions(**options)))
    assert b"[DONE]" not in frames
    return [json.loads(f) for f in frames if isinstance(f, bytes)]


def test_an_answer_is_ag_ui() -> None:
    made = context(run_id="back").builder()
    made.flow("m", PartKind.TEXT, "hello")
    made.finish()
    made.end()
    events = answered(made)
    assert [e["type"] for e in events] == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert (events[0]["threadId"], events[0]["runId"]) == ("t", "r")


def test_reasoning_is_told_as_the_reference_server_tells_it() -> None:
    """Clients of this generation have AG-UI libraries of before 1.0, of which many refuse the newer names."""

    def told(**options: Any) -> list[str]:
        made = context(run_id="back").builder()
        made.flow("m", PartKind.REASONING, "hmm")
        made.flow("m", PartKind.TEXT, "done")
        made.finish()
        made.end()
        return [e["type"] for e in answered(made, **options)]

    recorded = [json.loads(line[6:])["type"] for line in body_of("g2-thinking").splitlines() if line]
    assert told()[:6] == recorded[:6]
    assert told(reasoning_events="reasoning")[1] == "REASONING_START"
    assert told(reasoning_events="none")[1] == "TEXT_MESSAGE_START"


def test_an_interrupt_is_a_custom_event_with_json_text() -> None:
    made = context(run_id="back").builder()
    made.interrupt(Interrupted("i", "approval", {"question": "Go on?"}))
    made.finish()
    made.end()
    events = answered(made)
    assert events[1:] == [
        {"type": "CUSTOM", "name": "on_interrupt", "value": '{"question":"Go on?"}'},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    ]
    back = fold(decode([join([orjson.dumps(e) for e in events])]))
    assert (back.reason, [i.payload for i in back.interrupts]) == (FinishReason.INTERRUPTED, [{"question": "Go on?"}])


def test_a_failure_in_the_stream_is_a_run_error() -> None:
    made = context(run_id="back").builder()
    made.flow("m", PartKind.TEXT, "part")
    made.fail(Failure(ErrorCode.BACKEND_TIMEOUT, "The backend stopped responding."))
    assert answered(made)[-1]["type"] == "RUN_ERROR"


def test_a_failure_is_a_message_too_where_the_route_says_so() -> None:
    made = context(run_id="back").builder()
    made.flow("m", PartKind.TEXT, "part")
    made.fail(Failure(ErrorCode.BACKEND_TIMEOUT, "The backend stopped responding."))
    events = answered(made, errors="text")
    assert [e["type"] for e in events[-4:]] == [
        "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_ERROR",
    ]  # fmt: skip
    assert events[-3]["delta"] == "Error: The backend stopped responding."
    assert events[-3]["messageId"] != events[1]["messageId"]


def test_without_ag_ui_generation_2_is_refused_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    known = dict(registry._registered)
    known.pop("ag-ui")
    monkeypatch.setattr(registry, "_registered", known)
    monkeypatch.setattr(registry, "entry_points", lambda **_: [])
    monkeypatch.setattr(registry, "_installed", {})
    with pytest.raises(Unsupported, match="ag-ui") as caught:
        asked({"threadId": "t", "messages": []})
    assert dialect.encode_error(caught.value.failure).status == 422
    failure = fold(decode([body_of("g2-text-turn1")])).failure
    assert failure is not None
    assert failure.code is ErrorCode.BACKEND_PROTOCOL
    assert "ag-ui" in failure.message


def test_the_front_takes_any_path_of_its_surface() -> None:
    wire = WireRequest("POST", "/v1/aibot/bots/b1/send-message", params={"id": "b1"}, body=b'{"conversationId":"c"}')
    assert dialect.decode_request(wire, context()).thread_id == "c"
