"""A backend that cannot take a part: the error names a field of the body that the client sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.dialects.aip.wire import AgentMessage, ContentItem, SessionStatus
from bridge.errors import Unsupported
from bridge.model import Media, MediaKind, Message, Request, Text, ToolResult, Url
from bridge.model.error_paths import note_places, place_of, unsupported
from bridge.translation.library import Translator
from tests.pairs.clients import routes
from tests.pairs.test_conversations import chat_stream
from tests.server.harness import fake_backend, post, serving

VIDEO = {"type": "video", "video_url": "https://x.example/a.mp4"}
BACKS = ["openai-chat", "openai-responses", "anthropic-messages", "ag-kit"]


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def refused(back: str, front: str, body: dict[str, Any]) -> Unsupported:
    with pytest.raises(Unsupported) as caught:
        Translator(back, front, model="m").request(json.dumps(body).encode(), client=front)
    return caught.value


@pytest.mark.parametrize("back", BACKS)
def test_a_part_is_named_where_the_client_put_it(back: str) -> None:
    """The web frontend's empty text in front of a picture is left out on the way, and does not move it."""
    content = [text(""), text("see"), VIDEO]
    asked = {"input": [{"role": "user", "content": [text("hi")]}, {"role": "user", "content": content}]}
    error = refused(back, "agentscope", asked)
    assert error.failure.param == "input[1].content[2]"
    assert error.message.startswith("input[1].content[2]: ")
    assert "option" not in error.message
    assert "messages[" not in error.message


def test_a_client_whose_body_has_messages_reads_of_messages() -> None:
    part = {"type": "file", "file": {"file_id": "f1"}}
    body = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, part]}]}
    assert refused("ag-kit", "openai-chat", body).failure.param == "messages[0].content[1]"


async def test_history_in_front_does_not_move_the_place(tmp_path: Path) -> None:
    async with fake_backend() as backend:
        store = {"history": f"sqlite:///{tmp_path}/talks.db"}
        async with serving({**routes("openai-chat", f"{backend.url}/v1"), "stores": store}) as base:
            backend.streams(*chat_stream({"content": "Hello"}))
            first = {"input": [{"role": "user", "content": [text("hi")]}], "session_id": "s"}
            assert (await post(f"{base}/scope/process", first)).status == 200
            second = {"input": [{"role": "user", "content": [text("see"), VIDEO]}], "session_id": "s"}
            reply = await post(f"{base}/scope/process", second)
            assert reply.status == 422
            assert reply.json["detail"][0]["loc"] == ["body", "input", 0, "content", 1]
            result = {
                "type": "plugin_call_output",
                "content": [{"type": "data", "data": {"call_id": "c", "output": ""}}],
            }
            reply = await post(f"{base}/scope/process", {"input": [result], "session_id": "s"})
            assert reply.json["detail"][0]["loc"] == ["body", "input", 0]
            assert reply.json["detail"][0]["msg"].startswith("input[0]: there is no open tool call 'c'")


def film() -> Media:
    return Media(MediaKind.VIDEO, Url("https://x.example/a.mp4"))


def test_a_message_that_the_client_did_not_send_is_told_as_an_earlier_one() -> None:
    old, new = Message("user", [film()]), Message("user", [Text("x"), Text("y"), film()])
    request = Request([new])
    note_places(request)
    request.messages.insert(0, old)
    error = unsupported(request.messages, old.parts[0], "no.")
    assert (error.failure.param, error.message) == (None, "an earlier message of this conversation: no.")
    error = unsupported(request.messages, new.parts[2], "no.")
    assert error.failure.param == "messages[0].content[2]"
    assert error.message == "messages[0].content[2]: no."


def test_a_program_that_made_the_request_knows_its_messages_by_number() -> None:
    result = ToolResult("c", [Text("x"), film()])
    messages = [Message("user", [film()]), Message("tool", [result])]
    assert place_of(messages, messages[0].parts[0])[0] == "messages[0].content[0]"
    assert place_of(messages, result.parts[1])[0] == "messages[1].content[0].content[1]"


def test_equal_parts_are_told_apart() -> None:
    request = Request([Message("user", [film()]), Message("user", [film()])])
    note_places(request)
    assert place_of(request.messages, request.messages[1].parts[0])[0] == "messages[1].content[0]"


def test_a_part_that_is_not_in_the_request_has_no_place() -> None:
    assert place_of([Message("user", "x")], film()) == (None, "a part of this request")


def test_the_place_of_a_part_stays_when_parts_before_it_are_left_out() -> None:
    """Anthropic takes no blank text beside others; the places of parts are numbers then."""
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    body = {"model": "m", "messages": [{"role": "user", "content": [text(" "), text("see"), sound]}]}
    assert refused("anthropic-messages", "openai-chat", body).failure.param == "messages[0].content[2]"


FILE_URL = "https://x.example/a.pdf"
DOCUMENT = {"type": "document", "source": {"type": "url", "url": FILE_URL}}
UPLOADED = {"type": "document", "source": {"type": "file", "file_id": "f1"}}
SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
USES = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}


def asking(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 5, "messages": [*messages], **more}


