"""`translate` and `Translator`: bytes in, bytes out, nothing else."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import random
import re
import textwrap
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge import (
    BackendError,
    Bridge,
    ConfigError,
    ErrorCode,
    Event,
    Failure,
    RequestError,
    RunFailed,
    RunStarted,
    Translator,
    Unsupported,
    asgi,
    decode,
    encode,
    fold,
    translate,
    unfold,
)
from bridge.contract import registry
from bridge.model import GrammarError, Message, Request, Text, TextDelta, verify
from bridge.translation.library.guess import guessed
from bridge.translation.policies.stages import StageContext
from bridge.translation.stage import Stage
from tests.strategies import splits

CAPTURES = Path(__file__).parents[1] / "captures"
CHAT = (CAPTURES / "openai-chat/openai-tools-parallel.sse").read_bytes()
SCOPE = (CAPTURES / "agentscope/plugin_call.response.sse").read_bytes()
CHAT_REQUEST = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}'
SCOPE_REQUEST = b'{"input":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"session_id":"s1"}'
WHOLE = (CAPTURES / "openai-chat/json-tool.json").read_bytes()


def payloads(stream: bytes) -> list[dict]:
    frames = [f.removeprefix(b"data: ") for f in stream.split(b"\n\n") if f]
    return [orjson.loads(f) for f in frames if f != b"[DONE]"]


def test_a_whole_stream() -> None:
    last = payloads(translate(CHAT, "openai-chat", "agentscope"))[-1]
    assert last["status"] == "completed"
    calls = [m["content"][0]["data"] for m in last["output"] if m["type"] == "plugin_call"]
    assert [(c["call_id"], orjson.loads(c["arguments"])) for c in calls] == [
        ("call_A", {"city": "Paris"}),
        ("call_B", {"city": "Rome"}),
    ]


def test_tools_that_the_backend_ran_are_not_the_clients() -> None:
    out = translate(SCOPE, "agentscope", "openai-chat")
    assert b"tool_calls" not in out
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in payloads(out) if c["choices"]) == (
        "It is sunny, 21C."
    )


def test_a_request_and_an_answer_in_one_piece() -> None:
    sent = orjson.loads(translate(SCOPE_REQUEST, "agentscope", "openai-chat", what="request"))
    assert sent["messages"] == [{"role": "user", "content": "hi"}]
    answer = orjson.loads(translate(WHOLE, "openai-chat", "agentscope", what="response"))
    assert answer["output"][0]["type"] == "plugin_call"


@pytest.mark.parametrize("seed", range(3))
def test_a_translator_does_not_mind_how_reads_fall(seed: int) -> None:
    whole = Translator("openai-chat", "agentscope", run_id="r")
    expected = whole.feed(CHAT) + whole.close()
    rnd, pieces = random.Random(seed), Translator("openai-chat", "agentscope", run_id="r")
    out, at = b"", 0
    while at < len(CHAT):
        step = rnd.randint(1, 90)
        out += pieces.feed(CHAT[at : at + step])
        at += step
    assert out + pieces.close() == expected


@pytest.mark.parametrize(
    ("source", "target"),
    [("openai-chat", "agentscope"), ("agentscope", "openai-chat")],
    ids=["as client", "as backend"],
)
def test_a_request_says_who_is_the_client(source: str, target: str) -> None:
    """Whichever of the two names comes first: the request leaves in the other dialect, its answer comes back."""
    translator = Translator(source, target)
    sent = orjson.loads(translator.request(CHAT_REQUEST))
    assert sent["input"][0]["content"] == [{"type": "text", "text": "hi"}]
    assert b'"object":"chat.completion.chunk"' in translator.feed(SCOPE) + translator.close()


def test_what_is_lost_is_named() -> None:
    translator = Translator("agentscope", "openai-chat")
    assert translator.lost == []
    translator.feed(SCOPE)
    assert translator.lost == ["tool_result"]


def test_a_stream_that_breaks_off_ends_with_an_error_and_only_one() -> None:
    translator = Translator("openai-chat", "agentscope")
    translator.feed(CHAT[:900])
    last = payloads(translator.close(Failure(ErrorCode.BACKEND_TIMEOUT, "silent")))[-1]
    assert (last["status"], last["error"]) == ("failed", {"code": "MODEL_TIMEOUT", "message": "silent"})
    assert translator.close() == translator.feed(CHAT) == b""


def test_nothing_follows_the_end() -> None:
    translator = Translator("openai-chat", "openai-chat")
    assert translator.feed(CHAT + CHAT).count(b"[DONE]") == 1
    assert translator.close() == b""


def test_a_client_that_wants_no_usage_gets_none() -> None:
    usage = (CAPTURES / "openai-chat/openai-text-usage.sse").read_bytes()
    asked = CHAT_REQUEST[:-1] + b',"stream_options":{"include_usage":true}}'
    for request, wanted in ((CHAT_REQUEST, False), (asked, True)):
        translator = Translator("openai-chat", "openai-chat")
        translator.request(request)
        assert (b'"prompt_tokens"' in translator.feed(usage)) is wanted


def test_what_cannot_be_translated_is_explained() -> None:
    with pytest.raises(RequestError, match="messages"):
        translate(b'{"model":"m"}', "openai-chat", "agentscope", what="request")
    with pytest.raises(BackendError, match="quota"):
        translate(b'{"error":{"message":"quota is used up"}}', "openai-chat", "agentscope", what="response")
    with pytest.raises(ConfigError, match="did you mean 'agentscope'"):
        translate(b"", "agentscop", "openai-chat")
    with pytest.raises(ValueError, match="what"):
        translate(b"", "agentscope", "openai-chat", what="else")  # type: ignore[arg-type]
    video = b'{"input":[{"role":"user","content":[{"type":"video","video_url":"https://v.example/a.mp4"}]}]}'
    with pytest.raises(Unsupported) as caught:
        translate(video, "agentscope", "openai-chat", what="request")
    assert caught.value.failure.param == "input[0].content[0]"


# ---------------------------------------------------------------------- events


def test_a_recording_becomes_events_and_messages_and_a_recording_again() -> None:
    events = verify(decode(CHAT, "openai-chat", run_id="r"))
    answer = fold(events)
    assert [(c.call_id, c.name) for c in answer.calls] == [("call_A", "get_weather"), ("call_B", "get_weather")]
    for again in (encode(events, "openai-chat"), encode(unfold(answer), "openai-chat")):
        assert fold(decode(again, "openai-chat")).calls == answer.calls
    whole = decode(WHOLE, "openai-chat")
    assert isinstance(whole[0], RunStarted)
    assert fold(whole).calls


def test_what_is_no_answer_is_a_failed_run() -> None:
    for nonsense in (b"", b"  \n", b"<html>sorry</html>", b"[1]", b"data: x", b"{", b"\xef\xbb", CHAT[:500]):
        events = verify(decode(nonsense, "openai-chat"))
        assert isinstance(events[-1], RunFailed), nonsense


# ---------------------------------------------------------------------- what own sockets need


def test_the_request_for_the_backend_is_whole() -> None:
    translator = Translator("openai-chat", "agentscope", model="gpt-x")
    for name in ("client_request", "sent"):
        with pytest.raises(RuntimeError, match="there is no request yet: call request"):
            getattr(translator, name)
    body = translator.request(SCOPE_REQUEST, client="agentscope")
    assert orjson.loads(body)["model"] == "gpt-x"
    assert (translator.sent.method, translator.sent.path, translator.sent.body) == ("POST", "/chat/completions", body)
    assert (translator.client_request.stream, translator.client_request.thread_id) == (True, "s1")


def test_stages_see_the_request_before_it_is_written() -> None:
    """AG-UI's context has no place in a chat request: a stage tells it as a system message."""
    asked = orjson.loads(registry.get("ag-ui").example_request("hi").body)
    asked["context"] = [{"description": "place", "value": "Paris"}]
    sent = orjson.loads(Translator("openai-chat", "ag-ui", model="m").request(orjson.dumps(asked), client="ag-ui"))
    assert sent["messages"][0] == {"role": "system", "content": "place: Paris"}


