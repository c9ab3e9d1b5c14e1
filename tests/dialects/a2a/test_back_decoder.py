"""What agents say, and how often they say it: odd streams of real servers, and broken ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import Context, WireResponse
from bridge.dialects.a2a import dialect
from bridge.dialects.a2a.options import BackOptions
from bridge.model import Answer, Data, Event, Raw, Resume, fold, verify

from .back import IDS, artifact, asking, rpc, status, task

USAGE = {"promptTokenCount": 11.0, "candidatesTokenCount": 4.0, "totalTokenCount": 15.0}


def events_of(*said: Any, resume: list[Resume] | None = None, **options: Any) -> list[Event]:
    request = asking("hi", resume=resume)
    decoder = dialect.decoder(Context("run", None, 1.0, BackOptions(**options), request=request))
    events = [e for each in said for e in decoder.feed([each if isinstance(each, bytes) else rpc(each)])]
    return verify(events + decoder.close())


def read(*said: Any, **more: Any) -> Answer:
    return fold(events_of(*said, **more))


def adk(text: str, event: str = "e1") -> dict[str, Any]:
    return status("WORKING", text, metadata={"adk_event_id": event, "adk_usage_metadata": USAGE})


def parts(*values: Any, name: str = "a", **more: Any) -> dict[str, Any]:
    return {"artifactUpdate": {**IDS, "artifact": {"artifactId": name, "parts": list(values)}, **more}}


DONE = status("COMPLETED")


# ------------------------------------------------------------------ what is said twice


def test_an_artifact_that_comes_again_as_a_whole_is_said_once() -> None:
    chunks = [artifact("Hello", append=True), artifact(", world", append=True)]
    assert read(task("WORKING"), *chunks, artifact("Hello, world", lastChunk=True), DONE).text == "Hello, world"
    # One that grew says what is new.
    assert read(artifact("Hel"), artifact("Hello"), artifact("Hello, you"), DONE).text == "Hello, you"


def test_what_an_artifact_has_more_when_it_comes_again_is_told_once() -> None:
    values: list[Any] = [{"data": {"n": n}} for n in (1, 2)]
    artifacts = [{"artifactId": "a", "parts": values[:count]} for count in (1, 2, 2)]
    answer = read(*({"artifactUpdate": {**IDS, "artifact": each}} for each in artifacts), DONE)
    assert [part.value for part in answer.parts() if isinstance(part, Data)] == [{"n": 1}, {"n": 2}]


def test_a_message_that_comes_again_as_a_whole_is_said_once() -> None:
    pieces = [
        {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": text}]}}
        for text in ("Hel", "lo", "Hello")
    ]
    assert read(*pieces).text == "Hello"


def test_events_of_another_task_are_no_part_of_the_answer() -> None:
    other = {"taskId": "t2", "contextId": "c1"}
    strange: list[dict[str, Any]] = [
        {"artifactUpdate": {**artifact("No.", "b")["artifactUpdate"], **other}},
        {"statusUpdate": {**status("FAILED", "No.")["statusUpdate"], **other}},
        {"task": {**task("COMPLETED", "No.")["task"], "id": "t2"}},
        {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "No."}], **other}},
    ]
    events = events_of(task("WORKING"), artifact("Yes"), *strange, artifact(".", append=True), DONE)
    assert fold(events).text == "Yes."
    assert [event.value for event in events if isinstance(event, Raw)] == strange


def test_a_replaced_artifact_stands_and_the_other_text_is_kept_beside_it() -> None:
    events = events_of(artifact("Draft."), artifact("Final."), DONE)
    assert fold(events).text == "Draft."
    replaced = {"artifactId": "a", "parts": [{"text": "Final."}]}
    assert [(e.label, e.value["artifact"]) for e in events if isinstance(e, Raw)] == [
        ("a2a replaced artifact", replaced)
    ]


def test_a_status_whose_text_an_artifact_repeats_is_not_progress() -> None:
    answer = read(task("WORKING"), adk("Hello, world"), artifact("Hello, "), artifact("world", append=True), DONE)
    assert (answer.text, answer.reasoning) == ("Hello, world", "")
    answer = read(task("WORKING"), adk("Let me look."), adk("It is 42.", "e2"), artifact("It is 42."), DONE)
    assert (answer.text, answer.reasoning) == ("It is 42.", "Let me look.")
    # Without an artifact it is the answer.
    assert read(task("WORKING"), adk("It is 42."), DONE).text == "It is 42."


WORDS = [f"word{n} " for n in range(8)]


def test_what_came_piece_by_piece_is_known_when_it_comes_again() -> None:
    pieces = [artifact(word, append=True) for word in WORDS]
    events = events_of(*pieces, artifact("".join(WORDS) + "end"), DONE)
    assert fold(events).text == "".join(WORDS) + "end"
    assert not [e for e in events if isinstance(e, Raw)]


def test_a_status_is_not_progress_if_pieces_of_an_artifact_repeat_it() -> None:
    pieces = [artifact(word, append=True) for word in WORDS]
    answer = read(adk("".join(WORDS)), *pieces, DONE)
    assert (answer.text, answer.reasoning) == ("".join(WORDS), "")
    # Two artifacts do not repeat one status.
    answer = read(adk("abab"), artifact("ab"), artifact("ab", "b"), DONE)
    assert (answer.text, answer.reasoning) == ("abab", "abab")


def test_progress_by_option() -> None:
    said = [status("WORKING", "Looking."), artifact("It is 42."), DONE]
    assert read(*said).reasoning == "Looking."
    assert read(*said, progress="text").text == "Looking.It is 42."
    dropped = read(*said, progress="drop")
    assert (dropped.reasoning, dropped.text) == ("", "It is 42.")


def test_the_message_of_the_end_is_not_said_again() -> None:
    assert read(artifact("It is 42."), status("COMPLETED", "It is 42.")).text == "It is 42."
    assert read(artifact("A"), artifact("B", "b"), status("COMPLETED", "AB")).text == "AB"
    assert read(artifact("It is 42. "), status("COMPLETED", "Bye.")).text == "It is 42. Bye."


def test_calls_and_their_results_are_told_once() -> None:
    call = {"data": {"id": "c1", "name": "weather", "args": {"n": 3.0}}, "metadata": {"adk_type": "function_call"}}
    result = {"data": {"id": "c1", "response": {"temp": 3.0}}, "metadata": {"adk_type": "function_response"}}
    answer = read(parts(call, result), parts(call, result, name="b"), artifact("cold", "c"), DONE)
    assert [(c.call_id, c.name, json.loads(c.arguments)) for c in answer.calls] == [("c1", "weather", {"n": 3})]
    assert len(answer.results) == 1


def test_media_and_data_of_a_repeated_artifact_are_told_once() -> None:
    both = [{"raw": "aGk=", "mediaType": "image/png"}, {"data": {"n": 3.0}}]
    answer = read(parts(*both), parts(*both, lastChunk=True), DONE)
    assert [type(p).__name__ for p in answer.parts()] == ["Media", "Data"]
    # Two that are alike are two, in one artifact and in several.
    alike = read(parts(both[0], both[0]), parts(both[0], append=True), parts(both[0], name="b"), DONE)
    assert len(alike.parts()) == 4


def test_a_second_failure_is_ignored() -> None:
    events = events_of(task("FAILED"), status("FAILED", "again"))
    assert [type(e).__name__ for e in events].count("RunFailed") == 1


# ------------------------------------------------------------------ usage


def test_counts_of_model_calls_are_added_and_repeated_ones_are_not() -> None:
    same = parts({"text": "b"}, metadata={"adk_event_id": "e2", "adk_usage_metadata": USAGE})
    usage = read(adk("a", "e1"), adk("b", "e2"), same, DONE).usage
    assert usage is not None
    assert (usage.input, usage.output, usage.total) == (22, 8, 30)
    counts = {"usage": {"input": 5, "output": 6, "cached": 1, "reasoning": 2}, "adk_usage_metadata": USAGE}
    usage = read(artifact("x"), status("COMPLETED", metadata=counts)).usage
    assert usage is not None
    assert (usage.input, usage.output, usage.cached, usage.reasoning) == (5, 6, 1, 2)


# ------------------------------------------------------------------ thoughts, ends, questions


def test_thoughts_are_reasoning() -> None:
    marked = {"text": "hm", "metadata": {"adk_thought": True, "adk_thought_signature": "c2ln"}}
    answer = read(parts(marked, {"text": "42"}), DONE)
    assert (answer.reasoning, answer.text) == ("hm", "42")
    assert [p.signature for p in answer.parts() if hasattr(p, "signature")] == ["c2ln"]


def test_ends_with_their_reasons() -> None:
    assert str(read(artifact("x"), status("COMPLETED", metadata={"finishReason": "length"})).reason) == "length"
    assert str(read(status("REJECTED", metadata={"finishReason": "content_filter"})).reason) == "content_filter"
    limited = read(status("FAILED", "Slow down.", metadata={"adk_error_code": "429"})).failure
    assert limited is not None
    assert (limited.code, limited.message) == ("rate_limited", "Slow down.")
    canceled = read(artifact("x"), status("CANCELED"))
    assert (str(canceled.reason), canceled.failure) == ("canceled", None)


def test_a_question_with_a_form() -> None:
    said = status("INPUT_REQUIRED", "Where?")
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    said["statusUpdate"]["status"]["message"]["parts"].append({"data": {"schema": schema}})
    asked = read(said).interrupts[0]
    assert (asked.interrupt_id, asked.reason) == ("t1", "input_required")
    assert asked.payload == {"question": "Where?", "responseSchema": schema}


def test_two_calls_that_wait_are_two_questions() -> None:
    calls = [
        {"data": {"id": n, "name": "approve", "args": {}}, "metadata": {"adk_type": "function_call"}}
        for n in ("c1", "c2")
    ]
    said = status("INPUT_REQUIRED", "x")
    said["statusUpdate"]["status"]["message"]["parts"] = calls
    answer = read(said)
    assert [(i.interrupt_id, i.call_id) for i in answer.interrupts] == [("t1", "c1"), ("t1:1", "c2")]
    notes = answer.interrupts[1].extras
    assert notes is not None
    assert notes["a2a"]["notes"]["call"] == ["c2", "approve"]


def test_a_call_that_another_bridge_waits_for() -> None:
    said = status("INPUT_REQUIRED", "The result is needed.")
    call = {"name": "clock", "args": {"zone": "UTC", "n": 3.0}}
    waits = [{"id": "c1", "reason": "tool_result", "callId": "c1", "call": call}]
    said["statusUpdate"]["status"]["message"]["metadata"] = {"interrupts": waits}
    answer = read(said)
    assert [(c.call_id, c.name, json.loads(c.arguments)) for c in answer.calls] == [("c1", "clock", call["args"])]
    (asked,) = answer.interrupts
    assert (asked.interrupt_id, asked.reason, asked.call_id) == ("c1", "tool_result", "c1")
    notes = asked.extras["a2a"]["notes"]  # type: ignore[index]
    assert (notes["taskId"], notes["call"], "named" in notes) == ("t1", ["c1", "clock"], False)


def test_a_task_that_goes_on_does_not_repeat_what_it_said_before_its_question() -> None:
    asked = read(artifact("Let me see. "), status("INPUT_REQUIRED", "Where?")).interrupts[0]
    answer = [Resume("t1", "resolved", "Oslo", extras=asked.extras)]
    done = task("COMPLETED")
    done["task"]["artifacts"] = [
        {"artifactId": "a", "parts": [{"text": "Let me see. "}]},
        {"artifactId": "b", "parts": [{"text": "Oslo it is."}]},
    ]
    assert read(done, resume=answer).text == "Oslo it is."
    # Its stream may begin with the task as it was; another question is one.
    before = task("INPUT_REQUIRED", status=status("INPUT_REQUIRED", "Where?")["statusUpdate"]["status"])
    assert read(before, artifact("Oslo."), DONE, resume=answer).text == "Oslo."
    again = task("INPUT_REQUIRED", status=status("INPUT_REQUIRED", "When?")["statusUpdate"]["status"])
    assert read(again, resume=answer).interrupts[0].payload == "When?"
    # Without the notes of that question all of it is new.
    assert read(done).text == "Let me see. Oslo it is."


def test_an_answer_that_stands_in_the_history_alone() -> None:
    history = [
        {"role": "ROLE_USER", "parts": [{"text": "hi"}]},
        {"role": "ROLE_AGENT", "parts": [{"text": "Hello."}]},
    ]
    assert read(task("COMPLETED", history=history)).text == "Hello."
    assert read(task("COMPLETED", "From the artifact.", history=history)).text == "From the artifact."


# ------------------------------------------------------------------ what is wrong with it


@pytest.mark.parametrize(
    "odd",
    [
        {"result": None}, {"result": []}, {"statusUpdate": 7}, {"artifactUpdate": {"artifact": 7}}, {"task": {}},
        {"task": {"id": 7, "status": {"state": 7}, "artifacts": {}, "history": 7}},
        {"task": {"id": "t1", "status": {"state": "TASK_STATE_NEW"}, "artifacts": [7, {"parts": 7}]}},
        {"message": {"parts": None, "role": "ROLE_USER"}}, {"kind": 7}, {"kind": "new-kind"}, {},
        {"statusUpdate": {"status": {"state": "TASK_STATE_WORKING", "message": {"parts": [None, 7, {}]}}}},
        {"artifactUpdate": {"artifact": {"artifactId": 7, "parts": [{"raw": 7}, {"file": 7}, {"url": None}]}}},
        {"statusUpdate": {"status": {"state": "TASK_STATE_WORKING"}, "metadata": {"usage": 7}}},
        {"statusUpdate": {"metadata": {"usage": {"input": "x"}}}},
        {"status": {"state": "TASK_STATE_COMPLETED"}}, {"id": "t1", "artifacts": [{"parts": [{"text": "x"}]}]},
    ],
)  # fmt: skip
def test_objects_of_a_wrong_shape_break_nothing(odd: Any) -> None:
    for wire in (rpc(odd), json.dumps(odd).encode()):
        failure = read(wire).failure
        assert failure is not None
        assert failure.code == "truncated_stream"
        assert read(wire, artifact("Hi"), DONE).text == "Hi"


def test_events_of_a_later_version_go_by() -> None:
    events = events_of({"somethingNew": {"x": 1}}, artifact("Hi"), DONE)
    assert [e.value for e in events if isinstance(e, Raw)] == [{"somethingNew": {"x": 1}}]


def test_an_error_in_mid_stream_ends_the_run_with_its_words() -> None:
    said = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "broke"}}).encode()
    answer = read(task("WORKING"), artifact("Half"), said, DONE)
    assert answer.failure is not None
    assert (answer.text, answer.failure.message, answer.failure.backend_code) == ("Half", "broke", "-32603")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"<html>", "backend_protocol"),
        (b"", "backend_protocol"),
        (b"[1]", "backend_protocol"),
        (b"{}", "truncated_stream"),
    ],
)
def test_an_answer_in_one_piece_that_is_none(body: bytes, code: str) -> None:
    wire = WireResponse(200, {"content-type": "application/json"}, body)
    failure = fold(dialect.parse_response(wire, Context("run"))).failure
    assert failure is not None
    assert failure.code == code


def test_statuses_of_http_mean_what_they_mean() -> None:
    for code, word in ((401, "backend_auth"), (403, "backend_auth"), (429, "rate_limited"), (503, "overloaded")):
        for body in (b"", b'{"error":{"code":%d,"message":"key sk-1"}}' % code):
            failure = dialect.decode_error(WireResponse(code, {"retry-after": "3"}, body))
            assert failure.code == word
            assert failure.headers == {"retry-after": "3"}
    assert "sk-1" not in dialect.decode_error(WireResponse(401, {}, b'{"error":{"message":"key sk-1"}}')).message


def test_an_error_may_be_a_plain_text() -> None:
    failure = dialect.decode_error(WireResponse(500, {"content-type": "application/json"}, b'{"error":"no power"}'))
    assert failure.message == "no power"
