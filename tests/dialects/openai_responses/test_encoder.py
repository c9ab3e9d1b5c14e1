"""Events -> the stream, golden; every stream here has also been judged by the SDK's types."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import Frame
from bridge.dialects.openai_responses import dialect
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Builder,
    Custom,
    Data,
    FinishReason,
    Heartbeat,
    Interrupted,
    Media,
    MediaKind,
    MessageStatus,
    Origin,
    PartKind,
    Raw,
    Reasoning,
    RunFinished,
    StateChanged,
    StateOp,
    StepStarted,
    Text,
    ToolCall,
    Url,
    UsageReported,
)

from .helpers import asked, assembled, build, decode_events, emitted, final, frames, front, kinds, request

PICTURE = Media(MediaKind.IMAGE, Url("https://x.test/a.png"))


def test_a_text_as_it_is() -> None:
    def tell(b: Builder) -> None:
        b.message(0, message_id="msg_7")
        b.flow(0, PartKind.TEXT, "Hel")
        b.flow(0, PartKind.TEXT, "lo \u2028")
        b.usage(UsageReported(3, 2, None, 1, None))

    wire = frames(build(tell))
    place = b'"item_id":"msg_7","output_index":0,"content_index":0'
    part = '{"type":"output_text","text":"Hello \u2028","annotations":[],"logprobs":[]}'.encode()
    item = b'{"id":"msg_7","type":"message","status":"%b","role":"assistant","content":[%b]}'
    assert [f.data for f in wire if isinstance(f, Frame)][2:-1] == [
        b'{"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":'
        + item % (b"in_progress", b"")
        + b"}",
        b'{"type":"response.content_part.added","sequence_number":3,' + place + b',"part":'
        b'{"type":"output_text","text":"","annotations":[],"logprobs":[]}}',
        b'{"type":"response.output_text.delta","sequence_number":4,' + place + b',"delta":"Hel","logprobs":[]}',
        b'{"type":"response.output_text.delta","sequence_number":5,'
        + place
        + ',"delta":"lo \u2028","logprobs":[]}'.encode(),
        b'{"type":"response.output_text.done","sequence_number":6,'
        + place
        + ',"text":"Hello \u2028","logprobs":[]}'.encode(),
        b'{"type":"response.content_part.done","sequence_number":7,' + place + b',"part":' + part + b"}",
        b'{"type":"response.output_item.done","sequence_number":8,"output_index":0,"item":'
        + item % (b"completed", part)
        + b"}",
    ]
    last = final(build(tell))
    assert last["usage"] == {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 5,
    }
    assert (last["id"], last["created_at"], last["model"]) == ("resp_run1", 1700000000, "m")


def test_the_same_events_give_the_same_bytes() -> None:
    events = build(lambda b: b.flow(0, PartKind.TEXT, "x"))
    assert frames(events) == frames(events)


def test_calls_that_interleave_become_items_one_after_another() -> None:
    def tell(b: Builder) -> None:
        b.open_part("a", 0, PartKind.TOOL_CALL, call_id="ca", name="f")
        b.open_part("b", 0, PartKind.TOOL_CALL, call_id="cb", name="g")
        for key, piece in (("a", '{"x"'), ("b", '{"y":'), ("a", ":1}"), ("b", "2}")):
            b.delta(key, piece)

    events = emitted(build(tell))
    assert [(e["output_index"], e["delta"]) for e in events if e["type"].endswith("arguments.delta")] == [
        (0, '{"x"'),
        (0, ":1}"),
        (1, '{"y":'),
        (1, "2}"),
    ]
    done = [e for e in events if e["type"].endswith("arguments.done")]
    assert [(e["name"], e["arguments"]) for e in done] == [("f", '{"x":1}'), ("g", '{"y":2}')]
    items = events[-1]["response"]["output"]
    assert [(i["type"], i["call_id"], i["status"]) for i in items] == [
        ("function_call", "ca", "completed"),
        ("function_call", "cb", "completed"),
    ]
    assert len({i["id"] for i in items}) == 2


def test_a_call_without_arguments_gets_an_object() -> None:
    events = emitted(build(lambda b: b.add(0, ToolCall("c", "f", ""))))
    assert [e["delta"] for e in events if "delta" in e] == ["{}"]
    assert events[-1]["response"]["output"][0]["arguments"] == "{}"


def test_text_reasoning_text_in_one_message_are_three_items() -> None:
    def tell(b: Builder) -> None:
        for kind in (PartKind.TEXT, PartKind.REASONING, PartKind.TEXT):
            b.flow(0, kind, "x")

    output = final(build(tell))["output"]
    assert [i["type"] for i in output] == ["message", "reasoning", "message"]
    assert output[0]["id"] != output[2]["id"]


def test_text_and_refusal_of_one_message_are_one_item() -> None:
    def tell(b: Builder) -> None:
        b.flow(0, PartKind.TEXT, "Well.")
        b.flow(0, PartKind.REFUSAL, "No.")

    events = emitted(build(tell))
    assert [e["content_index"] for e in events if e["type"] == "response.content_part.done"] == [0, 1]
    assert [p["type"] for p in events[-1]["response"]["output"][0]["content"]] == ["output_text", "refusal"]


@pytest.mark.parametrize("form", ["content", "summary"])
def test_reasoning_of_other_dialects_is_told_as_the_option_says(form: str) -> None:
    part = Reasoning("Hm", "sig+/==")
    events = emitted(build(lambda b: b.add(0, part)), front({"reasoning": form}))
    item = events[-1]["response"]["output"][0]
    assert item["encrypted_content"] == "sig+/=="
    if form == "content":
        assert (item["summary"], item["content"]) == ([], [{"type": "reasoning_text", "text": "Hm"}])
        # What npm's `openai` wants: its `responses.stream` refuses a delta of a part that was not added.
        part_done = ["reasoning_text.done", "content_part.done"]
        assert kinds(events)[3:7] == ["content_part.added", "reasoning_text.delta", *part_done]
        assert [e["part"]["text"] for e in events if "content_part" in e["type"]] == ["", "Hm"]
    else:
        assert item["summary"] == [{"type": "summary_text", "text": "Hm"}]
        assert kinds(events)[3:7] == [
            "reasoning_summary_part.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.done",
            "reasoning_summary_part.done",
        ]


@pytest.mark.parametrize(("asks", "field"), [({"summary": "auto"}, "summary"), ({"effort": "low"}, "content")])
@pytest.mark.parametrize("option", [None, {"reasoning": "asked"}])
def test_reasoning_of_other_dialects_is_told_as_the_client_asks(asks: Any, field: str, option: Any) -> None:
    context = front(option, request=request(asked(reasoning=asks)))
    item = final(build(lambda b: b.add(0, Reasoning("Hm"))), context)["output"][0]
    assert [part["text"] for part in item[field]] == ["Hm"]


def test_reasoning_without_words_is_there_only_for_what_must_come_back() -> None:
    assert final(build(lambda b: b.add(0, Reasoning(""))))["output"] == []
    item = final(build(lambda b: b.add(0, Reasoning("", None, "secret"))))["output"][0]
    assert (item["summary"], item["encrypted_content"]) == ([], "redacted:secret")
    again = request(asked([item, {"role": "user", "content": "go on"}])).messages[0].parts[0]
    assert isinstance(again, Reasoning)
    assert (again.signature, again.redacted) == (None, "secret")


@pytest.mark.parametrize(
    ("reason", "status", "details"),
    [
        (FinishReason.STOP, "completed", None),
        (FinishReason.TOOL_CALLS, "completed", None),
        (FinishReason.LENGTH, "incomplete", {"reason": "max_output_tokens"}),
        (FinishReason.CONTENT_FILTER, "incomplete", {"reason": "content_filter"}),
    ],
)
def test_the_end(reason: FinishReason, status: str, details: Any) -> None:
    events = build(lambda b: b.flow(0, PartKind.TEXT, "x"))[:-1]
    last = final([*events, RunFinished(reason, 1700000009.5)])
    assert (last["status"], last["incomplete_details"], last["error"]) == (status, details, None)
    assert last["completed_at"] == (1700000009 if status == "completed" else None)


def test_a_message_that_was_cut_says_so() -> None:
    def tell(b: Builder) -> None:
        b.flow(0, PartKind.TEXT, "x")
        b.end_message(0, MessageStatus.INCOMPLETE)
        b.finish(FinishReason.LENGTH)

    assert final(build(tell))["output"][0]["status"] == "incomplete"


@pytest.mark.parametrize(
    ("code", "word", "kind"),
    [
        (ErrorCode.RATE_LIMITED, "rate_limit_exceeded", "rate_limit_exceeded"),
        (ErrorCode.INVALID_REQUEST, "invalid_prompt", "invalid_request"),
        (ErrorCode.CONTEXT_LENGTH, "context_length_exceeded", "context_length_exceeded"),
        (ErrorCode.BACKEND_TIMEOUT, "server_error", "backend_timeout"),
        (ErrorCode.CANCELED, "server_error", "canceled"),
    ],
)
def test_a_failure_closes_what_is_open_and_carries_what_is_known(code: ErrorCode, word: str, kind: str) -> None:
    def tell(b: Builder) -> None:
        b.usage(UsageReported(1, 2))
        b.flow(0, PartKind.TEXT, "Half")
        b.fail(Failure(code, "it broke", param="input[0]"))

    last = final(build(tell))
    assert last["error"] == {"code": word, "message": "it broke", "type": kind, "param": "input[0]"}
    assert (last["status"], last["output"][0]["status"], last["usage"]["total_tokens"]) == ("failed", "incomplete", 3)


def test_a_canceled_run_is_no_success() -> None:
    events = [*build(lambda b: b.flow(0, PartKind.TEXT, "x"))[:-1], RunFinished(FinishReason.CANCELED)]
    context = front()
    assert final(events, context)["error"]["type"] == "canceled"
    assert context.lost.names == ["finish_canceled"]
    assert dialect.assemble(events, front()).status == 499


def test_media_are_told_as_text_or_dropped() -> None:
    def tell(b: Builder) -> None:
        b.flow(0, PartKind.TEXT, "See: ")
        b.add(0, PICTURE)
        b.add(0, Data({"a": 1}))

    context = front()
    content = final(build(tell), context)["output"][0]["content"]
    assert [p["text"] for p in content] == ["See: ", "![image](https://x.test/a.png)", '{"a":1}']
    assert context.lost.names == ["image", "data", "usage"]
    assert len(final(build(tell), front({"media": "drop"}))["output"][0]["content"]) == 1


def test_what_the_wire_has_no_event_for_is_recorded() -> None:
    def tell(b: Builder) -> None:
        b.add(0, ToolCall("c", "f", "{}", Origin.MCP, "server"))
        b.result("c", [Text("r")])
        b.emit(StepStarted("s"))
        b.emit(StateChanged(StateOp.SNAPSHOT, {}))
        b.emit(Custom("c"))
        b.emit(Raw("other", 1))
        b.interrupt(Interrupted("i"))
        b.message("second", choice=1)
        b.flow("second", PartKind.TEXT, "other choice")

    context = front()
    events = emitted(build(tell), context)
    assert set(context.lost.names) == {
        "tool_origin", "tool_result", "step", "state", "custom", "raw", "interrupt", "choices", "usage",
    }  # fmt: skip
    assert "other choice" not in json.dumps(events)


def test_a_question_to_a_person_is_told_by_its_call_or_as_text() -> None:
    def tell(b: Builder) -> None:
        b.flow(0, PartKind.TEXT, "Wait.")
        b.add(0, ToolCall("c", "f", "{}"))
        b.interrupt(Interrupted("i1", "approval", {"name": "f"}, "c"))
        b.interrupt(Interrupted("i2", None, "May I?"))

    output = final(build(tell))["output"]
    assert [i["type"] for i in output] == ["message", "function_call", "message"]
    assert output[2]["content"][0]["text"] == "May I?"
    cut = [e for e in build(tell) if not isinstance(e, RunFinished)]
    assert len(final([*cut, RunFinished(FinishReason.CANCELED)])["output"]) == 2


def test_silence() -> None:
    beat = build(lambda b: b.emit(Heartbeat()))
    assert [f.comment for f in frames(beat) if isinstance(f, Frame) and f.comment] == [b"keep-alive"]


def test_the_response_repeats_what_was_asked() -> None:
    fields = {
        "instructions": "Be short.",
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 99,
        "max_tool_calls": 3,
        "parallel_tool_calls": False,
        "tool_choice": {"type": "function", "name": "f"},
        "tools": [
            {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False, "description": "d"}
        ],
        "text": {
            "format": {
                "type": "json_schema",
                "name": "n",
                "schema": {"type": "object"},
                "strict": True,
                "description": "d",
            },
            "verbosity": "low",
        },
        "reasoning": {"effort": "low", "summary": "auto"},
        "metadata": {"k": "v"},
        "user": "u",
        "truncation": "auto",
        "service_tier": "flex",
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "top_logprobs": 2,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
    }
    context = front(request=request(asked(**fields)))
    for response in (final(build(lambda b: b.flow(0, PartKind.TEXT, "x")), context), assembled(build(lambda b: None))):
        assert {"id", "status", "error", "incomplete_details", "usage", "output", "store"} <= set(response)
    told = final(build(lambda b: None), context)
    assert {name: told[name] for name in fields} == fields
    assert told["store"] is False


def test_without_a_request_there_are_the_defaults() -> None:
    told = assembled(build(lambda b: None))
    assert (told["tools"], told["tool_choice"], told["parallel_tool_calls"]) == ([], "auto", True)
    assert (told["text"], told["metadata"], told["instructions"]) == ({"format": {"type": "text"}}, {}, None)
    assert (told["temperature"], told["top_p"], told["presence_penalty"], told["frequency_penalty"]) == (1, 1, 0, 0)
    assert (told["service_tier"], told["truncation"], told["top_logprobs"]) == ("default", "disabled", 0)
    names = ("max_tool_calls", "prompt_cache_key", "safety_identifier", "previous_response_id", "user")
    assert [told[name] for name in names] == [None] * 5


def test_functions_and_schemas_are_repeated_with_all_their_fields() -> None:
    fields = {
        "tools": [{"type": "function", "name": "f"}, {"type": "web_search"}],
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}},
    }
    told = final(build(lambda b: None), front(request=request(asked(**fields))))
    assert told["tools"] == [
        {"type": "function", "name": "f", "description": None, "parameters": None, "strict": True},
        {"type": "web_search"},
    ]
    assert told["text"]["format"] == {
        "type": "json_schema", "name": "n", "schema": {}, "description": None, "strict": False,
    }  # fmt: skip


@pytest.mark.parametrize("at_end", [False, True])
def test_what_a_backend_left_null_is_a_number_all_the_same(at_end: bool) -> None:
    said: dict[str, Any] = {
        "temperature": None, "top_p": 0.3, "truncation": None, "novel": None,
        "tools": [{"type": "function", "name": "f", "strict": None}],
    }  # fmt: skip
    head = {"id": "resp_7", "object": "response", "created_at": 1, "model": "m-1", "output": []}
    events = decode_events(
        {"type": "response.created", "response": {**head, **({} if at_end else said)}},
        {"type": "response.completed", "response": {**head, **said, "status": "completed"}},
    )
    for response in (e["response"] for e in emitted(events)[1 - 2 * at_end :] if "response" in e):
        assert (response["temperature"], response["top_p"], response["truncation"]) == (1.0, 0.3, "disabled")
        assert ("novel" in response) is not at_end
        assert response["tools"][0]["strict"] is True


def test_what_a_backend_left_out_of_an_object_is_there_all_the_same() -> None:
    head = {"id": "resp_7", "object": "response", "created_at": 1, "model": "m-1", "output": []}
    said = {**head, "text": {"verbosity": "low"}, "reasoning": {"effort": "high"}}
    events = decode_events(
        {"type": "response.created", "response": said},
        {"type": "response.completed", "response": {**said, "status": "completed", "reasoning": "much"}},
    )
    response = final(events)
    assert response["text"] == {"format": {"type": "text"}, "verbosity": "low"}
    assert response["reasoning"] == {"effort": "high", "summary": None}


def test_log_probabilities_of_other_servers_have_every_field() -> None:
    def tell(b: Builder) -> None:
        said = [
            {"token": "é", "logprob": -1, "bytes": None, "top_logprobs": [{"token": "a", "logprob": -0.5}, {}]},
            {"token": "x", "logprob": "much"},
        ]
        b.flow(0, PartKind.TEXT, "é", {"shared": {"logprobs": {"content": said}}})

    (part,) = final(build(tell))["output"][0]["content"]
    top = [{"token": "a", "logprob": -0.5, "bytes": [97]}]
    assert part["logprobs"] == [{"token": "é", "logprob": -1, "bytes": [195, 169], "top_logprobs": top}]


@pytest.mark.parametrize(
    ("said", "told"), [("priority", "priority"), ("on_demand", "flex"), (None, "flex"), ([], "flex")]
)
def test_the_service_tier_is_that_of_the_backend_else_the_one_that_was_asked_for(said: Any, told: str) -> None:
    builder = front().builder()
    builder.begin(model="m", extras={"shared": {"service_tier": said}})
    builder.end()
    response = final(builder.take(), front(request=request(asked(service_tier="flex"))))
    assert response["service_tier"] == told


def test_a_response_is_full_in_each_event_and_complete_at_its_end_only() -> None:
    events = build(lambda b: b.flow(0, PartKind.TEXT, "x"))
    assert isinstance(events[-1], RunFinished)
    events[-1].ended_at = 1_700_000_004.9
    responses = [e["response"] for e in emitted(events) if "response" in e]
    assert len({tuple(r) for r in responses}) == 1
    assert [r["completed_at"] for r in responses] == [None, None, 1_700_000_004]


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH, FinishReason.CONTENT_FILTER])
def test_a_usage_that_nobody_told_is_zeros_and_named_as_lost(reason: FinishReason) -> None:
    def tell(b: Builder) -> None:
        b.finish(reason)
        b.end()

    contexts = front(), front()
    for response in (final(build(tell), contexts[0]), assembled(build(tell), contexts[1])):
        assert response["usage"] == {
            "input_tokens": 0,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 0,
        }
    for context in contexts:
        assert context.lost.details == {"usage": "zeros; the backend reported no usage"}


def test_a_usage_that_was_told_is_kept_and_nothing_lost() -> None:
    context = front()
    told = final(build(lambda b: b.usage(UsageReported(3, 4, None, 1, 2))), context)["usage"]
    assert (told["input_tokens"], told["output_tokens"], told["total_tokens"]) == (3, 4, 7)
    assert (told["input_tokens_details"]["cached_tokens"], told["output_tokens_details"]["reasoning_tokens"]) == (1, 2)
    assert context.lost.names == []


def test_a_run_that_failed_has_no_usage_where_none_was_told() -> None:
    context = front()
    assert final(build(lambda b: b.fail(Failure(ErrorCode.BACKEND_ERROR, "no"))), context)["usage"] is None
    assert context.lost.names == []


def test_an_id_is_never_used_twice() -> None:
    def tell(b: Builder) -> None:
        for key in range(2):
            b.message(key, extras={"openai-responses": {"id": "msg_1"}})
            b.flow(key, PartKind.TEXT, "x")

    ids = [item["id"] for item in final(build(tell))["output"]]
    assert ids[0] == "msg_1"
    assert len(set(ids)) == 2
