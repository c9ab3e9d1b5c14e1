"""Streams by hand: what the builders return is what the real schemas take and what the two clients show."""

from __future__ import annotations

import copy
import importlib.util
import json
import pickle
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bridge.contract import FrameLike, json_request
from bridge.dialects.agentscope import dialect, java
from bridge.errors import ErrorCode
from bridge.model import Answer, FinishReason, Text, fold, verify
from bridge.sdk import agentscope
from bridge.sdk.agentscope import ContentBuilder, MessageBuilder, ResponseBuilder, Snapshot
from bridge.translation.framing.sse import Splitter
from tests.dialects.agentscope.frontends import WebFrontend, python_client
from tests.dialects.agentscope.helpers import CASES, SCHEMAS, body_of, check_schemas, context


def begun(**more: Any) -> ResponseBuilder:
    response = ResponseBuilder("s", "r", **more)
    response.created()
    response.in_progress()
    return response


def read(events: Iterable[Snapshot]) -> Answer:
    """What our own reader makes of these events."""
    decoder, splitter = dialect.decoder(context()), Splitter()
    frames: list[FrameLike] = []
    for event in events:
        frames += splitter.feed(event.sse())
    return fold(verify([*decoder.feed(frames), *decoder.close()]))


def seen(events: list[Snapshot]) -> WebFrontend:
    """The web frontend after these events; the terminal one must change nothing of what it showed before."""
    check_schemas(events)
    before = WebFrontend().read(b"".join(e.sse() for e in events[:-1])).shown()
    frontend = WebFrontend().read(b"".join(e.sse() for e in events))
    assert frontend.shown() == before
    assert not frontend.errors
    assert len(python_client(b"".join(e.sse() for e in events))) == len(events)
    return frontend


def hello(response: ResponseBuilder) -> list[Snapshot]:
    """Everything of a text answer but its end."""
    out = [response.created(), response.in_progress()]
    message = response.create_message_builder()
    out.append(message.get_message_data())
    content = message.create_content_builder("text")
    out += [content.add_text_delta("Hello, "), content.add_delta("world"), content.complete()]
    out.append(message.complete())
    return out


# ------------------------------------------------------------------ whole streams


def test_a_text_answer() -> None:
    response = ResponseBuilder("s", "r")
    events = [*hello(response), response.completed()]
    assert [(e["object"], e["status"], e.get("delta")) for e in events] == [
        ("response", "created", None),
        ("response", "in_progress", None),
        ("message", "in_progress", None),
        ("content", "in_progress", True),
        ("content", "in_progress", True),
        ("content", "completed", False),
        ("message", "completed", None),
        ("response", "completed", None),
    ]
    assert events[2]["content"] is None
    assert events[0]["output"] == []
    assert events[-1]["output"][0]["content"][0]["text"] == "Hello, world"
    assert (events[-1]["id"], events[-1]["session_id"]) == ("r", "s")
    assert events[-1]["completed_at"] >= events[-1]["created_at"] == events[0]["created_at"]
    assert seen(events).shown() == [("text", "Hello, world")]
    assert not seen(events).generating


def _steady(events: Iterable[dict[str, Any]]) -> list[Any]:
    """Events without what differs from run to run."""
    text = json.dumps(list(events))
    names: dict[str, str] = {}
    for found in [i for e in events for i in (e.get("id"), e.get("msg_id"), e.get("session_id")) if i]:
        names.setdefault(found, f"id{len(names)}")
    for found, name in names.items():
        text = text.replace(found, name)
    steady = json.loads(text)
    for event in steady:
        event.update({k: 0 for k in ("created_at", "completed_at") if event.get(k)})
    return list(steady)


def recorded(name: str) -> list[dict[str, Any]]:
    return [json.loads(e[6:]) for e in body_of(CASES[name]).split(b"\n\n") if e]


def test_generate_streaming_response_is_what_the_original_makes() -> None:
    response = ResponseBuilder("session_123")
    events = list(response.generate_streaming_response(["Hello", " ", "World", "!"]))
    assert _steady(events) == _steady(recorded("builder_generate_streaming_response"))


