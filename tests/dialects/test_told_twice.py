"""Streams that say a thing twice, late, in pieces or under another name: nothing is lost, nothing is said twice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import Context, Losses, registry
from bridge.errors import ErrorCode, Failure
from bridge.model import FinishReason, Request
from bridge.model.fold import Answer, fold
from bridge.translation.framing.sse import Splitter
from bridge.translation.library import translate

Wire = dict[str, Any]
RUN = {"threadId": "t", "runId": "r"}


def lines(*objects: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in objects)


def decoded(dialect: str, *objects: Any, failure: Failure | None = None, request: Request | None = None) -> Answer:
    """The answer of a stream that comes in one piece, and the same if each event comes by itself."""
    each = registry.get(dialect)
    answers = []
    for frames in ([Splitter().feed(lines(*objects))], [Splitter().feed(lines(event)) for event in objects]):
        decoder = each.decoder(Context("run", "thread", 1.0, each.back_options(), "m", request, Losses()))
        events = [event for some in frames for event in decoder.feed(some)]
        answers.append(fold([*events, *decoder.close(failure)]))
    assert (answers[0].text, answers[0].reason, answers[0].calls) == (
        answers[1].text,
        answers[1].reason,
        answers[1].calls,
    )
    return answers[0]


# ------------------------------------------------------------------ calls, in every dialect


def _chat(pieces: list[str], call_id: Any, name: Any) -> list[Wire]:
    def chunk(delta: Wire, end: str | None = None) -> Wire:
        return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}

    head = {"index": 0, "id": call_id, "function": {"name": name, "arguments": ""}}
    rest = [{"index": 0, "function": {"arguments": piece}} for piece in pieces]
    return [*(chunk({"tool_calls": [each]}) for each in (head, *rest)), chunk({}, "tool_calls")]


def _responses(pieces: list[str], call_id: Any, name: Any) -> list[Wire]:
    item = {"type": "function_call", "id": "i", "call_id": call_id, "name": name, "arguments": ""}
    deltas = [
        {"type": "response.function_call_arguments.delta", "item_id": "i", "output_index": 0, "delta": piece}
        for piece in pieces
    ]
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        *deltas,
        {"type": "response.output_item.done", "output_index": 0, "item": {**item, "status": "completed"}},
        {"type": "response.completed", "response": {"id": "r", "status": "completed"}},
    ]


def _messages(pieces: list[str], call_id: Any, name: Any) -> list[Wire]:
    block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return [
        {"type": "message_start", "message": {"id": "m", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ]


def _ag_ui(pieces: list[str], call_id: Any, name: Any) -> list[Wire]:
    return [
        {"type": "RUN_STARTED", **RUN},
        {"type": "TOOL_CALL_START", "toolCallId": call_id, "toolCallName": name},
        *({"type": "TOOL_CALL_ARGS", "toolCallId": call_id, "delta": piece} for piece in pieces),
        {"type": "TOOL_CALL_END", "toolCallId": call_id},
        {"type": "RUN_FINISHED", **RUN},
    ]


def _ui(pieces: list[str], call_id: Any, name: Any) -> list[Wire]:
    return [
        {"type": "start"},
        {"type": "tool-input-start", "toolCallId": call_id, "toolName": name},
        *({"type": "tool-input-delta", "toolCallId": call_id, "inputTextDelta": piece} for piece in pieces),
        {"type": "finish"},
    ]


def _kit(pieces: list[str], call_id: Any, name: Any) -> list[Wire]:
    return [
        {"type": "tool-call-start", "toolCallId": call_id, "toolCallName": name},
        *({"type": "tool-call-args", "toolCallId": call_id, "delta": piece} for piece in pieces),
        {"type": "tool-call-end", "toolCallId": call_id},
    ]


CALLS = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic-messages": _messages,
    "ag-ui": _ag_ui,
    "ai-sdk-ui": _ui,
    "ag-kit": _kit,
}


@pytest.mark.parametrize("dialect", CALLS)
@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [
        (["{}"], {}),
        (["null", '{"a":"x"}'], {"a": "x"}),
        (["{}", "{ }", '{"a":', '"x"}'], {"a": "x"}),
        (['""', '{"a":"x"}'], {"a": "x"}),
        (["{}", '{"a":', '"x"}'], {"a": "x"}),
        (['{}{"a":"x"}'], {"a": "x"}),
        (['{"a":', "{}", "}"], {"a": {}}),
    ],
)
def test_empty_arguments_before_the_real_ones_are_a_placeholder(
    dialect: str, pieces: list[str], arguments: Wire
) -> None:
    answer = decoded(dialect, *CALLS[dialect](pieces, "c", "f"))
    assert [json.loads(call.arguments) for call in answer.calls] == [arguments]
    assert answer.failure is None


@pytest.mark.parametrize("sent", [{"a": "x"}, '{"a":"x"}', '{}{"a":"x"}', 'null{"a":"x"}'])
@pytest.mark.parametrize("event", ["added", "done", "arguments"])
def test_whole_arguments_of_responses_are_read_in_every_place_and_form(event: str, sent: Any) -> None:
    item = {"type": "function_call", "id": "i", "call_id": "c", "name": "f"}
    filled = {**item, "arguments": sent, "status": "completed"}
    begun = {"type": "response.output_item.added", "output_index": 0, "item": filled if event == "added" else item}
    told = {"type": "response.function_call_arguments.done", "item_id": "i", "output_index": 0, "arguments": sent}
    ended = {"type": "response.output_item.done", "output_index": 0, "item": item if event == "arguments" else filled}
    events = [begun, *([told] if event == "arguments" else []), ended]
    answer = decoded("openai-responses", *events, {"type": "response.completed", "response": {"status": "completed"}})
    assert [json.loads(call.arguments) for call in answer.calls] == [{"a": "x"}]


@pytest.mark.parametrize("dialect", CALLS)
@pytest.mark.parametrize("name", ["", None])
def test_a_call_that_never_gets_a_name_is_a_protocol_error(dialect: str, name: str | None) -> None:
    answer = decoded(dialect, *CALLS[dialect](['{"a":1}'], "c", name))
    assert answer.calls == []
    assert answer.failure is not None
    assert answer.failure.code is ErrorCode.BACKEND_PROTOCOL


@pytest.mark.parametrize("dialect", CALLS)
@pytest.mark.parametrize("no_id", ["null", "None", "undefined"])
def test_the_word_null_is_no_id(dialect: str, no_id: str) -> None:
    (call,) = decoded(dialect, *CALLS[dialect](['{"a":1}'], no_id, "f")).calls
    assert call.call_id not in (no_id, "")
    assert (call.name, call.arguments) == ("f", '{"a":1}')


@pytest.mark.parametrize("dialect", CALLS)
def test_a_name_without_an_error_is_kept(dialect: str) -> None:
    (call,) = decoded(dialect, *CALLS[dialect](["{}"], "c", "null")).calls
    assert (call.call_id, call.name) == ("c", "null")


# ------------------------------------------------------------------ chat


def _chunk(delta: Any = None, end: str | None = None, message: Any = None, **beside: Any) -> Wire:
    choice = {"index": 0, "finish_reason": end, **beside}
    choice |= {"message": message} if message is not None else {"delta": delta if delta is not None else {}}
    return {"id": "c", "model": "m", "choices": [choice]}


def test_a_whole_message_after_its_deltas_is_a_repetition() -> None:
    whole = {"role": "assistant", "content": "hello"}
    answer = decoded(
        "openai-chat", _chunk({"content": "hel"}), _chunk({"content": "lo"}), _chunk(end="stop", message=whole)
    )
    assert (answer.text, answer.reason) == ("hello", FinishReason.STOP)
    pieces = [_chunk(message={"content": piece}) for piece in ("hel", "lo")]
    assert decoded("openai-chat", *pieces, _chunk(end="stop", message={"content": ""})).text == "hello"


def test_calls_in_a_message_after_deltas_of_text_are_new() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    whole = {"content": "hello", "tool_calls": [call]}
    answer = decoded("openai-chat", _chunk({"content": "hello"}), _chunk(end="tool_calls", message=whole))
    assert (answer.text, [c.name for c in answer.calls]) == ("hello", ["f"])
    again = decoded(
        "openai-chat", _chunk({"tool_calls": [{"index": 0, **call}]}), _chunk(end="tool_calls", message=whole)
    )
    assert [c.name for c in again.calls] == ["f"]


@pytest.mark.parametrize("field", ["stop_reason", "matched_stop", "stopping_word"])
def test_messages_clients_are_told_the_stop_sequence_that_matched(field: str) -> None:
    request = Request("hi")
    request.sampling.stop = ["END"]
    for value, known in (("END", "END"), ("other", None), (151645, None), (None, None)):
        answer = decoded("openai-chat", _chunk({"content": "x"}), _chunk(end="stop", **{field: value}), request=request)
        front = registry.get("anthropic-messages")
        each = registry.get("openai-chat")
        decoder = each.decoder(Context("run", "thread", 1.0, each.back_options(), "m", request, Losses()))
        body = lines(_chunk({"content": "x"}), _chunk(end="stop", **{field: value}))
        events = [*decoder.feed(Splitter().feed(body)), *decoder.close()]
        whole = json.loads(
            front.assemble(events, Context("run", "thread", 1.0, front.front_options(), "m", request)).body
        )
        assert whole["stop_sequence"] == known
        assert whole["stop_reason"] == ("stop_sequence" if known else "end_turn")
        assert answer.reason is FinishReason.STOP


# ------------------------------------------------------------------ Responses


def _delta(kind: str, text: str, **where: Any) -> Wire:
    return {"type": f"response.{kind}.delta", "delta": text, **where}


@pytest.mark.parametrize("where", [{}, {"item_id": "x"}, {"output_index": 0, "content_index": 0}])
@pytest.mark.parametrize("item_id", [None, "x", "y"])
def test_pieces_without_their_item_are_not_said_again_by_the_last_event(where: Wire, item_id: str | None) -> None:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hello"}]}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    call = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}"}
    output = [thought, {**message, **({"id": item_id} if item_id else {})}, call]
    if "output_index" in where:
        output = [message, call]
    answer = decoded(
        "openai-responses",
        *([_delta("reasoning_summary_text", "hm")] if "output_index" not in where else []),
        _delta("output_text", "hel", **where),
        _delta("output_text", "lo", **where),
        {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": output}},
    )
    assert (answer.text, [c.name for c in answer.calls]) == ("hello", ["f"])
    assert answer.reasoning == ("hm" if "output_index" not in where else "")


def test_an_item_that_begins_twice_is_one() -> None:
    item = {"type": "function_call", "id": "i", "call_id": "c", "name": "f", "arguments": ""}
    added = {"type": "response.output_item.added", "output_index": 0, "item": item}
    delta = {"type": "response.function_call_arguments.delta", "item_id": "i", "output_index": 0, "delta": '{"a":1}'}
    end = {"type": "response.completed", "response": {"id": "r", "status": "completed"}}
    answer = decoded("openai-responses", added, added, delta, end)
    assert [(c.call_id, c.arguments) for c in answer.calls] == [("c", '{"a":1}')]


# ------------------------------------------------------------------ AG-UI


def _text(name: str, text: str) -> list[Wire]:
    kinds = ("START", "CONTENT", "END")
    return [{"type": f"TEXT_MESSAGE_{kind}", "messageId": name, "delta": text} for kind in kinds]


def _thought(name: str, text: str) -> list[Wire]:
    kinds = ("START", "CONTENT", "END")
    return [{"type": f"REASONING_MESSAGE_{kind}", "messageId": name, "delta": text} for kind in kinds]


START, FINISHED = {"type": "RUN_STARTED", **RUN}, {"type": "RUN_FINISHED", **RUN}


def _texts(*events: Wire) -> list[tuple[str, str]]:
    """The texts that an AG-UI client sees through the bridge, each with its id."""
    found: dict[str, str] = {}
    for line in translate(lines(START, *events, FINISHED), "ag-ui", "ag-ui").splitlines():
        if line[:6] == b"data: " and (event := json.loads(line[6:]))["type"] == "TEXT_MESSAGE_CONTENT":
            found[event["messageId"]] = found.get(event["messageId"], "") + event["delta"]
    return list(found.items())


def test_a_text_that_begins_again_at_once_is_one_text() -> None:
    assert _texts(*_text("x", "a"), *_text("x", "b"), *_text("x", "c")) == [("x", "abc")]
    assert _texts(*_text("x", "a"), _text("x", "b")[1]) == [("x", "ab")]
    assert len(_texts(*_text("x", "a"), *_text("y", "b"), *_text("x", "c"))) == 3
    step = {"type": "STEP_STARTED", "stepName": "s"}
    assert [text for _, text in _texts(*_text("x", "a"), step, *_text("x", "b"))] == ["a", "b"]


def test_reasoning_that_begins_again_at_once_is_one() -> None:
    answer = decoded("ag-ui", START, *_thought("x", "a"), *_thought("x", "b"), *_text("m", "t"), FINISHED)
    assert [p.text for p in answer.parts()] == ["ab", "t"]  # type: ignore[union-attr]


SECOND = {"type": "RUN_STARTED", "threadId": "t", "runId": "r2"}
FAILED = {"type": "RUN_ERROR", "message": "It broke."}


def test_a_second_run_in_a_stream_continues_the_answer() -> None:
    end = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r2"}
    for first in (FINISHED, FAILED):
        answer = decoded("ag-ui", START, *_text("m", "one"), first, SECOND, *_text("m", "two"), end)
        assert [p.text for p in answer.parts()] == ["one", "two"]  # type: ignore[union-attr]
        assert (answer.failure, answer.reason) == (None, FinishReason.STOP)
        assert len({message.id for message in answer.messages}) == 2
    failed = decoded("ag-ui", START, *_text("m", "one"), FINISHED, SECOND, *_text("n", "two"), FAILED)
    assert failed.failure is not None
    assert failed.failure.message == "It broke."
    cut = decoded("ag-ui", START, *_text("m", "one"), FINISHED, SECOND, *_text("n", "two"))
    assert cut.failure is not None
    assert cut.failure.code is ErrorCode.TRUNCATED_STREAM


def test_many_runs_and_messages_are_read() -> None:
    answer = decoded("ag-ui", *([START, *_text("m", "x"), FINISHED] * 300))
    assert (len(answer.messages), answer.failure) == (300, None)
    assert decoded("a2a", *[_said("m", "x")] * 2000).text == "x" * 2000


def test_what_belongs_to_no_run_is_no_part_of_the_answer() -> None:
    answer = decoded("ag-ui", START, *_text("m", "one"), FINISHED, *_text("n", "late"))
    assert answer.text == "one"
    broken = Failure(ErrorCode.BACKEND_UNAVAILABLE, "It broke off.")
    assert decoded("ag-ui", START, *_text("m", "one"), FINISHED, failure=broken).failure is None


def test_a_question_of_a_run_that_another_one_follows_is_no_question() -> None:
    asks = {**FINISHED, "outcome": {"type": "interrupt", "interrupts": [{"id": "i", "reason": "input_required"}]}}
    assert decoded("ag-ui", START, asks).reason is FinishReason.INTERRUPTED
    answer = decoded("ag-ui", START, asks, SECOND, *_text("n", "two"), FINISHED)
    assert (answer.interrupts, answer.text) == ([], "two")


@pytest.mark.parametrize("error", [{"error": "No agent."}, {"error": {"message": "No agent."}}])
def test_an_error_in_a_raw_event_fails_an_answer_that_has_nothing_else(error: Wire) -> None:
    raw = {"type": "RAW", "event": error}
    for events in ([raw, FINISHED], [START, raw, FINISHED]):
        failure = decoded("ag-ui", *events).failure
        assert failure is not None
        assert failure.message == "No agent."
    assert decoded("ag-ui", START, *_text("m", "one"), raw, FINISHED).failure is None
    assert decoded("ag-ui", START, {"type": "RAW", "event": {"error": None}}, FINISHED).failure is None


# ------------------------------------------------------------------ A2A


def _said(name: str, *texts: str) -> Wire:
    parts = [{"kind": "text", "text": text} for text in texts]
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {"kind": "message", "messageId": name, "role": "agent", "parts": parts},
    }


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([_said("m", "Hello")], "Hello"),
        ([_said("m", "Hel"), _said("m", "lo")], "Hello"),
        ([_said("m"), _said("m", "Hel"), _said("m", "lo"), _said("m")], "Hello"),
        ([_said("m", "ha"), _said("m", "ha")], "haha"),
        ([_said("m", "Hel"), _said("m", "lo"), _said("m", "Hello")], "Hello"),
        ([_said("1", "Hel"), _said("2", "lo")], "Hello"),
    ],
)
def test_an_agent_may_send_its_answer_as_many_messages(messages: list[Wire], text: str) -> None:
    answer = decoded("a2a", *messages)
    assert (answer.text, answer.reason) == (text, FinishReason.STOP)


def test_messages_that_break_off_are_no_complete_answer() -> None:
    broken = Failure(ErrorCode.BACKEND_UNAVAILABLE, "It broke off.")
    assert decoded("a2a", _said("m", "Hel"), _said("m", "lo"), failure=broken).failure == broken
    open_too_long = Failure(ErrorCode.BACKEND_TIMEOUT, "Nothing came.")
    assert decoded("a2a", _said("m", "Hello"), failure=open_too_long).failure is None
    assert decoded("a2a", _said("m", "Hel"), _said("m", "lo"), failure=open_too_long).failure == open_too_long


def test_a_message_before_a_task_is_not_the_end() -> None:
    status = {"kind": "status-update", "taskId": "t", "status": {"state": "completed"}, "final": True}
    artifact = {"artifactId": "a", "parts": [{"kind": "text", "text": "two"}]}
    update = {"kind": "artifact-update", "taskId": "t", "artifact": artifact}
    events = [{"jsonrpc": "2.0", "id": 1, "result": each} for each in (update, status)]
    answer = decoded("a2a", _said("m", "one"), *events)
    assert [p.text for p in answer.parts()] == ["one", "two"]  # type: ignore[union-attr]


# ------------------------------------------------------------------ LiteLLM's signed reasoning


def test_signed_reasoning_of_litellm_goes_back_where_it_came_from() -> None:
    block = {"type": "thinking", "thinking": "hm", "signature": None}
    signed = {"type": "thinking", "thinking": "", "signature": "SIG=="}
    streamed = decoded(
        "openai-chat",
        _chunk({"reasoning_content": "hm", "thinking_blocks": [block]}),
        _chunk({"reasoning_content": "", "thinking_blocks": [signed]}),
        _chunk({"content": "x"}, "stop"),
    )
    whole = decoded(
        "openai-chat", _chunk({"thinking_blocks": [{**block, "signature": "SIG=="}], "content": "x"}, "stop")
    )
    for answer in (streamed, whole):
        thought = answer.parts()[0]
        request = Request("q")
        request.messages += [answer.messages[0]]
        each = registry.get("openai-chat")
        sent = each.encode_request(request, Context("run", "thread", 1.0, each.back_options(), "m", request))
        assert json.loads(sent.body)["messages"][1]["thinking_blocks"] == [
            {"type": "thinking", "thinking": "hm", "signature": "SIG=="}
        ], thought


# ------------------------------------------------------------------ anything

FIELDS = ["id", "index", "function", "name", "arguments", "type", "text", "thinking", "signature", "data"]
WORDS = ["", "x", "null", "{}", "{", "function"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=10,
)


@given(
    st.lists(
        st.tuples(st.sampled_from(["content", "tool_calls", "thinking_blocks", "reasoning_content"]), JSON), max_size=5
    )
)
def test_any_piece_of_a_chat_answer_is_read(pieces: list[tuple[str, Any]]) -> None:
    decoded("openai-chat", *(_chunk({name: value}) for name, value in pieces), _chunk(end="stop"))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "TEXT_MESSAGE_START",
                    "TEXT_MESSAGE_CONTENT",
                    "TEXT_MESSAGE_END",
                    "REASONING_MESSAGE_CONTENT",
                    "REASONING_MESSAGE_END",
                    "RUN_STARTED",
                    "RUN_FINISHED",
                    "RUN_ERROR",
                    "RAW",
                    "STEP_STARTED",
                ]
            ),
            st.sampled_from(["x", "y", "null", ""]),
        ),
        max_size=12,
    )
)
def test_any_order_of_runs_and_texts_is_read(events: list[tuple[str, str]]) -> None:
    told = [{"type": kind, "messageId": name, "delta": "d", "event": {"error": name}} for kind, name in events]
    answer = decoded("ag-ui", *told)
    assert answer.failure is not None or answer.reason is not None


# ------------------------------------------------------------------ whole objects, late and growing


def _whole(text: str, end: str | None = None, **more: Any) -> Wire:
    message = {"role": "assistant", "content": text, **more}
    return {"id": "c", "object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": end}]}


CALL_OF_CHAT: dict[str, Any] = {
    "tool_calls": [{"index": 0, "id": "k", "function": {"name": "f", "arguments": '{"a":1}'}}]
}


@pytest.mark.parametrize(
    ("objects", "text", "calls"),
    [
        ([_whole("Hel"), _whole("Hello"), _whole("Hello you", "stop")], "Hello you", 0),
        ([_whole("Hello", "stop"), _whole("Hello", "stop")], "Hello", 0),
        ([_whole("Hel"), _whole("Hello", **CALL_OF_CHAT), _whole("Hello", "tool_calls", **CALL_OF_CHAT)], "Hello", 1),
        ([_chunk({"content": "Hel"}), _chunk({"content": "lo"}), _whole("Hello", "stop")], "Hello", 0),
        ([_whole("a"), _whole("b", "stop")], "ab", 0),
        ([_chunk(message={"content": "ha"}), _chunk(message={"content": "haha"}, end="stop")], "hahaha", 0),
        ([_chunk({"content": "ha"}), _chunk({"content": "haha"}, "stop")], "hahaha", 0),
    ],
)
def test_whole_completions_in_a_stream_grow_and_pieces_do_not(objects: list[Wire], text: str, calls: int) -> None:
    """Only an object that says that it is whole is a snapshot: a text may begin with itself."""
    answer = decoded("openai-chat", *objects)
    assert (answer.text, len(answer.calls), answer.failure) == (text, calls, None)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.output_text.done", "text": "hello"},
        {"type": "response.content_part.done", "part": {"type": "output_text", "text": "hello"}},
    ],
)
@pytest.mark.parametrize("place", [{}, {"item_id": "i"}, {"item_id": "i", "output_index": 1, "content_index": 0}])
@pytest.mark.parametrize("before", ["", "hel", "call"])
def test_a_whole_text_without_its_item_is_said_once(event: Wire, place: Wire, before: str) -> None:
    call = {"type": "function_call", "id": "f", "call_id": "c", "name": "f", "arguments": "{}"}
    first: list[Wire] = [{"type": "response.output_item.done", "output_index": 0, "item": call}]
    if before != "call":
        pieces = [before, "hello".removeprefix(before)] if before else []
        first = [{"type": "response.output_text.delta", "delta": piece, **place} for piece in pieces]
    end = {"type": "response.completed", "response": {"id": "r", "status": "completed"}}
    answer = decoded("openai-responses", *first, {**event, **place}, end)
    assert answer.text == "hello"


MESSAGE_START = {"type": "message_start", "message": {"id": "m", "content": [{"type": "text", "text": "Hi"}]}}


@pytest.mark.parametrize("text", ["", "Hi", "Ho"])
def test_the_content_of_a_message_start_is_read_if_nothing_else_comes(text: str) -> None:
    block: list[Wire] = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
    ]
    end = [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]
    assert decoded("anthropic-messages", MESSAGE_START, *(block if text else []), *end).text == (text or "Hi")


def _custom(name: str, value: Any, text: str) -> list[Wire]:
    said = {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": text}
    events: list[Wire] = [{"type": "CUSTOM", "name": name, "value": value}, *([said] if text else [])]
    return [{"type": "RUN_STARTED", **RUN}, *events, {"type": "RUN_FINISHED", **RUN}]


def _ui_data(name: str, value: Any, text: str) -> list[Wire]:
    said = [{"type": "text-start", "id": "1"}, {"type": "text-delta", "id": "1", "delta": text}]
    head: list[Wire] = [{"type": "start"}, {"type": f"data-{name}", "data": value}]
    return [*head, *(said if text else []), {"type": "finish"}]


@pytest.mark.parametrize("value", ["No agent.", {"error": "No agent."}, {"message": "No agent.", "code": "x"}])
@pytest.mark.parametrize("name", ["error", "on_error", "agentError"])
@pytest.mark.parametrize(("dialect", "events"), [("ag-ui", _custom), ("ai-sdk-ui", _ui_data)])
def test_an_error_in_an_event_of_the_agents_own_fails_an_answer_that_has_nothing_else(
    dialect: str, events: Any, name: str, value: Any
) -> None:
    failure = decoded(dialect, *events(name, value, "")).failure
    assert failure is not None
    assert (failure.code, failure.message) == (ErrorCode.BACKEND_ERROR, "No agent.")
    assert decoded(dialect, *events(name, value, "hello")).text == "hello"
    assert decoded(dialect, *events("progress", value, "")).failure is None