def test_names_that_the_backend_forbids_are_changed_there_and_back() -> None:
    asked = orjson.loads(registry.get("ag-ui").example_request("hi").body)
    asked["tools"] = [{"name": "where is it?", "description": "", "parameters": {}}]
    translator = Translator("openai-chat", "ag-ui", model="m")
    sent = orjson.loads(translator.request(orjson.dumps(asked), client="ag-ui"))
    theirs = sent["tools"][0]["function"]["name"]
    assert theirs.isascii()
    assert " " not in theirs
    out = translator.feed(CHAT.replace(b'"get_weather"', orjson.dumps(theirs))) + translator.close()
    assert {call.name for call in fold(decode(out, "ag-ui")).calls} == {"where is it?"}


def test_stages_of_ones_own_see_every_event() -> None:
    seen: list[Event] = []

    def watch(context: StageContext) -> Stage:
        assert context.request.model == "m"

        def stage(events: list[Event]) -> list[Event]:
            seen.extend(events)
            return events

        return stage

    translator = Translator("agentscope", "openai-chat", stages=[watch], run_id="r")
    translator.request(CHAT_REQUEST, client="openai-chat")
    translator.feed(SCOPE)
    assert fold(verify(seen)).text == "It is sunny, 21C."


def test_dialects_may_be_given_as_objects() -> None:
    chat, scope = registry.get("openai-chat"), registry.get("agentscope")
    named = Translator("openai-chat", "agentscope", run_id="r")
    given = Translator(chat, scope, run_id="r")
    assert given.feed(CHAT) == named.feed(CHAT)
    assert Translator(chat, scope, model="m").request(SCOPE_REQUEST, client=scope)


