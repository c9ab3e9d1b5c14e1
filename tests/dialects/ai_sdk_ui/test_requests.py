"""What clients send, and what servers get."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from bridge.contract import WireRequest
from bridge.dialects.ai_sdk_ui import dialect
from bridge.dialects.ai_sdk_ui.options import BackOptions, FrontOptions
from bridge.errors import RequestError, Unsupported
from bridge.model import (
    FileRef,
    Inline,
    Interrupted,
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
    result_text,
)

from .helpers import asked, context, sent

HI = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}


def chat(*parts: dict[str, Any], then: bool = False, **more: Any) -> dict[str, Any]:
    messages = [HI, {"id": "a1", "role": "assistant", "parts": list(parts)}]
    return {"id": "chat", "messages": [*messages, {**HI, "id": "u2"}] if then else messages, **more}


def call(state: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool-get-weather", "toolCallId": "c1", "state": state, "input": {"city": "Paris"}, **more}


def results(request: Request) -> list[tuple[str, bool]]:
    found = [p for m in request.messages for p in m.parts if isinstance(p, ToolResult)]
    return [(result_text(r.parts), r.is_error) for r in found]


# ---------------------------------------------------------------------- from clients


def test_one_message_of_several_steps_is_several_turns() -> None:
    request = asked(
        chat(
            {"type": "step-start"},
            {"type": "reasoning", "text": "hm", "providerMetadata": {"anthropic": {"signature": "s"}}},
            {"type": "text", "text": "let me see"},
            call("output-available", output={"temp": 21}),
            {"type": "step-start"},
            {"type": "text", "text": "21"},
        )
    )
    assert [m.role for m in request.messages[1:]] == ["assistant", "tool", "assistant"]
    assert [m.id for m in request.messages[1:]] == ["a1", None, "a1-1"]
    thought, _, called = request.messages[1].parts
    assert isinstance(thought, Reasoning)
    assert isinstance(called, ToolCall)
    assert (thought.signature, called.name, called.arguments) == ("s", "get-weather", '{"city":"Paris"}')
    assert results(request) == [('{"temp":21}', False)]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (call("output-error", errorText="broke"), [("broke", True)]),
        (call("output-denied", approval={"id": "p", "approved": False, "reason": "no"}), [("no", True)]),
        (call("output-denied", approval={"id": "p", "approved": False}), [("denied", True)]),
    ],
)
def test_states_with_a_result(part: dict[str, Any], expected: list[tuple[str, bool]]) -> None:
    assert results(asked(chat(part))) == expected


@pytest.mark.parametrize(
    "part",
    [
        call("input-streaming"),
        call("input-available"),
        call("approval-requested", approval={"id": "p"}),
        call("approval-responded", approval={"id": "p", "approved": True}),
    ],
)
def test_a_call_that_the_chat_went_on_without_has_a_result(part: dict[str, Any]) -> None:
    request = asked(chat(part, then=True))
    ((text, is_error),) = results(request)
    assert (text[:8], is_error, request.resume) == ("There is", True, [])


@pytest.mark.parametrize(("approved", "reason"), [(True, None), (False, "not today")])
def test_an_approval_is_an_answer(approved: bool, reason: str | None) -> None:
    approval = {"id": "p1", "approved": approved, **({"reason": reason} if reason else {})}
    request = asked(chat(call("approval-responded", approval=approval)))
    (answer,) = request.resume
    assert (answer.interrupt_id, answer.agrees, results(request)) == ("p1", approved, [])
    (part,) = sent(request)["messages"][1]["parts"][1:]
    assert (part["state"], part["approval"]) == ("approval-responded", approval)


@pytest.mark.parametrize("more", [{}, {"output": {"type": "execution-denied"}}])
@pytest.mark.parametrize("then", [False, True])
def test_a_denied_call_without_its_approval_is_told_as_denied(more: dict[str, Any], then: bool) -> None:
    assert results(asked(chat(call("output-denied", **more), then=then))) == [("denied", True)]


def test_a_call_that_is_stored_open_and_with_its_result_is_one_call() -> None:
    waiting = {**call("input-available"), "input": {}}
    request = asked(chat(waiting, call("output-available", output="sunny"), call("input-available"), then=True))
    assert results(request) == [("sunny", False)]
    made = [p.arguments for m in request.messages for p in m.parts if isinstance(p, ToolCall)]
    assert made == ['{"city":"Paris"}']
    assert len(results(asked(chat(waiting, waiting, then=True)))) == 1


def test_a_call_without_a_state_counts_by_what_it_has() -> None:
    part = call("")
    del part["state"]
    assert results(asked(chat({**part, "output": "sunny"}, then=True))) == [("sunny", False)]
    (left,) = results(asked(chat(part, then=True)))
    assert left[1]


@pytest.mark.parametrize("kind", ["image/*", "image"])
def test_an_open_media_type_is_that_of_the_data_url(kind: str) -> None:
    part = {"type": "file", "mediaType": kind, "url": "data:image/webp;base64,AAAA"}
    request = asked({"id": "chat", "messages": [{**HI, "parts": [part]}]})
    assert [(p.kind, p.mime) for p in request.messages[0].parts if isinstance(p, Media)] == [
        (MediaKind.IMAGE, "image/webp")
    ]


def test_raw_input_is_the_arguments_of_an_invalid_call() -> None:
    part = {**call("output-error", errorText="bad", rawInput='{"ci'), "input": None}
    (found,) = [p for p in asked(chat(part)).messages[1].parts if isinstance(p, ToolCall)]
    assert found.arguments == '{"ci'


def test_files_of_the_user() -> None:
    parts = [
        {"type": "file", "mediaType": "image/png", "filename": "a.png", "url": "data:image/png;base64,AAAA"},
        {"type": "file", "mediaType": "application/pdf", "url": "https://x.example/a.pdf"},
        {"type": "file", "mediaType": "audio/wav", "url": "", "providerReference": {"openai": "file-1"}},
        {"type": "file", "mediaType": "audio/wav", "url": "https://x.example/a", "providerReference": {"openai": "f"}},
    ]
    request = asked({"messages": [{"role": "user", "parts": parts}]})
    assert request.messages[0].parts == [
        Media(MediaKind.IMAGE, Inline("AAAA"), "image/png", "a.png"),
        Media(MediaKind.FILE, Url("https://x.example/a.pdf"), "application/pdf"),
        Media(MediaKind.AUDIO, FileRef("file-1"), "audio/wav"),
        Media(MediaKind.AUDIO, Url("https://x.example/a"), "audio/wav"),
    ]


def test_data_parts_of_the_user_reach_servers_unchanged() -> None:
    part = {"type": "data-weather", "id": "d1", "data": {"temp": 21}}
    assert sent(asked({"messages": [{"role": "user", "parts": [part]}]}))["messages"][0]["parts"] == [part]


def test_names_of_people_are_lost_by_name_and_those_of_tools_are_not() -> None:
    def lost(message: Message) -> list[str]:
        request = Request([Message("user", [Text("hi")]), message])
        found = context(BackOptions(), request)
        dialect.encode_request(request, found)
        return found.lost.names

    assert "message_name" in lost(Message("user", [Text("hi")], name="Ann"))
    assert "message_name" not in lost(Message("tool", [ToolResult("c1", [Text("42")], "f")], name="f"))


def test_what_no_model_reads_is_left_out_and_named() -> None:
    wire = WireRequest(body=orjson.dumps(chat({"type": "source-url", "sourceId": "s", "url": "u"}, {"type": "new"})))
    found = context(FrontOptions())
    request = dialect.decode_request(wire, found)
    assert [m.role for m in request.messages] == ["user"]
    what = "parts that models do not read"
    assert found.lost.details == {"extras": f"{what}: source-url; {what}: new"}


def test_fields_beside_the_messages() -> None:
    tools = {"search": {"description": "d", "parameters": {"type": "object"}}}
    body = chat(system="Be brief.", tools=tools, model="m", temperature=0.5, custom=1)
    request = asked(body)
    assert (request.messages[0].role, request.messages[0].parts) == ("system", [Text("Be brief.")])
    assert request.tools == [Tool("search", "d", {"type": "object"})]
    assert (request.model, request.sampling) == ("m", Sampling())
    assert request.extra("ai-sdk-ui")["custom"] == 1
    assert asked(body, body_fields=("temperature",)).sampling.temperature == 0.5
    assert asked(chat(tools=[{"type": "function", "function": {"name": "f"}}])).tools == [Tool("f")]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "messages"),
        ({"message": HI, "id": "c"}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": [5]}, "messages[0]"),
        ({"messages": [{"role": "tool", "parts": []}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": "hi"}]}, "messages[0].parts"),
        ({"messages": [{"role": "user", "parts": [{"type": 1}]}]}, "messages[0].parts[0].type"),
        ({"messages": [{"role": "user", "parts": [{"type": "file", "url": 1}]}]}, "messages[0].parts[0].url"),
        ({"messages": [{"role": "user", "parts": [{"type": "file", "mediaType": "a/b"}]}]}, "messages[0].parts[0].url"),
        (chat({**call("output-available"), "toolCallId": 5}), "messages[1].parts[0].toolCallId"),
        (chat(call("approval-responded", approval={"approved": 1})), "messages[1].parts[0].approval.approved"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(body: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        asked(body)
    assert caught.value.failure.param == param
    response = dialect.encode_error(caught.value.failure)
    assert response.status == 400
    assert orjson.loads(response.body) == {"error": caught.value.message}


# ---------------------------------------------------------------------- to servers

TALK = [
    Message("system", [Text("Be brief.")]),
    Message("user", [Text("hi")]),
    Message("assistant", [ToolCall("c1", "f", '{"a":1}')]),
    Message("tool", [ToolResult("c1", [Text("sunny")])]),
]


def test_results_join_their_calls_in_one_message() -> None:
    body = sent(Request([*TALK, Message("assistant", [Text("It is.")]), Message("user", [Text("so?")])]))
    assert [m["role"] for m in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][0]["parts"] == [{"type": "text", "text": "Be brief.\n\n"}, {"type": "text", "text": "hi"}]
    assert body["messages"][1]["parts"] == [
        {"type": "step-start"},
        {"type": "tool-f", "toolCallId": "c1", "state": "output-available", "input": {"a": 1}, "output": "sunny"},
        {"type": "step-start"},
        {"type": "text", "text": "It is."},
    ]
    assert "messageId" not in body
    assert sent(Request(TALK))["messageId"] == sent(Request(TALK))["messages"][-1]["id"]


def test_a_message_has_the_same_id_in_the_next_request() -> None:
    first = sent(Request(TALK[:2]))["messages"]
    second = sent(Request(TALK))["messages"]
    third = sent(Request([*TALK, Message("user", [Text("so?")])]))["messages"]
    ids = [m["id"] for m in third]
    assert ids[:2] == [m["id"] for m in second]
    assert ids[:1] == [m["id"] for m in first]
    assert len(set(ids)) == 3


def test_instructions_go_where_the_option_says() -> None:
    assert sent(Request(TALK), system="message")["messages"][0]["role"] == "system"
    body = sent(Request(TALK), system="body")
    assert (body["system"], body["messages"][0]["parts"]) == ("Be brief.", [{"type": "text", "text": "hi"}])
    alone = sent(Request(TALK[:1]))["messages"]
    assert [(m["role"], m["parts"][0]["text"]) for m in alone] == [("user", "Be brief.")]


def test_an_open_call_is_answered() -> None:
    open_talk = TALK[:3]
    (part,) = sent(Request(open_talk))["messages"][1]["parts"][1:]
    assert part["state"] == "output-error"
    for name, payload in (("c1", None), ("p9", {"approved": True})):
        (part,) = sent(Request(open_talk, resume=[Resume(name, "resolved", payload)]))["messages"][1]["parts"][1:]
        assert part["approval"] == {"id": name, "approved": True}
    refused = sent(Request(open_talk, resume=[Resume("c1", "resolved", "no, leave it")]))["messages"][1]["parts"][1]
    assert refused["approval"] == {"id": "c1", "approved": False, "reason": "no, leave it"}


def test_the_wrong_call_is_never_approved() -> None:
    talk = [TALK[1], Message("assistant", [ToolCall("c1", "f", "{}"), ToolCall("c2", "g", "{}")])]
    body = sent(Request(talk, resume=[Resume("p9", "resolved")]))
    assert [p["state"] for p in body["messages"][1]["parts"][1:]] == ["output-error"] * 2
    assert body["resume"] == [{"id": "p9", "status": "resolved"}]


@pytest.mark.parametrize(
    ("answer", "data"),
    [
        (Resume("c1", "resolved", {"approved": True}), {"approved": True}),
        (Resume("c1", "resolved", {"city": "Rome"}), {"city": "Rome"}),
        (Resume("c1", "resolved"), {"approved": True}),
        (Resume("c1", "cancelled"), {"approved": False}),
    ],
)
def test_an_answer_to_mastra_names_its_run(answer: Resume, data: Any) -> None:
    answer.extras = {"ai-sdk-ui": {"notes": {"runId": "run1"}}}
    talk = [Message("user", [Text("q")]), Message("assistant", [ToolCall("c1", "pay", "{}")])]
    body = sent(Request(talk, resume=[answer]))
    assert (body["runId"], body["resumeData"]) == ("run1", data)
    assert "resume" not in body
    assert "approval" not in body["messages"][1]["parts"][-1]


def test_arguments_that_are_no_json() -> None:
    talk = [TALK[1], Message("assistant", [ToolCall("c1", "f", "{")]), TALK[3]]
    part = sent(Request(talk))["messages"][1]["parts"][1]
    assert (part["state"], part["input"], part["errorText"]) == ("output-error", "{", "sunny")


def test_fields_are_sent_where_the_option_names_them() -> None:
    request = Request(TALK[1:2], tools=[Tool("f", "d")], model="m", sampling=Sampling(temperature=0.5))
    found = context(BackOptions(), request)
    body = orjson.loads(dialect.encode_request(request, found).body)
    assert body.keys() == {"id", "messages", "trigger"}
    assert set(found.lost.names) == {"tools", "sampling", "model"}
    body = sent(request, body_fields=("tools", "temperature", "model"))
    assert body["tools"] == {"f": {"description": "d", "parameters": {"type": "object", "properties": {}}}}
    assert (body["temperature"], body["model"]) == (0.5, "m")


def test_the_id_of_a_file_is_refused_with_its_place() -> None:
    talk = [Message("user", [Text("look"), Media(MediaKind.IMAGE, FileRef("file-1"))])]
    with pytest.raises(Unsupported) as caught:
        sent(Request(talk))
    assert caught.value.failure.param == "messages[0].content[1]"


def test_a_call_whose_question_is_answered_beside_the_messages_stays_open() -> None:
    call = {"type": "tool-delete", "toolCallId": "c1", "state": "input-available", "input": {}}
    messages = [
        {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "delete it"}]},
        {"id": "a1", "role": "assistant", "parts": [call]},
    ]
    resumed = asked({"messages": messages, "resume": [{"id": "q", "payload": True}]})
    assert [m.role for m in resumed.messages] == ["user", "assistant"]
    assert resumed.resume == [Resume("q", "resolved", True)]
    went_on = asked({"messages": messages})
    assert [m.role for m in went_on.messages] == ["user", "assistant", "tool"]


QUESTION = {"type": "data-interrupt", "id": "q", "data": {"id": "q", "reason": "input_required", "payload": "Which?"}}
SAID = {"type": "text", "text": "Well."}


@pytest.mark.parametrize(
    ("parts", "more", "names"),
    [
        ([QUESTION], {}, ["q"]),
        ([SAID, {**QUESTION, "data": {"id": "p"}}, QUESTION], {}, ["p", "q"]),
        ([QUESTION, {"type": "step-start"}, SAID], {}, []),
        ([{"type": "data-interrupt", "data": 7}], {}, []),
        ([{"type": "data-interrupt", "data": {"id": ""}}], {}, []),
        ([QUESTION], {"resume": [{"id": "q", "payload": "red"}]}, []),
    ],
)
def test_the_questions_at_the_end_of_the_last_answer_are_open(parts: Any, more: Any, names: list[str]) -> None:
    said = {"id": "u1", "role": "user", "parts": [SAID]}
    talk = [said, {"id": "a", "role": "assistant", "parts": parts}, {**said, "id": "u2"}]
    request = asked({"messages": talk, **more})
    assert [each.interrupt_id for each in request.open_interrupts] == names
    assert request.open_interrupts[-1:] == ([Interrupted("q", "input_required", "Which?")] if names else [])
    assert asked({"messages": talk[:2]}).open_interrupts == []
