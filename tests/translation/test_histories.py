"""Calls and results of a history: whatever a client sends, each call stands once and has its one result behind it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import Context, Losses, registry
from bridge.contract.demands import NO_RESULT
from bridge.model import Message, Part, Reasoning, Request, Text, ToolCall, ToolResult
from bridge.translation.library import Translator
from bridge.translation.requirements import encoded, required

BACKS = ["openai-chat", "openai-responses", "anthropic-messages", "gemini"]
"""The dialects whose APIs demand a result for each call."""


def user(text: str = "go") -> Message:
    return Message("user", [Text(text)])


def calls(*ids: str, arguments: str = "{}") -> Message:
    return Message("assistant", [ToolCall(i, "ls", arguments) for i in ids])


def result(call_id: str, text: str = "A") -> Message:
    return Message("tool", [ToolResult(call_id, [Text(text)], "ls")])


def said(text: str = "so") -> Message:
    return Message("assistant", [Text(text)])


HISTORIES: dict[str, tuple[list[Message], list[str]]] = {
    "no result": ([user(), calls("k"), user("on")], [NO_RESULT]),
    "no result at the end": ([user(), calls("k")], [NO_RESULT]),
    "no result, then a text": ([user(), calls("k"), said(), user("on")], [NO_RESULT]),
    "one of two": ([user(), calls("k", "l"), result("l"), user("on")], [NO_RESULT, "A"]),
    "before its call": ([user(), result("k"), calls("k"), user("on")], ["A"]),
    "after the next question": ([user(), calls("k"), user("on"), result("k")], ["A"]),
    "after a text": ([user(), calls("k"), said(), result("k"), user("on")], ["A"]),
    "after a note": ([user(), calls("k"), Message("developer", [Text("note")]), result("k"), user("on")], ["A"]),
    "a text between two calls": ([user(), calls("k"), said(), calls("l"), result("l", "B"), result("k")], ["A", "B"]),
    "twice": ([user(), calls("k"), result("k"), result("k", "B"), user("on")], ["A"]),
    "again, later": ([user(), calls("k"), result("k"), said(), result("k", "B"), user("on")], ["A"]),
    "a call twice in a message": ([user(), calls("k", "k"), result("k"), user("on")], ["A"]),
    "a message with a call twice": ([user(), calls("k"), calls("k"), result("k"), user("on")], ["A"]),
    "without a call": ([user(), result("gone"), user("on")], []),
    "one id in two turns": ([user(), calls("k"), result("k"), calls("k"), result("k", "B")], ["A", "B"]),
    "one id, only the second answered": ([user(), calls("k"), user(), calls("k"), result("k", "B")], [NO_RESULT, "B"]),
    "one id twice in a turn": (
        [user(), Message("assistant", [ToolCall("k", "ls", '{"d":1}'), ToolCall("k", "ls", '{"d":2}')]),
         result("k"), result("k", "B")],
        ["A", "B"],
    ),
    "an id that a repeat would get": (
        [user(), calls("k"), result("k"), calls("k-copy-2"), result("k-copy-2", "B"), calls("k"), result("k", "C")],
        ["A", "B", "C"],
    ),
    "no id": ([user(), calls("", arguments="{}"), result("")], ["A"]),
    "a long id": ([user(), calls("k" * 300), result("k" * 300)], ["A"]),
    "in a message with the next question": (
        [user(), calls("k"), Message("user", [Text("on"), ToolResult("k", [Text("A")])])], ["A"],
    ),
    "in the assistant's message": (
        [user(), Message("assistant", [ToolCall("k", "ls", "{}"), ToolResult("k", [Text("A")]), Text("so")])], ["A"],
    ),
}  # fmt: skip
FINE: dict[str, list[Message]] = {
    "nothing": [],
    "texts": [user(), said(), user("on")],
    "two turns": [user(), calls("k", "l"), result("k"), result("l"), said(), user(), calls("m"), result("m")],
    "thoughts": [Message("assistant", [Reasoning("hm"), Text("I look"), ToolCall("k", "ls", "{}")]), result("k")],
}  # fmt: skip


# ---------------------------------------------------------------------- what each API says about a body


def _chat(body: dict[str, Any]) -> list[str]:
    """The texts of the results, in the order of their calls, if the API takes the messages."""
    texts: list[str] = []
    waiting: dict[str, int] = {}
    seen: set[str] = set()
    for message in body["messages"]:
        if message["role"] == "tool":
            texts[waiting.pop(message["tool_call_id"])] = message["content"]
            continue
        assert not waiting, f"{message['role']} before the results of {list(waiting)}"
        for call in message.get("tool_calls", ()):
            assert call["id"] not in seen
            assert 0 < len(call["id"]) <= 40
            seen.add(call["id"])
            waiting[call["id"]] = len(texts)
            texts.append("")
    assert not waiting
    return texts


def _responses(body: dict[str, Any]) -> list[str]:
    made = [item["call_id"] for item in body["input"] if item["type"] == "function_call"]
    outputs = [(i["call_id"], i["output"]) for i in body["input"] if i["type"] == "function_call_output"]
    assert len(set(made)) == len(made)
    assert all(0 < len(call_id) <= 64 for call_id in made)
    assert sorted(made) == sorted(call_id for call_id, _ in outputs)
    return [dict(outputs)[call_id] for call_id in made]


def _messages(body: dict[str, Any]) -> list[str]:
    texts: list[str] = []
    waiting: list[str] = []
    seen: set[str] = set()
    for message in body["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else []
        kinds = [block["type"] for block in blocks]
        found = {b["tool_use_id"]: b["content"] for b in blocks if b["type"] == "tool_result"}
        assert kinds[: len(found)] == ["tool_result"] * len(found)
        assert sorted(found) == sorted(waiting)
        assert kinds.count("tool_result") == len(found)
        texts += [found[call_id] for call_id in waiting]
        waiting = [b["id"] for b in blocks if b["type"] == "tool_use"]
        assert len(set(waiting)) == len(waiting)
        assert seen.isdisjoint(waiting)
        seen.update(waiting)
    assert not waiting
    return texts


def _gemini(body: dict[str, Any]) -> list[str]:
    texts: list[str] = []
    waiting: list[str] = []
    for content in body["contents"]:
        found = [p["functionResponse"] for p in content["parts"] if "functionResponse" in p]
        assert [response.get("id") for response in found] == waiting
        texts += [next(iter(response["response"].values())) for response in found]
        waiting = [p["functionCall"].get("id") for p in content["parts"] if "functionCall" in p]
    assert not waiting
    return texts


READ: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "openai-chat": _chat, "openai-responses": _responses, "anthropic-messages": _messages, "gemini": _gemini,
}  # fmt: skip


def sent(back: str, messages: list[Message], **fields: Any) -> tuple[dict[str, Any], Context]:
    context = Context("run1", model="m")
    body: dict[str, Any] = json.loads(encoded(registry.get(back), Request(messages, **fields), context).body)
    return body, context


# ---------------------------------------------------------------------- the tests


@pytest.mark.parametrize("back", BACKS)
@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.parametrize("own", [False, True], ids=["of another dialect", "of the same dialect"])
def test_each_call_has_its_one_result_behind_it(back: str, name: str, own: bool) -> None:
    messages, texts = HISTORIES[name]
    body, _ = sent(back, messages, extras={back: {}} if own and name != "a long id" else None)
    assert READ[back](body) == texts
    written = json.dumps(body)
    spoken = [part.text for message in messages for part in message.parts if isinstance(part, Text)]
    assert [text for text in spoken if json.dumps(text) not in written] == []


FRONTS = ["openai-chat", "openai-responses", "anthropic-messages", "gemini", "ag-ui", "agentscope", "agentscope-java"]
LOSSY = ["ai-sdk-ui", "ag-kit", "a2a", "agent-runs"]
"""Dialects whose clients cannot say all of these histories: what they say is arranged all the same."""


def asked_by(front: str, back: str, messages: list[Message]) -> dict[str, Any]:
    """The body for the backend of a client that sends this history in its own dialect."""
    dialect = registry.get(front)
    context = Context("run1", "t", model="m", options=dialect.back_options())
    wire = dialect.encode_request(Request(messages, model="m", thread_id="t"), context)
    translator = Translator(back, front, model="m")
    body: dict[str, Any] = json.loads(translator.request(wire.body, client=front, headers=wire.headers, path=wire.path))
    return body


@pytest.mark.parametrize("back", BACKS)
@pytest.mark.parametrize("front", FRONTS)
def test_the_histories_of_every_client_are_arranged(front: str, back: str) -> None:
    for name, (messages, texts) in HISTORIES.items():
        if name not in ("a long id", "no id"):  # clients of the same dialect may use the former, none the latter
            assert READ[back](asked_by(front, back, messages)) == texts, name


@pytest.mark.parametrize("back", BACKS)
@pytest.mark.parametrize("front", LOSSY)
def test_the_histories_of_clients_that_can_say_less_are_arranged(front: str, back: str) -> None:
    for name, (messages, _) in HISTORIES.items():
        if name not in ("no id", "no result at the end"):  # agent-runs takes no history that ends so
            READ[back](asked_by(front, back, messages))


@pytest.mark.parametrize("back", BACKS)
@pytest.mark.parametrize("name", FINE)
def test_what_is_right_stays_the_same_object(back: str, name: str) -> None:
    request, lost = Request(FINE[name]), Losses()
    assert required(request, registry.get(back).capabilities.demands, lost) is request
    assert lost.names == []


@pytest.mark.parametrize("back", BACKS)
@pytest.mark.parametrize("name", HISTORIES)
def test_what_was_changed_is_named_and_the_given_request_is_left_as_it_was(back: str, name: str) -> None:
    messages, texts = HISTORIES[name]
    given, lost = [(m, list(m.parts)) for m in messages], Losses()
    changed = required(Request(messages), registry.get(back).capabilities.demands, lost)
    assert [(m, m.parts) for m in messages] == given
    is_other = {p.call_id for m in messages for p in m.parts if isinstance(p, ToolCall)} != {
        p.call_id for m in changed.messages for p in m.parts if isinstance(p, ToolCall)
    }
    if is_other or NO_RESULT in texts or len(texts) < len([m for m in messages if m.role == "tool"]):
        assert lost.details["tool_history"]


@pytest.mark.parametrize("back", BACKS)
def test_earlier_messages_are_the_same_in_every_request(back: str) -> None:
    history = [user(), calls("k"), result("k"), calls("k"), said(), result("k", "B"), user("on")]
    key = {"openai-chat": "messages", "openai-responses": "input", "anthropic-messages": "messages"}.get(
        back, "contents"
    )
    earlier = sent(back, history)[0][key]
    for new in ("k", "k-repeat-2"):  # the latter is what a client gets for a call that is named k again
        later = sent(back, [*history, calls(new), result(new, "C"), user("more")])[0][key]
        assert later[: len(earlier)] == earlier
    assert sent(back, history)[0] == sent(back, history)[0]


_PARTS: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, st.sampled_from(["", "x"])),
    st.builds(ToolCall, st.sampled_from("abc"), st.just("f"), st.sampled_from(["{}", '{"x":1}'])),
    st.builds(lambda i, t: ToolResult(i, [Text(t)]), st.sampled_from("abc"), st.sampled_from("xy")),
    st.builds(Reasoning, st.just("hm")),
)
_MESSAGES = st.lists(
    st.builds(Message, st.sampled_from(["user", "assistant", "tool", "system"]), st.lists(_PARTS, max_size=4)),
    max_size=9,
)


@given(_MESSAGES, st.sampled_from(BACKS), st.booleans())
def test_whatever_the_history_is_the_api_takes_its_calls(messages: list[Message], back: str, own: bool) -> None:
    body, _ = sent(back, messages, extras={back: {}} if own else None)
    count = len([p for m in messages if m.role == "assistant" for p in m.parts if isinstance(p, ToolCall)])
    assert len(READ[back](body)) <= count


@given(_MESSAGES, st.sampled_from(BACKS))
def test_what_was_arranged_is_as_demanded(messages: list[Message], back: str) -> None:
    demands = registry.get(back).capabilities.demands
    once = required(Request(messages), demands, Losses())
    assert required(once, demands, Losses()) is once


def test_results_of_calls_that_the_server_stored_stay() -> None:
    asked = {"model": "m", "previous_response_id": "resp_1", "input": [
        {"type": "function_call_output", "call_id": "stored", "output": "A"}, {"role": "user", "content": "on"},
    ]}  # fmt: skip
    translator = Translator("openai-responses", "openai-responses", client_options={"stored": "backend"})
    body = json.loads(translator.request(json.dumps(asked).encode()))
    assert [i.get("output") for i in body["input"]] == ["A", None]


def test_the_work_grows_linearly() -> None:
    """Counted by the looks at parts, not by time."""

    class Counted(list[Any]):
        looks = 0

        def __iter__(self) -> Any:
            Counted.looks += len(self) + 1
            return super().__iter__()

    def looks(count: int) -> int:
        Counted.looks = 0
        parts: list[Any] = [ToolCall(f"{n % 7}", "f", "{}") for n in range(count)]
        messages = [user(), Message("assistant", parts), *(result(f"{n % 7}") for n in range(count))]
        for message in messages:
            message.parts = Counted(message.parts)
        required(Request(messages), registry.get("openai-chat").capabilities.demands, Losses())
        return Counted.looks

    few, many = looks(50), looks(500)
    assert few > 50
    assert many <= 11 * few
