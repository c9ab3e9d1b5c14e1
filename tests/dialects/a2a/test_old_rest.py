"""HTTP+JSON of 0.3, whose objects are the JSON form of protobuf messages, on both sides."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bridge.contract import Frame
from bridge.dialects.a2a.old_rest import read_params, read_result, write_params, write_result
from bridge.model import (
    Data,
    FinishReason,
    Inline,
    Media,
    MediaKind,
    Message,
    Part,
    Resume,
    RunFinished,
    Text,
    Url,
    fold,
)
from tests.server.harness import ask, serving

from .back import IDS, Run, asking, whole
from .front import DEMO, NEW, OLD, events_in, read, refusal, route, stores

CARD: dict[str, Any] = {
    "name": "Agent",
    "url": "http://inside:9/old/",
    "preferredTransport": "HTTP+JSON",
    "protocolVersion": "0.3.0",
    "capabilities": {"streaming": True},
}
BOTH: dict[str, Any] = {"versions": ["1.0", "0.3"]}
PNG = "iVBORw0KGgo="


def twice(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def body(*content: Any, **fields: Any) -> bytes:
    said = {"messageId": "m-1", "role": "ROLE_USER", "content": list(content or ({"text": "hello"},)), **fields}
    return json.dumps({"message": said}).encode()


# ------------------------------------------------------------------ objects

PARTS = [
    ({"text": "hi", "metadata": {"k": 1}}, {"text": "hi", "metadata": {"k": 1}}),
    ({"data": {"n": 1}}, {"data": {"data": {"n": 1}}}),
    ({"url": "https://x.ex", "mediaType": "a/b"}, {"file": {"fileWithUri": "https://x.ex", "mimeType": "a/b"}}),
    ({"raw": PNG, "filename": "p.png"}, {"file": {"fileWithBytes": twice(PNG), "name": "p.png"}}),
]  # fmt: skip


@pytest.mark.parametrize(("new", "old"), PARTS)
def test_parts_in_both_forms(new: Any, old: Any) -> None:
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [new]}
    wire = {"messageId": "m", "role": "ROLE_AGENT", "content": [old]}
    status = {"state": "TASK_STATE_CANCELED", "message": message}
    said = {"state": "TASK_STATE_CANCELLED", "message": wire}
    artifact = {"artifactId": "a", "parts": [new]}
    kept = {"artifactId": "a", "parts": [old]}
    task = {"id": "t", "contextId": "c", "status": status, "artifacts": [artifact], "history": [message]}
    old_task = {"id": "t", "contextId": "c", "status": said, "artifacts": [kept], "history": [wire]}
    for one, other in (
        (task, old_task),
        ({"task": task}, {"task": old_task}),
        ({"message": message}, {"message": wire}),
        ({"statusUpdate": {**IDS, "status": status}}, {"statusUpdate": {**IDS, "status": said}}),
        ({"artifactUpdate": {**IDS, "artifact": artifact}}, {"artifactUpdate": {**IDS, "artifact": kept}}),
    ):
        assert write_result(one) == other
        assert read_result(other) == one
    assert write_params({"message": message, "metadata": {}}) == {"message": wire, "metadata": {}}
    for name in ("message", "request"):
        assert read_params({name: wire, "metadata": {}}) == {"message": message, "metadata": {}}
    assert read_result({"msg": wire}) == {"message": message}


def test_names_in_snake_case_and_other_names_of_a_status() -> None:
    old = {"status_update": {"task_id": "t", "status": {"state": "TASK_STATE_WORKING", "update": {"content": []}}}}
    read = {"statusUpdate": {"taskId": "t", "status": {"state": "TASK_STATE_WORKING", "message": {"parts": []}}}}
    assert read_result(old) == read


@pytest.mark.parametrize("value", [None, 7, "x", [], [7], {"parts": 7}, {"status": []}, {"data": 7}, {"file": []}])
def test_values_of_a_wrong_type_are_kept(value: Any) -> None:
    for name in ("task", "message", "statusUpdate", "artifactUpdate"):
        assert set(write_result({name: value})) == set(read_result({name: value})) == {name}
        if not isinstance(value, dict):
            assert write_result({name: value}) == read_result({name: value}) == {name: value}
    assert set(read_params({"request": value})) == {"message"}


# ------------------------------------------------------------------ serving


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ({"text": "hi"}, Text("hi")),
        ({"data": {"data": {"data": 1}}}, Data({"data": 1})),
        (
            {"file": {"fileWithUri": "https://x.example/a.png", "mimeType": "image/png"}},
            Media(MediaKind.IMAGE, Url("https://x.example/a.png"), "image/png"),
        ),
        (
            {"file": {"file_with_bytes": PNG, "mime_type": "image/png", "name": "a.png"}},
            Media(MediaKind.IMAGE, Inline(PNG), "image/png", "a.png"),
        ),
        (
            {"file": {"fileWithBytes": twice(PNG), "mimeType": "image/png"}},
            Media(MediaKind.IMAGE, Inline(PNG), "image/png"),
        ),
    ],
)
def test_parts_of_a_client(content: Any, part: Part) -> None:
    assert read(body(content), OLD, "/v1/message:send", **BOTH).messages[0].parts == [part]


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"{}", "message: required, expected an object"),
        (b'{"message": 7}', "message: expected an object"),
        (body(role="ROLE_AGENT"), "message.role: expected ROLE_USER"),
        (body({"text": 1}), "message.content[0]: expected a part with one of text, file and data"),
        (body({"file": {"fileWithBytes": "*"}}), "message.content[0].file: expected base64"),
        (body({"file": {"fileWithUri": ""}}), "message.content[0]"),
        (
            json.dumps({"message": {"messageId": "m", "role": "ROLE_USER"}}).encode(),
            "message.content: required, expected a list",
        ),
    ],
)
def test_errors_name_the_fields_that_the_client_sent(sent: bytes, said: str) -> None:
    response, error = refusal(sent, OLD, "/v1/message:send", **BOTH)
    assert (response.status, error["code"]) == (400, -32602)
    assert error["message"].startswith(said)


def test_both_versions_have_their_addresses() -> None:
    """An address of 0.3 takes no 1.0, and 0.3 is served by option."""
    for headers, options in ((NEW, BOTH), (OLD, {})):
        response, error = refusal(body(), headers, "/v1/message:send", **options)
        assert (response.status, error["code"]) == (400, -32009)
    response, error = refusal(b'{"message": {}}', OLD, "/message:send", **BOTH)
    assert (response.status, error["error"]["details"][0]["reason"]) == (400, "VERSION_NOT_SUPPORTED")


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[str]:
    config = {**DEMO, "routes": [route(durable=True, options=BOTH)], **stores(tmp_path)}
    async with serving(config) as base:
        yield f"{base}/a2a"


async def test_the_card_names_it(agent: str) -> None:
    card = (await ask("GET", f"{agent}/.well-known/agent-card.json", b"", {})).json
    assert card["preferredTransport"] == "JSONRPC"
    interfaces = [(each["url"], each["transport"]) for each in card["additionalInterfaces"]]
    assert interfaces == [(agent, "JSONRPC"), (agent, "HTTP+JSON")]
    listed = [(each["protocolVersion"], each["protocolBinding"]) for each in card["supportedInterfaces"]]
    assert listed == [(version, binding) for version in ("1.0", "0.3") for binding in ("JSONRPC", "HTTP+JSON")]


async def test_a_stream_and_its_task(agent: str) -> None:
    reply = await ask("POST", f"{agent}/v1/message:stream", body(), OLD)
    first, *events = events_in(reply)
    assert first["task"]["history"][0]["content"] == [{"text": "hello"}]
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [each["statusUpdate"]["final"] for each in events if "statusUpdate" in each] == [False, True]
    task = (await ask("GET", f"{agent}/v1/tasks/{first['task']['id']}", b"", OLD)).json
    pieces = [each["artifactUpdate"]["artifact"]["parts"][0]["text"] for each in events if "artifactUpdate" in each]
    assert task["artifacts"][0]["parts"][0]["text"] == "".join(pieces)
    assert [message["content"] for message in task["history"]] == [[{"text": "hello"}]]
    whole = (await ask("POST", f"{agent}/v1/message:send", body(), OLD)).json
    assert whole["task"]["artifacts"][0]["parts"] == task["artifacts"][0]["parts"]


async def test_a_question_is_answered_and_canceled(agent: str) -> None:
    asked = (await ask("POST", f"{agent}/v1/message:send", body({"text": "interrupt"}), OLD)).json["task"]
    assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert "delete_file" in asked["status"]["message"]["content"][0]["text"]
    answered = (await ask("POST", f"{agent}/v1/message:send", body({"text": "yes"}, taskId=asked["id"]), OLD)).json
    assert answered["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    waiting = (await ask("POST", f"{agent}/v1/message:send", body({"text": "interrupt"}), OLD)).json["task"]
    for method in ("GET", "POST"):
        (shown,) = events_in(await ask(method, f"{agent}/v1/tasks/{waiting['id']}:subscribe", b"", OLD))
        assert shown["task"]["status"]["message"]["content"] == waiting["status"]["message"]["content"]
    name = json.dumps({"name": f"tasks/{waiting['id']}"}).encode()
    canceled = (await ask("POST", f"{agent}/v1/tasks/{waiting['id']}:cancel", name, OLD)).json
    assert canceled["status"]["state"] == "TASK_STATE_CANCELLED"
    reply = await ask("POST", f"{agent}/v1/tasks/{waiting['id']}:cancel", name, OLD)
    assert (reply.status, reply.json["code"]) == (400, -32002)
    reply = await ask("GET", f"{agent}/v1/tasks/nobody", b"", OLD)
    assert (reply.status, reply.json["code"]) == (404, -32001)
    assert (await ask("GET", f"{agent}/v1/tasks", b"", OLD)).status == 404, "0.3 has no lists"


async def test_push_configs(tmp_path: Path) -> None:
    options = {**BOTH, "push": ["hooks.example"]}
    async with serving({**DEMO, "routes": [route(durable=True, options=options)], **stores(tmp_path)}) as base:
        asked = (await ask("POST", f"{base}/a2a/v1/message:send", body({"text": "interrupt"}), OLD)).json["task"]
        configs = f"{base}/a2a/v1/tasks/{asked['id']}/pushNotificationConfigs"
        config = {"id": "one", "url": "https://hooks.example/", "authentication": {"schemes": ["Bearer"]}}
        name = f"tasks/{asked['id']}/pushNotificationConfigs/one"
        kept = {"name": name, "pushNotificationConfig": config}
        for sent in ({"parent": f"tasks/{asked['id']}", "configId": "one", "config": kept}, kept):
            assert (await ask("POST", configs, json.dumps(sent).encode(), OLD)).json == kept
        assert (await ask("GET", f"{configs}/one", b"", OLD)).json == kept
        assert (await ask("GET", configs, b"", OLD)).json == {"configs": [kept], "nextPageToken": ""}
        assert (await ask("DELETE", f"{configs}/one", b"", OLD)).status == 200
        assert (await ask("GET", f"{configs}/one", b"", OLD)).json["code"] == -32001


# ------------------------------------------------------------------ calling


def said(*events: Any) -> list[bytes]:
    return [json.dumps(each).encode() for each in events]


def status(state: str, text: str = "") -> dict[str, Any]:
    message = {"update": {"messageId": "m", "role": "ROLE_AGENT", "content": [{"text": text}]}} if text else {}
    return {"statusUpdate": {**IDS, "status": {"state": f"TASK_STATE_{state}", **message}, "final": not text}}


def artifact(*parts: Any) -> dict[str, Any]:
    return {"artifactUpdate": {**IDS, "artifact": {"artifactId": "a", "parts": list(parts)}}}


def test_a_message_and_its_answer() -> None:
    parts: list[Part] = [Text("Look."), Media(MediaKind.IMAGE, Inline(PNG), "image/png"), Data([1])]
    request = asking(Message("user", parts, id="m1"), thread="c1")
    run = Run(
        whole(CARD),
        said(artifact({"text": "Hi"}, {"data": {"data": {"n": 3.0}}}), status("COMPLETED")),
        request=request,
    )
    sent = run.asked[1]
    assert (sent.method, sent.path, "a2a-version" in sent.headers) == ("POST", "/old/v1/message:stream", False)
    assert run.body()["message"] == {
        "messageId": "m1",
        "contextId": "c1",
        "role": "ROLE_USER",
        "content": [
            {"text": "Look."},
            {"file": {"fileWithBytes": twice(PNG), "mimeType": "image/png"}},
            {"data": {"data": {"value": [1]}}, "metadata": {"data_part_compat": True}},
        ],
    }
    answer = fold(run.events)
    assert answer.text == "Hi"
    assert [part.value for part in answer.parts() if isinstance(part, Data)] == [{"n": 3}]


def test_an_agent_without_a_card_and_without_streams() -> None:
    options = {"card": "none", "binding": "http+json", "version": "0.3"}
    run = Run(said({"msg": {"messageId": "m", "role": "ROLE_AGENT", "content": [{"text": "Hi"}]}}), **options)
    assert (run.asked[0].path, fold(run.events).text) == ("/v1/message:stream", "Hi")
    still = {**CARD, "capabilities": {}}
    task = {"id": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_CANCELLED"}}
    run = Run(whole(still), whole({"task": {**task, "status": {"state": "TASK_STATE_WORKING"}}}), whole(task))
    assert run.body(1)["configuration"] == {"blocking": True}
    assert [(wire.method, wire.path) for wire in run.asked[1:]] == [
        ("POST", "/old/v1/message:send"),
        ("GET", "/old/v1/tasks/t1"),
    ]
    assert [e.reason for e in run.events if isinstance(e, RunFinished)] == [FinishReason.CANCELED]


def test_a_question_and_a_cancel() -> None:
    run = Run(whole(CARD), said(status("INPUT_REQUIRED", "Where?")))
    (asked,) = fold(run.events).interrupts
    assert asked.payload == "Where?"
    answer = Resume(asked.interrupt_id, "resolved", "Oslo", extras=asked.extras)
    again = Run(
        whole(CARD),
        said(status("WORKING", "Well.")),
        whole(b"", 500),
        whole(b"", 500),
        whole(b"", 500),
        request=asking(resume=[answer]),
    )
    assert again.body(1)["message"]["taskId"] == "t1"
    wire = again.call.cancel()
    assert wire is not None
    assert (wire.method, wire.path, json.loads(wire.body)) == ("POST", "/old/v1/tasks/t1:cancel", {"name": "tasks/t1"})


@pytest.mark.parametrize("error", [{"message": "gone"}, {"code": -32001, "message": "gone"}])
def test_a_task_that_is_gone_is_left_for_a_new_one(error: Any) -> None:
    """The Python SDK has the message alone, the JavaScript SDK the number of JSON-RPC, too."""
    answer = Resume("t1", "resolved", "Oslo", extras={"a2a": {"notes": {"taskId": "t1"}}})
    done = said(artifact({"text": "Oslo."}), status("COMPLETED"))
    run = Run(whole(CARD), whole(error, 404), done, request=asking(resume=[answer]))
    assert ["taskId" in run.body(n)["message"] for n in (1, 2)] == [True, False]
    assert fold(run.events).text == "Oslo."


def test_an_error_in_mid_stream() -> None:
    broken = Frame(b'{"code":-32603,"message":"It broke."}', "error")
    run = Run(whole(CARD), [*said(artifact({"text": "Hi"})), broken])
    failure = fold(run.events).failure
    assert failure is not None
    assert (failure.message, failure.backend_code) == ("It broke.", "-32603")
