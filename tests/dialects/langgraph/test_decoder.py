"""What the decoder makes of the forms that servers, models and versions have, beside those that were recorded."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.contract import Support
from bridge.dialects.langgraph import dialect
from bridge.dialects.langgraph.options import BackOptions
from bridge.errors import ErrorCode
from bridge.model import (
    Answer,
    Custom,
    Data,
    FileRef,
    FinishReason,
    Inline,
    Media,
    MediaKind,
    Reasoning,
    Refusal,
    StateChanged,
    StepEnded,
    StepStarted,
    Text,
    Url,
    fold,
    result_text,
    verify,
)
from bridge.model.jsontext import dumps
from bridge.testing.wires import context, decode
from bridge.testing.witnesses import ANSWERS
from bridge.translation.framing.sse import Splitter
from tests.dialects.langgraph.service import event
from tests.recorded import answers

INPUT: dict[str, Any] = {"messages": [{"type": "human", "id": "u", "content": "Hi"}]}
END = ("end", None)


def heard(*pairs: tuple[str, Any], ends: bool = True, **options: Any) -> Answer:
    """The answer of a stream with these events behind the first values, and an end mark."""
    data = b"".join(event(name, value) for name, value in (("values", INPUT), *pairs, *([END] if ends else [])))
    decoder = dialect.decoder(context(BackOptions(**options)))
    return fold(verify([*decoder.feed(Splitter().feed(data)), *decoder.close()]))


def piece(content: Any = "", message_id: str = "m", node: str = "agent", **more: Any) -> tuple[str, Any]:
    message = {"type": "AIMessageChunk", "id": message_id, "content": content, "tool_call_chunks": [], **more}
    return "messages", [message, {"langgraph_node": node}]


def ai(content: Any, message_id: str = "m", **more: Any) -> dict[str, Any]:
    return {"type": "ai", "id": message_id, "content": content, **more}


def tool(call_id: str, content: Any, **more: Any) -> tuple[str, Any]:
    return "messages", [{"type": "tool", "id": f"t-{call_id}", "tool_call_id": call_id, "content": content, **more}, {}]


def call_piece(args: str, name: str | None = None, call_id: str | None = None, index: Any = 0) -> tuple[str, Any]:
    return piece(tool_call_chunks=[{"name": name, "args": args, "id": call_id, "index": index}])


def values(*messages: dict[str, Any], **state: Any) -> tuple[str, Any]:
    return "values", {"messages": [*INPUT["messages"], *messages], **state}


def test_what_the_card_has_as_exact_is_read() -> None:
    folded = [fold(decode(dialect, [wire])) for wire in answers("langgraph").values()]
    folded += [
        heard(piece("", additional_kwargs={"refusal": "No."})),
        heard(piece([{"type": "redacted_thinking", "data": "xx"}])),
        heard(*(piece([{"type": kind, "base64": "AAAA", "mime_type": mime}]) for kind, mime in MEDIA.items())),
        heard(piece("x", response_metadata={"finish_reason": "content_filter"})),
        heard(piece("x"), ("odd", {})),
        heard(piece("x"), steps=True),
        heard(("error", {"error": "UserInterrupt", "message": "stopped"})),
        heard(("messages", [ai("x"), {"ls_model_name": "gpt"}])),
    ]
    exact = {f for f in ANSWERS if dialect.capabilities.answer(f) is Support.EXACT}
    assert {f for f in exact if any(ANSWERS[f].read(answer) for answer in folded)} == exact


MEDIA = {"image": "image/png", "audio": "audio/wav", "video": "video/mp4", "file": "application/pdf"}


# ------------------------------------------------------------------ messages


def test_a_message_is_told_once_wherever_it_stands() -> None:
    whole = ai("Hello")
    answer = heard(
        piece("Hel"), piece("lo"), ("messages", [whole, {}]), ("updates", {"agent": {"messages": [whole]}}),
        values(whole), values(whole, count=1),
    )  # fmt: skip
    assert [message.parts for message in answer.messages] == [[Text("Hello")]]


def test_a_message_of_an_earlier_run_is_not_told_again() -> None:
    before = ai("Before", "old")
    data = event("values", {"messages": [before, *INPUT["messages"]]}) + event("messages", [before, {}])
    data += event("values", {"messages": [before, *INPUT["messages"], ai("Now", "new")]}) + event(*END)
    assert fold(verify(decode(dialect, [data]))).text == "Now"


def test_a_message_that_stands_in_the_values_alone_is_told() -> None:
    result = {"type": "tool", "id": "t", "tool_call_id": "c", "content": "21", "status": "success"}
    called = ai("", "m1", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c"}])
    answer = heard(values(called, result, ai("Done", "m2")))
    assert answer.text == "Done"
    assert [(c.call_id, c.name, c.arguments) for c in answer.calls] == [("c", "f", '{"a":1}')]
    assert [(r.call_id, result_text(r.parts)) for r in answer.results] == [("c", "21")]


def test_messages_without_ids_are_told_once_from_the_values() -> None:
    nameless = {"type": "ai", "content": "Hello"}
    answer = heard(("messages", [nameless, {}]), values(nameless), values(nameless, count=1))
    assert answer.text == "Hello"
    assert not answer.messages[0].id or not answer.messages[0].id.startswith("#")


@pytest.mark.parametrize("shown", ["messages", "values"])
def test_what_a_graph_puts_into_its_state_as_another_message_is_told_once(shown: str) -> None:
    copy, calls = ai("Hello", "copy"), [{"name": "look", "args": {"a": 1}, "id": "c1"}]
    again = [("messages", [copy, {}])] if shown == "messages" else []
    update = ("updates", {"a": {"messages": [copy]}})
    assert heard(piece("Hel"), piece("lo"), *again, update, values(copy)).text == "Hello"
    called = ai("", "copy", tool_calls=calls)
    again = [("messages", [called, {}])] if shown == "messages" else []
    answer = heard(call_piece('{"a": 1}', "look", "c1"), *again, values(called))
    assert [(call.call_id, call.arguments) for call in answer.calls] == [("c1", '{"a": 1}')]
    other = ai("Hello", "other")
    whole = heard(piece("Hello"), values(ai("Hello")), ("messages", [other, {}]), values(ai("Hello"), other))
    assert whole.text == "HelloHello", "the first one is in the state: the second one is another"


def test_two_nodes_at_once_are_two_messages() -> None:
    answer = heard(piece("A1 ", "a"), piece("B1 ", "b"), piece("A2", "a"), piece("B2", "b"))
    assert [message.parts for message in answer.messages] == [[Text("A1 A2")], [Text("B1 B2")]]


def test_messages_of_people_and_removed_ones_are_not_part_of_the_answer() -> None:
    others = [{"type": kind, "id": kind, "content": "no"} for kind in ("human", "system", "remove", "function")]
    answer = heard(*(("messages", [each, {}]) for each in others), values(*others), piece("yes"))
    assert answer.text == "yes"


def test_a_message_of_a_subgraph_is_told_once() -> None:
    name, data = piece("Hello")
    answer = heard((f"{name}|sub:1|inner:2", data), ("values|sub:1", {"messages": [ai("Hello")]}), values(ai("Hello")))
    assert answer.text == "Hello"


def test_the_state_of_a_subgraph_is_not_that_of_the_run() -> None:
    answer = heard(("values|sub:1", {"messages": [], "inner": 1}), values(outer=1))
    assert [e.value for e in answer.events if isinstance(e, StateChanged)] == [{"outer": 1}]


@pytest.mark.parametrize("kind", ["AIMessageChunk", "ai"])
def test_a_piece_is_told_by_its_type_or_by_its_pieces_of_calls(kind: str) -> None:
    answer = heard(piece("Hel", type=kind), piece("lo", type=kind), values(ai("Hello")))
    assert answer.text == "Hello"


def test_content_may_be_null_or_of_any_type() -> None:
    strange: list[Any] = [None, 7, {}, [None, 7, {"type": 7}, {"type": "text", "text": None}]]
    assert heard(*map(piece, strange), piece("Hi")).text == "Hi"


def test_the_old_form_of_messages_is_read() -> None:
    answer = heard(
        ("messages/metadata", {"m": {}}), ("messages/partial", [ai("Hel")]), ("messages/partial", [ai("Hello")]),
        ("messages/complete", [ai("Hello")]),
    )  # fmt: skip
    assert answer.text == "Hello"


def test_an_option_limits_the_answer_to_nodes() -> None:
    call = {"name": "route", "args": "{}", "id": "c", "index": 0}
    hidden = [piece("judge", "j", "judge", tool_call_chunks=[call]), tool("c", "x")]
    answer = heard(*hidden, piece("yes"), values(ai("judge", "j"), ai("unseen", "k"), ai("yes")), nodes=["agent"])
    assert (answer.text, answer.calls, answer.results) == ("yes", [], [])
    assert answer.reason is FinishReason.STOP


# ------------------------------------------------------------------ content


def _thought(word: str) -> list[tuple[str, Any]]:
    """A piece of reasoning, in each form."""
    blocks = [
        {"type": "thinking", "thinking": word, "index": 0},
        {"type": "reasoning", "reasoning": word, "index": 0},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": word}], "index": 0},
    ]
    return [*(piece([block]) for block in blocks), piece("", additional_kwargs={"reasoning_content": word})]


@pytest.mark.parametrize("pieces", list(zip(_thought("Let me "), _thought("see."), strict=True)))
def test_reasoning_has_four_forms(pieces: tuple[tuple[str, Any], ...]) -> None:
    answer = heard(*pieces, piece([{"type": "text", "text": "Yes.", "index": 1}]))
    assert answer.messages[0].parts == [Reasoning("Let me see."), Text("Yes.")]


def test_signatures_and_hidden_reasoning_are_kept() -> None:
    answer = heard(
        piece([{"type": "thinking", "thinking": "Hm.", "index": 0}]),
        piece([{"type": "thinking", "signature": "sig", "index": 0}]),
        piece([{"type": "redacted_thinking", "data": "xyz", "index": 1}]),
    )
    assert answer.messages[0].parts == [Reasoning("Hm.", "sig"), Reasoning("", redacted="xyz")]


def test_refusals_are_no_text() -> None:
    answer = heard(piece("", additional_kwargs={"refusal": "I will "}), piece([{"type": "refusal", "refusal": "not."}]))
    assert answer.messages[0].parts == [Refusal("I will not.")]


PNG, WAV = "https://x.example/a.png", "https://x.example/a.wav"
BLOCKS: list[tuple[dict[str, Any], MediaKind, Any]] = [
    ({"type": "image_url", "image_url": {"url": PNG}}, MediaKind.IMAGE, Url(PNG)),
    ({"type": "image_url", "image_url": "data:image/png;base64,iVBO"}, MediaKind.IMAGE, Inline("iVBO")),
    ({"type": "image", "base64": "iVBO", "mime_type": "image/png"}, MediaKind.IMAGE, Inline("iVBO")),
    ({"type": "image", "source_type": "base64", "data": "iVBO"}, MediaKind.IMAGE, Inline("iVBO")),
    ({"type": "image", "source": {"type": "base64", "data": "iVBO"}}, MediaKind.IMAGE, Inline("iVBO")),
    ({"type": "audio", "url": WAV}, MediaKind.AUDIO, Url(WAV)),
    ({"type": "file", "file_id": "file-1"}, MediaKind.FILE, FileRef("file-1")),
    ({"type": "file", "source_type": "id", "id": "file-1"}, MediaKind.FILE, FileRef("file-1")),
    ({"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBE"}}, MediaKind.FILE, Inline("JVBE")),
    ({"type": "media", "mime_type": "video/mp4", "data": "AAAA"}, MediaKind.VIDEO, Inline("AAAA")),
    ({"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}}, MediaKind.AUDIO, Inline("UklG")),
]


@pytest.mark.parametrize(("block", "kind", "source"), BLOCKS)
def test_media_have_the_forms_of_many_providers(block: dict[str, Any], kind: MediaKind, source: Any) -> None:
    (part,) = heard(piece([block])).media
    assert isinstance(part, Media)
    assert (part.kind, part.source) == (kind, source)


def test_text_in_blocks_with_other_indexes_is_another_part() -> None:
    blocks = [{"type": "text", "text": text, "index": n} for n, text in ((0, "a"), (0, "b"), (1, "c"))]
    assert heard(*(piece([block]) for block in blocks)).messages[0].parts == [Text("ab"), Text("c")]


# ------------------------------------------------------------------ tools


def test_arguments_come_in_pieces_of_which_only_the_first_has_a_name() -> None:
    guesses = {"tool_calls": [{"name": "", "args": {}, "id": None}], "invalid_tool_calls": [{"args": '"x"}'}]}
    first = piece(tool_call_chunks=[{"name": "f", "args": "", "id": "c", "index": 0}], **guesses)
    answer = heard(first, call_piece('{"a": '), call_piece('"x"}'))
    assert [(c.call_id, c.name, c.arguments) for c in answer.calls] == [("c", "f", '{"a": "x"}')]
    assert answer.reason is FinishReason.TOOL_CALLS


def test_calls_beside_each_other_are_told_apart_by_their_index() -> None:
    answer = heard(
        call_piece('{"a":', "f", "c1", 0), call_piece("1}", index=0),
        call_piece('{"b":', "g", "c2", 1), call_piece("2}", index=1),
    )  # fmt: skip
    assert [(c.call_id, c.arguments) for c in answer.calls] == [("c1", '{"a":1}'), ("c2", '{"b":2}')]


def test_a_call_in_no_piece_is_that_of_the_finished_message() -> None:
    finished = ai("Look", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c"}])
    answer = heard(piece("Look"), piece(chunk_position="last"), ("updates", {"agent": {"messages": finished}}))
    assert [(c.call_id, c.arguments) for c in answer.calls] == [("c", '{"a":1}')]
    assert len(answer.messages) == 1


def test_a_call_that_is_no_json_has_the_text_of_the_model() -> None:
    finished = ai("", invalid_tool_calls=[{"name": "f", "args": '{"a": ', "id": "c", "error": "cut"}])
    assert [(c.call_id, c.arguments) for c in heard(values(finished)).calls] == [("c", '{"a": ')]


def test_the_result_of_a_tool_may_have_blocks_and_be_an_error() -> None:
    blocks = ["It is ", {"type": "text", "text": "21"}, {"type": "image", "base64": "iVBO"}, {"type": "odd", "x": 1}]
    answer = heard(call_piece("{}", "f", "c"), tool("c", blocks, status="error", name="f", artifact={"raw": 1}))
    (result,) = answer.results
    assert [type(part) for part in result.parts] == [Text, Text, Media, Data]
    assert (result.name, result.is_error, result.extras) == ("f", True, {"langgraph": {"artifact": {"raw": 1}}})
    assert answer.reason is FinishReason.STOP


# ------------------------------------------------------------------ facts


def usage(given: int, made: int) -> dict[str, Any]:
    return {"input_tokens": given, "output_tokens": made, "total_tokens": given + made}


def test_usage_is_that_of_all_messages_each_once() -> None:
    one = ai("a", "m1", usage_metadata=usage(10, 1))
    answer = heard(
        piece("a", "m1", usage_metadata=usage(10, 0)), piece("", "m1", usage_metadata=usage(0, 1)),
        ("updates", {"agent": {"messages": [one]}}), values(one),
        values(one, ai("b", "m2", usage_metadata={**usage(20, 2), "input_token_details": {"cache_read": 5}})),
    )  # fmt: skip
    assert answer.usage is not None
    assert (answer.usage.input, answer.usage.output, answer.usage.total) == (30, 3, 33)
    assert (answer.usage.cached, answer.usage.reasoning) == (5, None)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"finish_reason": "length"}, FinishReason.LENGTH),
        ({"stop_reason": "max_tokens"}, FinishReason.LENGTH),
        ({"done_reason": "length"}, FinishReason.LENGTH),
        ({"finish_reason": "content_filter"}, FinishReason.CONTENT_FILTER),
        ({"finish_reason": "SAFETY"}, FinishReason.CONTENT_FILTER),
        ({"finish_reason": "stop"}, FinishReason.STOP),
        ({"finish_reason": "tool_calls"}, FinishReason.STOP),
        ({"finish_reason": 7}, FinishReason.STOP),
        (None, FinishReason.STOP),
    ],
)
def test_the_last_message_says_how_the_answer_ended(facts: Any, reason: FinishReason) -> None:
    assert heard(piece("x", response_metadata=facts)).reason is reason
    last = piece("y", "m2", response_metadata={"finish_reason": "stop"})
    assert heard(piece("x", response_metadata=facts), last).reason is FinishReason.STOP


def test_the_model_is_named_before_anything_else() -> None:
    answer = heard(("messages", [ai("x"), {"ls_model_name": "gpt-5"}]))
    assert answer.model == "gpt-5"


def test_the_state_is_told_when_it_has_changed_and_has_no_messages() -> None:
    answer = heard(values(ai("a"), n=1), values(ai("a"), n=1), values(ai("a"), n=2), values(n=2))
    assert [e.value for e in answer.events if isinstance(e, StateChanged)] == [{"n": 1}, {"n": 2}]


def test_custom_events_are_any_json() -> None:
    answer = heard(*(("custom", each) for each in ({"a": 1}, "text", [1], 7, None, {"name": "n", "value": 1})))
    told = [(e.name, e.value) for e in answer.events if isinstance(e, Custom)]
    assert told[:-1] == [("langgraph", each) for each in ({"a": 1}, "text", [1], 7, None)]
    assert told[-1] == ("n", 1)


def test_nodes_are_steps_by_an_option() -> None:
    pairs = [piece("x"), ("updates", {"agent": None}), ("updates", {"tools": {}}), piece("y", "m2", "last")]
    steps = [(type(e), e.name) for e in heard(*pairs, steps=True).events if isinstance(e, (StepStarted, StepEnded))]
    assert steps == [(kind, node) for node in ("agent", "tools", "last") for kind in (StepStarted, StepEnded)]
    assert not [e for e in heard(*pairs).events if isinstance(e, (StepStarted, StepEnded))]


def test_events_that_nobody_asked_for_are_left_out() -> None:
    names = ("checkpoints", "tasks", "debug", "events", "messages/metadata")
    assert heard(piece("x"), *((name, {"id": 1}) for name in names)).events == []


# ------------------------------------------------------------------ questions


def test_a_question_is_asked_once_though_updates_and_values_have_it() -> None:
    question = {"id": "i1", "value": {"question": "Name?"}, "response_schema": None}
    answer = heard(("updates", {"__interrupt__": [question]}), ("values", {"__interrupt__": [question]}))
    (asked,) = answer.interrupts
    assert (asked.interrupt_id, asked.reason, asked.payload) == ("i1", "input_required", {"question": "Name?"})
    assert answer.reason is FinishReason.INTERRUPTED


@pytest.mark.parametrize("asked", [[{"id": "i", "value": "Name?"}], []], ids=["a question", "a breakpoint"])
def test_a_run_without_a_thread_may_end_with_a_question(asked: list[Any]) -> None:
    assert heard(("updates", {"__interrupt__": asked}), ends=False).reason is FinishReason.INTERRUPTED


def test_questions_of_two_tasks_come_one_by_one() -> None:
    pairs = [("updates", {"__interrupt__": [{"id": f"i{n}", "value": f"{n}?"}]}) for n in (1, 2)]
    assert [i.interrupt_id for i in heard(*pairs).interrupts] == ["i1", "i2"]


def test_old_servers_ask_without_ids() -> None:
    question = {"value": "Name?", "resumable": True, "ns": ["agent:1"], "when": "during"}
    (asked,) = heard(("updates", {"__interrupt__": [question]}), values(__interrupt__=[question])).interrupts
    assert asked.interrupt_id.startswith("unnamed-interrupt")
    assert asked.payload == "Name?"


@pytest.mark.parametrize(
    "question",
    [
        {"action_requests": [{"name": "f", "args": {}}], "review_configs": []},
        [{"action_request": {"action": "f", "args": {}}, "config": {}, "description": "?"}],
    ],
)
def test_an_approval_names_the_call_that_waits(question: Any) -> None:
    asked = ("updates", {"__interrupt__": [{"id": "i", "value": question}]})
    (found,) = heard(call_piece("{}", "f", "c"), asked).interrupts
    assert (found.reason, found.call_id, found.payload) == ("tool_call", "c", question)
    (found,) = heard(asked).interrupts
    assert (found.reason, found.call_id) == ("tool_call", None)


def test_a_question_of_a_subgraph_is_one_of_the_run() -> None:
    assert heard(("updates|sub:1", {"__interrupt__": [{"id": "i", "value": "?"}]})).interrupts


# ------------------------------------------------------------------ ends and errors


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"error": "ValueError", "message": "it broke"}, "it broke"),
        ({"error": "GraphRecursionError", "message": "Recursion limit"}, "Recursion limit"),
        ("it broke", "it broke"),
        ({"error": "ValueError"}, ""),
        (None, ""),
        ([], ""),
    ],
)
def test_an_event_of_an_error_fails_the_run(data: Any, words: str) -> None:
    answer = heard(piece("half"), ("error", data), ends=False)
    assert answer.failure is not None
    assert answer.failure.code is ErrorCode.BACKEND_ERROR
    assert words in answer.failure.message
    assert answer.text == "half"


def test_the_error_of_a_model_inside_the_agent_is_understood() -> None:
    text = "Error code: 429 - {'error': {'message': 'Slow down.', 'code': 'rate_limit_exceeded'}}"
    answer = heard(("error", {"error": "RateLimitError", "message": text}), ends=False)
    assert answer.failure is not None
    assert answer.failure.code is ErrorCode.RATE_LIMITED


def test_keys_in_the_words_of_an_error_are_hidden() -> None:
    answer = heard(("error", {"error": "E", "message": "with sk-secret-12345678"}), ends=False)
    assert answer.failure is not None
    assert "secret" not in answer.failure.message


@pytest.mark.parametrize(
    ("mark", "code"),
    [
        ({"status": "interrupted"}, ErrorCode.CANCELED),
        ({"status": "error"}, ErrorCode.BACKEND_ERROR),
        ({"status": "odd"}, ErrorCode.BACKEND_ERROR),
    ],
)
def test_an_end_mark_that_says_no_success_is_none(mark: Any, code: ErrorCode) -> None:
    answer = heard(piece("x"), ("end", mark), ends=False)
    assert answer.failure is not None
    assert answer.failure.code is code


def test_data_that_are_no_json_fail_the_run() -> None:
    data = event("values", INPUT) + b"event: messages\ndata: {oops\n\n"
    answer = fold(verify(decode(dialect, [data])))
    assert answer.failure is not None
    assert answer.failure.code is ErrorCode.BACKEND_PROTOCOL


def test_comments_empty_data_and_line_separators_are_no_events() -> None:
    text = "a\u2028b"
    data = event("values", INPUT) + b": heartbeat\r\n\r\nevent: messages\ndata:\n\n"
    data += b"event: messages\r\ndata: " + dumps(piece(text)[1]) + b"\r\n\r\n: heartbeat\n\n" + event(*END)
    assert fold(verify(decode(dialect, [data]))).text == text


def test_a_stream_of_another_dialect_is_no_answer() -> None:
    answer = fold(verify(decode(dialect, [b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n'])))
    assert answer.failure is not None
    assert answer.failure.code is ErrorCode.BACKEND_PROTOCOL


def test_values_of_any_type_are_read_without_an_exception() -> None:
    strange: list[Any] = [
        None,
        7,
        "x",
        [],
        {},
        [[]],
        [7],
        {"messages": 7},
        {"messages": [7]},
        {"__interrupt__": [7, {}]},
    ]
    names = ("metadata", "values", "updates", "messages", "messages/partial", "messages/complete", "custom", "tasks")
    for name in names:
        for value in strange:
            assert heard((name, value), piece("x")).failure is None, (name, value)
