"""What clients say: messages, parts, versions, bindings, and answers to what a task waits for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import WireRequest
from bridge.dialects.a2a import dialect
from bridge.dialects.a2a.read_request import notes_of
from bridge.dialects.a2a.wire import LONGEST_ID, Version
from bridge.model import (
    Data,
    HistoryMode,
    Inline,
    Media,
    MediaKind,
    Part,
    Resume,
    Text,
    ToolResult,
    Url,
)
from bridge.model.jsontext import read_body

from .front import ADK, NEW, OLD, call, front, message, read, refusal, send


def test_a_message() -> None:
    fields = {"contextId": "c-1", "metadata": {"team": "blue"}, "referenceTaskIds": ["t-0"]}
    body = call("SendStreamingMessage", {"message": message("Hello", **fields), "metadata": {"from": "me"}})
    request = read(body)
    (said,) = request.messages
    assert (said.role, said.id, said.parts) == ("user", "m-1", [Text("Hello")])
    assert (request.thread_id, request.stream, request.history) == ("c-1", True, HistoryMode.DELTA)
    assert (request.metadata, said.metadata) == ({"from": "me"}, {"team": "blue"})
    assert request.extra("a2a")["referenceTaskIds"] == ["t-0"]


def test_a_talk_that_has_no_name_gets_one() -> None:
    assert read(send()).thread_id == "context_run1"


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"text": "Hi"}, Text("Hi")),
        ({"text": "Hi", "mediaType": ""}, Text("Hi")),
        ({"raw": "AAAA", "mediaType": "image/png"}, Media(MediaKind.IMAGE, Inline("AAAA"), "image/png")),
        ({"raw": "A-_A", "media_type": "audio/wav"}, Media(MediaKind.AUDIO, Inline("A+/A"), "audio/wav")),
        ({"url": "https://a/b", "mediaType": "video/mp4"}, Media(MediaKind.VIDEO, Url("https://a/b"), "video/mp4")),
        ({"url": "https://a/b", "filename": "b.pdf"}, Media(MediaKind.FILE, Url("https://a/b"), None, "b.pdf")),
        ({"url": "data:image/gif;base64,AAAA"}, Media(MediaKind.IMAGE, Inline("AAAA"), "image/gif")),
        ({"data": {"a": 3.0, "b": [1.5]}}, Data({"a": 3, "b": [1.5]})),
        ({"data": None}, Data(None)),
        ({"text": "Hi", "raw": None, "url": None, "data": None, "metadata": None}, Text("Hi")),
        ({"text": None, "data": {"a": 1}}, Data({"a": 1})),
        ({"text": "I think", "metadata": {"adk_thought": True}}, Text("I think")),
    ],
)
def test_parts(part: Any, expected: Part) -> None:
    (said,) = read(send(part)).messages
    assert said.parts == [expected]
    assert type(getattr(said.parts[0], "value", {"a": 3})) is type(getattr(expected, "value", {"a": 3}))


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"kind": "text", "text": "Hi"}, Text("Hi")),
        ({"kind": "data", "data": {"a": 1}}, Data({"a": 1})),
        (
            {"kind": "data", "data": {"value": [1]}, "metadata": {"data_part_compat": True}},
            Data([1]),
        ),
        (
            {"kind": "file", "file": {"bytes": "AAAA", "mimeType": "image/png", "name": "a.png"}},
            Media(MediaKind.IMAGE, Inline("AAAA"), "image/png", "a.png"),
        ),
        ({"kind": "file", "file": {"uri": "https://a/b"}}, Media(MediaKind.FILE, Url("https://a/b"))),
    ],
)
def test_parts_of_0_3(part: Any, expected: Part) -> None:
    body = call("message/send", {"message": {**message(part, role="user"), "kind": "message"}})
    request = read(body, OLD, versions=["0.3"])
    assert request.messages[0].parts == [expected]
    assert notes_of(request).version is Version.OLD


def test_names_in_snake_case() -> None:
    body = call(
        "SendMessage",
        {"message": {"message_id": "m", "role": "ROLE_USER", "parts": [{"text": "x"}], "context_id": "c"}},
    )
    assert (read(body).messages[0].id, read(body).thread_id) == ("m", "c")


# ---------------------------------------------------------------------- what a task waits for


def test_the_answer_to_a_question_is_no_message() -> None:
    request = read(send("yes", taskId="t-1", contextId="c-1"))
    assert request.messages == []
    assert request.resume == [Resume("", "resolved", "yes")]


def test_a_value_answers_as_it_is_and_names_its_question() -> None:
    request = read(send({"data": {"ok": True}}, taskId="t-1", metadata={"interruptId": "i-2"}))
    assert request.resume == [Resume("i-2", "resolved", {"ok": True})]


def test_a_picture_in_an_answer_is_not_lost() -> None:
    request = read(send("this one", {"raw": "AAAA", "mediaType": "image/png"}, taskId="t-1"))
    assert request.resume[0].payload == "this one"
    assert Media(MediaKind.IMAGE, Inline("AAAA"), "image/png") in request.messages[0].parts


def test_one_message_answers_several_questions() -> None:
    parts = [
        {"text": "Oslo", "metadata": {"interruptId": "i-1"}},
        {"data": {"n": 1}, "metadata": {"interruptId": "i-2"}},
        {"text": ", Norway", "metadata": {"interruptId": "i-1"}},
    ]
    request = read(send(*parts, taskId="t-1"))
    assert request.messages == []
    assert request.resume == [Resume("i-1", "resolved", "Oslo, Norway"), Resume("i-2", "resolved", {"n": 1})]
    more = read(send(*parts[:1], "And quickly.", RESULT, taskId="t-1"))
    assert [answer.interrupt_id for answer in more.resume] == ["i-1"]
    assert [message.role for message in more.messages] == ["tool", "user"]
    assert more.messages[1].parts == [Text("And quickly.")]
    new = read(send(*parts))
    assert (new.resume, len(new.messages[0].parts)) == ([], 3)


RESULT = {"data": {"id": "c1", "name": "f", "response": {"r": 3.0}}, "metadata": {"adk_type": "function_response"}}


def test_the_result_of_a_call_that_waits() -> None:
    request = read(send(RESULT, taskId="t-1"))
    assert request.resume == []
    (said,) = request.messages
    assert (said.role, said.parts) == ("tool", [ToolResult("c1", [Data({"r": 3})], "f")])


def test_a_result_that_no_task_waits_for_is_data() -> None:
    """google-adk's client sends what other agents did as parts of its message."""
    assert read(send(RESULT)).messages[0].parts == [Data({"id": "c1", "name": "f", "response": {"r": 3.0}})]