def test_data_merges_as_in_the_original() -> None:
    """Its snapshots leave out what deltas said, although a reader takes a snapshot for all there is: ours do not."""
    response = begun()
    message = response.create_message_builder(message_type="function_call")
    data = message.create_content_builder("data")
    theirs = recorded("builder_data_merge")
    sent = [e["data"] for e in theirs if e["object"] == "content"]
    events = [message.get_message_data(), data.set_data(sent[0]), *map(data.add_data_delta, sent[1:3])]
    assert _steady(events) == _steady(theirs[:4])
    updated = data.update_data("extra", "e")
    assert (updated["delta"], updated["data"]) == (False, sent[4])
    assert data.complete()["data"] == sent[4]
    assert message.complete()["content"][0]["data"] == sent[4]
    assert sent[0]["n"] == 1, "what was given is not changed"


def test_text_then_image_differs_from_the_original_in_one_delta() -> None:
    """A later content begins with a delta: the web frontend lays anything else over the one before."""
    response = ResponseBuilder("session_123", "response_fixed")
    events = [response.created(), response.in_progress()]
    message = response.create_message_builder()
    events.append(message.get_message_data())
    text = message.create_content_builder("text")
    events += [text.set_text("This is: "), text.add_text_delta("a picture"), text.complete()]
    image = message.create_content_builder("image")
    events += [image.set_image_url("https://example.com/image.jpg"), image.complete()]
    events += [message.complete(), response.completed()]
    theirs = recorded("builder_text_then_image")
    theirs[6]["delta"] = True
    assert _steady(events) == _steady(theirs)
    assert seen(events).shown() == [("text", "This is: a picture"), ("image", "https://example.com/image.jpg")]
    assert (message.get_text_content(), message.get_image_content()) == (
        "This is: a picture", ["https://example.com/image.jpg"],
    )  # fmt: skip


def test_a_tool_round_with_thinking() -> None:
    response = ResponseBuilder("s")
    events = [response.created(), response.in_progress()]

    def say(kind: str, role: str, fill: Callable[[MessageBuilder], list[Snapshot]]) -> None:
        message = response.create_message_builder(role, kind)
        events.append(message.get_message_data())
        events.extend(fill(message))
        events.append(message.complete())

    def text(value: str) -> Callable[[MessageBuilder], list[Snapshot]]:
        def fill(message: MessageBuilder) -> list[Snapshot]:
            content = message.create_content_builder("text", index=0)
            return [content.add_text_delta(value), content.complete()]

        return fill

    def data(*values: dict[str, Any]) -> Callable[[MessageBuilder], list[Snapshot]]:
        def fill(message: MessageBuilder) -> list[Snapshot]:
            content = message.create_content_builder("data")
            return [*map(content.set_data, values), content.complete()]

        return fill

    call = {"call_id": "c", "name": "f", "arguments": ""}
    say("reasoning", "assistant", text("hm"))
    say("plugin_call", "assistant", data(call, {**call, "arguments": '{"x":1}'}))
    say("plugin_call_output", "tool", data({"call_id": "c", "name": "f", "output": "42"}))
    say("message", "assistant", text("It is 42."))
    events.append(response.completed(usage={"input_tokens": 3, "output_tokens": 4}))
    assert seen(events).shown() == [("thinking", "hm"), ("call", ("f", '{"x":1}', "42")), ("text", "It is 42.")]
    answer = read(events)
    assert (answer.reasoning, answer.text) == ("hm", "It is 42.")
    assert [(c.name, c.arguments) for c in answer.calls] == [("f", '{"x":1}')]
    assert answer.usage is not None
    assert (answer.usage.input, answer.usage.output) == (3, 4)


def test_tool_messages_may_overlap() -> None:
    response = begun()
    one, two = (response.create_message_builder(message_type="plugin_call") for _ in range(2))
    first, second = one.create_content_builder("data"), two.create_content_builder("data")
    for number, content in enumerate((first, second)):
        content.set_data({"call_id": str(number), "name": "f", "arguments": "{}"})
    second.complete()
    first.complete()
    two.complete()
    one.complete()
    assert [m["id"] for m in response.completed()["output"]] == [one.id, two.id]


# ------------------------------------------------------------------ how it ends


def half() -> tuple[ResponseBuilder, list[Snapshot]]:
    response = ResponseBuilder("s", "r")
    events = hello(response)
    message = response.create_message_builder()
    events.append(message.get_message_data())
    events.append(message.create_content_builder().add_text_delta("half an ans"))
    return response, events


