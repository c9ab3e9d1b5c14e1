"""Recorded conversations with real agents, and each fact of the protocol by itself, as a backend's events."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from bridge.contract import Context
from bridge.dialects.acp import dialect
from bridge.dialects.acp.read_answer import Decoder
from bridge.errors import ErrorCode
from bridge.model import (
    Answer,
    Custom,
    Data,
    Event,
    FinishReason,
    Interrupted,
    Media,
    PartStarted,
    Raw,
    Reasoning,
    Request,
    Resume,
    RunFailed,
    RunFinished,
    Text,
    ToolResulted,
    UsageReported,
    fold,
    result_text,
    verify,
)
from bridge.testing.wires import decode
from tests.recorded import CAPTURES, answers

INDEX = {each["name"]: each for each in json.loads((CAPTURES / "acp/index.json").read_text())["captures"]}
Wire = dict[str, Any]


def context(run: str = "run1") -> Context:
    return Context(run, "thread1", 1_700_000_000.0, dialect.back_options(), "m")


def update(said: str, /, **fields: Any) -> Wire:
    params = {"sessionId": "s", "update": {"sessionUpdate": said, **fields}}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


def text(words: str, kind: str = "agent_message_chunk", **more: Any) -> Wire:
    return update(kind, content={"type": "text", "text": words}, **more)


def permission(call: Wire | None = None, options: list[Wire] | None = None) -> Wire:
    kinds = ("allow_once", "allow_always", "reject_once", "reject_always")
    options = (
        [{"optionId": kind[::-1], "name": kind.title(), "kind": kind} for kind in kinds] if options is None else options
    )
    params = {"sessionId": "s", "toolCall": call or {"toolCallId": "c", "title": "rm -r build"}, "options": options}
    return {"jsonrpc": "2.0", "id": 0, "method": "session/request_permission", "params": params}


def run(*messages: Wire, end: Wire | None = None) -> list[Event]:
    """The events of a live prompt without questions."""
    decoder = Decoder(context(), live=True)
    events = [event for message in messages for event in decoder.message(message)]
    events += decoder.answered(end if end is not None else {"stopReason": "end_turn"})
    verify(events)
    return events


def answer(*messages: Wire, end: Wire | None = None) -> Answer:
    return fold(run(*messages, end=end))


# ---------------------------------------------------------------------- recordings


@dataclass
class Turn:
    """A prompt of a recorded conversation: what the agent said, the answers to its questions, and its end."""

    said: list[Wire] = field(default_factory=list)
    answers: dict[Any, Wire] = field(default_factory=dict)
    end: Wire = field(default_factory=dict)
    canceled: bool = False


def turns(name: str) -> list[Turn]:
    """The prompts of a recording that were answered."""
    open_turns: dict[Any, tuple[str, Turn]] = {}
    out: list[Turn] = []
    for record in map(json.loads, (CAPTURES / f"acp/{name}.jsonl").read_text().splitlines()):
        try:
            message = json.loads(record.get("line", ""))
        except ValueError:
            continue
        if not isinstance(message, dict):
            continue
        named = (message.get("params") or {}).get("sessionId")
        if record["from"] == "client":
            if message.get("method") == "session/prompt":
                turn = Turn()
                out.append(turn)
                open_turns[message["id"]] = named, turn
            elif message.get("method") == "session/cancel":
                for session, turn in open_turns.values():
                    turn.canceled = turn.canceled or session == named
            elif "method" not in message:
                for _, turn in open_turns.values():
                    turn.answers[message.get("id")] = message.get("result") or {}
        elif "method" in message:
            for session, turn in open_turns.values():
                if session == named:
                    turn.said.append(message)
        elif message.get("id") in open_turns:
            open_turns.pop(message["id"])[1].end = message
    return [turn for turn in out if turn.end]


def played(turn: Turn) -> list[list[Event]]:
    """The runs of a prompt, with the recorded answers to its questions."""
    decoder = Decoder(context(), live=True)
    runs: list[list[Event]] = [[]]
    for message in turn.said:
        if message["method"] == "session/update":
            runs[-1] += decoder.message(message)
        elif message["method"] in ("session/request_permission", "elicitation/create"):
            runs[-1] += decoder.ask(message)
            (asked,) = decoder.questions.values()
            runs[-1] += decoder.park()
            result = turn.answers.get(message["id"], {})
            chosen = (result.get("outcome") or {}).get("optionId")
            resume = Resume("", "resolved", {"optionId": chosen} if chosen else result.get("content"))
            given = decoder.answer(asked, resume)
            if chosen:
                assert given.result == {"outcome": {"outcome": "selected", "optionId": chosen}}
            elif "content" in result:
                assert given.result == {"action": "accept", "content": result["content"]}
            runs.append([])
            decoder.resume(context(f"run{len(runs)}"))
    if turn.canceled:
        decoder.cancel()
    end = turn.end
    runs[-1] += decoder.refused(end["error"]) if "error" in end else decoder.answered(end["result"])
    for events in runs:
        verify(events)
    return runs


def recorded() -> list[Any]:
    out = []
    for name, capture in INDEX.items():
        wanted = [each for each in capture["expect"].get("turns", []) if "finish_reason" in each]
        ended = [each for each in wanted if each["finish_reason"] or each["error"]]
        if name == "codex-two":  # two prompts at once, of which the agent answers one
            continue
        for number, (turn, expect) in enumerate(zip(turns(name), ended, strict=False)):
            out.append(pytest.param(turn, expect, id=f"{name}-{number}"))
    return out


def calls_in(runs: list[list[Event]]) -> list[PartStarted]:
    return [e for events in runs for e in events if isinstance(e, PartStarted) and e.call_id]


@pytest.mark.parametrize(("turn", "expect"), recorded())
def test_a_recorded_prompt_means_what_its_index_says(turn: Turn, expect: Wire) -> None:
    runs = played(turn)
    folded = [fold(events) for events in runs]
    assert "".join(each.text for each in folded) == expect["text"]
    thoughts = [p.text for each in folded for p in each.parts() if isinstance(p, Reasoning)]
    assert "".join(thoughts) == expect["reasoning"]
    called = {e.call_id for e in calls_in(runs)}
    wanted = [each for each in expect["tool_calls"] if each["id"] not in _never_ran(turn)]
    assert called >= {each["id"] for each in wanted}
    results = {e.call_id: e for events in runs for e in events if isinstance(e, ToolResulted)}
    for each in expect["tool_results"]:
        assert results[each["id"]].is_error == each["is_error"]
        if each["text"] is not None:
            assert each["text"] in result_text(results[each["id"]].parts)
    assert called == results.keys()
    diffs = [p.value for e in results.values() for p in e.parts if isinstance(p, Data) and "newText" in dict(p.value)]
    assert [d for d in expect["diffs"] if d in diffs] == expect["diffs"]
    plans = [e.value for events in runs for e in events if isinstance(e, Custom)]
    assert (
        [(x["content"], x["status"]) for x in plans[-1]["entries"]] == [*map(tuple, expect["plan"])]
        if plans
        else (expect["plan"] is None)
    )
    asked = [e for events in runs for e in events if isinstance(e, Interrupted)]
    assert len(asked) == len(expect["interrupts"])
    for question, told in zip(asked, expect["interrupts"], strict=True):
        assert question.call_id == told["call_id"]
        assert (told["title"] or "") in question.payload["message"]
        ids = [each["optionId"] for each in question.payload.get("options", [])]
        assert ids == [each["optionId"] for each in told["options"]]
    usage = [e for events in runs for e in events if isinstance(e, UsageReported)]
    counts = {"input": usage[-1].input, "output": usage[-1].output} if usage else None
    assert expect["usage"] in (None, counts)  # the index has only that of answers
    last = runs[-1][-1]
    if expect["error"] is not None:
        assert isinstance(last, RunFailed)
        assert str(last.error.code) == expect["error"]["code"]
    else:
        assert isinstance(last, RunFinished)
        refused = expect["finish_reason"] == "canceled" and not turn.canceled
        assert str(last.reason) == ("stop" if refused else expect["finish_reason"])


def _never_ran(turn: Turn) -> set[str]:
    """Calls that no update says to have begun, and that needed no permission."""
    updates = [m["params"].get("update") or {} for m in turn.said]
    updates = [u for u in updates if "toolCallId" in u]
    ran = {u["toolCallId"] for u in updates if u.get("status") not in (None, "pending")}
    asked = {m["params"]["toolCall"]["toolCallId"] for m in turn.said if m["method"] == "session/request_permission"}
    return {u["toolCallId"] for u in updates} - ran - asked


@pytest.mark.parametrize("name", list(answers("acp")))
def test_a_recorded_stream_is_a_run_however_it_is_cut(name: str) -> None:
    wire = answers("acp")[name]
    whole = decode(dialect, [wire])
    verify(whole)
    assert decode(dialect, [wire[at : at + 7] for at in range(0, len(wire), 7)]) == whole


# ---------------------------------------------------------------------- texts


def test_texts_of_two_messages_are_two_messages() -> None:
    said = answer(text("a", messageId="1"), text("b", messageId="1"), text("c", messageId="2"))
    assert [(m.id, result_text(m.parts)) for m in said.messages] == [("1", "ab"), ("2", "c")]


def test_a_thought_and_a_text_share_a_message() -> None:
    said = answer(text("hm", "agent_thought_chunk", messageId="1"), text("so", messageId="1"))
    (message,) = said.messages
    assert message.parts == [Reasoning("hm"), Text("so")]


def test_text_after_a_call_is_a_new_message() -> None:
    said = answer(text("a"), update("tool_call", toolCallId="c", title="t", status="completed"), text("b"))
    assert [m.role for m in said.messages] == ["assistant", "tool", "assistant"]
    assert said.text == "ab"


@pytest.mark.parametrize(
    "message",
    [
        text(""), text("x", "user_message_chunk"), update("available_commands_update", availableCommands=[]),
        update("current_mode_update", currentModeId="m"), update("config_option_update", configOptions=[]),
        update("session_info_update", title="t"), update("usage_update", used=1, size=2),
        update("agent_message_chunk"), update("agent_message_chunk", content=7), update("tool_call"),
        update("plan", entries=3),
    ],
)  # fmt: skip
def test_what_is_no_answer_says_nothing(message: Wire) -> None:
    events = run(message)
    assert [type(e).__name__ for e in events] == ["RunStarted", "RunFinished"]


def test_an_unknown_update_goes_to_clients_of_the_same_protocol() -> None:
    (raw,) = [e for e in run(update("notice", text="x")) if isinstance(e, Raw)]
    assert raw.value == {"sessionUpdate": "notice", "text": "x"}


def test_media_are_parts() -> None:
    blocks: list[Wire] = [
        {"type": "image", "data": "AA==", "mimeType": "image/png"},
        {"type": "audio", "data": "AA==", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///a.txt", "name": "a"},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": "AA==", "mimeType": "application/pdf"}},
        {"type": "resource", "resource": {"uri": "file:///c", "text": "words"}},
    ]
    parts = list(answer(*(update("agent_message_chunk", content=block) for block in blocks)).parts())
    assert [str(p.kind) for p in parts if isinstance(p, Media)] == ["image", "audio", "file", "file"]
    assert "words" in result_text(parts)


def test_a_plan_is_a_custom_event() -> None:
    entries = [{"content": "look", "priority": "low", "status": "pending"}]
    (plan,) = [e for e in run(update("plan", entries=entries)) if isinstance(e, Custom)]
    assert (plan.name, plan.value) == ("acp.plan", {"entries": entries})


@pytest.mark.parametrize("kind", ["plan", "usage_update", "available_commands_update"])
def test_a_client_of_the_same_protocol_gets_what_only_it_can_show(kind: str) -> None:
    asked = context()
    asked.request = Request("Hi", extras={"acp": {"notes": {}}})
    decoder = Decoder(asked, live=True)
    (raw,) = [e for e in decoder.message(update(kind, used=1, entries=[])) if isinstance(e, Raw)]
    assert raw.value == {"sessionUpdate": kind, "used": 1, "entries": []}


# ---------------------------------------------------------------------- calls


def test_a_call_is_told_when_it_runs_with_its_last_input() -> None:
    said = run(
        update("tool_call", toolCallId="c", title="Terminal", kind="execute", status="pending", rawInput={}),
        update("tool_call_update", toolCallId="c", rawInput={"command": "ls"}),
        update("tool_call_update", toolCallId="c", rawInput={"command": "ls -l"}, status="in_progress"),
        update("tool_call_update", toolCallId="c", status="completed", rawOutput={"exit": 0}),
        update("tool_call_update", toolCallId="c", status="completed", rawOutput={"exit": 1}),
    )
    (call,) = fold(said).calls
    assert (call.call_id, call.name, call.arguments) == ("c", "execute", '{"command":"ls -l"}')
    (result,) = [e for e in said if isinstance(e, ToolResulted)]
    assert (result.parts, result.is_error) == ([Data({"exit": 0})], False)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ({"name": "Bash", "title": "ls", "kind": "execute"}, "Bash"),
        ({"_meta": {"toolName": "run_shell"}, "kind": "execute"}, "run_shell"),
        ({"_meta": {"claudeCode": {"toolName": "Read"}}}, "Read"),
        ({"toolCallId": "write_file__call_1", "kind": "edit"}, "write_file"),
        ({"title": "ls -l", "kind": "execute"}, "execute"),
        ({"title": "Which way?\nleft", "kind": "other"}, "Which way?"),
        ({}, "tool"),
    ],
)
def test_the_name_of_a_tool(call: Wire, name: str) -> None:
    said = answer(update("tool_call", **{"toolCallId": "c", "status": "completed", **call}))
    assert said.calls[0].name == name


def test_a_call_known_by_an_update_alone() -> None:
    said = run(update("tool_call_update", toolCallId="c", status="failed", content=[{"type": "content", "content": {
        "type": "text", "text": "no such folder"}}]))  # fmt: skip
    (result,) = [e for e in said if isinstance(e, ToolResulted)]
    assert (result_text(result.parts), result.is_error) == ("no such folder", True)
    assert len(fold(said).calls) == 1


def test_content_replaces_what_was_there_and_null_does_not() -> None:
    first = [{"type": "content", "content": {"type": "text", "text": "one"}}]
    second = [{"type": "diff", "path": "/a", "oldText": None, "newText": "x"}]
    said = run(
        update("tool_call", toolCallId="c", title="t", status="in_progress", content=first),
        update("tool_call_update", toolCallId="c", content=second),
        update("tool_call_update", toolCallId="c", content=None, status="completed"),
    )
    (result,) = [e for e in said if isinstance(e, ToolResulted)]
    assert result.parts == [Data({"path": "/a", "oldText": None, "newText": "x"})]


def test_content_from_before_the_result_may_only_describe_the_call() -> None:
    described = [{"type": "content", "content": {"type": "text", "text": "make a file"}}]
    said = run(
        update("tool_call", toolCallId="c", title="t", content=described),
        update("tool_call_update", toolCallId="c", status="completed", rawOutput="made.txt"),
    )
    (result,) = [e for e in said if isinstance(e, ToolResulted)]
    assert result_text(result.parts) == "make a file\nmade.txt"


def test_output_of_a_terminal_is_joined() -> None:
    shown = [{"type": "terminal", "terminalId": "t"}]
    said = run(
        update("tool_call", toolCallId="c", title="make", status="in_progress", content=shown),
        update("tool_call_update", toolCallId="c", _meta={"terminal_output": {"terminal_id": "t", "data": "one "}}),
        update("tool_call_update", toolCallId="c", _meta={"terminal_output": {"terminal_id": "t", "data": "two"}}),
        update("tool_call_update", toolCallId="c", status="completed"),
    )
    (result,) = [e for e in said if isinstance(e, ToolResulted)]
    assert result_text(result.parts) == "one two"


def test_a_call_without_an_end_has_a_result_that_says_so() -> None:
    said = run(update("tool_call", toolCallId="c", title="t", status="in_progress"), text("done"))
    (result,) = [e for e in said if isinstance(e, ToolResulted)]
    assert (result_text(result.parts), result.is_error) == ("The agent reported no result of this call.", True)
    assert said[-1] == RunFinished(FinishReason.STOP)


def test_a_call_that_never_ran_is_not_told() -> None:
    assert answer(update("tool_call", toolCallId="c", title="t")).calls == []


# ---------------------------------------------------------------------- questions


def asked(message: Wire) -> tuple[Decoder, Interrupted, Wire]:
    decoder = Decoder(context(), live=True)
    events = [*decoder.ask(message), *decoder.park()]
    verify(events)
    (question,) = [e for e in events if isinstance(e, Interrupted)]
    assert events[-1] == RunFinished(FinishReason.INTERRUPTED)
    return decoder, question, decoder.questions[question.interrupt_id]


def test_a_permission_is_the_news_of_its_call() -> None:
    decoder, question, _ = asked(
        permission({"toolCallId": "c", "title": "rm", "kind": "execute", "rawInput": {"a": 1}})
    )
    assert (question.reason, question.call_id) == ("tool_call", "c")
    assert question.payload["title"] == "rm"
    assert [each["kind"] for each in question.payload["options"]][:2] == ["allow_once", "allow_always"]
    assert question.payload["responseSchema"]["properties"]["optionId"]["enum"][0] == "ecno_wolla"
    assert decoder.runs_tool


def test_the_input_in_a_permission_is_not_that_of_a_call_that_has_one() -> None:
    decoder = Decoder(context(), live=True)
    decoder.message(update("tool_call", toolCallId="c", title="t", rawInput={"real": 1}))
    events = [*decoder.ask(permission({"toolCallId": "c", "rawInput": {"other": 2}})), *decoder.park()]
    assert fold(events).calls[0].arguments == '{"real":1}'


def test_a_permission_without_a_call_is_an_approval() -> None:
    decoder = Decoder(context(), live=True)
    message = permission()
    message["params"]["toolCall"] = {}
    events = [*decoder.ask(message), *decoder.park()]
    (question,) = [e for e in events if isinstance(e, Interrupted)]
    assert (question.reason, question.call_id) == ("approval", None)


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        ({"optionId": "syawla_wolla"}, "allow_always"), ({"optionId": "esroh"}, "reject_once"),
        ("ecno_wolla", "allow_once"), ("Allow_Always", "allow_always"), ("allow_always.", "allow_always"),
        ("yes", "allow_once"), ("Yes.", "allow_once"), (True, "allow_once"), ({"approved": True}, "allow_once"),
        (None, "allow_once"), ("no", "reject_once"), ("well, maybe", "reject_once"), (False, "reject_once"),
        ({"approved": False}, "reject_once"), ("", "reject_once"), ({"optionId": 7}, "reject_once"),
    ],
)  # fmt: skip
def test_what_an_answer_chooses(payload: Any, kind: str) -> None:
    decoder, _, message = asked(permission())
    given = decoder.answer(message, Resume("", "resolved", payload))
    assert given.result == {"outcome": {"outcome": "selected", "optionId": kind[::-1]}}
    assert not given.cancels


def test_a_canceled_answer_rejects() -> None:
    decoder, _, message = asked(permission())
    assert decoder.answer(message, Resume("", "cancelled", "yes")).result["outcome"]["optionId"] == "ecno_tcejer"


@pytest.mark.parametrize(("said", "cancels"), [("no", True), ("yes", True)])
def test_without_an_option_for_it_the_prompt_is_canceled(said: str, cancels: bool) -> None:
    """Nobody chooses allow_always for a plain yes."""
    only = [{"optionId": "go", "name": "Go on", "kind": "allow_always"}]
    decoder, _, message = asked(permission(options=only))
    given = decoder.answer(message, Resume("", "resolved", said))
    assert (given.result, given.cancels) == ({"outcome": {"outcome": "cancelled"}}, cancels)


def test_a_yes_is_not_the_name_of_an_option_that_allows_more() -> None:
    options = [
        {"optionId": "1", "name": "Yes", "kind": "allow_always"},
        {"optionId": "2", "name": "Just once", "kind": "allow_once"},
        {"optionId": "3", "name": "Also once", "kind": "allow_once"},
    ]
    decoder, _, message = asked(permission(options=options))
    assert decoder.answer(message, Resume("", "resolved", "yes")).result["outcome"]["optionId"] == "2"
    assert decoder.answer(message, Resume("", "resolved", {"optionId": "1"})).result["outcome"]["optionId"] == "1"


@pytest.mark.parametrize(("policy", "option"), [("reject", "ecno_tcejer"), ("allow_once", "ecno_wolla")])
def test_a_policy_decides(policy: str, option: str) -> None:
    decoder = Decoder(context(), live=True)
    events, given = decoder.decide(permission(), policy)
    assert given.result["outcome"]["optionId"] == option
    events += decoder.answered({"stopReason": "end_turn"})
    verify(events)
    assert not [e for e in events if isinstance(e, Interrupted)]


def test_a_form_is_asked_and_filled() -> None:
    schema = {"type": "object", "properties": {"way": {"type": "string"}}, "required": ["way"]}
    params = {"sessionId": "s", "mode": "form", "message": "Which way?", "requestedSchema": schema}
    form = {"jsonrpc": "2.0", "id": 5, "method": "elicitation/create", "params": params}
    decoder, question, message = asked(form)
    assert (question.reason, question.payload) == (
        "input_required", {"message": "Which way?", "responseSchema": schema},
    )  # fmt: skip
    assert decoder.answer(message, Resume("", "resolved", {"way": "left"})).result == {
        "action": "accept", "content": {"way": "left"},
    }  # fmt: skip
    assert decoder.answer(message, Resume("", "resolved", "left")).result["content"] == {"way": "left"}
    assert decoder.answer(message, Resume("", "cancelled")).result == {"action": "decline"}
    assert decoder.decide(message, "allow_once")[1].result == {"action": "decline"}


# ---------------------------------------------------------------------- the end


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", FinishReason.STOP), ("max_tokens", FinishReason.LENGTH),
        ("max_turn_requests", FinishReason.LENGTH),
        ("refusal", FinishReason.CONTENT_FILTER), ("something_new", FinishReason.STOP), (None, FinishReason.STOP),
    ],
)  # fmt: skip
def test_why_a_prompt_ended(word: str | None, reason: FinishReason) -> None:
    assert answer(text("x"), end={"stopReason": word}).reason is reason


def test_canceled_by_whom() -> None:
    end = {"stopReason": "cancelled"}
    by_itself = run(text("x"), end=end)[-1]
    assert isinstance(by_itself, RunFailed)
    assert by_itself.error.code is ErrorCode.CANCELED
    ours = Decoder(context(), live=True)
    ours.cancel()
    assert ours.answered(end)[-1] == RunFinished(FinishReason.CANCELED)
    refused = Decoder(context(), live=True)
    refused.decide(permission(), "reject")
    assert refused.answered(end)[-1] == RunFinished(FinishReason.STOP)


def test_an_error_after_a_cancel_is_no_failure_of_the_agent() -> None:
    decoder = Decoder(context(), live=True)
    decoder.cancel()
    last = decoder.refused({"code": -32603, "message": "aborted"})[-1]
    assert isinstance(last, RunFailed)
    assert last.error.code is ErrorCode.CANCELED


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        ({"code": -32603, "message": "The model is gone."}, ErrorCode.BACKEND_ERROR, "The model is gone."),
        ({"code": -32603, "message": "Internal error", "data": {"details": "hm"}}, ErrorCode.BACKEND_ERROR, "hm"),
        ({"code": -32603, "message": "Internal error", "data": {"message": "deep"}}, ErrorCode.BACKEND_ERROR, "deep"),
        ({"code": -32000, "message": "sk-secret0123456789"}, ErrorCode.BACKEND_AUTH, "log in with its own command"),
        ({"code": -32002, "message": "Resource not found"}, ErrorCode.NOT_FOUND, "Resource not found"),
        ({"code": -32800, "message": "cancelled"}, ErrorCode.CANCELED, "cancelled"),
        ({"code": "x"}, ErrorCode.BACKEND_ERROR, "error"),
        ({}, ErrorCode.BACKEND_ERROR, "error"),
    ],
)  # fmt: skip
def test_what_an_error_means(error: Wire, code: ErrorCode, words: str) -> None:
    decoder = Decoder(context(), live=True)
    last = decoder.refused(error)[-1]
    assert isinstance(last, RunFailed)
    assert last.error.code is code
    assert words in last.error.message
    assert "sk-secret" not in last.error.message + last.error.cause


# ---------------------------------------------------------------------- usage

COUNTS = {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18, "cachedReadTokens": 3, "thoughtTokens": 2}


def usage_of(*messages: Wire, end: Wire) -> UsageReported | None:
    return answer(*messages, end={"stopReason": "end_turn", **end}).usage


def test_usage_stands_in_the_answer() -> None:
    used = usage_of(end={"usage": COUNTS})
    assert used == UsageReported(11, 7, 18, 3, 2)


def test_usage_stands_in_the_quota() -> None:
    quota = {"_meta": {"quota": {"token_count": {"input_tokens": 11, "output_tokens": 7}}}}
    assert usage_of(end=quota) == UsageReported(11, 7)


def test_usage_of_model_calls_is_added_up() -> None:
    chunk = text("", _meta={"usage": COUNTS})
    assert usage_of(chunk, chunk, end={}) == UsageReported(22, 14, 36, 6, 4)


def test_the_answer_counts_more_than_the_quota_and_the_quota_more_than_chunks() -> None:
    quota = {"quota": {"token_count": {"input_tokens": 5, "output_tokens": 5}}}
    used = usage_of(text("", _meta={"usage": COUNTS}), end={"_meta": quota})
    assert used is not None
    assert used.input == 5
    used = usage_of(end={"_meta": quota, "usage": COUNTS})
    assert used is not None
    assert used.input == 11


def test_the_fill_of_the_context_is_no_usage() -> None:
    fill = update("usage_update", used=500, size=1000, cost={"amount": 0.1, "currency": "USD"})
    assert usage_of(fill, end={}) is None
    used = usage_of(fill, end={"usage": COUNTS})
    assert used is not None
    assert used.extras == {"acp": {"usage_update": {
        "used": 500, "size": 1000, "cost": {"amount": 0.1, "currency": "USD"}}}}  # fmt: skip
