"""Stages: calls that the backend runs itself stay away from clients that would run them again."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Losses, RunsTools, entries, registry
from bridge.errors import ConfigError, ErrorCode, Failure
from bridge.model import (
    ArgsDelta,
    Event,
    FinishReason,
    Interrupted,
    MessageEnded,
    MessageStarted,
    PartEnded,
    PartKind,
    PartStarted,
    ReasoningDelta,
    Request,
    RunFailed,
    RunFinished,
    RunStarted,
    Text,
    TextDelta,
    Tool,
    ToolCall,
    ToolResulted,
    fold,
    interrupt_text,
    verify,
)
from bridge.model.closing import PIECES
from bridge.model.events import AWAITS_RESULT
from bridge.translation import Stage
from bridge.translation.policies.stages import (
    StageContext,
    WithholdServerTools,
    load,
    load_object,
    prepare,
    withhold_server_tools,
)
from tests.strategies import answers, batches

SHOWS = ("drop", "text", "reasoning")


def capabilities(runs: RunsTools = RunsTools.NEVER, client_runs: bool = True) -> Capabilities:
    return Capabilities(
        entries(ANSWER_FEATURES), entries(REQUEST_FEATURES), runs_tools=runs, client_runs_calls=client_runs
    )


@dataclass
class Options:
    server_tools: str = "drop"


def context(
    front: Capabilities, back: Capabilities, tools: list[Tool] | None = None, options: Any = None
) -> StageContext:
    return StageContext(Request([], tools=tools), front, back, options, Losses())


def through(stage: Stage, parts: list[list[Event]]) -> list[Event]:
    """Each batch through the stage, which is at its word: what it would not have been asked about passes as it is."""
    out = []
    for batch in parts:
        unasked = isinstance(stage, Stage) and stage.passes_deltas and PIECES.issuperset(map(type, batch))
        passed = stage(batch)
        assert passed == batch or not unasked
        out += passed
    return out


def call(part: str, message: str, name: str) -> list[Event]:
    start = PartStarted(part, message, PartKind.TOOL_CALL, f"call-{part}", name)
    return [start, ArgsDelta(part, '{"a"'), ArgsDelta(part, ":1}"), PartEnded(part)]


HEAD, MESSAGE, END = RunStarted("r"), MessageStarted("m"), MessageEnded("m")
RESULT = ToolResulted("call-1", [Text("fine")])
TEXT: list[Event] = [PartStarted("t", "m", PartKind.TEXT), TextDelta("t", "hi"), PartEnded("t")]
STOP = RunFinished(FinishReason.STOP)
CALLS = RunFinished(FinishReason.TOOL_CALLS)
WAITS = RunFinished(FinishReason.INTERRUPTED)
FAILED = RunFailed(Failure(ErrorCode.BACKEND_ERROR, "x"))


class TestWithhold:
    def test_a_call_with_its_result_is_dropped(self) -> None:
        losses = Losses()
        stage = WithholdServerTools(losses, frozenset())
        out = stage([HEAD, MESSAGE, *call("1", "m", "f"), RESULT, *TEXT, END, STOP])
        assert out == verify([HEAD, MESSAGE, *TEXT, END, STOP])
        assert losses.names == ["tool_result"]

    @pytest.mark.parametrize(("show", "kind"), [("text", PartKind.TEXT), ("reasoning", PartKind.REASONING)])
    def test_a_call_with_its_result_is_told(self, show: str, kind: PartKind) -> None:
        stage = WithholdServerTools(Losses(), frozenset(), show)
        out = verify(stage([HEAD, MESSAGE, *call("1", "m", "f"), RESULT, END, STOP]))
        delta = ReasoningDelta if kind is PartKind.REASONING else TextDelta
        assert out == [
            HEAD,
            MESSAGE,
            MessageStarted("1-told"),
            PartStarted("1-told-1", "1-told", kind),
            delta("1-told-1", 'f({"a":1}) -> fine' + ("\n" if show == "reasoning" else "")),
            PartEnded("1-told-1"),
            MessageEnded("1-told"),
            END,
            STOP,
        ]

    @pytest.mark.parametrize(
        ("between", "fails"),
        [
            ([], True),
            (TEXT, False),
            (call("2", "m", "mine"), False),
            ([*call("2", "m", "mine"), *call("3", "m", "g")], False),
            ([*call("2", "m", "g"), ToolResulted("call-2", [Text("x")])], True),
        ],
    )
    def test_an_answer_that_ends_with_a_call_that_nobody_runs_fails(self, between: list[Event], fails: bool) -> None:
        stage = WithholdServerTools(Losses(), frozenset({"mine"}), runs_others=True)
        stage([HEAD, MESSAGE, *call("1", "m", "f"), *between, END])
        if not fails:
            ended = stage([CALLS])
            assert ended[-1] == CALLS
            assert not any(isinstance(event, PartStarted) for event in ended), "the backend's own calls are not shown"
            return
        *_, failed = stage([STOP])
        assert isinstance(failed, RunFailed)
        assert failed.error.code is ErrorCode.BACKEND_PROTOCOL
        assert 'its own tool call f({"a":1})' in failed.error.message

    def test_a_call_without_a_result_is_the_clients(self) -> None:
        losses = Losses()
        stage = WithholdServerTools(losses, frozenset())
        made = call("1", "m", "f")
        assert stage([HEAD, MESSAGE, *made, *TEXT, END]) == [HEAD, MESSAGE, *TEXT]
        assert stage([CALLS]) == [*made, END, CALLS]
        assert not losses

    def test_after_a_failure_nobody_shall_run_it(self) -> None:
        stage = WithholdServerTools(Losses(), frozenset())
        assert stage([HEAD, MESSAGE, *call("1", "m", "f"), END, FAILED]) == verify([HEAD, MESSAGE, END, FAILED])

    def test_a_message_that_ended_before_the_result_ends_with_it(self) -> None:
        stage = WithholdServerTools(Losses(), frozenset())
        assert stage([HEAD, MESSAGE, *call("1", "m", "f"), END]) == [HEAD, MESSAGE]
        assert stage([RESULT]) == [END]
        assert stage([STOP]) == [STOP]

    def test_a_message_waits_for_all_its_calls(self) -> None:
        stage = WithholdServerTools(Losses(), frozenset())
        stage([HEAD, MESSAGE, *call("1", "m", "f"), *call("2", "m", "g"), END])
        assert stage([RESULT]) == []
        assert stage([CALLS]) == [*call("2", "m", "g"), END, CALLS]

    @pytest.mark.parametrize("show", SHOWS)
    def test_a_result_before_the_call_is_complete_leaves_nothing_of_it(self, show: str) -> None:
        stage = WithholdServerTools(Losses(), frozenset(), show)
        start, first, second, end = call("1", "m", "f")
        out = through(stage, [[HEAD, MESSAGE, start, first, RESULT], [second], [end], [END, STOP]])
        verify(out)
        assert fold(out).calls == []

    def test_offered_tools_pass_at_once(self) -> None:
        stage = WithholdServerTools(Losses(), frozenset({"mine"}))
        mine, theirs = call("1", "m", "mine"), call("2", "m", "theirs")
        assert stage([HEAD, MESSAGE, *mine]) == [HEAD, MESSAGE, *mine]
        assert stage(theirs) == []
        assert stage([ToolResulted("call-2", []), END, CALLS]) == [END, CALLS]

    def test_a_result_of_an_offered_tool_passes(self) -> None:
        stage = WithholdServerTools(Losses(), frozenset({"mine"}))
        stage([HEAD, MESSAGE, *call("1", "m", "mine")])
        assert stage([RESULT]) == [RESULT]

    def test_it_passes_deltas_while_no_call_is_kept_back(self) -> None:
        stage = WithholdServerTools(Losses(), frozenset())
        start, first, second, end = call("1", "m", "f")
        seen = []
        for event in (HEAD, MESSAGE, *TEXT, start, first, RESULT, second, end, END, STOP):
            stage([event])
            seen.append(stage.passes_deltas)
        assert seen == [True] * 5 + [False] * 4 + [True] * 3

    @pytest.mark.parametrize("call_id", ["call-1", None], ids=["by name", "unnamed"])
    @pytest.mark.parametrize("holds_offered", [False, True])
    def test_the_agents_own_call_that_waits_for_a_person_is_told_by_the_question(
        self, call_id: str | None, holds_offered: bool
    ) -> None:
        asked = Interrupted("int-1", "tool_call", {"message": "Send?", "responseSchema": {}}, call_id)
        stage = WithholdServerTools(Losses(), frozenset({"mine"}), holds_offered=holds_offered)
        mine = call("2", "m", "mine")
        out = verify(stage([HEAD, MESSAGE, *call("1", "m", "send"), *mine, END, asked, WAITS]))
        assert fold(out).calls == [ToolCall("call-2", "mine", '{"a":1}')]
        told = Interrupted("int-1", "tool_call", 'send({"a":1})\n\nSend?', call_id)
        assert out[-2:] == [told, WAITS]

    def test_a_question_that_quotes_its_call_is_told_as_it_is(self) -> None:
        asked = Interrupted("int-1", "tool_call", {"message": 'May I send({"a": 1})?'}, "call-1")
        other = Interrupted("int-2", "input_required", {"message": "Which?"})
        stage = WithholdServerTools(Losses(), frozenset())
        out = verify(stage([HEAD, MESSAGE, *call("1", "m", "send"), END, asked, other, WAITS]))
        texts = [interrupt_text(e) for e in out if isinstance(e, Interrupted)]
        assert texts == ['May I send({"a": 1})?', "Which?"]

    @given(st.data())
    def test_generated_streams(self, data: st.DataObject) -> None:
        events = data.draw(answers(max_actions=12, message_ids=False))
        names = sorted({c.name for c in fold(events).calls})
        chosen = st.sets(st.sampled_from(names)) if names else st.just(set())
        offered = data.draw(chosen.map(frozenset))
        show, holds = data.draw(st.sampled_from(SHOWS)), data.draw(st.booleans())
        stage = WithholdServerTools(Losses(), offered, show, holds_offered=holds)
        out = through(stage, data.draw(batches(events)))
        verify(out)

        def withheld(made: ToolCall) -> bool:
            return holds or made.name not in offered

        before, after = fold(events), fold(out)
        answered = {r.call_id for r in before.results}
        waits = {c.call_id for c in before.calls if before.interrupts and c.name not in offered}
        kept = [
            c for c in before.calls if not withheld(c) or (c.call_id not in answered | waits and not before.failure)
        ]
        assert sorted(c.call_id for c in after.calls) == sorted(c.call_id for c in kept)
        if holds or not offered:
            assert after.results == []
        if show == "drop":
            assert (after.text, after.reasoning, after.media) == (before.text, before.reasoning, before.media)
        assert (after.usage, after.reason, after.failure) == (before.usage, before.reason, before.failure)


class TestFactory:
    def stage(
        self, front: Capabilities, back: Capabilities, tools: list[Tool] | None = None, options: Any = None
    ) -> Any:
        return withhold_server_tools(context(front, back, tools, options))

    def test_not_needed(self) -> None:
        assert self.stage(capabilities(), capabilities(RunsTools.NEVER)) is None
        assert self.stage(capabilities(client_runs=False), capabilities(RunsTools.ANY)) is None

    def test_any(self) -> None:
        stage = self.stage(capabilities(), capabilities(RunsTools.ANY), [Tool("mine")])
        assert stage([HEAD, MESSAGE, *call("1", "m", "mine")]) == [HEAD, MESSAGE]

    def test_unlisted(self) -> None:
        stage = self.stage(capabilities(), capabilities(RunsTools.UNLISTED), [Tool("mine")])
        mine = call("1", "m", "mine")
        assert stage([HEAD, MESSAGE, *mine, *call("2", "m", "theirs")]) == [HEAD, MESSAGE, *mine]

    def test_unlisted_without_tools(self) -> None:
        stage = self.stage(capabilities(), capabilities(RunsTools.UNLISTED))
        assert stage([HEAD, MESSAGE, *call("1", "m", "f")]) == [HEAD, MESSAGE]

    def test_options_of_the_route(self) -> None:
        stage = self.stage(capabilities(), capabilities(RunsTools.ANY), None, Options("text"))
        out = stage([HEAD, MESSAGE, *call("1", "m", "f"), RESULT])
        assert TextDelta("1-told-1", 'f({"a":1}) -> fine') in out

    def test_it_is_automatic(self) -> None:
        assert len(prepare((), context(capabilities(), capabilities(RunsTools.ANY))).stages) == 1
        assert prepare((), context(capabilities(), capabilities())).stages == []


def test_stages_keep_their_order_and_none_is_left_out() -> None:
    def first(_: StageContext) -> Stage:
        return lambda events: [*events, TextDelta("p", "1")]

    def second(_: StageContext) -> Stage:
        return lambda events: [*events, TextDelta("p", "2")]

    def absent(_: StageContext) -> None:
        return None

    stages = prepare([second, absent, first], context(capabilities(), capabilities())).stages
    events: list[Event] = []
    for stage in stages:
        events = stage(events)
    assert events == [TextDelta("p", "2"), TextDelta("p", "1")]


class TestLoad:
    @pytest.fixture(autouse=True)
    def _module(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = types.ModuleType("stages_for_tests")
        module.factory = withhold_server_tools  # type: ignore[attr-defined]
        module.holder = types.SimpleNamespace(inner=len)  # type: ignore[attr-defined]
        module.number = 5  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "stages_for_tests", module)

    def test_found(self) -> None:
        assert load("stages_for_tests:factory") is withhold_server_tools
        assert load_object("stages_for_tests:holder.inner", "x") is len

    @pytest.mark.parametrize(
        ("target", "message"),
        [
            ("", "'': expected a stage as 'module:name'"),
            ("module", "'module': expected a stage as 'module:name'"),
            (":name", "':name': expected a stage as 'module:name'"),
            ("module:", "'module:': expected a stage as 'module:name'"),
            (".module:name", "'.module:name': expected a stage as 'module:name'"),
            (
                "no_such_module_here:f",
                "'no_such_module_here:f': cannot import 'no_such_module_here' for a stage: "
                f"No module named 'no_such_module_here' (looked for in {Path.cwd()})",
            ),
            ("stages_for_tests:no", "'stages_for_tests:no': 'stages_for_tests' has no callable 'no' for a stage"),
            (
                "stages_for_tests:number",
                "'stages_for_tests:number': 'stages_for_tests' has no callable 'number' for a stage",
            ),
            (
                "stages_for_tests:holder.no.deep",
                "'stages_for_tests:holder.no.deep': 'stages_for_tests' has no callable 'holder.no.deep' for a stage",
            ),
        ],
    )
    def test_not_found(self, target: str, message: str) -> None:
        with pytest.raises(ConfigError) as caught:
            load(target)
        assert str(caught.value) == message


# ------------------------------------------------------------------ calls whose results a backend waits for


def test_a_conversation_that_is_kept_over_chat_passes_no_stage() -> None:
    """A stage costs time per token, and a second record of the answer."""
    chat = registry.get("openai-chat").capabilities
    for name in ("agentscope", "agentscope-java", "ag-kit", "a2a"):
        assert prepare((), context(registry.get(name).capabilities, chat)).stages == []
    # Clients that send their calls back learn of a signature that they do not get.
    assert prepare((), context(registry.get("ag-ui").capabilities, chat)).stages


def test_a_call_whose_result_is_awaited_is_shown_as_the_clients() -> None:
    back = replace(capabilities(RunsTools.ANY), awaits_results=True)
    stage = prepare((), context(capabilities(), back)).stages[0]
    call = [PartStarted("p", "m", PartKind.TOOL_CALL, "c1", "clock"), PartEnded("p")]
    ended = [MessageEnded("m", reason=FinishReason.INTERRUPTED), RunFinished(FinishReason.INTERRUPTED)]
    awaited, question = Interrupted("c1", AWAITS_RESULT, None, "c1"), Interrupted("i", "approval", "May I?")
    shown = stage([*call, ended[0], awaited, ended[1]])
    assert shown == [*call, MessageEnded("m", reason=FinishReason.TOOL_CALLS), RunFinished(FinishReason.TOOL_CALLS)]
    assert stage([awaited, question, ended[1]]) == [question, ended[1]], "another question is still asked"
    assert stage([question, ended[1]]) == [question, ended[1]]
    assert prepare((), context(capabilities(), capabilities())).stages == []
