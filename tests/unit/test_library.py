"""`translate` and `Translator`: bytes in, bytes out, nothing else."""

from __future__ import annotations

import random
from pathlib import Path

import orjson
import pytest

from bridge import BackendError, ConfigError, ErrorCode, Failure, RequestError, Translator, Unsupported, translate

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
    assert caught.value.failure.param == "messages[0].content[0]"
