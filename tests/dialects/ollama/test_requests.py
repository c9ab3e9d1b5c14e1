"""What clients send: every field, and results that are matched with their calls by id, name or place."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from bridge import RequestError
from bridge.contract import WireRequest
from bridge.dialects.ollama import dialect
from bridge.model import (
    Inline,
    Media,
    MediaKind,
    Reasoning,
    Request,
    ResponseFormat,
    Sampling,
    Text,
    ToolCall,
    ToolResult,
    result_text,
)

from .helpers import CAPTURES, HI, INDEX, PNG, TOOL, asked, front, talk

CLIENTS = [entry for entry in INDEX if "request_file" in entry and "file" not in entry]
LOOK = {"function": {"name": "look", "arguments": {"at": "sky"}}}
HEAR = {"function": {"name": "hear", "arguments": {}}}


def results(request: Request) -> list[tuple[str, str]]:
    """Each result: which call it belongs to, and its text."""
    parts = [part for message in request.messages for part in message.parts]
    return [(part.call_id, result_text(part.parts)) for part in parts if isinstance(part, ToolResult)]


def calls(request: Request) -> list[ToolCall]:
    return [part for message in request.messages for part in message.parts if isinstance(part, ToolCall)]


@pytest.mark.parametrize("entry", CLIENTS, ids=[entry["name"] for entry in CLIENTS])
def test_what_clients_really_send_is_read(entry: dict[str, Any]) -> None:
    data = (CAPTURES / entry["request_file"]).read_bytes().partition(b"\r\n\r\n")[2]
    path = entry["request"].split()[1]
    request = dialect.decode_request(WireRequest("POST", path, body=data), front())
    assert request.model in ("plain", "native", "vision")
    assert request.messages
    assert request.sampling == Sampling()


def test_every_field() -> None:
    request = asked(
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "User", "content": "What?", "images": [PNG]},
                {"role": "assistant", "content": None, "thinking": "Hmm.", "tool_calls": [{"id": "a", **LOOK}]},
                {"role": "tool", "content": "blue", "tool_call_id": "a"},
            ],
            "tools": [TOOL],
            "format": {"type": "object"},
            "think": "low",
            "options": {
                "temperature": 0.5, "top_p": 0.9, "num_predict": 9, "stop": ["X"], "seed": 4,
                "frequency_penalty": 0.1, "presence_penalty": 0.2, "top_k": 5, "num_ctx": 100, "odd": "kept",
            },
            "keep_alive": "5m",
            "stream": False,
        }
    )  # fmt: skip
    assert [message.role for message in request.messages] == ["system", "user", "assistant", "tool"]
    assert request.messages[1].parts == [Text("What?"), Media(MediaKind.IMAGE, Inline(PNG), "image/png")]
    assert request.messages[2].parts == [Reasoning("Hmm."), ToolCall("a", "look", '{"at":"sky"}')]
    assert results(request) == [("a", "blue")]
    assert [tool.name for tool in request.tools or ()] == ["look"]
    assert request.response_format is not None
    assert (request.response_format.kind, request.response_format.schema) == ("json_schema", {"type": "object"})
    assert request.response_format.name
    assert request.response_format.strict is None
    assert (request.reasoning_effort, request.reasoning_summary, request.stream) == ("low", "auto", False)
    assert request.sampling == Sampling(0.5, 0.9, 9, ["X"], 4, None, 0.1, 0.2)
    extras = request.extra("ollama")
    assert extras["options"] == {"top_k": 5, "num_ctx": 100, "odd": "kept"}
    assert extras["keep_alive"] == "5m"


def test_a_stream_is_the_default() -> None:
    assert asked(HI).stream
    assert asked({**HI, "stream": None}).stream


def test_what_is_null_or_negative_is_not_set() -> None:
    options = {"temperature": None, "num_predict": -1, "seed": -1, "top_k": None, "stop": None}
    request = asked({**HI, "options": options, "format": None, "think": None, "tools": None, "keep_alive": None})
    assert request.sampling == Sampling()
    assert (request.response_format, request.reasoning_effort, request.tools) == (None, None, None)
    assert request.reasoning_summary is None
    assert request.extra("ollama").keys() == {"notes"}
    assert asked({**HI, "options": None, "format": ""}).response_format is None
    assert asked({**HI, "format": "json"}).response_format == ResponseFormat("json")


@pytest.mark.parametrize(
    ("think", "effort"),
    [(True, "medium"), (False, "none"), ("low", "low"), ("medium", "medium"), ("high", "high"), ("max", "high")],
)
def test_think(think: Any, effort: str) -> None:
    assert asked({**HI, "think": think}).reasoning_effort == effort


def test_fields_that_the_protocol_does_not_have_are_ignored() -> None:
    request = asked({**HI, "tool_choice": "auto", "template": "x", "context": [1], "raw": False})
    assert request.tool_choice is None
    assert request.extra("ollama").keys() == {"notes"}


@pytest.mark.parametrize(
    ("field", "value", "place"),
    [
        ("think", "yes", "think"),
        ("think", 1, "think"),
        ("format", "yaml", "format"),
        ("format", 5, "format"),
        ("options", [], "options"),
        ("options", {"temperature": "hot"}, "options.temperature"),
        ("options", {"top_k": "many"}, "options.top_k"),
        ("options", {"stop": 5}, "options.stop"),
        ("messages", "hi", "messages"),
        ("messages", [{"content": "x"}], "messages[0].role"),
        ("messages", [{"role": "user", "content": [{"type": "text", "text": "x"}]}], "messages[0].content"),
        ("messages", [{"role": "user", "images": ["data:image/png;base64," + PNG]}], "messages[0].images[0]"),
        ("messages", [{"role": "user", "images": ["https://example.com/a.png"]}], "messages[0].images[0]"),
        ("messages", [{"role": "user", "images": [base64.b64encode(b"%PDF-1.7 ...").decode()]}],
         "messages[0].images[0]"),
        ("messages", [{"role": "user", "images": [base64.b64encode(b"just words").decode()]}],
         "messages[0].images[0]"),
        ("messages", [{"role": "user", "images": [base64.b64encode(bytes(range(200, 256))).decode()]}],
         "messages[0].images[0]"),
        ("messages", [{"role": "user", "images": [5]}], "messages[0].images[0]"),
        ("messages", [{"role": "assistant", "tool_calls": [{"function": {"name": "look", "arguments": "{}"}}]}],
         "messages[0].tool_calls[0].function.arguments"),
        ("messages", [{"role": "assistant", "tool_calls": [{"function": {"arguments": {}}}]}],
         "messages[0].tool_calls[0].function.name"),
        ("tools", [{"type": "function"}], "tools[0].function"),
        ("stream", "yes", "stream"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_its_place(field: str, value: Any, place: str) -> None:
    with pytest.raises(RequestError) as caught:
        asked({**HI, field: value})
    assert caught.value.failure.param == place
    assert caught.value.failure.http_status == 400


@pytest.mark.parametrize("start", [b"\xff\xd8\xff\xe0", b"GIF89a", b"RIFF0000WEBPVP8 ", b"\x89PNG\r\n\x1a\n"])
def test_the_bytes_tell_the_type_of_an_image(start: bytes) -> None:
    image = talk({"role": "user", "images": [base64.encodebytes(start + bytes(60)).decode()]}).messages[0].parts[-1]
    assert isinstance(image, Media)
    assert image.mime in ("image/jpeg", "image/gif", "image/webp", "image/png")
    assert isinstance(image.source, Inline)
    assert image.source.bytes == start + bytes(60)


def test_other_roles_are_accepted() -> None:
    request = talk({"role": "control", "content": "thinking"}, {"role": "developer", "content": "x"})
    assert [message.role for message in request.messages] == ["user", "developer"]


def test_calls_without_ids_get_some_that_are_unique() -> None:
    request = talk(
        {"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": [LOOK, LOOK, {"id": "call_2", **HEAR}]},
        {"role": "tool", "content": "one"},
        {"role": "tool", "content": "two"},
        {"role": "tool", "content": "three"},
        {"role": "assistant", "tool_calls": [LOOK]},
        {"role": "tool", "content": "four"},
    )
    ids = [call.call_id for call in calls(request)]
    assert len(set(ids)) == 4
    assert ids[2] == "call_2"
    assert results(request) == list(zip(ids, ["one", "two", "three", "four"], strict=True))


def test_results_by_id_name_and_place() -> None:
    three = {"role": "assistant", "tool_calls": [{"id": "a", **LOOK}, {"id": "b", **HEAR}, {"id": "c", **LOOK}]}
    request = talk(
        three,
        {"role": "tool", "content": "of c", "tool_call_id": "c", "tool_name": "look"},
        {"role": "tool", "content": "of b", "name": "hear"},
        {"role": "tool", "content": "of a", "tool_name": "unknown"},
    )
    assert results(request) == [("c", "of c"), ("b", "of b"), ("a", "of a")]


def test_an_id_that_no_call_has() -> None:
    request = talk(
        {"role": "assistant", "tool_calls": [LOOK, HEAR]},
        {"role": "tool", "content": "heard", "tool_call_id": "lost", "tool_name": "hear"},
        {"role": "tool", "content": "seen", "tool_call_id": "lost"},
    )
    look, hear = (call.call_id for call in calls(request))
    assert results(request) == [(hear, "heard"), (look, "seen")]


def test_a_result_belongs_to_the_latest_turn() -> None:
    request = talk(
        {"role": "assistant", "tool_calls": [LOOK]},
        {"role": "user", "content": "Never mind."},
        {"role": "assistant", "tool_calls": [LOOK]},
        {"role": "tool", "content": "blue"},
    )
    assert results(request) == [(calls(request)[1].call_id, "blue")]


def test_results_without_their_calls_are_the_users() -> None:
    """Home Assistant cuts the middle of a conversation out."""
    request = talk(
        {"role": "tool", "content": "old", "tool_name": "look"},
        {"role": "assistant", "tool_calls": [LOOK]},
        {"role": "tool", "content": "new"},
        {"role": "tool", "content": "one more"},
    )
    assert [(m.role, result_text(m.parts)) for m in request.messages if m.role == "user"] == [
        ("user", "old"), ("user", "one more"),
    ]  # fmt: skip
    assert [text for _, text in results(request)] == ["new"]


def test_images_of_a_result() -> None:
    request = talk(
        {"role": "assistant", "tool_calls": [LOOK]}, {"role": "tool", "content": "", "images": [PNG]}
    )  # fmt: skip
    [result] = [part for part in request.messages[1].parts if isinstance(part, ToolResult)]
    assert Media(MediaKind.IMAGE, Inline(PNG), "image/png") in result.parts


def test_a_prompt() -> None:
    request = asked({"model": "m", "prompt": "hi", "system": "Be brief."}, "/api/generate")
    assert [(m.role, result_text(m.parts)) for m in request.messages] == [("system", "Be brief."), ("user", "hi")]
    assert request.stream


def test_a_suffix_is_refused() -> None:
    with pytest.raises(RequestError, match="does not support insert"):
        asked({"model": "m", "prompt": "a", "suffix": "b"}, "/api/generate")
    assert asked({"model": "m", "prompt": "a", "suffix": ""}, "/api/generate").messages


def test_the_model_of_the_route_is_the_default() -> None:
    assert asked({"messages": HI["messages"]}, context=front(model="d")).model is None
    with pytest.raises(RequestError, match="model: required"):
        asked({"messages": HI["messages"]})
