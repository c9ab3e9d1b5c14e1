"""What real agents sent, read to the meaning that the captures' index gives."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import Context, WireResponse
from bridge.dialects.a2a import dialect
from bridge.model import Answer, Data, Event, Inline, Media, Url, fold, verify
from bridge.translation.framing import sse
from tests.recorded import CAPTURES, body

FOLDER = CAPTURES / "a2a"
INDEX: list[dict[str, Any]] = json.loads((FOLDER / "index.json").read_bytes())["captures"]
RUNS = [c for c in INDEX if c["expect"] and "text" in c["expect"]]
STREAMS = [c for c in RUNS if c["content_type"].startswith("text/event-stream")]
REFUSALS = {"unknown-task": "-32001", "done-task": "-32004", "cancel-again": "-32002", "rest-unknown-task": "-32001"}


def events_of(entry: dict[str, Any], cut: int | None = None) -> list[Event]:
    data = body(FOLDER / entry["files"]["response"])
    context = Context("run", created_at=1.0)
    if entry["content_type"].startswith("text/event-stream"):
        splitter, decoder, events = sse.Splitter(), dialect.decoder(context), list[Event]()
        for start in range(0, len(data), cut or len(data)):
            events += decoder.feed(splitter.feed(data[start : start + (cut or len(data))]))
        return verify(events + decoder.feed(splitter.close()) + decoder.close())
    wire = WireResponse(entry["status"], {"content-type": entry["content_type"]}, data)
    return verify(dialect.parse_response(wire, context))


def media_of(answer: Answer) -> list[dict[str, Any]]:
    out = []
    for part in answer.parts():
        if isinstance(part, Media):
            source = {"source": "inline"} if isinstance(part.source, Inline) else {}
            source |= {"url": part.source.url} if isinstance(part.source, Url) else {}
            out.append({"kind": str(part.kind), "mime": part.mime, "filename": part.filename, **source})
    return out


@pytest.mark.parametrize("cut", [None, 7])
@pytest.mark.parametrize("entry", RUNS, ids=[c["name"] for c in RUNS])
def test_what_an_agent_sends_means_what_the_index_says(entry: dict[str, Any], cut: int | None) -> None:
    expect, answer = entry["expect"], fold(events_of(entry, cut))
    assert answer.text == expect["text"]
    assert [(c.name, json.loads(c.arguments)) for c in answer.calls] == [
        (c["name"], c["arguments"]) for c in expect["tool_calls"]
    ]
    values = [p.value for r in answer.results for p in r.parts if isinstance(p, Data)]
    assert values == [r["value"] for r in expect["tool_results"]]
    assert media_of(answer) == expect["media"]
    assert [p.value for p in answer.parts() if isinstance(p, Data)] == expect["data"]
    counts = {"input": answer.usage.input, "output": answer.usage.output} if answer.usage else None
    assert counts == expect["usage"]
    asked = [
        {"reason": i.reason, **({"message": i.payload} if i.call_id is None else {"call": answer.calls[0].name})}
        for i in answer.interrupts
    ]
    assert asked == expect["interrupts"]
    if expect["error"] in (None, "canceled"):
        assert (str(answer.reason), answer.failure) == (expect["finish_reason"], None)
    else:
        assert answer.failure is not None
        assert answer.failure.code == expect["error"]
        assert expect.get("message_holds", "") in answer.failure.message


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_keeps_the_number_by_which_it_is_told(name: str) -> None:
    entry = next(c for c in INDEX if c["name"] == name)
    wire = WireResponse(
        entry["status"], {"content-type": entry["content_type"]}, body(FOLDER / entry["files"]["response"])
    )
    failure = dialect.decode_error(wire)
    assert failure.backend_code == REFUSALS[name]


def test_a_task_that_was_only_begun_is_no_answer() -> None:
    answer = fold(events_of(next(c for c in INDEX if c["name"] == "send-immediately")))
    assert answer.failure is not None
    assert answer.failure.code == "truncated_stream"
    assert (answer.thread_id, answer.text) == ("8778b926-4c22-4fe0-8627-98869d912b4b", "")


@pytest.mark.parametrize("entry", STREAMS, ids=[c["name"] for c in STREAMS])
def test_a_stream_that_is_cut_anywhere_never_looks_complete(entry: dict[str, Any]) -> None:
    """Each prefix of whole events: the end is told only where the agent has told it."""
    data = body(FOLDER / entry["files"]["response"]).replace(b"\r\n", b"\n")
    frames = [f for f in data.split(b"\n\n") if b"data:" in f]
    for count in range(len(frames)):
        part = b"\n\n".join(frames[:count]) + b"\n\n" if count else b""
        decoder = dialect.decoder(Context("run", created_at=1.0))
        splitter = sse.Splitter()
        events = decoder.feed(splitter.feed(part))
        answer = fold(verify(events + decoder.feed(splitter.close()) + decoder.close()))
        assert answer.failure is not None
        assert answer.failure.code == "truncated_stream"


def test_progress_is_reasoning_and_the_last_word_the_answer() -> None:
    entry = next(c for c in INDEX if c["name"] == "stream-status-text")
    answer = fold(events_of(entry))
    assert (answer.text, answer.reasoning) == ("It is 42.", "Looking it up.Almost there.")
