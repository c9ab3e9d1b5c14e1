"""Every capture means what its index says, in whatever reads it comes, and again after our encoder wrote it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from bridge.contract import WireResponse
from bridge.dialects.openai_responses import dialect
from bridge.errors import ErrorCode, Failure
from bridge.model import Answer, TextDelta, fold, url_of
from bridge.model.events import TERMINAL
from bridge.translation import AnswerDecoder

from .helpers import (
    BODIES,
    CAPTURES,
    REFUSALS,
    STREAMS,
    assembled,
    back,
    capture,
    decode,
    encode,
    final,
    frames,
    judged,
    names,
    parse,
)

RESET = Failure(ErrorCode.BACKEND_UNAVAILABLE, "connection reset")


def read(entry: dict[str, Any]) -> bytes:
    return (CAPTURES / entry["file"]).read_bytes()


def run(entry: dict[str, Any], reads: list[bytes]) -> Answer:
    aborted = entry["end"] == "abort"
    return fold(decode(reads, failure=RESET if aborted else None, aborted=aborted))


def arguments(text: str) -> Any:
    return json.loads(text or "{}")


def check(got: Answer, expect: dict[str, Any]) -> None:
    assert (got.text, got.reasoning) == (expect["text"], expect["reasoning"])
    assert (got.refusal or None) == expect["refusal"]
    assert [(c.call_id, c.name, arguments(c.arguments)) for c in got.calls] == [
        (c["id"], c["name"], arguments(c["arguments"])) for c in expect["tool_calls"]
    ]
    assert [url_of(m) for m in got.media] == expect.get("media", [])
    if expect["outcome"] == "error":
        assert got.failure is not None
        assert expect["error"]["contains"] in got.failure.message
        return
    assert got.failure is None
    assert got.reason == expect["finish_reason"]
    assert got.usage is not None
    assert {"input": got.usage.input, "output": got.usage.output, "total": got.usage.total} == expect["usage"]
    assert (got.usage.cached, got.usage.reasoning) == (3, 5)


def test_the_index_names_every_file_and_where_its_facts_come_from() -> None:
    index = json.loads((CAPTURES / "index.json").read_text())["captures"]
    assert sorted(c["file"] for c in index) == sorted(p.name for p in CAPTURES.iterdir() if p.name != "index.json")
    for entry in index:
        assert entry["source"]
        assert entry["bytes"] == len(read(entry))


@pytest.mark.parametrize("entry", STREAMS, ids=names(STREAMS))
def test_stream_in_one_read(entry: dict[str, Any]) -> None:
    check(run(entry, [read(entry)]), entry["expect"])


@pytest.mark.parametrize("entry", STREAMS, ids=names(STREAMS))
def test_stream_byte_by_byte(entry: dict[str, Any]) -> None:
    data = read(entry)
    check(run(entry, [data[i : i + 1] for i in range(len(data))]), entry["expect"])


@pytest.mark.parametrize("entry", STREAMS, ids=names(STREAMS))
def test_stream_cut_at_random(entry: dict[str, Any]) -> None:
    data, dice = read(entry), random.Random(entry["name"])
    whole = decode([data], aborted=entry["end"] == "abort")
    for _ in range(10):
        places = sorted(dice.sample(range(len(data)), min(9, len(data))))
        reads = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
        assert decode(reads, aborted=entry["end"] == "abort") == whole


@pytest.mark.parametrize("entry", STREAMS, ids=names(STREAMS))
def test_every_prefix_ends_once_and_none_is_a_success(entry: dict[str, Any]) -> None:
    data = read(entry)
    end = data.rfind(b"data: {")
    for size in range(0, end, max(1, end // 100)):
        for aborted in (False, True):
            events = decode([data[:size]], failure=RESET if aborted else None, aborted=aborted)
            assert sum(type(e) in TERMINAL for e in events) == 1
            assert fold(events).failure is not None


@pytest.mark.parametrize("entry", BODIES, ids=names(BODIES))
def test_body(entry: dict[str, Any]) -> None:
    check(fold(parse(read(entry), content_type=entry["content_type"])), entry["expect"])


@pytest.mark.parametrize("entry", STREAMS, ids=names(STREAMS))
def test_a_stream_in_place_of_a_body(entry: dict[str, Any]) -> None:
    """A server that declares a stream as JSON sends a stream."""
    decoder = AnswerDecoder(dialect, back(), {"content-type": "application/json"})
    check(fold(decoder.receive(read(entry)) + decoder.close()), entry["expect"])


@pytest.mark.parametrize("entry", REFUSALS, ids=names(REFUSALS))
def test_error_status(entry: dict[str, Any]) -> None:
    headers = {k.lower(): v for k, v in entry["headers"].items()}
    failure = dialect.decode_error(WireResponse(entry["status"], headers, read(entry)))
    shown = dialect.encode_error(failure)
    wanted = entry["expect"]["error"]
    assert shown.status in (wanted["status"] if isinstance(wanted["status"], list) else [wanted["status"]])
    assert wanted["contains"] in failure.message
    if "retry_after" in entry:
        assert shown.headers["retry-after"] == entry["retry_after"]
    if "error_code" in entry:
        assert json.loads(shown.body)["error"]["code"] == entry["error_code"]
    for word in entry.get("must_not_contain", []):
        assert word not in shown.body.decode()


@pytest.mark.parametrize("entry", STREAMS, ids=names(STREAMS))
def test_through_both_codecs(entry: dict[str, Any]) -> None:
    """Responses -> Responses: what the encoder makes of it is strictly well-formed, and means the same."""
    judged(frames(decode([read(entry)])))
    check(fold(decode([encode(decode([read(entry)]))])), entry["expect"])


@pytest.mark.parametrize("entry", BODIES, ids=names(BODIES))
def test_bodies_through_both_codecs(entry: dict[str, Any]) -> None:
    if entry["expect"]["outcome"] == "completed":
        check(fold(parse(assembled(parse(read(entry))))), entry["expect"])


# ---------------------------------------------------------------------- what only this dialect knows


def full(response: dict[str, Any]) -> dict[str, Any]:
    """A recorded response with the fields that it lacks, as clients get it; without a clock it ends as it begins."""
    ended = response["created_at"] if response["status"] == "completed" else None
    return {"completed_at": ended, "frequency_penalty": 0.0, "presence_penalty": 0.0, **response}


def events_of(data: bytes) -> list[dict[str, Any]]:
    """The events of a recorded stream, each response in full."""
    events = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: ")]
    return [{**e, "response": full(e["response"])} if "response" in e else e for e in events]


def last_of(name: str) -> dict[str, Any]:
    """The response object in the last event of a capture."""
    response: dict[str, Any] = events_of(capture(name))[-1]["response"]
    return response


@pytest.mark.parametrize(
    "name",
    [
        "text",
        "queued-first",
        "reasoning-summary",
        "reasoning-text",
        "reasoning-empty",
        "reasoning-encrypted-only",
        "tool-single",
        "tools-parallel",
        "tools-interleaved",
        "refusal",
        "web-search",
        "image-generation",
        "logprobs",
        "incomplete-length",
        "incomplete-filter",
    ],
)
def test_the_answer_is_the_very_same_object(name: str) -> None:
    """Ids, annotations, log probabilities, encrypted content, hosted tools' items: nothing is lost on the way."""
    assert final(decode([capture(name)])) == last_of(name)


