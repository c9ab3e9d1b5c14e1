"""Section 5, row by row, and what no capture shows: ids and names that come late, ragged text, broken input."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import Frame
from bridge.dialects.openai_chat import dialect
from bridge.dialects.openai_chat.think import ThinkSplitter
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Answer,
    FinishReason,
    Inline,
    Media,
    PartEnded,
    PartKind,
    PartStarted,
    Raw,
    ReasoningDelta,
    RunStarted,
    Text,
    TextDelta,
    fold,
    url_of,
)
from bridge.translation.framing.sse import join

from .helpers import answer, back, chunk, decode, decode_chunks, deltas, encode, front


def read(*chunks: Any, done: bool = True, **options: Any) -> Answer:
    return fold(decode_chunks(*chunks, done=done, context=back(options or None)))


def call(**fields: Any) -> dict[str, Any]:
    return chunk({"tool_calls": [fields]})


def calls(*chunks: Any) -> list[tuple[str, str, str]]:
    return [(c.call_id, c.name, c.arguments) for c in read(*chunks, chunk(finish="stop")).calls]


def function(name: Any = None, arguments: Any = None) -> dict[str, Any]:
    return {k: v for k, v in (("name", name), ("arguments", arguments)) if v is not None}


# ------------------------------------------------------------------ tool calls


@pytest.mark.parametrize(
    ("fragments", "expected"),
    [
        (
            [{"id": "a", "function": function("f", '{"x"')}, {"function": function(None, ":1}")}],
            [("a", "f", '{"x":1}')],
        ),
        (
            [{"id": "a", "function": function("f", "{}")}, {"id": "b", "function": function("g", "{}")}],
            [("a", "f", "{}"), ("b", "g", "{}")],
        ),
        (
            [{"id": "a", "function": function("f", "{")}, {"id": "", "function": function("", "}")}],
            [("a", "f", "{}")],
        ),
        (
            [
                {"index": 0, "id": "a", "function": function("f", "{")},
                {"index": 0, "id": "b", "function": function(None, "}")},
            ],
            [("a", "f", "{}")],
        ),
        (
            [
                {"index": 0, "id": "a", "function": function("f", "{}")},
                {"index": 0, "id": "b", "function": function("g", "{}")},
            ],
            [("a", "f", "{}"), ("b", "g", "{}")],
        ),
        (
            [
                {"index": 0, "id": "a", "function": function("f", "")},
                {"index": 0, "function": function(None, "[1]")},
                {"index": 0, "id": "b", "function": function("g", "")},
                {"index": 0, "function": function(None, "[2]")},
            ],
            [("a", "f", "[1]"), ("b", "g", "[2]")],
        ),
        (
            [
                {"index": 3, "id": "a", "function": function("f", "{}")},
                {"index": 7, "id": "b", "function": function("g", "")},
            ],
            [("a", "f", "{}"), ("b", "g", "")],
        ),
        (
            [
                {"index": 0, "id": "a", "function": function("f", "{")},
                {"index": 0, "id": "a", "function": function("f", "}")},
            ],
            [("a", "f", "{}")],
        ),
        (
            [
                {"index": 0, "id": "a", "type": "function"},
                {"index": 0, "function": function(None, "{")},
                {"index": 0, "function": function("late", "}")},
            ],
            [("a", "late", "{}")],
        ),
        ([{"index": 0, "id": "a", "function": function("f", {"x": [1]})}], [("a", "f", '{"x":[1]}')]),
        ([{"index": 0, "id": "a", "function": {"name": "f", "arguments": None}}], [("a", "f", "")]),
        ([{"index": 0, "id": "a", "function": None}, {"index": 0, "function": function("f", "1")}], [("a", "f", "1")]),
        ([{"index": 0, "id": 5, "function": function("f", "{}")}], [("call_run12", "f", "{}")]),
        (
            [{"id": "a", "function": function("f", "{}")}, {"id": "a", "function": function("f", "")}],
            [("a", "f", "{}")],
        ),
        ([{}, {"index": True}], []),
    ],
    ids=[
        "no-index-continues-last",
        "no-index-new-id",
        "empty-id-continues",
        "new-id-per-fragment",
        "same-index-two-calls",
        "same-index-two-calls-in-pieces",
        "gaps",
        "id-and-name-repeated",
        "name-late",
        "object",
        "arguments-null",
        "function-null",
        "no-usable-id",
        "known-id-again",
        "nothing",
    ],
)
def test_call_fragments(fragments: list[Any], expected: list[tuple[str, str, str]]) -> None:
    """Each fragment in a chunk of its own, and all in one chunk."""
    assert [c[1:] for c in calls(*[call(**f) for f in fragments])] == [e[1:] for e in expected]
    assert [c[0] for c in calls(*[call(**f) for f in fragments])] == [e[0] for e in expected]
    if all("id" in f or "index" in f for f in fragments):
        assert [c[1:] for c in calls(chunk({"tool_calls": fragments}))] == [e[1:] for e in expected]


@pytest.mark.parametrize(
    ("fragments", "expected"),
    [
        (
            [{"id": "a", "function": function("f", '{"x"')}, {"index": 0, "function": function(None, ":1}")}],
            [("a", "f", '{"x":1}')],
        ),
        (
            [{"id": "a", "function": function("f", "[")}, {"index": 0, "id": "a", "function": function(None, "1]")}],
            [("a", "f", "[1]")],
        ),
        (
            [
                {"index": 0, "id": "a", "function": function("f", "[1]")},
                {"id": "b", "function": function("g", "[")},
                {"index": 1, "function": function(None, "2]")},
                {"index": 2, "id": "c", "function": function("h", "[3]")},
            ],
            [("a", "f", "[1]"), ("b", "g", "[2]"), ("c", "h", "[3]")],
        ),
        (
            [{"function": function("f", "")}, {"function": function("g", "[2]")}],
            [("call_run12", "f", ""), ("call_run13", "g", "[2]")],
        ),
        (
            [
                {"index": 0.0, "id": "a", "function": function("f", "[")},
                {"index": "1", "id": "b", "function": function("g", "[")},
                {"index": "0", "function": function(None, "1]")},
                {"index": 1, "function": function(None, "2]")},
            ],
            [("a", "f", "[1]"), ("b", "g", "[2]")],
        ),
    ],
    ids=["index-comes-late", "index-and-id-come-late", "mixed", "another-name", "index-of-another-type"],
)
def test_call_fragments_with_and_without_index(fragments: list[Any], expected: list[tuple[str, str, str]]) -> None:
    assert calls(*[call(**f) for f in fragments]) == expected


@pytest.mark.parametrize("no_id", [None, "", "null", "None", "undefined"])
@pytest.mark.parametrize("index", [0, None])
def test_later_fragments_without_an_id_belong_to_the_open_call(index: int | None, no_id: str | None) -> None:
    place = {} if index is None else {"index": index}
    later = [{**place, "id": no_id, "function": function(no_id, piece)} for piece in ('{"a":', '"x"}')]
    first = {**place, "id": "c", "function": function("f", "")}
    assert calls(*[call(**f) for f in (first, *later)]) == [("c", "f", '{"a":"x"}')]


def test_the_tail_of_arguments_under_a_new_index_belongs_to_the_open_call() -> None:
    first = {"index": 0, "id": "a", "function": function("f", '{"a":"x"')}
    tail = {"index": 1, "function": function(None, "}")}
    second = {"index": 1, "id": "b", "function": function("g", "{}")}
    assert calls(call(**first), call(**tail)) == [("a", "f", '{"a":"x"}')]
    assert calls(call(**first), call(**tail), call(**second)) == [("a", "f", '{"a":"x"}'), ("b", "g", "{}")]


@pytest.mark.parametrize(
    "fragments",
    [
        [{"index": 0, "function": function(None, '{"a":1}')}],
        [{"index": 0, "id": "a"}, {"index": 0, "function": function(None, "{}")}],
        [{"index": 0, "id": "a", "function": function("f", "{}")}, {"index": 1, "function": function(None, "{}")}],
    ],
    ids=["no-id", "an-id", "after-a-whole-call"],
)
def test_a_call_that_never_gets_a_name_is_a_protocol_error(fragments: list[Any]) -> None:
    failure = read(*[call(**f) for f in fragments]).failure
    assert failure is not None
    assert failure.code is ErrorCode.BACKEND_PROTOCOL


def test_two_whole_calls_without_ids_in_one_chunk() -> None:
    found = calls(chunk({"tool_calls": [{"function": function("f", "{}")}, {"function": function("g", '{"a":1}')}]}))
    assert [c[1:] for c in found] == [("f", "{}"), ("g", '{"a":1}')]
    assert len({c[0] for c in found}) == 2


def test_whole_calls_without_ids_share_an_index() -> None:
    found = calls(*[call(index=0, function=function(name, "{}")) for name in "fg"])
    assert [c[1:] for c in found] == [("f", "{}"), ("g", "{}")]


def test_old_function_call() -> None:
    got = read(
        chunk({"function_call": {"name": "f", "arguments": ""}}),
        chunk({"function_call": {"arguments": "{}"}}),
        chunk(finish="function_call"),
    )
    assert [(c.name, c.arguments) for c in got.calls] == [("f", "{}")]
    assert got.calls[0].call_id
    assert got.reason is FinishReason.TOOL_CALLS


def test_custom_call_keeps_its_kind() -> None:
    got = read(
        call(index=0, id="a", type="custom", custom={"name": "sql", "input": "SEL"}),
        call(index=0, custom={"input": "E"}),
        call(index=0, type="custom", custom={"input": "CT"}),
    ).calls[0]
    assert (got.name, got.arguments, got.extras) == ("sql", "SELECT", {"openai-chat": {"type": "custom"}})


def test_a_complete_call_ends_when_the_next_thing_begins() -> None:
    """Else clients that wait for whole calls would get the first one at the end of the stream."""
    events = decode_chunks(
        call(index=0, id="a", function=function("f", "{}")),
        call(index=1, id="b", function=function("g", "{")),
        chunk({"content": "hm"}),
        call(index=1, function=function(None, "}")),
    )
    kinds = [type(e).__name__ for e in events if isinstance(e, (PartStarted, PartEnded))]
    assert kinds[:3] == ["PartStarted", "PartEnded", "PartStarted"]
    assert [c.arguments for c in fold(events).calls] == ["{}", "{}"]


def test_a_complete_call_ends_when_text_begins() -> None:
    events = decode_chunks(call(index=0, id="a", function=function("f", "{}")), chunk({"content": "x"}))
    places = {type(e).__name__: i for i, e in reversed(list(enumerate(events)))}
    assert places["PartEnded"] < places["TextDelta"]


def test_extras_of_a_call_that_come_late() -> None:
    chunks = [
        call(index=0, id="a", function=function("f", "{")),
        call(index=0, function=function(None, "}"), extra_content={"sig": "x"}),
    ]
    got = answer(encode(decode_chunks(*chunks)))
    assert got.calls[0].extras == {"openai-chat": {"extra_content": {"sig": "x"}}}


def test_text_then_calls_then_finish_in_one_chunk() -> None:
    delta = {"tool_calls": [{"id": "a", "function": function("f", "{}")}], "content": "Look:"}
    got = read(chunk(delta, "stop"))
    assert [type(p).__name__ for p in got.parts()] == ["Text", "ToolCall"]
    assert got.reason is FinishReason.TOOL_CALLS


# ------------------------------------------------------------------ text, reasoning, parts


def test_one_reasoning_field_is_read_and_comes_first() -> None:
    got = read(chunk({"content": "2", "reasoning": "b", "reasoning_content": "a"}))
    assert (got.reasoning, got.text) == ("a", "2")
    assert [type(p).__name__ for p in got.parts()] == ["Reasoning", "Text"]


def test_message_in_place_of_delta() -> None:
    odd = chunk()
    odd["choices"][0].update(delta=None, message={"role": "assistant", "content": "Hi"})
    assert read(odd).text == "Hi"


def test_parts_in_content() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    got = read(chunk({"content": [thought, {"type": "text", "text": "a"}, picture, "b", {"type": "odd", "x": 1}, 7]}))
    assert (got.reasoning, got.text) == ("hm", "ab")
    assert [url_of(m) for m in got.media] == ["data:image/png;base64,AAAA"]
    assert [e.value for e in got.events if isinstance(e, Raw)] == [
        {"index": 0, "delta": {"content_parts": [{"type": "odd", "x": 1}]}}
    ]


def test_parts_that_clients_do_not_know_leave_the_text_alone() -> None:
    events = decode_chunks(chunk({"content": [{"type": "text", "text": "a"}, {"type": "reference", "ids": [1]}]}))
    message = json.loads(dialect.assemble(events, front()).body)["choices"][0]["message"]
    assert (message["content"], message["content_parts"]) == ("a", [{"type": "reference", "ids": [1]}])
    assert all(isinstance(d.get("content", ""), str) for d in deltas(events))


def test_images_of_a_model_go_back_as_they_came() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}
    events = decode_chunks(chunk({"content": "See", "images": [image]}))
    assert [url_of(m) for m in fold(events).media] == ["https://x.test/a.png"]
    again = answer(encode(events))
    assert [url_of(m) for m in again.media] == ["https://x.test/a.png"]
    assert again.text == "See"


@pytest.mark.parametrize(
    "pieces", [["<think>abc</think>ok"], list("<think>abc</think>ok"), ["<thi", "nk>abc</", "think>ok"]]
)
def test_think_tags(pieces: list[str]) -> None:
    got = read(*[chunk({"content": p}) for p in pieces], think_tags="reasoning")
    assert (got.reasoning, got.text) == ("abc", "ok")


def test_half_a_think_tag_is_text() -> None:
    got = read(chunk({"content": "a < b <th"}), think_tags="reasoning")
    assert got.text == "a < b <th"
    splitter = ThinkSplitter()
    assert list(splitter.feed("<think>x</thi")) == [(PartKind.REASONING, "x")]
    assert list(splitter.close()) == [(PartKind.REASONING, "</thi")]
    assert list(splitter.close()) == []


def test_audio_pieces_that_are_no_base64_are_strung_together() -> None:
    got = read(chunk({"audio": {"id": "x", "data": "QQ=="}}), chunk({"audio": {"data": "Q"}}))
    (audio,) = got.media
    assert audio.source == Inline("QQ==Q")


def test_audio_pieces_with_their_own_padding() -> None:
    got = read(chunk({"audio": {"id": "x", "data": "QQ=="}}), chunk({"audio": {"data": "Qg=="}}))
    assert isinstance(got.media[0], Media)
    assert got.media[0].source == Inline("QUI=")


# ------------------------------------------------------------------ ends, usage, heads


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", FinishReason.STOP),
        ("eos", FinishReason.STOP),
        ("end_turn", FinishReason.STOP),
        ("stop_sequence", FinishReason.STOP),
        ("tool_calls", FinishReason.STOP),
        ("max_tokens", FinishReason.LENGTH),
        ("length", FinishReason.LENGTH),
        ("content_filter", FinishReason.CONTENT_FILTER),
    ],
)
def test_finish_words(word: str, reason: FinishReason) -> None:
    assert read(chunk({"content": "x"}, word)).reason is reason


@pytest.mark.parametrize("word", ["length", "content_filter"])
def test_a_cut_stays_a_cut_although_a_call_began(word: str) -> None:
    assert read(call(index=0, id="a", function=function("f", "{")), chunk(finish=word)).reason == word


def test_the_first_finish_counts() -> None:
    assert read(chunk(finish="length"), chunk(finish="stop")).reason is FinishReason.LENGTH


def test_either_half_of_the_end_is_enough_and_neither_is_not() -> None:
    text = chunk({"content": "x"})
    assert read(text).reason is FinishReason.STOP
    assert read(text, chunk(finish="stop"), done=False).reason is FinishReason.STOP
    cut = read(text, done=False)
    assert cut.failure is not None
    assert cut.failure.code is ErrorCode.TRUNCATED_STREAM
    assert cut.text == "x"


def test_a_choice_without_its_finish_is_cut_although_another_has_one() -> None:
    got = read(chunk({"content": "a"}), chunk({"content": "b"}, index=1), chunk(finish="stop", index=1), done=False)
    assert got.failure is not None


def test_the_finish_of_another_choice_is_not_that_of_the_first() -> None:
    assert read(chunk({"content": "a"}), chunk({"content": "b"}, "length", 1)).reason is FinishReason.STOP


def test_a_failure_after_the_finish_is_no_failure() -> None:
    reset = Failure(ErrorCode.BACKEND_UNAVAILABLE, "reset")
    data = join([json.dumps(chunk({"content": "x"}, "stop")).encode()])
    assert fold(decode([data], failure=reset)).reason is FinishReason.STOP
    early = join([json.dumps(chunk({"content": "x"})).encode()])
    assert fold(decode([early], failure=reset)).failure is reset


def test_nothing_counts_after_the_end_mark() -> None:
    events = decode_chunks(chunk({"content": "x"}, "stop"), b"[DONE]", chunk({"content": "late"}), b"junk")
    assert fold(events).text == "x"


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None}, [], "7", {"prompt_tokens": "7"}])
def test_unusable_usage_does_not_replace_a_usable_one(usage: Any) -> None:
    good = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    got = read(chunk({"content": "x"}, usage=good), chunk(finish="stop", usage=usage))
    assert got.usage is not None
    assert (got.usage.input, got.usage.output, got.usage.total) == (3, 4, 7)


def test_details_of_usage_go_around() -> None:
    usage = {
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 1},
        "cost": 0.5,
    }
    events = decode_chunks(chunk({"content": "x"}, "stop"), {**chunk(), "choices": [], "usage": usage})
    reported = fold(events).usage
    assert reported is not None
    assert (reported.cached, reported.reasoning) == (2, 1)
    chunks = [c for c in encode(events).split(b"\n\n") if b'"usage"' in c]
    assert json.loads(chunks[0][6:])["usage"] == usage


def test_the_run_starts_with_the_first_fact_and_the_first_id() -> None:
    empty = {"id": "", "model": "", "object": "", "choices": [], "prompt_filter_results": [{"x": 1}]}
    events = decode_chunks(empty, chunk({"role": "assistant", "content": ""}), {**chunk({"content": "x"}), "id": "c2"})
    head = events[0]
    assert isinstance(head, RunStarted)
    assert (head.model, head.created_at) == ("m", 5.0)
    assert head.extras == {"openai-chat": {"id": "c1", "prompt_filter_results": [{"x": 1}]}}


def test_a_role_alone_is_no_content() -> None:
    """Until content came a failed try may be repeated elsewhere."""
    decoder = dialect.decoder(back())
    assert decoder.feed([json.dumps(chunk({"role": "assistant", "content": ""})).encode()]) == []


@pytest.mark.parametrize(
    "noise",
    [
        b"",
        b"  ",
        b"{}",
        b'{"type":"ping"}',
        b"null",
        b"[]",
        b"7",
        b'"x"',
        b'{"choices":null}',
        b'{"choices":[null,3]}',
        b'{"choices":[{"index":0,"content_filter_offsets":{}}],"object":""}',
    ],
)
def test_noise_means_nothing(noise: bytes) -> None:
    got = fold(decode_chunks(chunk({"content": "a"}), noise, chunk({"content": "b"}), noise))
    assert (got.text, got.failure) == ("ab", None)


def test_unknown_fields_become_raw() -> None:
    events = decode_chunks(
        {**chunk({"content": "x", "reasoning_details": [{"text": "t"}]}), "provider": "P"},
        {**chunk({"content": "y"}), "provider": "P", "citations": ["u"]},
        chunk({"mood": "fine"}),
    )
    assert [e.value for e in events if isinstance(e, Raw)] == [
        {"index": 0, "delta": {"reasoning_details": [{"text": "t"}]}},
        {"chunk": {"citations": ["u"]}},
        {"index": 0, "delta": {"mood": "fine"}},
    ]
    assert (events[0].extras or {})["openai-chat"]["provider"] == "P"


def test_fields_beside_the_delta_travel_with_the_text_or_alone() -> None:
    odd, last = chunk({"content": "x"}), chunk({}, "stop")
    odd["choices"][0]["logprobs"] = {"content": [{"token": "x"}]}
    last["choices"][0]["stop_reason"] = 7
    events = decode_chunks(odd, last)
    texts = [e.extras for e in events if isinstance(e, TextDelta)]
    assert texts == [{"shared": {"logprobs": {"content": [{"token": "x"}]}}}]
    assert [e.value for e in events if isinstance(e, Raw)] == [{"index": 0, "choice": {"stop_reason": 7}}]


def test_unknown_fields_of_a_choice_pass_unless_they_are_empty() -> None:
    said = chunk({}, "stop")
    said["choices"][0].update(a=0, b=False, c=None, d="", e=[], f={})
    events = decode_chunks(chunk({"content": "x"}), said)
    assert [e.value for e in events if isinstance(e, Raw)] == [{"index": 0, "choice": {"a": 0, "b": False}}]


# ------------------------------------------------------------------ ragged and broken


def test_halves_of_a_surrogate_pair_are_joined() -> None:
    first = b'{"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}'
    second = b'{"choices":[{"index":0,"delta":{"content":"\\ude00b"}}]}'
    assert fold(decode_chunks(first, second)).text == "a\U0001f600b"
    assert fold(decode_chunks(first)).text == "a\ufffd"
    odd = b'{"id":"\\ud83d","choices":[{"index":0,"delta":{"x":["\\ud83d"],"content":"c"}}]}'
    assert b"\xef\xbf\xbd" in encode(decode_chunks(odd))


def test_halves_in_arguments_are_joined() -> None:
    start = call(index=0, id="a", function=function("f", '{"x":"'))
    first = b'{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\\ud83d"}}]}}]}'
    second = b'{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\\ude00\\"}"}}]}}]}'
    assert fold(decode_chunks(start, first, second)).calls[0].arguments == '{"x":"\U0001f600"}'


@pytest.mark.parametrize(
    "broken",
    [
        b'{"choices":[',
        b"<html>",
        b"\xff\xfe",
        b'{"choices":NaN}',
        b"[" * 100_000,
        b'{"choices":' + b"[" * 600 + b"]" * 600 + b"}",
    ],
)
def test_broken_json_fails_the_run_after_what_came(broken: bytes) -> None:
    got = fold(decode_chunks(chunk({"content": "x"}), broken, chunk({"content": "y"})))
    assert got.failure is not None
    assert got.failure.code is ErrorCode.BACKEND_PROTOCOL
    assert got.text == "x"


# ------------------------------------------------------------------ errors in the stream


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        ({"error": {"message": "boom", "code": 429}}, ErrorCode.RATE_LIMITED, "boom"),
        ({"error": "boom"}, ErrorCode.BACKEND_ERROR, "boom"),
        ({"object": "error", "message": "boom", "code": 400}, ErrorCode.INVALID_REQUEST, "boom"),
        ({"detail": "boom"}, ErrorCode.BACKEND_ERROR, "boom"),
        ({"code": "x", "message": "boom"}, ErrorCode.BACKEND_ERROR, "boom"),
        ({"error": {"message": "too long", "code": "context_length_exceeded"}}, ErrorCode.CONTEXT_LENGTH, "too long"),
        ({"error": {"message": "key sk-abcdefgh is bad", "code": 401}}, ErrorCode.BACKEND_AUTH, "credentials"),
        ({"error": {"code": [1], "type": {}, "message": 5}}, ErrorCode.BACKEND_ERROR, "without a message"),
    ],
)
def test_errors_in_the_stream(error: dict[str, Any], code: ErrorCode, text: str) -> None:
    got = read(chunk({"content": "x"}), error, chunk({"content": "y"}))
    assert got.failure is not None
    assert (got.failure.code, got.text) == (code, "x")
    assert text in got.failure.message
    assert "sk-" not in got.failure.message


def test_an_error_event() -> None:
    decoder = dialect.decoder(back())
    events = decoder.feed([Frame(b'{"message":"boom","status":503}', "error")])
    failure = fold(events).failure
    assert failure is not None
    assert (failure.code, failure.message, failure.status) == (ErrorCode.OVERLOADED, "boom", 503)


@pytest.mark.parametrize("data", [b"boom", b'"boom"', b'[{"error":{"message":"boom"}}]', b'{"message":"boom\\ud83d"}'])
def test_an_error_event_of_any_shape(data: bytes) -> None:
    """An end mark after it must not turn it into a success."""
    failure = fold(dialect.decoder(back()).feed([Frame(data, "error"), b"[DONE]"])).failure
    assert failure is not None
    assert failure.message.startswith("boom")


def test_an_error_in_a_list() -> None:
    failure = read([{"error": {"message": "boom", "code": 429}}]).failure
    assert failure is not None
    assert (failure.code, failure.message) == (ErrorCode.RATE_LIMITED, "boom")


def test_finish_error_without_words_fails() -> None:
    got = read(chunk({"content": "x"}), chunk(finish="error"))
    assert got.failure is not None
    assert got.text == "x"
    beside = chunk(finish="error")
    beside["choices"][0]["error"] = {"message": "in the choice", "code": 502}
    failure = read(beside).failure
    assert failure is not None
    assert failure.message == "in the choice"


# ------------------------------------------------------------------ chunks that repeat


def test_a_repeated_chunk_is_read_by_its_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = dialect.decoder(back())
    decoder.feed([json.dumps(chunk({"content": "a"})).encode()] * 2)
    monkeypatch.setattr(type(decoder), "read", None)
    events = decoder.feed([json.dumps(chunk({"content": text})).encode() for text in ("b", "\u00e9\\", '"')])
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["b", "\u00e9\\", '"']


@pytest.mark.parametrize(
    "middle",
    [b'"b","role":"x"', b'"b"},"delta":{"content":"c"', b"null", b'""', b"7", b'"\\ud83d"', b'"', b"", b'["b"]'],
)
def test_what_only_looks_like_a_repeated_chunk_is_read_in_full(middle: bytes) -> None:
    first = b'{"choices":[{"index":0,"delta":{"content":"a"}}]}'
    odd = first.replace(b'"a"', middle)
    alone = fold(decode_chunks(odd))
    assert fold(decode_chunks(first, first, odd)).text == "aa" + alone.text


def test_another_content_is_not_taken_for_the_text() -> None:
    one = b'{"choices":[{"index":0,"x":{"content":"s"},"delta":{"content":"a"}}],"model":"\\"content\\":\\"z\\""}'
    twice = b'{"choices":[{"index":0,"delta":{"content":"s","content":"a"}}]}'
    for data in (one, twice):
        assert fold(decode_chunks(data, data, data, data.replace(b'"s"', b'"t"'))).text == "aaaa"


def test_what_stands_beside_a_repeated_text_is_not_overlooked() -> None:
    """The same bytes mean something else when another chunk came in between."""

    def told(text: str | None, **top: Any) -> dict[str, Any]:
        return {**chunk({"content": text} if text else {}), **top}

    usages = [{"prompt_tokens": n, "completion_tokens": 1} for n in (1, 2)]
    found = read(told("."), told("a", usage=usages[0]), told(None, usage=usages[1]), told("b", usage=usages[0])).usage
    assert found is not None
    assert found.input == 1
    events = decode_chunks(told("."), told("a"), *[told(t, citations=[n]) for t, n in (("b", 1), (None, 2), ("c", 1))])
    assert [e.value["chunk"]["citations"] for e in events if isinstance(e, Raw)] == [[1], [2], [1]]
    odds = [told("."), told(None), told("a"), told("b")]
    for odd in odds[1:]:
        odd["choices"][0]["logprobs"] = {"content": [1]}
    assert sum(bool(e.extras) for e in decode_chunks(*odds)[1:] if isinstance(e, TextDelta)) == 2


def test_repeats_without_a_usable_index_or_beside_junk() -> None:
    odd = chunk({"content": "a"}, index=-1)
    junk = chunk({"content": "b"})
    junk["choices"].insert(0, 5)
    ends = chunk({"content": "c"}, "stop")
    assert read(odd, odd, junk, junk, ends, ends).text == "aabbcc"
    assert dialect.decoder(back()).feed([b'\n"x"\n']) == []


def test_repeats_of_two_choices() -> None:
    chunks = [chunk({"content": f"{n}"}, index=n % 2) for n in range(8)]
    got = read(*chunks, chunk({"content": "x"}), chunk({"content": "y"}))
    assert ["".join(p.text for p in got.parts(c) if isinstance(p, Text)) for c in (0, 1)] == ["0246xy", "1357"]


def test_random_padding_and_reasoning_are_read_by_their_text_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenAI pads each chunk unless it is told not to."""

    def told(delta: dict[str, Any], padding: str) -> bytes:
        return json.dumps({**chunk(delta), "obfuscation": padding}).encode()

    for field in ("content", "reasoning_content", "reasoning"):
        decoder = dialect.decoder(back())
        decoder.feed([told({field: "a"}, "xyz")] * 2)
        with monkeypatch.context() as unread:
            unread.setattr(type(decoder), "read", None)
            events = decoder.feed([told({field: "b"}, "Q"), told({field: "c"}, "")])
        assert [e.text for e in events if isinstance(e, TextDelta | ReasoningDelta)] == ["b", "c"]


def test_a_choice_that_says_message_for_delta_repeats_as_well() -> None:
    whole = json.dumps({"choices": [{"index": 0, "message": {"content": "a"}}]}).encode()
    assert fold(decode_chunks(*[whole] * 4)).text == "aaaa"