def test_options_are_those_of_the_configuration() -> None:
    shown = Translator("agentscope", "openai-chat", client_options={"server_tools": "text"})
    assert b"get_weather(" in shown.feed(SCOPE)
    with pytest.raises(ConfigError, match=r"client_options\.server_tool: .*not permitted"):
        Translator("agentscope", "openai-chat", client_options={"server_tool": "text"}).feed(b"")
    with pytest.raises(ConfigError, match=r"backend_options\.x: "):
        Translator("agentscope", "openai-chat", backend_options={"x": 1}).feed(b"")


def test_errors_of_the_backend_are_told_in_the_words_of_the_client() -> None:
    translator = Translator("openai-chat", "agentscope")
    translator.request(CHAT_REQUEST, client="openai-chat")  # and so the agent is the backend
    error = translator.decode_error(429, b'{"detail":"slow down"}', {"Retry-After": "7"})
    assert isinstance(error, BackendError)
    told = translator.encode_error(error)
    assert (told.status, told.headers["retry-after"]) == (429, "7")
    assert orjson.loads(told.body)["error"]["message"]
    with pytest.raises(BackendError) as caught:
        translator.response(b"nope", status=503)
    assert caught.value.code is ErrorCode.OVERLOADED


def test_errors_of_the_client_are_told_in_its_own_words() -> None:
    translator = Translator("openai-chat", "agentscope")
    with pytest.raises(RequestError) as caught:
        translator.request(b"{}", client="agentscope")
    told = translator.encode_error(caught.value)
    assert 400 <= told.status < 500
    assert b"input" in told.body


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (TimeoutError("secret-host:81"), "MODEL_TIMEOUT"),
        (ConnectionResetError("secret-host:81"), "NETWORK_ERROR"),
        (BackendError("it said so", code=ErrorCode.RATE_LIMITED), "RATE_LIMIT_EXCEEDED"),
        (Failure(ErrorCode.BACKEND_TIMEOUT, "silent"), "MODEL_TIMEOUT"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_an_input_that_broke_off_is_told_without_its_secrets(reason: Exception | Failure, code: str) -> None:
    translator = Translator("openai-chat", "agentscope")
    translator.feed(CHAT[:900])
    out = translator.close(reason)
    last = payloads(out)[-1]
    assert (last["status"], last["error"]["code"]) == ("failed", code)
    assert b"secret" not in out


def test_a_backend_that_cannot_be_reached_is_told_without_its_address() -> None:
    translator = Translator("openai-chat", "agentscope")
    for reason, status in ((ConnectionRefusedError("secret-host:81"), 502), (TimeoutError("secret-host:81"), 504)):
        told = translator.encode_error(reason)
        assert told.status == status
        assert b"secret" not in told.body


def test_the_head_may_go_first_and_heartbeats_between() -> None:
    eager, plain = (Translator("openai-chat", "ag-ui", run_id="r") for _ in range(2))
    head = eager.start()
    assert b"RUN_STARTED" in head
    assert eager.start() == b""
    out = head + eager.heartbeat() + eager.feed(CHAT) + eager.close()
    assert out.count(b"RUN_STARTED") == 1
    assert out.count(b": keep-alive") == 1
    assert eager.heartbeat() == b""
    expected = fold(decode(plain.feed(CHAT) + plain.close(), "ag-ui"))
    assert fold(decode(out, "ag-ui")).calls == expected.calls


def test_a_whole_answer_to_a_stream_and_a_stream_to_a_whole_answer() -> None:
    streamed = Translator("openai-chat", "agentscope", run_id="r")
    assert streamed.feed(WHOLE[:7]) + streamed.feed(WHOLE[7:]) == b""
    assert payloads(streamed.close())[-1]["status"] == "completed"
    whole = Translator("openai-chat", "agentscope", run_id="r")
    assert [m["type"] for m in orjson.loads(whole.response(CHAT))["output"]] == ["plugin_call", "plugin_call"]
    broken = Translator("openai-chat", "agentscope")
    broken.feed(WHOLE[:7])
    assert payloads(broken.close(ConnectionResetError()))[-1]["status"] == "failed"


def test_a_byte_order_mark_may_be_cut() -> None:
    for cut in range(3):
        translator = Translator("openai-chat", "agentscope", run_id="r")
        marked = b"\xef\xbb\xbf" + WHOLE
        assert translator.feed(marked[:cut]) + translator.feed(marked[cut:]) == b""
        assert payloads(translator.close())[-1]["status"] == "completed"


@given(data=st.data(), mark=st.sampled_from([b"", b"\xef\xbb\xbf", b" \n"]))
def test_an_answer_in_one_piece_may_be_cut_anywhere(data: st.DataObject, mark: bytes) -> None:
    translator = Translator("openai-chat", "agentscope", run_id="r")
    for piece in data.draw(splits(mark + WHOLE)):
        assert translator.feed(piece) == b""
    whole = Translator("openai-chat", "agentscope", run_id="r")
    assert translator.close() == whole.feed(mark + WHOLE) + whole.close()


def test_any_buffer_is_read_and_a_string_is_not() -> None:
    expected = translate(CHAT, "openai-chat", "openai-chat")
    translator = Translator("openai-chat", "openai-chat")
    assert translator.feed(bytearray(CHAT[:100])) + translator.feed(memoryview(CHAT)[100:]) == expected
    with pytest.raises(TypeError, match="expected bytes, got str"):
        Translator("openai-chat", "agentscope").feed("data: x")  # type: ignore[arg-type]


def test_one_translator_serves_one_run() -> None:
    translator = Translator("openai-chat", "agentscope")
    translator.request(SCOPE_REQUEST[:-1] + b',"model":"m"}', client="agentscope")
    with pytest.raises(RuntimeError, match="create a new one"):
        translator.request(SCOPE_REQUEST)
    translator.feed(CHAT)
    with pytest.raises(RuntimeError, match="its answer has begun"):
        translator.response(WHOLE)
    with pytest.raises(ConfigError, match=r"expected 'openai-chat' or 'agentscope'.*got 'ag-ui'"):
        Translator("openai-chat", "agentscope").request(SCOPE_REQUEST, client="ag-ui")


def test_a_text_may_stand_for_a_message_and_for_a_request() -> None:
    assert Message("user", "hello").parts == [Text("hello")]
    assert Request("hello").messages == [Message("user", [Text("hello")])]


@pytest.mark.parametrize("built", [Message, Request])
def test_the_arguments_that_type_checkers_see_are_the_fields(built: type) -> None:
    (declared,) = [
        node
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(built))))
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    assert [arg.arg for arg in declared.args.args[1:]] == [field.name for field in dataclasses.fields(built)]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ("hello", "expected a bridge.Request, got str; for a text, write Request(text)"),
        (Request(["hello"]), "messages[0]: expected a Message, got str"),
        (Request({"role": "user"}), "messages: expected a string or a list of Message, got dict"),
        (Request([Message("user", 5)]), "messages[0].parts: expected a string or a list of Part, got int"),
        (Request([Message("user", ["hello"])]), "messages[0].parts[0]: expected a Part, got str"),
        (
            Request([Message("usr", "hello")]),
            "messages[0].role: expected one of system, developer, user, assistant, tool, got 'usr'",
        ),
    ],
)
async def test_a_request_of_wrong_types_is_refused(request_: Any, error: str) -> None:
    config = {"backends": {"it": {"dialect": "demo"}}, "routes": [{"dialect": "ag-ui", "path": "/", "backend": "it"}]}
    async with Bridge.from_config({**config, "stores": {"history": "off"}}) as bridge:
        with pytest.raises((TypeError, ValueError)) as caught:
            await bridge.complete(request_)
        assert str(caught.value) == error
        with pytest.raises((TypeError, ValueError)):
            [event async for event in bridge.stream(request_)]


