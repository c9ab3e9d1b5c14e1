"""What backends and clients sent, read to the meaning that the captures' index gives, and told again."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from bridge.contract import WireResponse
from bridge.dialects.gemini import dialect
from bridge.dialects.gemini.wire import SIGNATURE, own, standard
from bridge.model import Event, Inline, Media, Raw, fold, verify
from bridge.toolkit.signed_parts import signature_of
from bridge.translation import AnswerDecoder
from bridge.translation.framing.sse import join

from .helpers import ANSWERS, CAPTURES, INDEX, asked, back, body_of, chunks, decode, front, names, parts, read

ASKED = [c for c in INDEX if c.get("request_file") and "models" not in c["name"] and "count" not in c["name"]]
GOOD = [c for c in ANSWERS if c["expect"]["outcome"] == "completed"]


def parsed(entry: dict[str, Any]) -> list[Event]:
    data = (CAPTURES / entry["file"]).read_bytes()
    if entry["file"].endswith(".sse"):
        return decode(data)
    reading = AnswerDecoder(dialect, back(), {"content-type": entry["content_type"]}, status=entry["status"])
    return verify(reading.receive(data) + reading.close())


def signatures(value: Any) -> list[bytes]:
    """Every thought signature in a JSON value, as bytes: their base64 has two alphabets."""
    if isinstance(value, list):
        return [found for each in value for found in signatures(each)]
    if not isinstance(value, dict):
        return []
    rest = [found for name, each in value.items() if name != SIGNATURE for found in signatures(each)]
    return ([base64.b64decode(standard(value[SIGNATURE]))] if value.get(SIGNATURE) else []) + rest


@pytest.mark.parametrize("entry", ANSWERS, ids=names(ANSWERS))
def test_what_a_backend_sends_means_what_the_index_says(entry: dict[str, Any]) -> None:
    expect, events = entry["expect"], parsed(entry)
    answer = fold(events)
    if expect["outcome"] == "error":
        assert answer.failure is not None
        assert answer.failure.message == expect["error"]["message"]
        assert answer.failure.backend_code == expect["error"].get("status")
        assert answer.text == expect.get("text", "")
        return
    assert (answer.text, answer.reasoning) == (expect["text"], expect["thought"])
    assert len({call.call_id for call in answer.calls}) == len(answer.calls)
    for call, wanted in zip(answer.calls, expect["tool_calls"], strict=True):
        assert call.name == wanted["name"]
        assert call.call_id == wanted["id"] or (wanted["id"] is None and call.call_id)
        assert json.loads(call.arguments) == json.loads(wanted["arguments"])
        assert signature_of(call.extras) == wanted.get("signature")
    usage = answer.usage
    counts = (usage.input, usage.output, usage.cached or 0, usage.reasoning or 0) if usage else (0, 0, 0, 0)
    wanted_usage = expect["usage"] or {}
    # What tools put into the prompt is input as well; the index leaves it out.
    tools = own(usage.extras).get("toolUsePromptTokenCount", 0) if usage else 0
    assert (counts[0] - tools, *counts[1:]) == tuple(
        wanted_usage.get(name) or 0 for name in ("input", "output", "cached", "reasoning")
    )
    assert str(answer.reason) == expect["finish_reason"]
    kinds = [kind for e in events if isinstance(e, Raw) for kind in e.value["part"] if kind not in ("text", SIGNATURE)]
    assert kinds == expect.get("other_parts", [])
    media = [p for p in answer.parts() if isinstance(p, Media)]
    assert [(m.mime, len(m.source.base64)) for m in media if isinstance(m.source, Inline)] == [
        (m["mime"], m["base64_chars"]) for m in expect.get("media", [])
    ]


@pytest.mark.parametrize("entry", GOOD, ids=names(GOOD))
def test_an_answer_goes_on_to_clients_of_this_dialect(entry: dict[str, Any]) -> None:
    """Signatures, Google's own parts, grounding, the words of the end: all of it, streamed and whole."""
    data = (CAPTURES / entry["file"]).read_bytes()
    source = json.loads(data) if entry["file"].endswith(".json") else None
    said = source if isinstance(source, list) else [source] if source else _chunks(data)
    events = parsed(entry)
    told = chunks(events)
    whole = json.loads(dialect.assemble(events, front()).body)
    for came in (told, [whole]):
        assert signatures(came) == signatures(said)
        again = fold(decode(join([json.dumps(each).encode() for each in came])))
        first = fold(events)
        assert (again.text, again.reasoning, again.reason) == (first.text, first.reasoning, first.reason)
        assert [c.arguments for c in again.calls] == [c.arguments for c in first.calls]
        for field in ("groundingMetadata", "promptFeedback", "executableCode", "codeExecutionResult", "inlineData"):
            assert (f'"{field}"' in json.dumps(came)) is (f'"{field}"' in json.dumps(said))
        wanted = entry["expect"].get("wire_finish")
        wanted = {"FUNCTION_CALL": "STOP"}.get(wanted, wanted)
        assert {c["finishReason"] for each in came for c in each.get("candidates", ()) if "finishReason" in c} <= {
            wanted
        }