def said_to_agui(*messages: dict[str, Any]) -> dict[str, Any]:
    numbered = [{"id": str(n), **message} for n, message in enumerate(messages)]
    rest: dict[str, Any] = {"tools": [], "context": [], "state": {}, "forwardedProps": {}}
    return {"threadId": "t", "runId": "r", "messages": numbered, **rest}


INPUTS: list[tuple[str, str, dict[str, Any], str]] = [
    (
        "openai-responses", "openai-chat",
        {"model": "m", "instructions": "Be brief.", "input": [
            {"role": "user", "content": "hi"},
            {"role": "user", "content": [
                {"type": "input_text", "text": "see"}, {"type": "input_file", "file_url": FILE_URL}
            ]},
        ]},
        "input[1].content[1]",
    ),
    (
        "openai-responses", "openai-chat",
        {"model": "m", "input": [
            {"type": "additional_tools", "role": "developer", "tools": []},
            {"role": "user", "content": [{"type": "input_file", "file_url": FILE_URL}]},
        ]},
        "input[1].content[0]",
    ),
    (
        "openai-responses", "anthropic-messages",
        {"model": "m", "instructions": "x", "input": [
            {"role": "user", "content": "hi"}, CALL,
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x"}, SOUND]},
        ]},
        "input[2].output[1]",
    ),
    (
        "anthropic-messages", "openai-chat",
        asking({"role": "user", "content": "hi"}, USES, {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": "x"}, {"type": "text", "text": "y"}, DOCUMENT
        ]}, system="Be brief."),
        "messages[2].content[2]",
    ),
    (
        "anthropic-messages", "aip",
        asking({"role": "user", "content": "hi"}, USES, {"role": "user", "content": [
            {"type": "text", "text": "y"},
            {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "x"}, UPLOADED]},
        ]}),
        "messages[2].content[1].content[1]",
    ),
    (
        "ag-ui", "openai-chat",
        said_to_agui(
            {"role": "user", "content": "hi"},
            {"role": "activity", "activityType": "x", "content": {}},
            {"role": "user", "content": [
                {"type": "text", "text": "see"},
                {"type": "video", "source": {"type": "url", "value": "https://x.example/a.mp4"}},
            ]},
        ),
        "messages[2].content[1]",
    ),
    (
        "openai-chat", "anthropic-messages",
        asking({"role": "system", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "y"}, SOUND]}),
        "messages[1].content[1]",
    ),
    (
        "openai-chat", "openai-responses",
        asking({"role": "user", "content": "x"}, {
            "role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": CALL}]
        }, {"role": "tool", "tool_call_id": "c", "content": [
            {"type": "text", "text": "y"}, {"type": "video_url", "video_url": {"url": "https://x.example/a.mp4"}}
        ]}),
        "messages[2].content[1]",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("front", "back", "body", "place"), INPUTS, ids=[f"{i[0]}-{i[3]}" for i in INPUTS])
def test_every_client_reads_of_its_own_body(front: str, back: str, body: dict[str, Any], place: str) -> None:
    error = refused(back, front, body)
    assert error.failure.param == place
    assert error.message.startswith(f"{place}: ")


def test_an_inquiry_over_grpc_reads_of_its_contents() -> None:
    items = [ContentItem(text="see"), ContentItem(text=""), ContentItem(image=b"\x89PNG\r\n\x1a\n")]
    message = AgentMessage("a", "b", "s", SessionStatus.START_QUEST, None, "m1", "", items)
    with pytest.raises(Unsupported) as caught:
        Translator("ag-kit", "aip", model="m").request(message.to_bytes(), client="aip")
    assert caught.value.failure.param == "content[2]"


ANSWER = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}]}


async def test_a_stored_response_in_front_does_not_move_the_place(tmp_path: Path) -> None:
    async with fake_backend() as backend:
        config = routes("openai-chat", f"{backend.url}/v1")
        async with serving({**config, "stores": {"history": f"sqlite:///{tmp_path}/talks.db"}}) as base:
            url = f"{base}/responses/v1/responses"
            backend.answers(200, json.dumps(ANSWER).encode())
            first = await post(url, {"model": "m", "input": "hi", "stream": False})
            file = {"type": "input_file", "file_url": FILE_URL}
            asked = {"model": "m", "input": [{"role": "user", "content": [file]}], "stream": False}
            reply = await post(url, {**asked, "previous_response_id": first.json["id"]})
            assert reply.json["error"]["param"] == "input[0].content[0]"


@pytest.mark.parametrize(
    ("front", "body", "place"),
    [
        (
            "agentscope",
            {"input": [{"type": "mcp_approval_response", "role": "user", "content": [
                {"type": "data", "data": {"approval_request_id": "a", "approve": True}}
            ]}]},
            "input[0].content[0].data",
        ),
        (
            "ag-ui",
            {**said_to_agui(), "resume": [{"interruptId": "a", "status": "resolved"}]},
            "resume[0]",
        ),
        ("ag-kit", {"messages": [], "resume": {"interruptId": "a", "payload": 1}}, "resume"),
    ],
)  # fmt: skip
def test_an_answer_that_nobody_waits_for_is_named_where_it_stands(front: str, body: dict[str, Any], place: str) -> None:
    error = refused("openai-chat", front, body)
    assert error.failure.param == place
    assert error.message.startswith(f"{place}: ")
