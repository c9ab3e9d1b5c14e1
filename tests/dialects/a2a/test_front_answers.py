"""What clients are told: the stream of a task, and the task as a whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import TaskState, TaskStatus, WireRequest
from bridge.dialects.a2a import dialect
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Data,
    Event,
    FinishReason,
    Inline,
    Interrupted,
    Media,
    MediaKind,
    PartKind,
    Text,
    ToolCall,
    UsageReported,
)
from bridge.model.builder import Builder
from bridge.model.events import PartEnded, RunFinished

from .front import ADK, NEW, OLD, artifacts, call, front, message, read, send, states, told, unwrapped, whole


def answer(*pieces: str, reason: FinishReason = FinishReason.STOP, **fields: Any) -> list[Event]:
    builder = made()
    for piece in pieces:
        builder.flow(0, PartKind.TEXT, piece)
    if fields.get("usage"):
        builder.usage(fields["usage"])
    builder.finish(reason)
    builder.end()
    return builder.take()


def made() -> Builder:
    return front().builder()


def test_a_stream() -> None:
    said = told(answer("Hel", "lo"))
    first, working, *pieces, last = said
    task = first["task"]
    assert (task["id"], task["contextId"]) == ("run1", "context_run1")
    assert task["history"] == [
        {
            "messageId": "m-1",
            "role": "ROLE_USER",
            "parts": [{"text": "Hello"}],
            "contextId": "context_run1",
            "taskId": "run1",
        }
    ]
    assert task["status"]["timestamp"] == "2023-11-14T22:13:20.000Z"
    assert working["statusUpdate"]["status"]["state"] == "TASK_STATE_WORKING"
    updates = artifacts(pieces)
    assert [u["artifact"]["parts"] for u in updates] == [[{"text": "Hel"}], [{"text": "lo"}], [{"text": ""}]]
    assert [(u.get("append"), u.get("lastChunk")) for u in updates] == [(None, None), (True, None), (True, True)]
    assert {u["artifact"]["artifactId"] for u in updates} == {updates[0]["artifact"]["artifactId"]}
    assert updates[0]["artifact"]["name"] == "answer"
    assert last["statusUpdate"] == {
        "taskId": "run1", "contextId": "context_run1", "status": {"state": "TASK_STATE_COMPLETED"}
    }  # fmt: skip


def test_a_stream_of_0_3() -> None:
    request = read(call("message/stream", {"message": message(role="user")}), OLD, versions=["0.3"])
    said = told(answer("Hel", "lo"), request, versions=["0.3"])
    assert [each["kind"] for each in said] == ["task", "status-update", *["artifact-update"] * 3, "status-update"]
    assert said[0]["history"][0]["kind"] == "message"
    assert said[0]["history"][0]["role"] == "user"
    assert [each["final"] for each in said if each["kind"] == "status-update"] == [False, True]
    assert [each["status"]["state"] for each in said if "status" in each] == ["submitted", "working", "completed"]
    pieces = [each for each in said if each["kind"] == "artifact-update"]
    assert [each["artifact"]["parts"] for each in pieces] == [[{"kind": "text", "text": t}] for t in ("Hel", "lo", "")]
    assert [(each["append"], each["lastChunk"]) for each in pieces] == [(False, False), (True, False), (True, True)]


def test_each_frame_of_plain_http_is_bare() -> None:
    body = json.dumps({"message": message()}).encode()
    request = read(body, NEW, "/message:stream")
    encoder = dialect.encoder(front(request))
    frames = [json.loads(frame) for frame in encoder.encode(answer("Hi")) if isinstance(frame, bytes)]
    assert all(len(frame) == 1 and frame.keys() <= {"task", "statusUpdate", "artifactUpdate"} for frame in frames)


@pytest.mark.parametrize("separator", ["\u0085", "\u2028", "\u2029"])
def test_no_frame_has_a_character_that_ends_a_line(separator: str) -> None:
    encoder = dialect.encoder(front(read(send(f"a{separator}b"))))
    frames = encoder.encode(answer(f"a{separator}b", f"{separator}c"))
    assert all(separator.encode() not in frame for frame in frames if isinstance(frame, bytes))
    said = told(answer(f"a{separator}b", f"{separator}c"), read(send(f"a{separator}b")))
    assert said[0]["task"]["history"][0]["parts"] == [{"text": f"a{separator}b"}]
    assert "".join(p["text"] for u in artifacts(said) for p in u["artifact"]["parts"]) == f"a{separator}b{separator}c"


def test_the_whole_task_has_each_text_once() -> None:
    task = whole(answer("Hel", "lo", usage=UsageReported(3, 4, None, 1, 2)))
    assert [a["parts"] for a in task["artifacts"]] == [[{"text": "Hello"}]]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["metadata"] == {
        "adk_usage_metadata": {"promptTokenCount": 3, "candidatesTokenCount": 4, "totalTokenCount": 7},
        "usage": {"input": 3, "output": 4, "cached": 1, "reasoning": 2},
    }


@pytest.mark.parametrize(("length", "count"), [(None, 1), (0, 0), (5, 1)])
def test_the_length_of_the_history(length: int | None, count: int) -> None:
    configuration = {} if length is None else {"historyLength": length}
    task = whole(answer("Hi"), read(send(configuration=configuration)))
    assert len(task.get("history", [])) == count
    assert ("history" in task) is bool(count)


@pytest.mark.parametrize(
    ("reason", "text", "state", "told_as"),
    [
        (FinishReason.STOP, "a", "COMPLETED", None),
        (FinishReason.LENGTH, "a", "COMPLETED", "length"),
        (FinishReason.CONTENT_FILTER, "a", "COMPLETED", "content_filter"),
        (FinishReason.CONTENT_FILTER, "", "REJECTED", "content_filter"),
        (FinishReason.CANCELED, "a", "CANCELED", None),
    ],
)
def test_ends(reason: FinishReason, text: str, state: str, told_as: str | None) -> None:
    last = told(answer(text, reason=reason))[-1]["statusUpdate"]
    assert last["status"]["state"] == f"TASK_STATE_{state}"
    assert last.get("metadata", {}).get("finishReason") == told_as


def test_a_failure_ends_the_stream_as_failed() -> None:
    builder = made()
    builder.flow(0, PartKind.TEXT, "Hel")
    builder.fail(Failure(ErrorCode.BACKEND_TIMEOUT, "It took too long."))
    events = builder.take()
    said = told(events)
    assert states(said) == ["SUBMITTED", "WORKING", "FAILED"]
    assert artifacts(said)[-1]["lastChunk"]
    last = said[-1]["statusUpdate"]
    assert last["status"]["message"]["parts"] == [{"text": "It took too long."}]
    assert last["metadata"]["code"] == "backend_timeout"
    assert whole(events)["status"]["state"] == "TASK_STATE_FAILED"


def test_a_failure_that_said_nothing_is_an_error() -> None:
    builder = made()
    builder.fail(Failure(ErrorCode.BACKEND_ERROR, "It broke."))
    response = dialect.assemble(builder.take(), front(read(send())))
    said = json.loads(response.body)
    assert (response.status, said["id"], said["error"]["code"]) == (200, 7, -32603)


@pytest.mark.parametrize(
    ("code", "status"), [(ErrorCode.RATE_LIMITED, 429), (ErrorCode.OVERLOADED, 503), (ErrorCode.TOO_LARGE, 413)]
)
def test_limits_are_told_by_http(code: ErrorCode, status: int) -> None:
    builder = made()
    builder.fail(Failure(code, "Later.", headers={"retry-after": "7"}))
    response = dialect.assemble(builder.take(), front(read(send())))
    assert (response.status, response.headers["retry-after"]) == (status, "7")
    assert json.loads(response.body)["error"]["code"] == -32603


# ---------------------------------------------------------------------- questions


def interrupted(*asked: Interrupted) -> list[Event]:
    builder = made()
    for each in asked:
        builder.interrupt(each)
    builder.finish(FinishReason.INTERRUPTED)
    builder.end()
    return builder.take()


def test_a_question() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    payload = {"message": "Which city?", "responseSchema": schema}
    last = told(interrupted(Interrupted("i-1", "input_required", payload)))[-1]["statusUpdate"]
    assert last["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    said = last["status"]["message"]
    assert said["role"] == "ROLE_AGENT"
    assert said["parts"] == [{"text": "Which city?"}, {"data": {"schema": schema}}]
    assert said["metadata"] == {"interrupts": [{"id": "i-1", "reason": "input_required", "payload": payload}]}


@pytest.mark.parametrize("reason", ["auth_required", "LOGIN"])
def test_a_login(reason: str) -> None:
    assert states(told(interrupted(Interrupted("i", reason))))[-1] == "AUTH_REQUIRED"


def test_a_call_that_waits_is_told_to_clients_of_google_adk() -> None:
    builder = made()
    builder.add(0, ToolCall("c1", "approve", '{"amount": 5}'))
    builder.interrupt(Interrupted("i-1", "confirmation", "Approve?", "c1"))
    builder.finish(FinishReason.INTERRUPTED)
    builder.end()
    events = builder.take()
    plain = told(events)[-1]["statusUpdate"]["status"]["message"]["parts"]
    assert plain == [{"text": 'approve({"amount":5})\n\nApprove?'}]
    adk = told(events, read(send(), {**NEW, "a2a-extensions": ADK}))[-1]["statusUpdate"]["status"]["message"]["parts"]
    assert adk[1] == {
        "data": {"id": "c1", "name": "approve", "args": {"amount": 5}},
        "metadata": {"adk_type": "function_call", "adk_is_long_running": True},
    }


def test_a_call_of_the_client_is_waited_for() -> None:
    builder = made()
    builder.add(0, ToolCall("c0", "search", "{}"))
    builder.result("c0", [Text("found")])
    builder.add(0, ToolCall("c1", "approve", '{"amount": 5}'))
    builder.finish()
    builder.end()
    last = told(builder.take())[-1]["statusUpdate"]
    assert last["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    call = {"name": "approve", "args": {"amount": 5}}
    waits = [{"id": "c1", "reason": "tool_result", "callId": "c1", "call": call}]
    assert last["status"]["message"]["metadata"] == {"interrupts": waits}
    assert "metadata" not in last


# ---------------------------------------------------------------------- what is beside the text


def thinking() -> list[Event]:
    builder = made()
    builder.flow(0, PartKind.REASONING, "Hm.")
    builder.flow(1, PartKind.TEXT, "Hi")
    builder.finish(FinishReason.STOP)
    builder.end()
    return builder.take()


def test_thoughts_are_left_out_unless_an_option_wants_them() -> None:
    assert "Hm." not in json.dumps(told(thinking()))
    said = told(thinking(), reasoning="status")
    update = next(each["statusUpdate"] for each in said if "message" in each.get("statusUpdate", {}).get("status", {}))
    assert update["status"]["state"] == "TASK_STATE_WORKING"
    (part,) = update["status"]["message"]["parts"]
    assert part == {"text": "Hm.", "metadata": {"adk_thought": True, "type": "thinking"}}


def test_the_answer_is_in_a_message_too_if_an_option_wants_that() -> None:
    """Chat pages show messages only. The artifacts stay."""
    plain, said = told(answer("Hel", "lo")), told(answer("Hel", "lo"), answer="message")
    assert "message" not in plain[-1]["statusUpdate"]["status"]
    assert said[:-1] == plain[:-1]
    last = said[-1]["statusUpdate"]["status"]
    assert last["message"]["role"] == "ROLE_AGENT"
    assert last["message"]["parts"] == [{"text": "Hello"}]


def test_a_question_follows_the_answer_in_its_message() -> None:
    builder = made()
    builder.flow(0, PartKind.TEXT, "I looked.")
    builder.flow(1, PartKind.TEXT, "Twice.")
    builder.interrupt(Interrupted("q1", "confirmation", "May I?"))
    builder.finish(FinishReason.INTERRUPTED)
    builder.end()
    (*_, last) = told(builder.take(), answer="message")
    parts = [part["text"] for part in last["statusUpdate"]["status"]["message"]["parts"]]
    assert parts == ["I looked.", "Twice.", "May I?"]


def test_media_and_values_are_artifacts_of_their_own() -> None:
    builder = made()
    builder.flow(0, PartKind.TEXT, "Look:")
    builder.add(0, Media(MediaKind.IMAGE, Inline("AAAA"), "image/png", "a.png"))
    builder.add(0, Data({"n": 1}))
    builder.finish(FinishReason.STOP)
    builder.end()
    events = builder.take()
    updates = artifacts(told(events))
    picture, value = updates[-2:]
    assert picture["artifact"]["parts"] == [{"raw": "AAAA", "mediaType": "image/png", "filename": "a.png"}]
    assert value["artifact"]["parts"] == [{"data": {"n": 1}}]
    assert picture["lastChunk"]
    assert value["lastChunk"]
    assert len({u["artifact"]["artifactId"] for u in updates}) == 3
    assert len(whole(events)["artifacts"]) == 3
    wanted = read(send(configuration={"acceptedOutputModes": ["text/plain"]}))
    assert artifacts(told(events, wanted))[-1]["artifact"]["parts"] == [{"text": '{"n":1}'}]


def test_a_run_that_continues_a_task_has_its_id_and_artifacts_of_its_own() -> None:
    request = read(send("yes", taskId="t-1", contextId="c-1"))
    said = told(answer("Done"), request)
    assert said[0]["task"]["id"] == "t-1"
    assert said[0]["task"]["history"][0]["parts"] == [{"text": "yes"}]
    first = artifacts(told(answer("Done")))[0]["artifact"]["artifactId"]
    assert artifacts(said)[0]["artifact"]["artifactId"] != first


def test_the_end_has_a_time_where_one_is_known() -> None:
    events = [*answer("a")[:-1], RunFinished(FinishReason.STOP, 1700000001.5)]
    assert told(events)[-1]["statusUpdate"]["status"]["timestamp"] == "2023-11-14T22:13:21.500Z"


def test_a_watcher_gets_the_ids_that_the_stored_task_has() -> None:
    builder = made()
    builder.add(0, ToolCall("c1", "look", "{}"))
    builder.interrupt(Interrupted("i-1", "input_required", "Which?"))
    builder.finish(FinishReason.INTERRUPTED)
    builder.end()
    events = builder.take()
    begun = next(n for n, event in enumerate(events) if isinstance(event, PartEnded)) + 1

    def run(*seen: Event) -> TaskStatus:
        return TaskStatus(TaskState.RUNNING, 0.0, front(read(send()), tools="status"), seen)

    asked = dialect.decode_call(WireRequest("POST", "", NEW, body=call("SubscribeToTask", {"id": "run1"})), front())
    frames, encoder = dialect.watch(asked, [run(*events[:begun])])
    said = [unwrapped(json.loads(frame)) for frame in [*frames, *encoder.encode(events[begun:])] if frame]
    stored = json.loads(dialect.encode_task_now(asked, [run(*events)]).body)["result"]
    ids = [each["messageId"] for each in said[0]["task"]["history"]]
    assert ids == [each["messageId"] for each in stored["history"]]
    last = said[-1]["statusUpdate"]["status"]["message"]["messageId"]
    assert last == stored["status"]["message"]["messageId"]
    assert last not in ids
