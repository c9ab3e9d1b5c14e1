"""Failures that an AgentScope backend tells in any of its three objects, for clients of the same dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.dialects.agentscope import dialect
from bridge.errors import BackendError, BridgeError, ErrorCode
from bridge.model import FinishReason, RunFailed, RunFinished
from bridge.translation.library import Translator

from .helpers import check_schemas, context, decode

ERROR = {"code": "ACCESS_DENIED", "message": "not this"}
HEAD = {"object": "response", "id": "r", "session_id": "s", "created_at": 1_700_000_001}
CREATED, DONE = ({**HEAD, "status": status} for status in ("created", "completed"))
ENDS = ["rejected", "canceled", "failed", "incomplete"]


def message(status: str, **more: Any) -> dict[str, Any]:
    return {"object": "message", "id": "m", "type": "message", "role": "assistant", "status": status, **more}


def text(said: str, status: str = "in_progress", **more: Any) -> dict[str, Any]:
    ended = status != "in_progress"
    return {
        "object": "content", "type": "text", "msg_id": "m", "index": 0, "delta": not ended, "status": status,
        "text": said, **more,
    }  # fmt: skip


def wire(*events: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events)


def client(*events: dict[str, Any], front: str = "agentscope", **options: Any) -> list[dict[str, Any]]:
    """What a client of this dialect gets of these events."""
    translator = Translator("agentscope", front, client_options=options, run_id="run1")
    out = translator.feed(wire(*events)) + translator.close()
    sent = [json.loads(line[6:]) for line in out.split(b"\n\n") if line.startswith(b"data: ")]
    if front == "agentscope" and b'"chart"' not in out:
        check_schemas(sent)
    return sent


@pytest.mark.parametrize("status", ENDS)
def test_a_response_with_an_error_keeps_its_status_and_its_error(status: str) -> None:
    last = client(CREATED, {**DONE, "status": status, "error": ERROR})[-1]
    assert (last["status"], last["error"]) == (status, ERROR)
    events = decode([wire(CREATED, {**DONE, "status": status, "error": ERROR})])
    assert isinstance(events[-1], RunFailed)
    assert events[-1].error.message == "not this"
    assert events[-1].error.backend_code == "ACCESS_DENIED"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("rejected", ErrorCode.CONTENT_FILTER),
        ("canceled", ErrorCode.CANCELED),
        ("failed", ErrorCode.BACKEND_ERROR),
        ("incomplete", ErrorCode.BACKEND_ERROR),
        ("completed", ErrorCode.BACKEND_ERROR),
    ],
)
def test_the_code_of_an_error_whose_word_nobody_knows_follows_from_the_status(status: str, code: ErrorCode) -> None:
    last = decode([wire(CREATED, {**DONE, "status": status, "error": ERROR})])[-1]
    assert isinstance(last, RunFailed)
    assert last.error.code is code


def test_a_completed_response_with_an_error_has_failed() -> None:
    last = client(CREATED, message("in_progress"), text("half"), {**DONE, "error": ERROR})[-1]
    assert (last["status"], last["error"], last["completed_at"]) == ("failed", ERROR, None)
    for nothing in (None, {}, "", {"code": None, "message": None}):
        assert client(CREATED, {**DONE, "error": nothing})[-1]["status"] == "completed"


@pytest.mark.parametrize("status", ["rejected", "canceled", "incomplete"])
def test_a_status_without_an_error_is_kept_unless_an_option_names_another(status: str) -> None:
    events = [CREATED, message("in_progress"), text("half"), {**DONE, "status": status}]
    assert client(*events)[-1]["status"] == status
    option = {"rejected": "content_filter", "canceled": "canceled"}.get(status)
    if option is not None:
        assert client(*events, **{option: "failed"})[-1]["status"] == "failed"


@pytest.mark.parametrize("status", ENDS)
@pytest.mark.parametrize("said", [[], [text("half")]], ids=["nothing", "half"])
def test_a_message_keeps_its_status_its_code_and_its_words(status: str, said: list[Any]) -> None:
    told = message(status, code="ACCESS_DENIED", message="not this", content=[])
    out = client(CREATED, message("in_progress"), *said, told, DONE)
    kept = [e for e in out if e["object"] == "message"][-1]
    assert [kept[k] for k in ("id", "type", "status", "code", "message")] == [
        "m", "message", status, "ACCESS_DENIED", "not this",
    ]  # fmt: skip
    assert len({e["id"] for e in out if e["object"] == "message"}) == 1, "told once"
    last = out[-1]
    assert (last["status"], last["error"]["message"]) == ("failed", "not this")
    assert [m["status"] for m in last["output"]] == [status]


def test_a_message_keeps_an_error_object() -> None:
    told = message("failed", error=ERROR, content=[])
    out = client(CREATED, message("in_progress"), text("half"), told, DONE)
    assert out[-1]["output"][0]["error"] == ERROR


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("rejected", FinishReason.CONTENT_FILTER),
        ("canceled", FinishReason.CANCELED),
        ("incomplete", FinishReason.LENGTH),
    ],
)
def test_a_message_that_ends_so_without_an_error_ends_the_run_so(status: str, reason: FinishReason) -> None:
    events = [CREATED, message("in_progress"), text("half"), message(status), DONE]
    last = decode([wire(*events)])[-1]
    assert isinstance(last, RunFinished)
    assert last.reason is reason
    assert client(*events)[-1]["output"][0]["status"] == status
    more = [{**message("in_progress"), "id": "n"}, {**text("all"), "msg_id": "n"}, {**message("completed"), "id": "n"}]
    last = decode([wire(*events[:-1], *more, DONE)])[-1]
    assert isinstance(last, RunFinished)
    assert last.reason is FinishReason.STOP, "the agent went on"


def test_a_message_that_failed_without_a_word_is_a_failure() -> None:
    assert isinstance(decode([wire(CREATED, message("in_progress"), message("failed"), DONE)])[-1], RunFailed)


@pytest.mark.parametrize("end", [message("completed"), message("failed")], ids=lambda e: e["status"])
def test_a_content_that_failed_keeps_its_status_and_its_error(end: dict[str, Any]) -> None:
    out = client(CREATED, message("in_progress"), text("half"), text("half", "failed", error=ERROR), end, DONE)
    kept = [e for e in out if e["object"] == "content"][-1]
    assert (kept["status"], kept["error"], kept["text"]) == ("failed", ERROR, "half")
    assert (out[-1]["status"], out[-1]["error"]) == ("failed", ERROR)
    (content,) = out[-1]["output"][0]["content"]
    assert (content["status"], content["error"]) == ("failed", ERROR)


def test_a_content_that_failed_before_it_said_anything() -> None:
    out = client(CREATED, message("in_progress"), text("", "failed", error=ERROR), message("completed"), DONE)
    assert (out[-1]["status"], out[-1]["error"]) == ("failed", ERROR)
    assert out[-1]["output"][0]["content"][0]["error"] == ERROR


def test_a_content_that_failed_only_in_its_message() -> None:
    whole = [{"type": "text", "text": "half", "status": "failed", "error": ERROR}]
    out = client(CREATED, message("in_progress"), message("completed", content=whole), DONE)
    assert (out[-1]["status"], out[-1]["error"]) == ("failed", ERROR)


@pytest.mark.parametrize(
    "content",
    [
        {"type": "data", "data": {"a": 1}},
        {"type": "image", "image_url": "https://x.example/a.png"},
    ],
    ids=lambda c: c["type"],
)
def test_a_whole_content_that_failed_keeps_its_error(content: dict[str, Any]) -> None:
    told = {**text("", "failed", error=ERROR), **content}
    del told["text"]
    out = client(CREATED, message("in_progress"), told, message("completed"), DONE)
    kept = out[-1]["output"][0]["content"][0]
    assert (kept["status"], kept["error"]) == ("failed", ERROR)
    assert out[-1]["status"] == "failed"


def test_an_output_that_failed_is_an_error_of_its_tool() -> None:
    call = {**text("", "completed"), "type": "data", "data": {"call_id": "c", "name": "f", "arguments": "{}"}}
    output = {**text("", "failed", error=ERROR), "type": "data", "msg_id": "o", "data": {"call_id": "c", "output": "x"}}
    opened = {"object": "message", "id": "o", "type": "plugin_call_output", "role": "tool"}
    calling = {"type": "plugin_call"}
    out = client(
        CREATED, {**message("in_progress"), **calling}, call, {**message("completed"), **calling},
        {**opened, "status": "in_progress"}, output, {**opened, "status": "completed"}, DONE,
    )  # fmt: skip
    kept = out[-1]["output"][1]["content"][0]
    assert (kept["status"], kept["error"]) == ("failed", ERROR)
    assert out[-1]["status"] == "failed"


def test_an_error_after_which_the_agent_went_on_is_noted_as_lost() -> None:
    told = message("failed", code="X", message="bad")
    more = [{**message("in_progress"), "id": "n"}, {**text("all"), "msg_id": "n"}, {**message("completed"), "id": "n"}]
    translator = Translator("agentscope", "openai-chat", run_id="run1")
    out = translator.feed(wire(CREATED, message("in_progress"), told, *more, DONE)) + translator.close()
    assert b'"all"' in out
    assert b'"finish_reason":"stop"' in out
    assert "raw" in translator.lost
    assert [m["status"] for m in client(CREATED, message("in_progress"), told, *more, DONE)[-1]["output"]] == [
        "failed", "completed",
    ]  # fmt: skip


# ---------------------------------------------------------------------- what nobody else knows


CHART = {"object": "content", "type": "chart", "msg_id": "m", "index": 1, "series": [1, 2], "title": "t"}


def test_a_content_of_an_unknown_type_passes_whole() -> None:
    events = [
        CREATED, message("in_progress"), text("see"), text("see", "completed"),
        {**CHART, "status": "in_progress", "delta": True, "series": [1]},
        {**CHART, "status": "completed", "delta": False},
        message("completed"), DONE,
    ]  # fmt: skip
    out = client(*events)
    contents = out[-1]["output"][0]["content"]
    assert [c["type"] for c in contents] == ["text", "chart"]
    assert (contents[1]["series"], contents[1]["title"], contents[1]["msg_id"]) == ([1, 2], "t", "m")
    assert [e["index"] for e in out if e["object"] == "content" and e["type"] == "chart"] == [1, 1]
    translator = Translator("agentscope", "openai-chat", run_id="run1")
    translator.feed(wire(*events))
    assert translator.lost == ["raw"]
    assert "chart" in translator.lost_details["raw"]


def test_a_content_of_an_unknown_type_that_only_the_message_or_the_response_tells() -> None:
    item = {k: v for k, v in CHART.items() if k not in ("object", "msg_id", "index")}
    inside = message("completed", content=[item])
    for events in ([message("in_progress"), inside, DONE], [{**DONE, "output": [inside]}]):
        (kept,) = client(CREATED, *events)[-1]["output"]
        assert kept["type"] == "message"
        assert [c["series"] for c in kept["content"]] == [[1, 2]]


def test_a_content_of_an_unknown_type_in_the_java_form() -> None:
    out = client(CREATED, message("in_progress"), CHART, message("completed"), DONE, front="agentscope-java")
    (content,) = out[-1]["output"][0]["content"]
    assert content["data"]["type"] == "chart"
    assert content["data"]["series"] == [1, 2]


@pytest.mark.parametrize("status", ["completed", *ENDS])
def test_a_message_of_an_unknown_type_keeps_its_status(status: str) -> None:
    told = {**message(status, content=[{"type": "text", "text": "x"}]), "type": "vote", "code": None, "error": None}
    if status != "completed":
        told.update(code="ACCESS_DENIED", message="not this", error=ERROR)
    (kept,) = client(CREATED, told, DONE)[-1]["output"]
    assert [kept[k] for k in ("type", "status", "code", "error")] == ["vote", status, told["code"], told["error"]]


def test_a_message_of_an_unknown_type_that_was_open_when_the_run_failed() -> None:
    opened = {**message("in_progress"), "type": "vote"}
    out = client(CREATED, opened, text("x", "completed"), {**DONE, "status": "failed", "error": ERROR})
    (kept,) = out[-1]["output"]
    assert (kept["type"], kept["status"], kept["content"][0]["text"]) == ("vote", "incomplete", "x")


def test_the_loss_of_a_message_of_an_unknown_type_names_it() -> None:
    translator = Translator("agentscope", "ag-kit", run_id="run1")
    translator.feed(wire(CREATED, {**message("completed", content=[]), "type": "vote"}, DONE))
    assert "vote" in translator.lost_details["raw"]


def test_a_whole_answer_that_failed_keeps_what_the_backend_said() -> None:
    body = json.dumps({**DONE, "status": "rejected", "error": ERROR, "output": []}).encode()
    with pytest.raises(BridgeError) as caught:
        Translator("agentscope", "agentscope").response(body, headers={"content-type": "application/json"})
    assert (caught.value.message, caught.value.failure.backend_code) == ("not this", "ACCESS_DENIED")
    assert isinstance(caught.value, BackendError)


@pytest.mark.parametrize(("status", "http"), [("rejected", 400), ("failed", 502), ("canceled", 499)])
def test_a_failure_in_one_piece_is_the_backends_response_with_an_error_status(status: str, http: int) -> None:
    events = decode([wire(CREATED, message("in_progress"), text("half"), {**DONE, "status": status, "error": ERROR})])
    answer = dialect.assemble(events, context())
    body = json.loads(answer.body)
    assert (answer.status, body["status"], body["error"]) == (http, status, ERROR)
    assert body["output"][0]["content"][0]["text"] == "half"
    failure = dialect.decode_error(answer)
    assert failure.message == "not this"