# ---------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("params", "place"),
    [
        ({}, "params.message"),
        ({"message": "Hi"}, "params.message"),
        ({"message": {"role": "ROLE_USER", "parts": [{"text": "x"}]}}, "params.message.messageId"),
        ({"message": message(messageId="")}, "params.message.messageId"),
        ({"message": message(role="ROLE_AGENT")}, "params.message.role"),
        ({"message": message(role=1)}, "params.message.role"),
        ({"message": message(parts=[])}, "params.message.parts"),
        ({"message": message(parts="x")}, "params.message.parts"),
        ({"message": message(parts=["x"])}, "params.message.parts[0]"),
        ({"message": message(parts=[{"text": "a"}, {}])}, "params.message.parts[1]"),
        ({"message": message(parts=[{"text": "a", "url": "b"}])}, "params.message.parts[0]"),
        ({"message": message(parts=[{"raw": "%"}])}, "params.message.parts[0].raw"),
        ({"message": message(parts=[{"raw": "A"}])}, "params.message.parts[0].raw"),
        ({"message": message(parts=[{"raw": "AAAA", "filename": 7}])}, "params.message.parts[0].filename"),
        ({"message": message(parts=[{"url": ""}])}, "params.message.parts[0].url"),
        (
            {"message": message(parts=[{"url": "https://x.example", "mediaType": 7}])},
            "params.message.parts[0].mediaType",
        ),
        ({"message": message(parts=[{"text": "x", "metadata": 7}])}, "params.message.parts[0].metadata"),
        ({"message": message(metadata=7)}, "params.message.metadata"),
        ({"message": message(contextId="c" * 513)}, "params.message.contextId"),
        ({"message": message(messageId="m" * 513)}, "params.message.messageId"),
        ({"message": message(), "metadata": "x"}, "params.metadata"),
        ({"message": message(), "configuration": {"historyLength": -1}}, "params.configuration.historyLength"),
        ({"message": message(), "configuration": []}, "params.configuration"),
    ],
)
def test_the_place_of_what_is_wrong_is_named(params: Any, place: str) -> None:
    response, body = refusal(call("SendMessage", params))
    assert (response.status, body["id"], body["error"]["code"]) == (200, 7, -32602)
    info, request = body["error"]["data"]
    assert info["reason"] == "INVALID_PARAMS"
    assert request["@type"] == "type.googleapis.com/google.rpc.BadRequest"
    assert [each["field"] for each in request["fieldViolations"]] == [place]
    assert place in body["error"]["message"]


@pytest.mark.parametrize(
    ("body", "code", "known"),
    [
        (b"{", -32700, None),
        (b"", -32600, None),
        (b"[]", -32600, None),
        (b"3", -32600, None),
        (b" null ", -32600, None),
        (call("SendMessage", jsonrpc="1.0"), -32600, 7),
        (call("SendMessage", id={}), -32600, None),
        (call("SendMessage", id=True), -32600, None),
        (call("SendMessage", id="x" * 513), -32600, None),
        (call("SendMessage", id=10**600), -32600, None),
        (call("SendMessage", {"message": message(taskId="t" * 513)}), -32001, 7),
        (call("GetTask", {"id": "t" * 513}), -32001, 7),
        (json.dumps({"jsonrpc": "2.0", "id": "a"}).encode(), -32600, "a"),
        (call("Dance"), -32601, 7),
        (json.dumps({"jsonrpc": "2.0", "id": 7, "method": "GetTask", "params": [1]}).encode(), -32602, 7),
    ],
)
def test_what_is_no_call(body: bytes, code: int, known: Any) -> None:
    response, said = refusal(body)
    assert (response.status, said["error"]["code"], said["id"], said["jsonrpc"]) == (200, code, known, "2.0")


