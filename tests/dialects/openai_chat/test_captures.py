"""Every recorded answer reads as its index entry says, however the network cuts it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from bridge.contract import WireResponse
from bridge.dialects.openai_chat import dialect
from bridge.errors import ErrorCode, Failure
from bridge.model import Answer, PartEnded, TextDelta, fold, verify
from bridge.model.events import TERMINAL

from .helpers import BODIES, CAPTURES, REFUSALS, STREAMS, answer, back, capture, decode, encode, names

RESET = Failure(ErrorCode.BACKEND_UNAVAILABLE, "connection reset")


def read(entry: dict[str, Any]) -> bytes:
    return (CAPTURES / entry["file"]).read_bytes()


def run(entry: dict[str, Any], reads: list[bytes]) -> Answer:
    aborted = entry["end"] == "abort"
    return fold(decode(reads, failure=RESET if aborted else None, aborted=aborted))


def arguments(text: str) -> Any:
    return json.loads(text or "{}")


def check(got: Answer, expect: dict[str, Any]) -> None:
    assert got.text in [expect["text"], *expect.get("text_any", [])]
    assert got.reasoning == expect["reasoning"]
    assert (got.refusal or None) == expect["refusal"]
    assert [(c.name, arguments(c.arguments)) for c in got.calls] == [
        (c["name"], arguments(c["arguments"])) for c in expect["tool_calls"]
    ]
    for call, wanted in zip(got.calls, expect["tool_calls"], strict=True):
        assert call.call_id == wanted["id"] if wanted["id"] else call.call_id
    if expect["outcome"] == "error":
        assert got.failure is not None
        assert expect["error"]["contains"] in got.failure.message
        return
    assert got.failure is None
    reasons = expect["finish_reason"]
    assert got.reason in (reasons if isinstance(reasons, list) else [reasons])
    check_usage(got, expect)
    for choice in expect.get("choices", []):
        mine = [m for m in got.messages if got.choice_of(m) == choice["index"]]
        assert "".join(p.text for m in mine for p in m.parts) == choice["text"]
        assert got.endings[mine[0].id or ""].reason == choice["finish_reason"]


def check_usage(got: Answer, expect: dict[str, Any]) -> None:
    usage = got.usage
    told = {"input": usage.input, "output": usage.output, "total": usage.total} if usage else None
    assert told == expect["usage"]
    if "reasoning_tokens" in expect:
        assert usage is not None
        assert usage.reasoning == expect["reasoning_tokens"]


@pytest.mark.parametrize("entry", STREAMS, ids=names(STREAMS))
def test_stream_in_one_read(entry: dict[str, Any]) -> None:
    check(run(entry, [read(entry)]), entry["expect"])


@pytest.mark.parametrize("entry", STREAMS, ids=names(STREAMS))
def test_stream_event_by_event(entry: dict[str, Any]) -> None:
    data = read(entry)
    parts = [p + b"\n\n" for p in data.split(b"\n\n")]
    parts[-1] = parts[-1][:-2]
    assert b"".join(parts) == data
    check(run(entry, parts), entry["expect"])


@pytest.mark.parametrize("entry", STREAMS, ids=names(STREAMS))
def test_stream_in_small_reads(entry: dict[str, Any]) -> None:
    data = read(entry)
    size = 1 if len(data) < 10_000 else 4096
    check(run(entry, [data[i : i + size] for i in range(0, len(data), size)]), entry["expect"])


@pytest.mark.parametrize("entry", STREAMS, ids=names(STREAMS))
def test_stream_cut_at_random(entry: dict[str, Any]) -> None:
    data, dice = read(entry), random.Random(entry["name"])
    whole = decode([data], aborted=entry["end"] == "abort")
    for _ in range(10):
        places = sorted(dice.sample(range(len(data)), min(9, len(data))))
        reads = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
        assert decode(reads, aborted=entry["end"] == "abort") == whole


@pytest.mark.parametrize("entry", STREAMS, ids=names(STREAMS))
def test_every_prefix_ends_once(entry: dict[str, Any]) -> None:
    data = read(entry)
    step = max(1, len(data) // 120)
    for size in range(0, len(data) + 1, step):
        for aborted in (False, True):
            events = decode([data[:size]], failure=RESET if aborted else None, aborted=aborted)
            assert sum(type(e) in TERMINAL for e in events) == 1


@pytest.mark.parametrize("entry", BODIES, ids=names(BODIES))
def test_body(entry: dict[str, Any]) -> None:
    wire = WireResponse(200, {"content-type": entry["content_type"]}, read(entry))
    check(fold(verify(dialect.parse_response(wire, back()))), entry["expect"])


@pytest.mark.parametrize("entry", REFUSALS, ids=names(REFUSALS))
def test_error_status(entry: dict[str, Any]) -> None:
    headers = {k.lower(): v for k, v in entry["headers"].items()}
    failure = dialect.decode_error(WireResponse(entry["status"], headers, read(entry)))
    shown = dialect.encode_error(failure)
    wanted = entry["expect"]["error"]
    statuses = wanted["status"]
    assert shown.status in (statuses if isinstance(statuses, list) else [statuses])
    assert wanted["contains"] in failure.message
    if "retry_after" in entry:
        assert shown.headers["retry-after"] == entry["retry_after"]
    if "error_code" in entry:
        assert json.loads(shown.body)["error"]["code"] == entry["error_code"]
    for word in [*entry.get("must_not_contain", []), "<html"]:
        assert word not in shown.body.decode()


@pytest.mark.parametrize("entry", STREAMS, ids=names(STREAMS))
def test_through_both_codecs(entry: dict[str, Any]) -> None:
    """chat -> chat: what the encoder makes of the stream means the same."""
    if entry["end"] == "abort" or entry["expect"]["outcome"] == "error":
        again = answer(encode(decode([read(entry)])))
        assert again.failure is not None
        assert again.text == entry["expect"]["text"]
    else:
        check(answer(encode(decode([read(entry)]))), entry["expect"])


def test_logprobs_travel_with_their_text() -> None:
    entry = next(e for e in STREAMS if e["name"] == "openai-logprobs")
    tokens = []
    for event in decode([encode(decode([read(entry)]))]):
        if isinstance(event, TextDelta) and event.extras:
            tokens += [t["token"] for t in event.extras["shared"]["logprobs"]["content"]]
    assert tokens == entry["expect"]["logprobs"]


def test_annotations_survive() -> None:
    entry = next(e for e in STREAMS if e["name"] == "openai-annotations")
    events = decode([encode(decode([read(entry)]))])
    lists = [(e.extras or {}).get("shared", {}).get("annotations", []) for e in events if isinstance(e, PartEnded)]
    assert [a["url_citation"]["url"] for each in lists for a in each] == entry["expect"]["annotations"]


def test_audio_is_pieces_for_chat_and_one_medium_for_others() -> None:
    wanted = next(e for e in STREAMS if e["name"] == "openai-audio")["expect"]["audio"]
    for data in (capture("openai-audio"), encode(decode([capture("openai-audio")]))):
        media = answer(data).media
        assert [m.source.base64 for m in media] == [wanted["data"]]  # type: ignore[union-attr]
        extras = (media[0].extras or {})["openai-chat"]
        assert (extras["id"], media[0].transcript) == (wanted["id"], wanted["transcript"])
        assert extras["streamed"] is True


def test_thought_signature_goes_around() -> None:
    before = answer(capture("gemini-tool-no-index")).calls[0].extras
    assert before is not None
    assert before.keys() == {"signature"}
    wire = encode(decode([capture("gemini-tool-no-index")]))
    assert b'"extra_content":{"google":{"thought_signature":' in wire
    assert answer(encode(decode([capture("gemini-tool-no-index")]))).calls[0].extras == before


def test_head_of_the_run() -> None:
    got = answer(capture("openai-text-usage"))
    assert (got.model, got.created_at) == ("gpt-4o-2024-08-06", 1763712000.0)
    assert (got.extras or {})["shared"]["system_fingerprint"] == "fp_cbf1785567"
    azure = answer(capture("azure-empty-first"))
    assert azure.model
    assert (azure.extras or {})["openai-chat"]["id"]
