"""The one message that an agent is sent: what is new, in the words of either version."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import Context, Feature
from bridge.dialects.a2a import dialect
from bridge.dialects.a2a.options import BackOptions
from bridge.errors import Unsupported
from bridge.model import (
    Data,
    FileRef,
    HistoryMode,
    Inline,
    Media,
    MediaKind,
    Message,
    Reasoning,
    Request,
    Resume,
    Sampling,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    Url,
)

from .back import asking

ASKED = {"a2a": {"notes": {"taskId": "t1"}}}


def sent(request: Request, **options: Any) -> tuple[dict[str, Any], Context]:
    """The params of the request, and the context that noted what was lost."""
    context = Context("run", request.thread_id, 1.0, BackOptions(**options), request=request)
    return json.loads(dialect.encode_request(request, context).body)["params"], context


def message_of(request: Request, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = sent(request, **options)[0]["message"]
    return found


def texts(message: dict[str, Any]) -> list[str]:
    return [part["text"] for part in message["parts"]]


def test_a_talk_that_the_agent_knows_gets_what_is_new() -> None:
    said = Message("assistant", [Text("You are Ann.")])
    new = message_of(asking("I am Ann.", said, "And what am I called?", thread="c1"))
    assert (new["contextId"], "taskId" in new, new["role"]) == ("c1", False, "ROLE_USER")
    assert texts(new) == ["I am Ann.", "And what am I called?"]


def test_a_talk_that_the_agent_does_not_know_is_told_with_its_roles() -> None:
    talk = [
        Message("system", [Text("Be short.")]),
        Message("user", [Text("I am Ann.")]),
        Message("assistant", [Reasoning("hm"), Text("Hello Ann.")]),
        Message("user", [Text("What am I called?")]),
    ]
    new = message_of(asking(*talk))
    assert "contextId" not in new
    assert texts(new) == ["Be short.", "user: I am Ann.", "assistant: Hello Ann.", "What am I called?"]
    # A client that repeats the whole talk under a thread of its own does not name the agent's context.
    whole, context = sent(Request(talk, thread_id="mine", history=HistoryMode.FULL))
    assert "contextId" not in whole["message"]
    assert {"system", "reasoning_history", "thread_id"} <= set(context.lost.names)


def test_pictures_of_earlier_turns_stay() -> None:
    picture = Media(MediaKind.IMAGE, Inline("aGk="), "image/png")
    talk = [Message("user", [Text("Look."), picture]), Message("assistant", [Text("A cat.")]), "And now?"]
    assert message_of(asking(*talk))["parts"] == [
        {"text": "user: Look."},
        {"raw": "aGk=", "mediaType": "image/png"},
        {"text": "assistant: A cat."},
        {"text": "And now?"},
    ]


def test_parts_in_both_versions() -> None:
    parts = [
        Text("Look."),
        Media(MediaKind.FILE, Url("https://x.example/a.pdf"), "application/pdf", "a.pdf"),
        Media(MediaKind.IMAGE, Inline("aGk="), "image/png"),
        Data({"n": 1}),
    ]
    request = asking(Message("user", [*parts], id="m1"))
    assert message_of(request)["parts"] == [
        {"text": "Look."},
        {"url": "https://x.example/a.pdf", "mediaType": "application/pdf", "filename": "a.pdf"},
        {"raw": "aGk=", "mediaType": "image/png"},
        {"data": {"n": 1}},
    ]
    old = message_of(request, version="0.3")
    assert (old["kind"], old["role"], old["messageId"]) == ("message", "user", "m1")
    assert old["parts"] == [
        {"kind": "text", "text": "Look."},
        {"kind": "file", "file": {"uri": "https://x.example/a.pdf", "mimeType": "application/pdf", "name": "a.pdf"}},
        {"kind": "file", "file": {"bytes": "aGk=", "mimeType": "image/png"}},
        {"kind": "data", "data": {"n": 1}},
    ]


def test_a_file_by_its_id_is_refused_with_its_place() -> None:
    parts = [Text("Look."), Media(MediaKind.FILE, FileRef("file-1"))]
    with pytest.raises(Unsupported) as caught:
        sent(asking("hi", Message("user", [*parts])))
    assert caught.value.failure.param == "messages[1].content[1]"


@pytest.mark.parametrize(
    ("payload", "part"),
    [
        ("Oslo", {"text": "Oslo"}),
        (True, {"text": "yes"}),
        (None, {"text": "yes"}),
        (False, {"text": "no"}),
        ({"city": "Oslo"}, {"data": {"city": "Oslo"}}),
    ],
)
def test_an_answer_goes_to_the_task_that_asked(payload: Any, part: Any) -> None:
    answer = Resume("t1", "resolved", payload, extras=ASKED)
    new = message_of(asking(thread="c1", resume=[answer]))
    assert (new["taskId"], new["contextId"], new["parts"]) == ("t1", "c1", [part])
    assert "metadata" not in new


def test_answers_to_several_questions_each_name_theirs() -> None:
    named = {"a2a": {"notes": {"taskId": "t1", "named": True}}}
    answers = [Resume("i-1", "resolved", "Oslo", extras=named), Resume("i-2", "resolved", {"n": 1}, extras=named)]
    new = message_of(asking(thread="c1", resume=answers))
    assert new["parts"] == [
        {"text": "Oslo", "metadata": {"interruptId": "i-1"}},
        {"data": {"n": 1}, "metadata": {"interruptId": "i-2"}},
    ]
    assert (new["taskId"], "metadata" in new) == ("t1", False)
    new = message_of(asking(thread="c1", resume=answers[:1]))
    assert (new["parts"], new["metadata"]) == ([{"text": "Oslo"}], {"interruptId": "i-1"})


def test_an_answer_that_was_declined() -> None:
    assert texts(message_of(asking(resume=[Resume("t1", "cancelled", extras=ASKED)]))) == ["cancelled"]


def test_the_result_of_a_call_that_waits_has_the_form_of_google_adk() -> None:
    notes = {"a2a": {"notes": {"taskId": "t1", "call": ["c-1", "approve"]}}}
    new = message_of(asking(thread="c1", resume=[Resume("t1", "resolved", {"ok": True}, extras=notes)]))
    assert new["parts"] == [
        {
            "data": {"id": "c-1", "name": "approve", "response": {"ok": True}},
            "metadata": {"adk_type": "function_response"},
        }
    ]
    new = message_of(asking(resume=[Resume("t1", "resolved", "fine", extras=notes)]))
    assert new["parts"][0]["data"]["response"] == {"result": "fine"}
    new = message_of(asking(resume=[Resume("t1", "cancelled", extras=notes)]))
    assert new["parts"][0]["data"]["response"] == {"status": "cancelled"}


def test_a_result_that_nothing_waits_for_is_text() -> None:
    result = Message("tool", [ToolResult("c-1", [Text("3 degrees")], "weather")])
    request = asking(Message("assistant", [ToolCall("c-1", "weather", "{}")]), result, thread="c1")
    params, context = sent(request)
    assert texts(params["message"]) == ["3 degrees"]
    assert "tool_history" in context.lost.names


def test_what_cannot_be_said_is_named() -> None:
    request = asking("hi")
    request.tools = [Tool("weather")]
    request.sampling = Sampling(temperature=0.5)
    request.metadata, request.user_id, request.state = {"team": "blue"}, "ann", {"a": 1}
    params, context = sent(request)
    assert set(params) == {"message"}
    assert "metadata" not in params["message"]
    lost = {Feature.TOOLS, Feature.SAMPLING, Feature.METADATA, Feature.USER_ID, Feature.STATE}
    assert {str(f) for f in lost} == set(context.lost.names)
    assert message_of(request, metadata=True)["metadata"] == {"team": "blue", "user_id": "ann"}
    with pytest.raises(Unsupported) as caught:
        sent(request, tools="refuse")
    assert caught.value.failure.param == "tools"


def test_extensions_are_named_in_a_header() -> None:
    uris = ("https://x.example/one", "https://x.example/two")
    for version, name in (("1.0", "a2a-extensions"), ("0.3", "x-a2a-extensions")):
        context = Context("run", options=BackOptions(extensions=uris, version=version))
        wire = dialect.encode_request(asking("hi"), context)
        assert wire.headers[name] == ", ".join(uris)


def test_an_old_agent_is_asked_to_wait_where_it_does_not_stream() -> None:
    request = asking("hi")
    request.stream = False
    assert sent(request, version="0.3")[0]["configuration"] == {"blocking": True}
    assert "configuration" not in sent(request)[0]


def test_line_separators_of_unicode_are_escaped() -> None:
    body = dialect.encode_request(asking("a\u2028b\u0085c"), Context("run")).body
    assert b"a\\u2028b\\u0085c" in body