def test_the_time_is_now_where_none_is_given() -> None:
    began = int(time.time())
    translator = Translator("openai-chat", "openai-responses")
    translator.request(b'{"model": "m", "input": "hi", "stream": true}')
    out = translator.feed(b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n')
    (created,) = {int(found) for found in re.findall(rb'"created_at":(\d+)', out)}
    assert began <= created <= time.time()


def test_a_recording_is_of_now_where_no_time_is_given() -> None:
    began = time.time()
    events = decode(b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\ndata: [DONE]\n\n', "openai-chat")
    assert isinstance(events[0], RunStarted)
    assert began <= events[0].created_at <= time.time()


def test_events_that_cannot_be_encoded_break_a_rule() -> None:
    with pytest.raises(GrammarError, match="the first event must be RunStarted"):
        encode([TextDelta("part", "a")], "openai-chat")


def test_an_asgi_application_is_made_of_a_bridge() -> None:
    with pytest.raises(TypeError, match=r"expected a bridge.Bridge, got dict; write Bridge.from_config\(...\)"):
        asgi.app({"backends": {}})  # type: ignore[arg-type]


# ---------------------------------------------------------------------- inputs of something else


CAPTURES = Path(__file__).parents[1] / "captures"
CLAUDE = (CAPTURES / "anthropic-messages" / "cache-usage.sse").read_bytes()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"# A page\n\nof Markdown\n", "Nothing in the input is an answer of openai-chat."),
        (CLAUDE, "Nothing in the input is an answer of openai-chat. It looks like an answer of anthropic-messages."),
    ],
)
def test_an_input_in_which_nothing_is_recognized(data: bytes, said: str) -> None:
    for sizes in ((len(data),), (1,) * len(data)):
        translator = Translator("openai-chat", "anthropic-messages")
        cut, at = [], 0
        for size in sizes:
            cut.append(translator.feed(data[at : at + size]))
            at += size
        out = b"".join(cut) + translator.close()
        assert translator.failure is not None
        assert (translator.failure.code, translator.failure.message) == (ErrorCode.BACKEND_PROTOCOL, said)
        assert said.encode() in out


def test_an_error_of_the_dialect_stays_one() -> None:
    out = translate(b'{"error":{"message":"slow down","type":"rate_limit_error"}}', "openai-chat", "ag-ui")
    assert b"slow down" in out
    assert b"Nothing in the input" not in out


def test_an_answer_that_broke_off_is_no_answer_of_something_else() -> None:
    data = b'data: {"id":"x","choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'
    assert b"Nothing in the input" not in translate(data, "openai-chat", "ag-ui")


def test_what_was_lost() -> None:
    data = (CAPTURES / "openai-chat" / "vllm-reasoning-content.sse").read_bytes()
    lost: dict[str, str] = {}
    translate(data, "openai-chat", "a2a", lost=lost)
    assert "reasoning" in lost


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses", "anthropic-messages", "gemini"])
def test_the_dialect_of_an_answer_is_guessed(name: str) -> None:
    found = [guessed(file.read_bytes()) for file in sorted((CAPTURES / name).glob("*text*.sse"))]
    assert found
    assert set(found) == {name}
    assert guessed(b"") is None