def test_the_answer_in_one_piece_is_the_very_same_object() -> None:
    assert assembled(parse(capture("json-whole"))) == full(json.loads(capture("json-whole")))


def test_unknown_items_events_and_fields_are_kept() -> None:
    events = [json.loads(f.data) for f in frames(decode([capture("unknown-items")]))]  # type: ignore[union-attr]
    assert events == events_of(capture("unknown-items"))


@pytest.mark.parametrize("name", ["web-search", "image-generation", "tools-parallel", "reasoning-summary", "logprobs"])
def test_a_well_made_stream_comes_out_event_by_event_as_it_went_in(name: str) -> None:
    theirs = events_of(capture(name))
    ours = [json.loads(f.data) for f in frames(decode([capture(name)]))]  # type: ignore[union-attr]
    assert sorted(map(steady, ours)) == sorted(map(steady, theirs))


def steady(event: dict[str, Any]) -> str:
    """Without the number, since annotations are told after their text, and the name that calls repeat at their end."""
    left = {k: v for k, v in event.items() if k != "sequence_number"}
    if event["type"] == "response.function_call_arguments.done":
        left.pop("name", None)
    return json.dumps(left, sort_keys=True)


def test_log_probabilities_travel_with_their_text() -> None:
    entry = next(e for e in STREAMS if e["name"] == "logprobs")
    deltas = [e for e in decode([read(entry)]) if isinstance(e, TextDelta) and e.extras]
    tokens = [t["token"] for e in deltas for t in (e.extras or {})["shared"]["logprobs"]["content"]]
    assert tokens == entry["expect"]["logprobs"]


def test_the_head_of_the_run() -> None:
    got = fold(decode([capture("text")]))
    assert (got.model, got.created_at) == ("gpt-5.6-2026-08-01", 1763712000.0)
    assert (got.extras or {})["openai-responses"]["id"] == "resp_67cb"


def test_secrets_of_reasoning_are_parts_of_the_model() -> None:
    parts = fold(decode([capture("reasoning-summary")])).parts()
    assert getattr(parts[0], "signature", None) == "gAAAAABo-enc+/=="