def test_a_failure_keeps_the_half_answer() -> None:
    response, events = half()
    events.append(response.failed("MODEL_TIMEOUT", "too slow"))
    assert events[-1]["error"] == {"code": "MODEL_TIMEOUT", "message": "too slow"}
    assert events[-1]["completed_at"] is None
    assert [m["status"] for m in events[-1]["output"]] == ["completed", "incomplete"]
    frontend = seen(events)
    assert frontend.shown() == [("text", "Hello, world"), ("text", "half an ans")]
    assert not frontend.generating
    answer = read(events)
    assert answer.failure is not None
    assert (answer.failure.code, answer.text) == (ErrorCode.BACKEND_TIMEOUT, "Hello, worldhalf an ans")


def test_a_cancel_keeps_the_half_answer() -> None:
    response, events = half()
    events.append(response.canceled())
    assert [m["status"] for m in events[-1]["output"]] == ["completed", "canceled"]
    assert events[-1]["output"][1]["content"][0]["status"] == "canceled"
    frontend = seen(events)
    assert frontend.shown() == [("text", "Hello, world"), ("text", "half an ans")]
    assert frontend.generating, "this frontend stops waiting by its own cancel only"
    assert read(events).reason is FinishReason.CANCELED


def test_a_rejection() -> None:
    response = begun()
    event = response.rejected("ACCESS_DENIED", "not this")
    assert (event["status"], event["output"]) == ("rejected", [])
    assert event["error"] == {"code": "ACCESS_DENIED", "message": "not this"}
    assert begun().rejected()["error"] is None
    failure = read([event]).failure
    assert failure is not None
    assert (failure.code, failure.message) == (ErrorCode.CONTENT_FILTER, "not this")
    assert read([begun().rejected()]).reason is FinishReason.CONTENT_FILTER


def test_a_message_that_reports_an_error() -> None:
    response = begun()
    message = response.create_message_builder(message_type="error")
    event = message.failed("TIMEOUT", "too slow")
    check_schemas([event])
    assert (event["status"], event["code"], event["message"]) == ("failed", "TIMEOUT", "too slow")
    failure = read([event, response.completed()]).failure
    assert failure is not None
    assert failure.code is ErrorCode.BACKEND_TIMEOUT


# ------------------------------------------------------------------ contents


FILE = {"file_url": "https://x.example/a.pdf", "file_id": None, "filename": "a.pdf", "file_data": None}
WHOLE: list[tuple[str, Callable[[ContentBuilder], Snapshot], dict[str, Any]]] = [
    ("text", lambda c: c.set_text("t"), {"text": "t"}),
    ("refusal", lambda c: c.set_refusal("no"), {"refusal": "no"}),
    ("data", lambda c: c.set_data({"a": [1]}), {"data": {"a": [1]}}),
    ("image", lambda c: c.set_image_url("https://x.example/a"), {"image_url": "https://x.example/a"}),
    ("audio", lambda c: c.set_audio("aGk=", "wav"), {"data": "aGk=", "format": "wav"}),
    ("video", lambda c: c.set_video_url("https://x.example/a"), {"video_url": "https://x.example/a"}),
    ("file", lambda c: c.set_file(file_url="https://x.example/a.pdf", filename="a.pdf"), FILE),
]


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(("kind", "fill", "payload"), WHOLE)
def test_every_type_of_content(
    kind: str, fill: Callable[[ContentBuilder], Snapshot], payload: dict[str, Any], place: int
) -> None:
    message = begun().create_message_builder()
    for _ in range(place):
        message.create_content_builder().complete()
    content = message.create_content_builder(kind)
    first, again, done = fill(content), fill(content), content.complete()
    check_schemas([first, again, done, message.complete()])
    assert [e["delta"] for e in (first, again, done)] == [place == 1, False, False]
    assert [e["status"] for e in (first, again, done)] == ["in_progress", "in_progress", "completed"]
    for event in (first, again, done, content.get_content_data()):
        assert {k: event[k] for k in payload} == payload
        assert (event["type"], event["index"], event["msg_id"]) == (kind, place, message.id)


def test_complete_is_idempotent() -> None:
    message = begun().create_message_builder()
    content = message.create_content_builder()
    content.add_text_delta("a")
    content.add_text_delta(None)
    assert content.complete() == content.complete()
    assert content.complete()["text"] == "a"
    assert message.complete() == message.complete()
    assert content.complete()["text"] == "a", "also when the message is over"
    assert message.get_text_content() == "a"


