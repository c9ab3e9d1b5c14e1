"""The steps of a run, without a service: which request comes when, and what the answers lead to."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest

from bridge.contract import Context, Step, WireRequest, WireResponse
from bridge.dialects.agentscope_service import dialect
from bridge.dialects.agentscope_service.options import BackOptions
from bridge.errors import BackendError, ErrorCode, Failure, RequestError, Unsupported
from bridge.model import (
    Event,
    FileRef,
    FinishReason,
    Inline,
    Media,
    MediaKind,
    Message,
    Request,
    Resume,
    Sampling,
    Text,
    ToolCall,
    ToolResult,
    Url,
    fold,
)
from bridge.model.jsontext import dumps

REPLY = "0123456789abcdef"
SHOWN = "01234567_call_1"
QUESTION = {
    "type": "tool_call",
    "id": "call_1",
    "name": "send_mail",
    "input": "{}",
    "state": "asking",
    "created_at": "5",
}
EXTERNAL = {**QUESTION, "name": "client_clock", "state": "submitted"}
SHOWN_2 = "01234567_call_2"


def answer(body: Any, status: int = 200) -> WireResponse:
    return WireResponse(status, {"content-type": "application/json"}, dumps(body))


def refusal(status: int) -> Failure:
    return Failure(ErrorCode.BACKEND_ERROR, "refused", details={"backend_status": status})


def frames(*events: dict[str, Any]) -> list[bytes]:
    return [dumps({"id": f"e{n}", "reply_id": REPLY, **event}) for n, event in enumerate(events)]


START = {"type": "REPLY_START"}
TEXT = {"type": "TEXT_BLOCK_DELTA", "block_id": "b", "delta": "hello"}
END = {"type": "REPLY_END", "finished_reason": "completed"}


class Drive:
    """A run of this request, and the requests that it made."""

    def __init__(
        self,
        request: Request,
        *,
        named: bool = True,
        memo: dict[str, Any] | None = None,
        thread: str = "t1",
        **options: Any,
    ) -> None:
        made = BackOptions(**{"agent_id": "a1", "user_id": "ann", **options})
        self.memo = memo if memo is not None else {}
        self.context = Context("run1", thread, 0.0, made, None, request, names_thread=named)
        self.run = dialect.stepped(request, self.context, self.memo)
        self.events: list[Event] = []

    def step(self) -> Step:
        step = self.run.next()
        assert step is not None
        assert step.wire.headers["x-user-id"] == "ann"
        return step

    def asked(self) -> str:
        wire = self.step().wire
        return f"{wire.method} {wire.target}"

    def gets(self, body: Any, status: int = 200) -> None:
        self.events += self.run.whole(answer(body, status))

    def posted(self) -> Any:
        """The input of the message that is posted now."""
        wire = self.step().wire
        assert (wire.method, wire.path) == ("POST", "/chat/")
        body = json.loads(wire.body)
        assert (body["agent_id"], body["session_id"]) == ("a1", "s1")
        return body["input"]

    def opens(self, after: str | None = None) -> None:
        more = f"&after={after}" if after else ""
        assert self.asked() == f"GET /sessions/s1/stream?agent_id=a1{more}"

    def feeds(self, *wire: bytes) -> None:
        self.events += self.run.feed(wire)

    def found(self, *messages: Any, cursor: str | None = "9-0") -> None:
        """The session is there and has this history."""
        assert self.asked() == "GET /sessions/?agent_id=a1"
        self.gets({"sessions": [{"session": {"id": "s1", "config": {"name": "bridge t1"}}}]})
        assert self.asked() == "GET /sessions/s1/messages?agent_id=a1&limit=2"
        self.gets({"messages": list(messages), "event_cursor": cursor})

    def starts(self) -> None:
        """In a session of its own that is new, as far as the first event."""
        self.gets({"sessions": []}) if self.asked().startswith("GET /sessions/") else None
        assert self.step().wire.path == "/sessions/"
        self.gets({"session_id": "s1"}, 201)
        self.opens()
        self.posted()
        self.gets({"status": "started"})


def waiting(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "id": REPLY, "content": list(blocks)}


def user(text: str = "Hi") -> Message:
    return Message("user", [Text(text)])


def talk(*more: Message) -> list[Message]:
    return [user("one"), Message("assistant", [Text("answer")]), *more]


# ---------------------------------------------------------------------- sessions


@pytest.mark.parametrize(("thread", "name"), [("t" * 80, "t" * 80), ("t" * 81, sha256(b"t" * 81).hexdigest())])
def test_a_session_has_the_name_of_its_thread_or_of_a_long_one_the_digest(thread: str, name: str) -> None:
    drive = Drive(Request([user()]), thread=thread)
    assert drive.asked() == "GET /sessions/?agent_id=a1"
    drive.gets({"sessions": []})
    assert json.loads(drive.step().wire.body) == {"agent_id": "a1", "name": f"bridge {name}"}


def test_a_new_thread_makes_a_session_and_keeps_it() -> None:
    drive = Drive(Request([Message("system", [Text("Be brief.")]), *talk(user("two"))], thread_id="t1"))
    assert drive.asked() == "GET /sessions/?agent_id=a1"
    drive.gets({"sessions": [{"session": {"id": "s0", "config": {"name": "bridge other"}}}]})
    assert json.loads(drive.step().wire.body) == {"agent_id": "a1", "name": "bridge t1"}
    drive.gets({"session_id": "s1"}, 201)
    drive.opens()
    said = drive.posted()
    assert [(m["role"], [b["text"] for b in m["content"]]) for m in said] == [
        ("user", ["Be brief.", "one"]), ("assistant", ["answer"]), ("user", ["two"]),
    ]  # fmt: skip
    drive.gets({"status": "started"})
    drive.feeds(*frames(START, TEXT, END))
    got = fold(drive.events)
    assert (got.text, got.reason, drive.run.working) == ("hello", FinishReason.STOP, False)
    # The next run of the process knows it without looking, and says only what is new.
    again = Drive(Request(talk(user("two")), thread_id="t1"), memo=drive.memo)
    assert again.asked() == "GET /sessions/s1/messages?agent_id=a1&limit=2"
    again.gets({"messages": [{"role": "user", "content": []}], "event_cursor": "7-0"})
    again.opens("7-0")
    assert [b["text"] for m in again.posted() for b in m["content"]] == ["two"]


def test_a_session_that_was_deleted_is_made_again_with_all_that_was_said() -> None:
    first = Drive(Request([user()], thread_id="t1"))
    first.starts()
    drive = Drive(Request(talk(user("two")), thread_id="t1"), memo=first.memo)
    assert drive.run.next() is not None
    assert drive.run.refused(refusal(404))
    assert drive.asked() == "GET /sessions/?agent_id=a1"
    drive.gets({"sessions": []})
    drive.gets({"session_id": "s1"}, 201)
    drive.opens()
    assert len(drive.posted()) == 3


def test_a_session_that_is_listed_and_gone_is_looked_for_once() -> None:
    first = Drive(Request([user()], thread_id="t1"))
    first.starts()
    drive = Drive(Request(talk(user("two")), thread_id="t1"), memo=first.memo)
    for is_asked_again in (True, False):
        assert drive.asked() == "GET /sessions/s1/messages?agent_id=a1&limit=2"
        assert drive.run.refused(refusal(404)) is is_asked_again
        if is_asked_again:
            assert drive.asked() == "GET /sessions/?agent_id=a1"
            drive.gets({"sessions": [{"session": {"id": "s1", "config": {"name": "bridge t1"}}}]})


def test_a_client_without_threads_gets_a_session_that_is_deleted() -> None:
    drive = Drive(Request(talk(user("two"))), named=False)
    assert drive.step().wire.path == "/sessions/"
    drive.gets({"session_id": "s1"}, 201)
    drive.opens()
    assert len(drive.posted()) == 3
    drive.gets({"status": "started"})
    drive.feeds(*frames(START, TEXT, END))
    assert drive.run.working
    wire = drive.run.cancel()
    assert wire is not None
    assert (wire.method, wire.target) == ("DELETE", "/sessions/s1?agent_id=a1")


def test_a_client_that_leaves_interrupts_its_threads_run_and_deletes_a_session_of_its_own() -> None:
    named = Drive(Request([user()], thread_id="t1"))
    assert not named.run.working
    named.starts()
    named.feeds(*frames(START, TEXT))
    assert named.run.working
    wire = named.run.cancel()
    assert wire is not None
    assert (wire.method, wire.target) == ("POST", "/sessions/s1/interrupt?agent_id=a1")
    alone = Drive(Request([user()]), named=False)
    alone.starts()
    wire = alone.run.cancel()
    assert wire is not None
    assert wire.method == "DELETE"


def test_the_rest_of_the_stream_shows_that_a_canceled_run_is_over() -> None:
    """Interrupts are repeated until then, and no longer: they would end the next run of the session."""
    drive = Drive(Request([user()], thread_id="t1"))
    drive.starts()
    every = frames(START, TEXT, {"type": "REPLY_END", "finished_reason": "interrupted"})
    drive.feeds(*every[:2])
    drive.events += drive.run.close(Failure(ErrorCode.CANCELED, "canceled"))
    assert drive.run.close() == []
    assert drive.run.working
    drive.run.feed(frames({"type": "REPLY_END", "reply_id": "another"}))
    assert drive.run.working
    drive.run.feed(every[2:])
    assert not drive.run.working


def test_a_run_that_begins_shows_that_the_one_before_is_over() -> None:
    drive = Drive(Request([user()], thread_id="t1"))
    drive.starts()
    drive.run.close(Failure(ErrorCode.CANCELED, "canceled"))
    after = Drive(Request(talk(user("two")), thread_id="t1"), memo=drive.memo)
    assert after.asked() == "GET /sessions/s1/messages?agent_id=a1&limit=2"
    after.gets({"messages": [{"role": "user", "content": []}]})
    after.opens()
    after.posted()
    assert after.run.refused(refusal(409))
    assert drive.run.working
    after.posted()
    after.gets({"status": "started"})
    assert not drive.run.working
    assert after.run.working


def test_what_sessions_are_made_with() -> None:
    config = {"type": "openai_credential", "credential_id": "c", "model": "m", "parameters": {"top_p": 0.5}}
    request = Request([user()], thread_id="t1", sampling=Sampling(temperature=0.1, seed=7))
    drive = Drive(request, chat_model_config=config, permission_mode="bypass")
    drive.gets({"sessions": []})
    body = json.loads(drive.step().wire.body)
    assert body["chat_model_config"] == {**config, "parameters": {"top_p": 0.5, "temperature": 0.1}}
    drive.gets({"session_id": "s1"}, 201)
    wire = drive.step().wire
    assert (wire.method, wire.target, json.loads(wire.body)) == (
        "PATCH", "/sessions/s1?agent_id=a1", {"permission_mode": "bypass"},
    )  # fmt: skip
    drive.gets({})
    drive.opens()
    assert "sampling" in drive.context.lost.names


def test_the_only_agent_need_not_be_named() -> None:
    drive = Drive(Request([user()], thread_id="t1"), agent_id=None)
    assert drive.asked() == "GET /agent/"
    drive.gets({"agents": [{"id": "a1"}]})
    assert drive.asked() == "GET /sessions/?agent_id=a1"
    assert Drive(Request([user()], thread_id="t1"), agent_id=None, memo=drive.memo).asked().endswith("agent_id=a1")
    gone = Drive(Request([user()], thread_id="t2"), agent_id=None, memo=drive.memo)
    assert gone.asked().startswith("GET /sessions/")
    assert gone.run.refused(refusal(404)), "another user may have asked before"
    assert gone.asked() == "GET /agent/"
    gone.gets({"agents": [{"id": "b1"}]})
    assert gone.asked().endswith("agent_id=b1")
    assert not gone.run.refused(refusal(404))
    several = Drive(Request([user()], thread_id="t1"), agent_id=None)
    several.run.next()
    with pytest.raises(BackendError, match="2 agents for this user: expected one, or the option agent_id"):
        several.gets({"agents": [{"id": "a1"}, {"id": "a2"}]})


@pytest.mark.parametrize("body", [{}, {"session_id": 1}, {"session_id": "../x"}, {"session_id": ""}])
def test_a_session_without_a_name_is_no_session(body: Any) -> None:
    drive = Drive(Request([user()]), named=False)
    drive.run.next()
    with pytest.raises(BackendError, match="without an id"):
        drive.gets(body, 201)


# ---------------------------------------------------------------------- a reply that waits


def test_a_permission_for_a_call_that_the_stream_did_not_show_names_its_reply() -> None:
    drive = Drive(Request([user()]), named=False)
    drive.starts()
    drive.feeds(*frames(START, {"type": "REQUIRE_USER_CONFIRM", "tool_calls": [QUESTION]}))
    assert drive.asked() == "GET /sessions/s1/status?agent_id=a1"
    drive.gets({"status": "awaiting_user_confirm"})
    assert [i.interrupt_id for i in fold(drive.events).interrupts] == [SHOWN]


def test_a_permission_waits_and_is_answered_with_the_block_as_it_came() -> None:
    drive = Drive(Request([user()]), named=False)
    drive.starts()
    call = {"tool_call_id": "call_1", "tool_call_name": "send_mail"}
    required = {"type": "REQUIRE_USER_CONFIRM", "tool_calls": [QUESTION]}
    drive.feeds(*frames(START, {"type": "TOOL_CALL_START", **call}, {"type": "TOOL_CALL_END", **call}, required))
    step = drive.step()
    assert step.wire.target == "/sessions/s1/status?agent_id=a1"
    assert step.after > 0
    drive.gets({"status": "running"})
    assert drive.step().after > step.after
    drive.gets({"status": "awaiting_permission"})
    got = fold(drive.events)
    assert got.reason is FinishReason.INTERRUPTED
    assert [(i.interrupt_id, i.call_id) for i in got.interrupts] == [(SHOWN, SHOWN)]
    assert not drive.run.working, "the session is kept, though its client names no thread"
    for decision, yes in (("resolved", True), ("cancelled", False)):
        answering = Drive(Request([user()], resume=[Resume(SHOWN, decision)]), named=False, memo=dict(drive.memo))
        assert answering.asked() == "GET /sessions/s1/messages?agent_id=a1&limit=2"
        answering.gets({"messages": [waiting(QUESTION)], "event_cursor": "3-0"})
        answering.opens("3-0")
        assert answering.posted() == {
            "type": "USER_CONFIRM_RESULT",
            "reply_id": REPLY,
            "confirm_results": [{"confirmed": yes, "tool_call": QUESTION, "rules": None}],
        }
        answering.gets({"status": "started"})
        echo = {"type": "USER_CONFIRM_RESULT", "confirm_results": [{"tool_call": QUESTION}]}
        result = {"type": "TOOL_RESULT_END", "tool_call_id": "call_1", "state": "success"}
        # Behind the place in the stream is all of the reply, also an answer to an earlier question about this call.
        earlier = [START, TEXT, {**echo, "created_at": "4"}, TEXT, required]
        answering.feeds(*frames(*earlier, {**echo, "created_at": "6"}, START, result, END))
        went_on = fold(answering.events)
        assert (went_on.text, [r.call_id for r in went_on.results]) == ("", [SHOWN])
        assert went_on.reason is FinishReason.STOP


def test_results_of_external_calls_go_in_one_request_with_what_was_said_beside_them() -> None:
    second = {**EXTERNAL, "id": "call_2"}
    results = [ToolResult(SHOWN, [Text("12:00")]), ToolResult(SHOWN_2, [Text("broken")], is_error=True)]
    messages = talk(Message("tool", [results[0]]), Message("tool", [results[1]]), user("and hurry"))
    drive = Drive(Request(messages, thread_id="t1"))
    drive.found(waiting(EXTERNAL, second))
    drive.opens("9-0")
    text = {"type": "text", "text": "12:00"}
    assert drive.posted() == {
        "type": "EXTERNAL_EXECUTION_RESULT",
        "reply_id": REPLY,
        "execution_results": [
            {"type": "tool_result", "id": "call_1", "name": "client_clock", "output": [text], "state": "success"},
            {
                "type": "tool_result", "id": "call_2", "name": "client_clock", "state": "error",
                "output": [{"type": "text", "text": "broken"}, {"type": "text", "text": "and hurry"}],
            },
        ],
    }  # fmt: skip
    drive.gets({"status": "started"})
    echo = {"type": "EXTERNAL_EXECUTION_RESULT", "execution_results": [EXTERNAL], "created_at": "6"}
    own = {"type": "TOOL_RESULT_END", "tool_call_id": "call_1", "state": "success"}
    drive.feeds(*frames(START, echo, START, own, TEXT, END))
    got = fold(drive.events)
    assert (got.text, got.results) == ("hello", []), "the caller has its own results"


@pytest.mark.parametrize(
    ("open_call", "status", "calls", "questions", "reason"),
    [
        (EXTERNAL, "awaiting_external_result", [SHOWN_2], [], FinishReason.TOOL_CALLS),
        (QUESTION, "awaiting_user_confirm", [], [SHOWN_2], FinishReason.INTERRUPTED),
    ],
    ids=["a result", "a permission"],
)
def test_what_was_not_answered_is_asked_again(
    open_call: dict[str, Any], status: str, calls: list[str], questions: list[str], reason: FinishReason
) -> None:
    """One of two answers came: the service says nothing more, and its history tells what it waits for."""
    second = {**open_call, "id": "call_2"}
    drive = Drive(Request(talk(Message("tool", [ToolResult(SHOWN, [Text("x")])])), thread_id="t1"))
    drive.found(waiting(EXTERNAL, second))
    drive.opens("9-0")
    drive.posted()
    drive.gets({"status": "started"})
    assert drive.run.next() is None, "nothing is asked before the answer has arrived"
    drive.feeds(*frames({"type": "EXTERNAL_EXECUTION_RESULT", "execution_results": [EXTERNAL], "created_at": "6"}))
    assert drive.asked() == "GET /sessions/s1/status?agent_id=a1"
    drive.gets({"status": status})
    assert drive.asked() == "GET /sessions/s1/messages?agent_id=a1&limit=2"
    drive.gets({"messages": [waiting({**EXTERNAL, "state": "finished"}, second)]})
    got = fold(drive.events)
    assert [c.call_id for c in got.calls] == calls
    assert [i.interrupt_id for i in got.interrupts] == questions
    assert got.reason is reason


def test_a_permission_and_a_result_are_answered_by_a_request_each() -> None:
    second = {**EXTERNAL, "id": "call_2"}
    messages = talk(Message("tool", [ToolResult(SHOWN_2, [Text("x")])]))
    drive = Drive(Request(messages, thread_id="t1", resume=[Resume(SHOWN, "resolved", True)]))
    drive.found(waiting(QUESTION, second))
    drive.opens("9-0")
    assert drive.posted()["type"] == "USER_CONFIRM_RESULT"
    drive.gets({"status": "started"})
    assert drive.posted()["type"] == "EXTERNAL_EXECUTION_RESULT"


def test_a_new_message_gives_up_the_reply_that_waits() -> None:
    drive = Drive(Request(talk(user("never mind")), thread_id="t1"))
    drive.found(waiting(QUESTION))
    assert drive.asked() == "POST /sessions/s1/interrupt?agent_id=a1"
    drive.gets({"session_id": "s1"}, 202)
    step = drive.step()
    assert step.wire.path == "/sessions/s1/messages"
    drive.gets({"messages": [waiting(QUESTION)], "event_cursor": "9-0"})
    assert drive.step().after > 0
    drive.gets({"messages": [waiting({**QUESTION, "state": "finished"})], "event_cursor": "12-0"})
    drive.opens("12-0")
    assert [b["text"] for m in drive.posted() for b in m["content"]] == ["never mind"]


def test_an_answer_to_what_is_not_asked_is_a_conflict() -> None:
    request = Request([user()], thread_id="t1", resume=[Resume("01234567_other", "resolved")])
    for history in ([waiting(QUESTION)], [{"role": "user", "content": []}]):
        with pytest.raises(RequestError, match="no longer waiting for") as caught:
            Drive(request).found(*history)
        assert caught.value.code is ErrorCode.CONFLICT
    drive = Drive(request)
    drive.gets({"sessions": []})
    with pytest.raises(RequestError, match="no longer waiting for"):
        drive.gets({"session_id": "s1"}, 201)


# ---------------------------------------------------------------------- a stream that breaks, a session that is busy


def test_a_busy_session_is_asked_again_a_few_times() -> None:
    drive = Drive(Request([user()]), named=False)
    drive.gets({"session_id": "s1"}, 201)
    drive.opens()
    pauses = []
    drive.posted()
    while drive.run.refused(refusal(409)):
        pauses.append(drive.step().after)
        drive.feeds(*frames({**START, "reply_id": "another"}))
    assert pauses[:4] == [0.1, 0.2, 0.4, 0.8]
    assert len(pauses) < 10
    assert drive.events == []


def test_a_stream_that_breaks_is_read_on_without_what_is_known() -> None:
    drive = Drive(Request(talk(user("two")), thread_id="t1"))
    drive.found({"role": "user", "content": []}, cursor="5-0")
    drive.opens("5-0")
    drive.posted()
    drive.gets({"status": "started"})
    every = frames(START, TEXT, {**TEXT, "delta": " world"}, END)
    drive.feeds(*every[:2])
    drive.events += drive.run.ended(Failure(ErrorCode.TRUNCATED_STREAM, "broke"))
    assert drive.step().after > 0
    assert drive.asked() == "GET /sessions/s1/status?agent_id=a1"
    drive.gets({"status": "running"})
    drive.feeds(*every)
    assert (fold(drive.events).text, fold(drive.events).reason) == ("hello world", FinishReason.STOP)


def test_a_stream_that_comes_back_without_what_is_known_is_no_success() -> None:
    """In memory, the log of a run that is over is its end alone."""
    drive = Drive(Request([user()]), named=False)
    drive.starts()
    every = frames(START, TEXT, {**TEXT, "delta": " world"}, END)
    drive.feeds(*every[:2])
    drive.events += drive.run.ended(None)
    drive.step()
    drive.feeds(every[3])
    failure = fold(drive.events).failure
    assert failure is not None
    assert failure.code is ErrorCode.TRUNCATED_STREAM
    assert drive.run.working


def test_a_stream_that_breaks_again_and_again_is_given_up() -> None:
    drive = Drive(Request([user()], thread_id="t1"))
    drive.starts()
    drive.feeds(*frames(START, TEXT))
    for _ in range(3):
        assert drive.run.ended(None) == []
        drive.step()
    drive.events += drive.run.ended(None)
    failure = fold(drive.events).failure
    assert failure is not None
    assert failure.code is ErrorCode.TRUNCATED_STREAM


def test_a_session_that_is_idle_without_an_end_is_no_success() -> None:
    drive = Drive(Request([user()], thread_id="t1"))
    drive.starts()
    drive.feeds(*frames(START, {"type": "REQUIRE_USER_CONFIRM", "tool_calls": [QUESTION]}))
    for _ in range(5):
        drive.step()
        drive.gets({"status": "idle"})
    failure = fold(drive.events).failure
    assert failure is not None
    assert failure.code is ErrorCode.TRUNCATED_STREAM


def test_a_run_that_the_restart_of_its_service_ended_is_no_success() -> None:
    """The service comes back without the run, and with a stream that stays silent."""
    drive = Drive(Request([user()], thread_id="t1"))
    drive.starts()
    drive.feeds(*frames(START, TEXT))
    drive.events += drive.run.ended(Failure(ErrorCode.BACKEND_UNAVAILABLE, "broke"))
    drive.opens()
    for _ in range(5):
        assert drive.asked() == "GET /sessions/s1/status?agent_id=a1"
        drive.gets({"status": "idle"})
    made = fold(drive.events)
    assert made.failure is not None
    assert (made.text, made.failure.code) == ("hello", ErrorCode.TRUNCATED_STREAM)


def test_a_run_that_ends_before_its_reply_begins_is_no_success() -> None:
    """An interrupt that comes while the service prepares the run leaves nothing on the stream."""
    drive = Drive(Request([user()], thread_id="t1"))
    drive.starts()
    for _ in range(5):
        assert drive.asked() == "GET /sessions/s1/status?agent_id=a1"
        drive.gets({"status": "idle"})
    failure = fold(drive.events).failure
    assert failure is not None
    assert failure.code is ErrorCode.TRUNCATED_STREAM
    drive = Drive(Request([user()], thread_id="t1"))
    drive.starts()
    drive.feeds(*frames(START))
    assert drive.run.next() is None


def test_refusals_before_the_run_end_it() -> None:
    for status in (401, 404, 422, 500):
        drive = Drive(Request([user()]), named=False)
        drive.run.next()
        assert not drive.run.refused(refusal(status))
        drive.gets({"session_id": "s1"}, 201)
        drive.opens()
        assert not drive.run.refused(refusal(status))


# ---------------------------------------------------------------------- what cannot be said


def test_earlier_calls_and_results_are_told_as_text() -> None:
    messages = [
        user("one"),
        Message("assistant", [ToolCall("c", "f", "{}"), Text("answer")]),
        Message("tool", [ToolResult("c", [Text("done")])]),
        user("two"),
    ]
    drive = Drive(Request(messages), named=False)
    drive.gets({"sessions": []})
    drive.gets({"session_id": "s1"}, 201)
    drive.opens()
    assert [(m["role"], [b["text"] for b in m["content"]]) for m in drive.posted()] == [
        ("user", ["one"]), ("assistant", ["f({})", "answer"]), ("user", ["done"]), ("user", ["two"]),
    ]  # fmt: skip
    assert "tool_history" in drive.context.lost.names


@pytest.mark.parametrize(
    ("source", "words"),
    [(FileRef("f"), "accepts no image by file id"), (Url("https://x.example/pic"), "needs the media type of a URL")],
)
def test_media_that_cannot_be_sent_are_refused_with_their_place(source: Any, words: str) -> None:
    message = Message("user", [Text("look"), Media(MediaKind.IMAGE, source)])
    with pytest.raises(Unsupported, match=words) as caught:
        Drive(Request([message]))
    assert caught.value.failure.param == "messages[0].content[1]"


def test_the_type_of_a_medium_may_be_guessed() -> None:
    parts = [
        Media(MediaKind.IMAGE, Url("https://x.example/a.png?x=1")),
        Media(MediaKind.IMAGE, Inline("iVBORw0KGgo=")),
        Media(MediaKind.FILE, Inline("AAAA")),
    ]
    drive = Drive(Request([Message("user", [*parts])]), named=False)
    drive.gets({"session_id": "s1"}, 201)
    drive.opens()
    sources = [b["source"] for m in drive.posted() for b in m["content"]]
    assert [s["media_type"] for s in sources] == ["image/png", "image/png", "application/octet-stream"]


def test_system_text_may_be_left_out() -> None:
    drive = Drive(Request([Message("system", [Text("Be brief.")]), user()]), named=False, system="drop")
    drive.gets({"session_id": "s1"}, 201)
    drive.opens()
    assert [b["text"] for m in drive.posted() for b in m["content"]] == ["Hi"]
    assert drive.context.lost.details["system"] == "backend option system"


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, ErrorCode.BACKEND_ERROR), (401, ErrorCode.BACKEND_AUTH), (404, ErrorCode.BACKEND_ERROR),
        (409, ErrorCode.CONFLICT), (422, ErrorCode.BACKEND_ERROR), (429, ErrorCode.RATE_LIMITED),
        (500, ErrorCode.BACKEND_ERROR), (503, ErrorCode.OVERLOADED),
    ],
)  # fmt: skip
def test_statuses_are_failures_of_the_backend(status: int, code: ErrorCode) -> None:
    failure = dialect.decode_error(answer({"detail": [{"loc": ["body", "input"], "msg": "Field required"}]}, status))
    assert failure.code is code
    if code is not ErrorCode.BACKEND_AUTH:
        assert failure.message == "input: Field required"


def test_an_answer_that_is_no_object_is_named_as_such() -> None:
    drive = Drive(Request([user()]), named=False)
    drive.run.next()
    with pytest.raises(BackendError, match="is not a JSON object"):
        drive.run.whole(WireResponse(200, {"content-type": "text/html"}, b"<html>"))


def test_the_request_that_translate_writes_names_no_session() -> None:
    request = Request([user()])
    wire = dialect.encode_request(request, Context("run1", options=BackOptions(), request=request))
    assert isinstance(wire, WireRequest)
    assert json.loads(wire.body)["session_id"] == ""