@pytest.mark.parametrize("known", [1, "one", 1.5, None, 2**64, -(10**30), 10**400])
def test_an_answer_has_the_id_of_its_call(known: Any) -> None:
    said = json.loads(refusal(call("Dance", id=known))[0].body)["id"]
    assert (said, type(said)) == (known, type(known))


def test_a_body_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []

    def parse(body: bytes) -> dict[str, Any]:
        parsed.append(body)
        return read_body(body)

    monkeypatch.setattr("bridge.dialects.a2a.call.read_body", parse)
    wire, context = WireRequest("POST", "", NEW, body=send("hi")), front()
    dialect.decode_call(wire, context)
    assert dialect.decode_request(wire, context).messages[0].parts == [Text("hi")]
    assert len(parsed) == 1


@pytest.mark.parametrize(
    ("method", "headers", "versions", "refused"),
    [
        ("SendMessage", NEW, ["1.0"], False),
        ("SendMessage", {"a2a-version": "1.1"}, ["1.0"], False),
        ("SendMessage", {"a2a-version": "1.0.2"}, ["1.0"], False),
        ("message/send", {"a2a-version": "0.3.0"}, ["0.3"], False),
        ("SendMessage", {}, ["1.0"], True),
        ("SendMessage", {}, ["1.0", "0.3"], True),
        ("SendMessage", {"a2a-version": "2.0"}, ["1.0"], True),
        ("SendMessage", {"a2a-version": "0.3"}, ["1.0", "0.3"], True),
        ("SendMessage", NEW, ["0.3"], True),
        ("message/send", {}, ["1.0"], True),
        ("message/send", {}, ["1.0", "0.3"], False),
        ("message/send", {"a2a-version": "0.3"}, ["0.3"], False),
        ("message/send", NEW, ["1.0", "0.3"], True),
    ],
)
def test_versions(method: str, headers: dict[str, str], versions: list[str], refused: bool) -> None:
    role = "user" if "/" in method else "ROLE_USER"
    body = call(method, {"message": message(role=role)})
    if not refused:
        assert read(body, headers, versions=versions).messages
        return
    said = refusal(body, headers, versions=versions)[1]["error"]
    assert said["code"] == -32009
    assert said["data"][0]["reason"] == "VERSION_NOT_SUPPORTED"
    assert all(version in said["message"] for version in versions)


def test_the_extension_of_google_adk() -> None:
    assert not notes_of(read(send())).adk
    assert notes_of(read(send(), {**NEW, "a2a-extensions": f"https://other , {ADK}"})).adk
    assert notes_of(read(send(), {**NEW, "x-a2a-extensions": ADK})).adk
    assert notes_of(read(send(extensions=[ADK]))).adk


def test_no_push_notifications() -> None:
    wanted = {"taskPushNotificationConfig": {"url": "http://127.0.0.1:1/"}}
    for body in (send(configuration=wanted), call("CreateTaskPushNotificationConfig", {"taskId": "t"})):
        assert refusal(body)[1]["error"]["code"] == -32003


def test_no_extended_card() -> None:
    assert refusal(call("GetExtendedAgentCard"))[1]["error"]["code"] == -32004


def test_base64_is_passed_on_in_its_usual_form() -> None:
    """ProtoJSON reads the alphabet for addresses, and content without its padding."""
    (part,) = read(send({"raw": "-_8", "mediaType": "image/png"})).messages[0].parts
    assert part == Media(MediaKind.IMAGE, Inline("+/8="), "image/png")


def test_numbers_may_be_written_as_text() -> None:
    """As ProtoJSON reads them."""
    notes = read(send(configuration={"historyLength": "5"})).extra("a2a")["notes"]
    assert notes["history"] == 5


def test_the_same_over_plain_http() -> None:
    body = json.dumps({"message": message("Hi")}).encode()
    request = read(body, NEW, "/message:stream")
    assert (request.stream, request.messages[0].parts) == (True, [Text("Hi")])
    assert not read(body, NEW, "/message:send").stream
    response, said = refusal(json.dumps({"message": {}}).encode(), NEW, "/message:send")
    assert (response.status, said["error"]["code"], said["error"]["status"]) == (400, 400, "INVALID_ARGUMENT")
    assert said["error"]["details"][1]["fieldViolations"][0]["field"] == "message.messageId"
    response, said = refusal(body, {}, "/message:send")
    assert (response.status, said["error"]["status"]) == (400, "FAILED_PRECONDITION")
    assert said["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"


def test_ids_have_a_longest_length() -> None:
    assert read(send(contextId="c" * LONGEST_ID)).thread_id == "c" * LONGEST_ID
    for long in ("c" * (LONGEST_ID + 1), "\u6a21" * (LONGEST_ID // 3 + 1)):
        assert "expected at most 512 bytes of UTF-8" in str(refusal(send(contextId=long))[1])