def test_no_text_at_all_is_null() -> None:
    message = begun().create_message_builder()
    assert message.create_content_builder().complete()["text"] is None
    assert message.get_text_content() is None


def test_what_was_returned_does_not_change() -> None:
    response = begun()
    message = response.create_message_builder()
    opened, before = message.get_message_data(), response.get_response_data()
    content = message.create_content_builder("data")
    given = {"a": {"b": [1]}}
    first = content.set_data(given)
    given["a"]["b"].append(2)
    more: dict[str, Any] = {"a": {"b": [3]}, "c": [1]}
    second = content.add_data_delta(more)
    more["c"].append(2)
    content.complete()
    done = message.complete()
    response.completed()
    assert (opened["status"], opened["content"]) == ("in_progress", None)
    assert before["status"] == "in_progress"
    assert first["data"] == {"a": {"b": [1]}}
    assert second["data"] == {"a": {"b": [3]}, "c": [1]}
    assert done["content"][0]["data"] == {"a": {"b": [1, 3]}, "c": [1]}


# ------------------------------------------------------------------ contents of others


def test_pieces_by_index() -> None:
    message = begun().create_message_builder()
    first = message.add_delta_content({"type": "text", "text": "Hel"})
    assert (first["index"], first["msg_id"], first["status"], first["delta"]) == (0, message.id, "in_progress", True)
    message.add_delta_content({**first, "text": "lo"})
    assert message.content_completed(0)["text"] == "Hello"
    data = message.add_delta_content({"type": "data", "data": {"arguments": '{"a"', "n": 1}})
    message.add_delta_content({**data, "data": {"arguments": ":1}", "n": 2, "new": True}})
    assert message.content_completed(1)["data"] == {"arguments": '{"a":1}', "n": 3, "new": True}
    added = message.add_content({"type": "audio", "data": "aGk=", "format": "wav"})
    assert (added["index"], added["status"], added["delta"]) == (2, "completed", False)
    replaced = message.add_content({"type": "text", "text": "Bye", "index": 0})
    assert (replaced["index"], replaced["text"]) == (0, "Bye")
    done = message.complete()
    check_schemas([done])
    assert [(c["type"], c["status"]) for c in done["content"]] == [
        ("text", "completed"), ("data", "completed"), ("audio", "completed"),
    ]  # fmt: skip
    assert (message.get_text_content(), message.get_audio_content()) == ("Bye", ["aGk="])


def test_a_piece_that_says_nothing_changes_nothing() -> None:
    message = _message()
    for kind, nothing in (("data", {}), ("text", ""), ("image", None)):
        piece = message.add_delta_content({"type": kind})
        message.add_delta_content(piece | {"data": {}} if kind == "data" else piece)
        done = message.content_completed(piece["index"])
        check_schemas([piece, done])
        assert done["image_url" if kind == "image" else kind] == nothing


def test_an_image_that_comes_in_pieces_is_joined_and_a_new_address_replaces() -> None:
    message = begun().create_message_builder()
    piece = message.add_delta_content({"type": "image", "image_url": "https://x.example/"})
    message.add_delta_content({**piece, "image_url": "a.png"})
    assert message.get_image_content() == ["https://x.example/a.png"]
    message.add_delta_content({**piece, "image_url": "https://x.example/b.png"})
    assert message.content_completed(0)["image_url"] == "https://x.example/b.png"


def test_messages_are_added_and_replaced_by_id() -> None:
    response = begun()
    message = response.create_message_builder()
    whole = message.complete(metadata={"a": 1}, usage={"input_tokens": 1})
    response.update_message({**whole, "role": "user"})
    response.update_message({**whole, "id": "nobody"})
    response.add_message({**whole, "id": "other"})
    out = response.completed()
    check_schemas([out])
    assert [(m["id"], m["role"], m["metadata"]) for m in out["output"]] == [
        (message.id, "user", {"a": 1}), ("other", "assistant", {"a": 1}),
    ]  # fmt: skip
    assert out["usage"] == {"input_tokens": 1}


# ------------------------------------------------------------------ order


