"""What protocols leave open: each row of docs/policies.md has its test here, or names where else it is."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest

from bridge import ErrorCode, Translator, Unsupported
from bridge.contract import Feature, Support, WireResponse, registry
from bridge.engine.config import BackendSection, RouteSection
from bridge.errors import RULES
from bridge.model import (
    FinishReason,
    Inline,
    Media,
    MediaKind,
    Message,
    Reasoning,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    UsageReported,
    fold,
)
from bridge.testing.wires import context, decode, encode
from bridge.testing.witnesses import answer_of
from tests.docs.helpers import ROOT

PAGE = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
ROWS = [
    [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in PAGE.splitlines()
    if re.match(r"\| (?!case)", line)
]
EVERY = [registry.get(name) for name in registry.served() if registry.get(name).called]
CHAT = registry.get("openai-chat")


def chunks(*deltas: dict[str, Any], finish: str | None = "stop", done: bool = True) -> bytes:
    """A stream of chat completions."""
    values = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    if finish is not None:
        values.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    frames = [b"data: " + orjson.dumps({"id": "c", "model": "m", **value}) + b"\n\n" for value in values]
    return b"".join(frames) + b"data: [DONE]\n\n" * done


CALL = {"tool_calls": [{"index": 0, "id": "call-1", "function": {"name": "f", "arguments": '{"a":1}'}}]}


def translated(wire: bytes, source: str, target: str, **more: Any) -> bytes:
    translator = Translator(source, target, **more)
    return translator.feed(wire) + translator.close()


def sent(request: Request, front: str, back: str, **options: Any) -> dict[str, Any]:
    """The body for the backend, when a client of `front` asks this."""
    dialect = registry.get(front)
    wire = dialect.encode_request(request, context(dialect.back_options(), request))
    body = Translator(back, front, backend_options=options).request(wire.body, client=front, headers=wire.headers)
    told: dict[str, Any] = orjson.loads(body)
    return told


def user(*parts: Any) -> Request:
    return Request([Message("user", list(parts))], model="m", thread_id="t")


# ---------------------------------------------------------------------- the page


def test_every_row_names_a_test_that_exists() -> None:
    assert len(ROWS) > 20
    for row in ROWS:
        path, _, name = row[-1].strip("`").rpartition("::")
        file = ROOT / (path or "tests/docs/test_policies.py")
        assert re.search(rf"^(async )?def {name}\(", file.read_text(encoding="utf-8"), re.MULTILINE), row[-1]


def test_every_test_of_a_policy_has_its_row() -> None:
    named = {row[-1].strip("`") for row in ROWS}
    own = {name for name in globals() if name.startswith("test_") and not name.startswith("test_every_")}
    assert own == {name for name in named if "::" not in name}


def test_every_option_exists() -> None:
    for row in ROWS:
        kind = row[-2].partition(" ")[0]
        side, section = {"route": ("front_options", RouteSection), "backend": ("back_options", BackendSection)}.get(
            kind, ("", None)
        )
        options = {o for d in EVERY for o in getattr(d, side).model_fields} if side else set()
        options |= set(section.model_fields) if section is not None else set()
        for option in re.findall(r"`(\w+)", row[-2])[:1]:
            assert option in options, row[-2]


# ---------------------------------------------------------------------- the end of an answer


def test_stop_after_tool_calls_is_tool_calls() -> None:
    assert fold(decode(CHAT, [chunks(CALL)])).reason is FinishReason.TOOL_CALLS


def test_tool_calls_without_a_call_are_a_stop() -> None:
    assert fold(decode(CHAT, [chunks({"content": "x"}, finish="tool_calls")])).reason is FinishReason.STOP


def test_either_half_of_the_end_is_enough() -> None:
    for halves in ({"done": False}, {"finish": None}):
        assert fold(decode(CHAT, [chunks({"content": "x"}, **halves)])).reason is FinishReason.STOP


@pytest.mark.parametrize("front", EVERY, ids=lambda d: d.name)
def test_neither_half_of_the_end_is_an_error(front: Any) -> None:
    out = translated(chunks({"content": "x"}, finish=None, done=False), "openai-chat", front.name)
    answer = fold(decode(front, [out]))
    assert (answer.text, answer.reason) == ("x", None)
    assert answer.failure is not None


def test_a_known_finish_wins_over_a_later_failure() -> None:
    translator = Translator("openai-chat", "openai-chat")
    out = translator.feed(chunks({"content": "x"}, done=False)) + translator.close(ConnectionResetError())
    assert fold(decode(CHAT, [out])).reason is FinishReason.STOP


def test_late_usage_is_told() -> None:
    late = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}}
    wire = chunks({"content": "x"}, done=False) + b"data: " + orjson.dumps(late) + b"\n\ndata: [DONE]\n\n"
    usage = fold(decode(CHAT, [wire])).usage
    assert isinstance(usage, UsageReported)
    assert (usage.input, usage.output) == (3, 4)


@pytest.mark.parametrize("front", EVERY, ids=lambda d: d.name)
def test_canceled_is_never_a_success(front: Any) -> None:
    answer = fold(decode(front, [encode(front, answer_of(Feature.FINISH_CANCELED))]))
    if front.capabilities.answer(Feature.FINISH_CANCELED) is Support.EXACT:
        assert answer.reason is FinishReason.CANCELED
    else:
        assert answer.failure is not None


def _last(wire: bytes) -> dict[str, Any]:
    told: dict[str, Any] = orjson.loads(wire.strip().rpartition(b"\n\n")[2].removeprefix(b"data: "))
    return told


def test_a_filter_towards_agentscope() -> None:
    wire = chunks({"content": "x"}, finish="content_filter")
    assert _last(translated(wire, "openai-chat", "agentscope"))["status"] == "completed"
    asked = {"client_options": {"content_filter": "rejected"}}
    assert _last(translated(wire, "openai-chat", "agentscope", **asked))["status"] == "rejected"


def test_a_limit_towards_ag_kit() -> None:
    wire = chunks({"content": "x"}, finish="length")
    assert b"error" not in translated(wire, "openai-chat", "ag-kit")
    asked = {"client_options": {"finish_notice": "error"}}
    assert b'"error":"The answer was cut' in translated(wire, "openai-chat", "ag-kit", **asked)


# ---------------------------------------------------------------------- what is told


def test_the_field_of_reasoning() -> None:
    wire = chunks({"reasoning_content": "hmm"}, {"content": "x"})
    assert b'"reasoning_content":"hmm"' in translated(wire, "openai-chat", "openai-chat")
    asked = {"client_options": {"reasoning_field": "reasoning"}}
    assert b'"reasoning":"hmm"' in translated(wire, "openai-chat", "openai-chat", **asked)


def test_think_tags_stay_text_unless_asked() -> None:
    wire = chunks({"content": "<think>hmm</think>x"})
    assert fold(decode(CHAT, [translated(wire, "openai-chat", "openai-chat")])).text == "<think>hmm</think>x"
    out = translated(wire, "openai-chat", "openai-chat", backend_options={"think_tags": "reasoning"})
    answer = fold(decode(CHAT, [out]))
    assert (answer.reasoning, answer.text) == ("hmm", "x")


@pytest.mark.parametrize("front", EVERY, ids=lambda d: d.name)
def test_one_answer_is_choice_0(front: Any) -> None:
    translator = Translator("openai-chat", front.name)
    out = translator.feed(encode(CHAT, answer_of(Feature.CHOICES))) + translator.close()
    answer = fold(decode(front, [out]))
    assert answer.text == "one"
    assert ("choices" in translator.lost) == (front.capabilities.answer(Feature.CHOICES) is not Support.EXACT)


def test_tools_that_the_backend_ran_are_withheld() -> None:
    wire = encode(registry.get("agentscope"), answer_of(Feature.TOOL_RESULT))
    answer = fold(decode(CHAT, [translated(wire, "agentscope", "openai-chat")]))
    assert (answer.calls, answer.text) == ([], "It is sunny.")
    for shown in ("text", "reasoning"):
        out = translated(wire, "agentscope", "openai-chat", client_options={"server_tools": shown})
        assert "get_weather" in getattr(fold(decode(CHAT, [out])), shown)


def test_arguments_towards_agentscope() -> None:
    more = {"tool_calls": [{"index": 0, "function": {"arguments": " "}}]}
    few, many = (translated(chunks(CALL, *pieces), "openai-chat", "agentscope") for pieces in ([], [more, more, more]))
    assert few.count(b'"call_id":"call-1"') == many.count(b'"call_id":"call-1"') > 0


def test_texts_of_two_messages() -> None:
    builder = context(None).builder()
    for n, text in enumerate(("one", "two")):
        builder.add(n, Text(text))
        builder.end_message(n)
    builder.finish()
    builder.end()
    wire = encode(registry.get("agentscope"), builder.take())
    assert fold(decode(CHAT, [translated(wire, "agentscope", "openai-chat")])).text == "one\n\ntwo"


# ---------------------------------------------------------------------- what a backend is asked


@pytest.mark.parametrize("back", EVERY, ids=lambda d: d.name)
def test_unsupported_media_are_refused_by_their_place(back: Any) -> None:
    film = user(Text("look"), Media(MediaKind.VIDEO, Inline("bW9vdg=="), "video/mp4"))
    if back.capabilities.request(Feature.VIDEO_INLINE) is not Support.REFUSE:
        assert back.encode_request(film, context(back.back_options(), film)).body
        return
    with pytest.raises(Unsupported) as caught:
        back.encode_request(film, context(back.back_options(), film))
    assert caught.value.failure.param == "messages[0].content[1]"
    if "unsupported_media" not in type(back.back_options()).model_fields:
        return
    as_text = back.back_options(unsupported_media="text")
    assert b"video" in back.encode_request(film, context(as_text, film)).body


def test_context_is_a_system_message() -> None:
    asked = user(Text("hello"))
    asked.context = [{"description": "page", "value": "home"}]
    first = sent(asked, "ag-ui", "openai-chat")["messages"][0]
    assert (first["role"], first["content"]) == ("system", "page: home")


def test_forbidden_tool_names_are_changed_and_changed_back() -> None:
    asked = user(Text("hello"))
    asked.tools = [Tool("weather.now")]
    dialect = registry.get("ag-ui")
    wire = dialect.encode_request(asked, context(dialect.back_options(), asked))
    translator = Translator("openai-chat", "ag-ui", model="m")
    body = orjson.loads(translator.request(wire.body, client="ag-ui"))
    name = body["tools"][0]["function"]["name"]
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", name)
    call = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": name, "arguments": "{}"}}]}
    answer = fold(decode(dialect, [translator.feed(chunks(call)) + translator.close()]))
    assert [c.name for c in answer.calls] == ["weather.now"]


def test_the_limit_that_anthropic_messages_demands() -> None:
    assert sent(user(Text("hello")), "openai-chat", "anthropic-messages")["max_tokens"] == 4096
    assert sent(user(Text("hello")), "openai-chat", "anthropic-messages", max_tokens=99)["max_tokens"] == 99


def test_usage_is_asked_for() -> None:
    assert sent(user(Text("hello")), "agentscope", "openai-chat")["stream_options"] == {"include_usage": True}
    assert "stream_options" not in sent(user(Text("hello")), "agentscope", "openai-chat", include_usage=False)


def test_earlier_reasoning_goes_back_with_calls() -> None:
    asked = Request(
        [
            Message("user", [Text("hello")]),
            Message("assistant", [Reasoning("first"), Text("hi")]),
            Message("user", [Text("and now?")]),
            Message("assistant", [Reasoning("second"), ToolCall("call-1", "f", "{}")]),
            Message("tool", [ToolResult("call-1", [Text("done")])]),
        ],
        model="m",
    )
    for option, wanted in (("tool_turns", ["second"]), ("always", ["first", "second"]), ("never", [])):
        wire = CHAT.encode_request(asked, context(CHAT.back_options(reasoning_history=option), asked))
        messages = orjson.loads(wire.body)["messages"]
        assert [m["reasoning_content"] for m in messages if m.get("reasoning_content")] == wanted
    assert CHAT.back_options() == CHAT.back_options(reasoning_history="tool_turns")


# ---------------------------------------------------------------------- failures


@pytest.mark.parametrize("back", EVERY, ids=lambda d: d.name)
@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_not_the_clients_matter(back: Any, status: int) -> None:
    body = b'{"error": {"message": "Incorrect key provided."}, "message": "Incorrect key provided."}'
    failure = back.decode_error(WireResponse(status, {"content-type": "application/json"}, body))
    assert failure.code is ErrorCode.BACKEND_AUTH
    assert "Incorrect" not in failure.message
    assert RULES[failure.code].http == 502