def _chunks(data: bytes) -> list[Any]:
    lines = data.replace(b"\r\n", b"\n").split(b"\n")
    return [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]


@pytest.mark.parametrize("entry", GOOD, ids=names(GOOD))
def test_every_chunk_has_a_part_or_the_clients_forget_the_turn(entry: dict[str, Any]) -> None:
    told = chunks(parsed(entry))
    blocked = entry["expect"].get("block_reason")
    assert blocked or all(any(part for part in c["candidates"][0]["content"]["parts"]) for c in told)
    assert blocked or [bool(c["candidates"][0].get("finishReason")) for c in told] == [False] * (len(told) - 1) + [True]


@pytest.mark.parametrize("entry", ASKED, ids=names(ASKED))
def test_a_recorded_request_reaches_a_backend_of_this_dialect(entry: dict[str, Any]) -> None:
    path, body = asked(entry["name"])
    request = read(body, path)
    assert request.model in path
    assert request.stream is ("streamGenerateContent" in path)
    out = body_of(request)
    assert signatures(out) == signatures(body)
    assert _of(out, "functionCall", "args") == _of(body, "functionCall", "args")
    assert _of(out, "functionResponse", "response") == _of(body, "functionResponse", "response")
    declared = [{t["name"] for t in _of(each, "functionDeclarations")} for each in (out, body)]
    assert declared[0] == declared[1]
    config = body.get("generationConfig") or body.get("generation_config") or {}
    config = {"".join(_camel(n)): v for n, v in config.items()}
    assert out.get("generationConfig", {}) == {n: v for n, v in config.items() if v is not None}


def _camel(name: str) -> list[str]:
    first, *rest = name.split("_")
    return [first, *(word.capitalize() for word in rest)]


def _of(value: Any, name: str, inner: str | None = None) -> list[Any]:
    """What stands under a name anywhere, one after another."""
    if isinstance(value, list):
        return [found for each in value for found in _of(each, name, inner)]
    if not isinstance(value, dict):
        return []
    found = value.get(name)
    here = [] if found is None else [found.get(inner)] if inner else list(found)
    return here + [f for n, each in value.items() if n != name for f in _of(each, name, inner)]


def test_chat_helpers_send_each_chunk_back_and_it_is_one_message() -> None:
    path, body = asked("py-chat-turn2")
    request = read(body, path)
    assert [m.role for m in request.messages] == ["user", "assistant", "user"]
    spoken = request.messages[1].parts
    assert [p.text for p in spoken] == ["**Plan** first I ...", "The answer is 42."]  # type: ignore[union-attr]


def test_responses_without_ids_answer_their_calls_by_name_and_order() -> None:
    request = read(asked("py-parallel-noid-turn2")[1])
    calls = [p for m in request.messages if m.role == "assistant" for p in m.parts]
    results = [p for m in request.messages if m.role == "tool" for p in m.parts]
    assert [c.call_id for c in calls] == [r.call_id for r in results]  # type: ignore[union-attr]
    assert [r.parts[0].text for r in results] == ['{"output":0}', '{"output":1}', '{"output":2}']  # type: ignore[union-attr]
    # The server gave no ids, and gets none.
    assert '"id"' not in json.dumps(body_of(request))


def test_a_json_array_is_a_stream_in_one_piece() -> None:
    data = (CAPTURES / "raw-json-array-stream.json").read_bytes()
    wire = WireResponse(200, {"content-type": "application/json"}, data)
    answer = fold(verify(dialect.parse_response(wire, back())))
    assert (answer.text, answer.failure) == ("hello world", None)
    broken = data.rstrip()[:-1] + b',{"error":{"code":503,"message":"over","status":"UNAVAILABLE"}}]'
    failed = fold(verify(dialect.parse_response(WireResponse(200, {}, broken), back())))
    assert failed.failure is not None
    assert failed.failure.message == "over"


def test_parts_of_the_captures_are_told() -> None:
    told = parts(chunks(parsed(next(c for c in GOOD if c["name"] == "py-code-execution"))))
    assert [next(iter(part)) for part in told] == ["text", "executableCode", "codeExecutionResult", "text", "text"]