def _builders() -> ModuleType:
    """The real software's builders by their file, on its real schemas."""
    folder = Path(SCHEMAS.__file__ or "").parents[1]
    package = "agentscope_runtime.engine.schemas.agent_schemas"
    own = importlib.util.spec_from_file_location("agentscope_builders", folder / "helpers" / "agent_api_builder.py")
    assert own is not None
    assert own.loader is not None
    module = importlib.util.module_from_spec(own)
    names = [package.rsplit(".", n)[0] for n in (3, 2, 1)] + [package]
    known = {name: sys.modules.get(name) for name in names}
    try:
        sys.modules.update({name: ModuleType(name) for name in names[:-1]}, **{package: SCHEMAS})
        own.loader.exec_module(module)
    finally:
        for name, before in known.items():
            if before is None:
                del sys.modules[name]
            else:
                sys.modules[name] = before
    return module


THEIRS = _builders()


def _after_the_end(response: Any) -> list[Any]:
    """The states at once, then a message: as the documentation shows the builders."""
    events = [response.created(), response.in_progress(), response.completed()]
    message = response.create_message_builder(role="assistant", message_type="message")
    text = message.create_content_builder(content_type="text")
    events += [text.add_text_delta("Hello"), text.add_text_delta(" World"), text.complete(), message.complete()]
    return [*events, response.completed()]


def _nothing_created(response: Any) -> list[Any]:
    message = response.create_message_builder()
    text = message.create_content_builder()
    return [text.set_text("x"), text.complete(), message.complete(), response.completed()]


def _overlapping(response: Any) -> list[Any]:
    response.created()
    message = response.create_message_builder()
    text, data = message.create_content_builder(), message.create_content_builder("data")
    events = [data.set_data({"a": 1}), text.add_text_delta("x"), data.complete(), text.add_text_delta("y")]
    return [*events, text.complete()]


def _unfinished(response: Any) -> list[Any]:
    response.created()
    message = response.create_message_builder()
    message.create_content_builder("image").set_image_url("https://x.example/a")
    text = message.create_content_builder()
    text.set_text("x")
    return [text.complete(), message.complete(), response.completed()]


def _twice(response: Any) -> list[Any]:
    response.created()
    events = [response.completed(), response.created(), response.in_progress()]
    message = response.create_message_builder()
    first = message.create_content_builder()
    first.set_text("a")
    events += [first.complete(), message.complete()]
    second = message.create_content_builder("refusal")
    second.set_refusal("no")
    return [*events, second.complete(), message.complete(), response.completed()]


@pytest.mark.parametrize("steps", [_after_the_end, _nothing_created, _overlapping, _unfinished, _twice])
def test_steps_in_any_order_give_what_the_original_gives(steps: Callable[[Any], list[Any]]) -> None:
    """The original returns one object that changes: what it is at the end counts, as in what a program keeps."""
    theirs = [json.loads(e.model_dump_json()) for e in steps(THEIRS.ResponseBuilder("s", "r"))]
    ours = [json.loads(e.model_dump_json()) for e in steps(ResponseBuilder("s", "r"))]
    assert [_outline(event) for event in ours] == [_outline(event) for event in theirs]
    if ours[-1]["object"] == "response":
        assert ours[-1]["status"] == theirs[-1]["status"] == "completed"
        assert _contents(ours[-1]) == _contents(theirs[-1])


def _outline(event: dict[str, Any]) -> list[Any]:
    # Not `delta`: the first event of a later content is one of ours, for the web frontend.
    return [event["object"], *(event.get(name) for name in ("type", "index", "text", "data", "refusal"))]


def _contents(response: dict[str, Any]) -> list[Any]:
    return [[(_outline(c), c["status"]) for c in message["content"] or ()] for message in response["output"]]


def test_a_content_at_the_index_of_another_takes_its_place() -> None:
    message = begun().create_message_builder()
    for kind, change in (("text", "set_text"), ("image", "set_image_url")):
        content = message.create_content_builder(kind, index=0)
        getattr(content, change)("x")
        content.complete()
    last = message.create_content_builder("text", index=3)
    last.set_text("later")
    last.complete()
    assert [(c["type"], c["index"]) for c in message.complete()["content"]] == [("image", 0), ("text", 3)]


def test_data_after_the_message_was_complete() -> None:
    response = begun()
    message = response.create_message_builder()
    text = message.create_content_builder("text", index=0)
    text.set_text("a picture")
    text.complete()
    message.complete()
    data = message.create_content_builder("data", index=0)
    data.set_data({"type": "function_call", "name": "get_weather", "arguments": '{"city": "Beijing"}'})
    data.add_data_delta({"status": "processing"})
    data.add_data_delta({"result": "sunny"})
    whole = data.complete()
    assert whole.data == {
        "type": "function_call", "name": "get_weather", "arguments": '{"city": "Beijing"}',
        "status": "processing", "result": "sunny",
    }  # fmt: skip
    assert response.completed()["output"][0]["status"] == "incomplete", "complete() was not called again"
    assert [c.type for c in message.complete().content] == ["data"]


# ------------------------------------------------------------------ events and objects


def test_an_event_is_a_mapping_and_an_object() -> None:
    response = ResponseBuilder("s", "r")
    event = response.created()
    assert (event.status, event["status"], event.object, event.id) == ("created", "created", "response", "r")
    assert json.loads(event.model_dump_json()) == event.model_dump() == dict(event) == json.loads(json.dumps(event))
    assert "error" not in event.model_dump(exclude_none=True)
    assert '"error"' not in event.model_dump_json(exclude_none=True)
    assert type(event.model_dump()) is dict
    event.sequence_number = 7
    assert event["sequence_number"] == 7
    with pytest.raises(AttributeError, match="no field 'nothing'; its fields: sequence_number, object, status"):
        _ = event.nothing
    *_, last = response.generate_streaming_response(["x"])
    assert last.output[0].content[0].text == "x"
    assert copy.deepcopy(last) == last == pickle.loads(pickle.dumps(last))
    assert not hasattr(last, "__nothing__")


@pytest.mark.parametrize("classes", [SCHEMAS, agentscope], ids=["of the runtime", "of ours"])
def test_objects_are_taken_as_contents_and_messages(classes: Any) -> None:
    response = begun()
    message = response.create_message_builder()
    added = message.add_content(classes.TextContent(text="a"))
    assert (added.index, added.text, added.status) == (0, "a", "completed")
    piece = message.add_delta_content(classes.DataContent(data={"n": 1}, delta=True))
    message.add_delta_content(classes.DataContent(data={"n": 2}, delta=True, index=piece.index))
    assert message.content_completed(1).data == {"n": 3}
    replaced = message.add_content(classes.ImageContent(image_url="https://x.example/a", index=0))
    assert (replaced.index, replaced.type) == (0, "image")
    message.complete()
    response.add_message(classes.Message(id="other", role="user", content=[classes.TextContent(text="b")]))
    out = response.completed()
    assert [(m.id, m.content[0].type) for m in out.output] == [(message.id, "image"), ("other", "text")]
    check_schemas(list(out["output"]))


def test_the_documented_constants_are_those_of_the_runtime() -> None:
    for name in ("Role", "MessageType", "ContentType", "RunStatus"):
        theirs = {k: v for k, v in vars(getattr(SCHEMAS, name)).items() if isinstance(v, str) and not k.startswith("_")}
        ours = {
            k: v for k, v in vars(getattr(agentscope, name)).items() if isinstance(v, str) and not k.startswith("_")
        }
        assert ours == theirs
        assert getattr(agentscope, name).all_values() == list(ours.values())
    assert agentscope.MessageType.all_values() == SCHEMAS.MessageType.all_values()


def _constants(names: type) -> dict[str, str]:
    return {k: v for k, v in vars(names).items() if isinstance(v, str) and not k.startswith("_")}


CLASSES = [
    "AgentRequest", "AgentResponse", "AudioContent", "BaseRequest", "BaseResponse", "Content", "DataContent", "Error",
    "Event", "FileContent", "FunctionCall", "FunctionCallOutput", "FunctionParameters", "FunctionTool", "ImageContent",
    "McpApprovalRequest", "McpApprovalResponse", "McpCall", "McpCallOutput", "Message", "RefusalContent", "TextContent",
    "Tool", "VideoContent",
]  # fmt: skip


@pytest.mark.parametrize("name", CLASSES)
def test_the_documented_classes_have_the_fields_of_the_runtimes(name: str) -> None:
    theirs, ours = getattr(SCHEMAS, name).model_fields, getattr(agentscope, name).model_fields
    assert set(theirs) - {"response_id"} <= set(ours)
    for field, info in theirs.items():
        assert ours[field].is_required() == info.is_required() or (name, field) == ("FunctionParameters", "required")
        if not info.is_required() and info.default_factory is None:
            assert ours[field].default == info.default, field


def test_messages_grow_as_in_the_runtime() -> None:
    said = []
    for classes in (SCHEMAS, agentscope):
        message = classes.Message(id="m", role="assistant")
        first = message.add_delta_content(classes.TextContent(text="Hel", delta=True))
        second = message.add_delta_content(classes.TextContent(text="lo", delta=True, index=first.index))
        data = message.add_delta_content(classes.DataContent(data={"arguments": "{", "l": [1]}, delta=True))
        message.add_delta_content(classes.DataContent(data={"arguments": "}", "l": [2]}, delta=True, index=data.index))
        whole = message.content_completed(0)
        added = message.add_content(classes.ImageContent(image_url="u"))
        none = [message.content_completed(9), message.add_content(classes.TextContent(text="x", index=0))]
        said.append(
            [
                *(json.loads(e.model_dump_json()) for e in (first, second, data, whole, added, message.completed())),
                none, message.get_text_content(), message.get_image_content(),
            ]
        )  # fmt: skip
    assert said[0] == said[1]


def test_a_request_and_a_response_of_objects() -> None:
    request = agentscope.AgentRequest(
        input=[agentscope.Message(role=agentscope.Role.USER, content=[agentscope.TextContent(text="hi")])],
        tools=[agentscope.Tool(function=agentscope.FunctionTool(name="f", description="", parameters={}))],
        session_id="s",
    )
    SCHEMAS.AgentRequest.model_validate(request.model_dump())
    body = request.model_dump_json().encode()
    decoded = dialect.decode_request(json_request("/process", body), context())
    assert [(m.role, m.parts) for m in decoded.messages] == [("user", [Text("hi")])]
    response = agentscope.AgentResponse(session_id="s").created()
    response.add_new_message(agentscope.Message(role="assistant").completed())
    done = response.completed()
    assert (done.status, done.completed_at is not None, len(done.output or [])) == ("completed", True, 1)
    failed = agentscope.AgentResponse().failed(agentscope.Error(code="X", message="y"))
    assert json.loads(failed.model_dump_json())["error"] == {"code": "X", "message": "y"}


def test_contents_may_be_made_ahead_and_filled_in_order() -> None:
    message = begun().create_message_builder()
    text, image = message.create_content_builder(), message.create_content_builder("image")
    text.add_text_delta("x")
    text.complete()
    image.set_image_url("https://x.example/a")
    image.complete()
    assert len(message.complete()["content"]) == 2


def _message() -> MessageBuilder:
    return begun().create_message_builder()


def _content(kind: str = "text") -> ContentBuilder:
    return _message().create_content_builder(kind)


BAD: list[tuple[Callable[[], Any], str]] = [
    (lambda: ResponseBuilder(dialect="agentscop"), "dialect: expected one of agentscope, agentscope-java, got"),
    (lambda: begun().create_message_builder("robot"), "role: expected one of assistant, user, system, tool, got"),
    (lambda: begun().create_message_builder(message_type=""), "message_type: expected a type"),
    (lambda: _content("hologram"), "content_type: expected one of audio, data, file, image, refusal, text, video"),
    (lambda: _message().create_content_builder("text", -1), "index: expected a whole number from 0, got -1"),
    (lambda: _content("image").add_text_delta("x"), r"add_text_delta\(\): expected a content of type text, .* image"),
    (lambda: _content("text").set_data({}), "expected a content of type data"),
    (lambda: _content("text").set_image_url("u"), "expected a content of type image"),
    (lambda: _content("data").set_data([1]), "data: expected a dict, got a list"),  # type: ignore[arg-type]
    (lambda: _content("data").add_data_delta("x"), "data: expected a dict, got a string"),  # type: ignore[arg-type]
    (lambda: _content("data").set_data({"a": {1}}), "data: expected a JSON value"),
    (lambda: _content("text").set_text(5), "text: expected a string, got a number"),  # type: ignore[arg-type]
    (lambda: _content("file").set_file(file_url=5), "file_url: expected a string"),  # type: ignore[arg-type]
    (lambda: _message().content_completed(0), "index: this message has 0 contents, got 0"),
    (lambda: _message().add_content({"type": "text", "index": "4"}), "index: expected a whole number from 0"),
    (lambda: _message().add_content({"text": "x"}), "type: expected one of"),
    (lambda: _message().add_delta_content("x"), "content: expected a mapping or an object with"),  # type: ignore[arg-type]
    (lambda: _message().add_delta_content({"type": "text", "text": 5}), "text: expected a string, got a number"),
    (lambda: _message().add_delta_content({"type": "data", "data": "x"}), "data: expected a dict, got a string"),
    (lambda: _message().add_content({"type": "data", "data": None}), "data: expected a dict, got null"),
    (lambda: begun().add_message({"role": "user"}), "message: expected one with an id, got None"),
]  # fmt: skip


@pytest.mark.parametrize(("step", "said"), BAD)
def test_a_value_that_makes_no_sense_is_refused(step: Callable[[], Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        step()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"type": "text", "index": 0, "text": "x"}, "delta: expected true"),
        ({"type": "image", "index": 0, "delta": True}, "type: content 0 is text, got image"),
        ({"type": "text", "index": 1, "delta": True}, "index: this message has 1 content, got 1"),
        ({"type": "text", "index": True, "delta": True}, "index: this message has 1 content, got True"),
    ],
)
def test_a_piece_that_fits_nowhere_is_refused(content: dict[str, Any], said: str) -> None:
    message = begun().create_message_builder()
    message.add_delta_content({"type": "text", "text": "x"})
    with pytest.raises(ValueError, match=said):
        message.add_delta_content(content)


# ------------------------------------------------------------------ ids, numbers, forms


def test_ids() -> None:
    response = ResponseBuilder()
    assert response.id.startswith("response_")
    assert response.session_id
    former = response.id
    response.reset()
    assert response.id != former
    given = ResponseBuilder("s", "mine")
    assert {e["id"] for e in given.generate_streaming_response(["x"]) if e["object"] == "response"} == {"mine"}
    given.reset()
    assert (given.id, given.session_id) == ("mine", "s")
    one, two = (begun().create_message_builder().id for _ in range(2))
    assert one.startswith("msg_")
    assert one != two


def test_numbers_on_demand() -> None:
    response = ResponseBuilder("s")
    events = [*hello(response), response.completed()]
    assert {e["sequence_number"] for e in events} == {None}
    assert [response.number(e)["sequence_number"] for e in events] == list(range(len(events)))
    again = list(response.generate_streaming_response(["a", "b"], numbered=True))
    assert [e["sequence_number"] for e in again] == list(range(len(again)))
    assert again[-1]["output"][0]["content"][0]["text"] == "ab"


def test_line_separators_are_escaped() -> None:
    events = list(ResponseBuilder("s").generate_streaming_response(["a\u2028b\u0085"]))
    assert len(python_client(b"".join(e.sse() for e in events))) == len(events)
    assert json.loads(events[3].json())["text"] == "a\u2028b\u0085"


def test_the_java_form() -> None:
    response = ResponseBuilder("s", "r", dialect="agentscope-java")
    events = list(response.generate_streaming_response(["Hel", "lo"], numbered=True))
    wire = [json.loads(e.json()) for e in events]
    assert [(e["object"], e["status"]) for e in wire[:3]] == [
        ("response", "created"), ("response", "in_progress"), ("message", "created"),
    ]  # fmt: skip
    assert wire[2]["type"] == "MESSAGE"
    assert wire[3]["msgId"] == wire[2]["id"]
    assert wire[-1]["createdAt"] > 10**12
    assert abs(wire[-1]["completedAt"] - wire[-1]["createdAt"]) < 60_000
    decoder = java.decoder(context())
    answer = fold(verify([*decoder.feed([e.json().encode() for e in events]), *decoder.close()]))
    assert (answer.text, answer.reason) == ("Hello", FinishReason.STOP)


def test_the_real_builder_takes_what_ours_makes() -> None:
    """The original's classes read our snapshots and repeat them unchanged."""
    for event in ResponseBuilder("s").generate_streaming_response(["Hel", "lo"]):
        kind = {"response": "AgentResponse", "message": "Message", "content": "TextContent"}[event["object"]]
        model = getattr(SCHEMAS, kind)(**event)
        assert json.loads(model.model_dump_json()) == event
