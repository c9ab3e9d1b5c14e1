"""One suite for every engine: talks are kept, found, bounded and forgotten."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.errors import BridgeError, ErrorCode, RequestError
from bridge.model import (
    Data,
    FileRef,
    Inline,
    Interrupted,
    Media,
    MediaKind,
    Message,
    Origin,
    Reasoning,
    Refusal,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    Url,
)
from bridge.stores import (
    Bounds,
    Conversation,
    ConversationStore,
    StoreConflict,
    conversation_scripts,
    open_conversations,
)
from tests.stores.conftest import Engine
from tests.strategies import AWKWARD, requests


def says(text: str, role: str = "user") -> Message:
    return Message(role, [Text(text)])


def calls(*ids: str) -> Message:
    return Message("assistant", [ToolCall(call_id, "f", "{}") for call_id in ids])


def result(call_id: str) -> Message:
    return Message("tool", [ToolResult(call_id, [Text("done")])])


def texts(conversation: Conversation | None) -> list[str]:
    assert conversation is not None
    return [p.text for m in conversation.messages for p in m.parts if isinstance(p, Text)]


async def stored(history: ConversationStore, thread_id: str = "t", owner: str = "o", scope: str = "s") -> Conversation:
    found = await history.load(owner, scope, thread_id)
    assert found is not None
    return found


async def test_nothing_is_there_at_first(history: ConversationStore) -> None:
    assert await history.load("o", "s", "t") is None
    assert await history.find("o", "s", "d") is None
    assert await history.delete("o", "s", "t") is False
    assert await history.prune(0.0) == 0


async def test_every_kind_of_part_comes_back(history: ConversationStore) -> None:
    extras = {"d": {"a": [1, None, 2.5]}}
    messages = [
        Message("system", [Text("be kind")], "m1", "sys", {"k": {"v": [True]}}, extras),
        Message(
            "user",
            [
                Text("look", extras),
                Media(MediaKind.IMAGE, Url("https://e.x/i"), "image/png", "i.png", extras),
                Media(MediaKind.AUDIO, Inline("QUJD")),
                Media(MediaKind.FILE, FileRef("f-1")),
                Data({"a": [["T", "not a part"], None]}),
                Data(None),
            ],
        ),
        Message(
            "assistant",
            [
                Reasoning("hm", "sig", "red", extras),
                Refusal("no"),
                ToolCall("c", "f", '{"broken', Origin.MCP, "srv", extras),
            ],
        ),
        Message(
            "tool", [ToolResult("c", [Text("x"), Media(MediaKind.IMAGE, Inline("QQ=="))], "f", True, extras)], None, "f"
        ),
        Message("assistant", []),
    ]
    tools = [Tool("f", "does", {"type": "object"}, True, extras), Tool("g")]
    waiting = [Interrupted("i", "why", {"steps": [1]}, "c")]
    conversation = Conversation("t", [], tools, "backend-1", waiting, {"names": {"a.b": "a_b"}})
    await history.commit("o", "s", conversation, messages)
    again = await stored(history)
    assert again == conversation
    assert repr(again.messages) == repr(messages), "types too"
    assert (again.tools, again.backend_thread, again.open_interrupts) == (tools, "backend-1", waiting)
    assert again.extra == {"names": {"a.b": "a_b"}}
    assert (again.version, again.dropped) == (1, 0)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(asked=requests(), thread_id=st.text(st.characters() | st.sampled_from("%" + AWKWARD), max_size=40))
async def test_whatever_can_be_asked_comes_back(history: ConversationStore, asked: Request, thread_id: str) -> None:
    await history.delete("o", "s", thread_id)
    conversation = Conversation(thread_id, [], asked.tools)
    await history.commit("o", "s", conversation, asked.messages, digest=thread_id)
    again = await history.load("o", "s", thread_id)
    assert again == conversation
    assert repr(again) == repr(conversation)
    assert again.messages == asked.messages
    assert await history.find("o", "s", thread_id) == thread_id


async def test_the_latest_is_the_one_committed_last(history: ConversationStore) -> None:
    assert await history.latest("o", "s") is None
    for owner, scope, thread in (("o", "s", "a%b"), ("o", "s", "b"), ("o", "else", "c"), ("p", "s", "d")):
        await history.commit(owner, scope, Conversation(thread), [Message("user", [Text("x")])])
    assert await history.latest("o", "s") == "b"
    again = await history.load("o", "s", "a%b")
    assert again is not None
    await history.commit("o", "s", again, [])
    assert await history.latest("o", "s") == "a%b"
    assert await history.latest("p", "s") == "d"
    assert await history.latest("p", "else") is None


@pytest.mark.parametrize("value", [2**70, -(2**63) - 1, 2**64 - 1, "\ud800 alone", "\x00", [[[]]], {"": 0.1}, 1e300])
async def test_awkward_json_comes_back(history: ConversationStore, value: Any) -> None:
    conversation = Conversation("t", extra={"v": value}, backend_thread="\x00\ud800")
    await history.commit("o", "s", conversation, [Message("user", [Data(value)]), says(str(value))])
    again = await stored(history)
    assert again == conversation
    assert isinstance(again.messages[0].parts[0], Data)
    assert type(again.messages[0].parts[0].value) is type(value)


@pytest.mark.parametrize(
    "thread_id", ["", "%", "%%", "%0000", "a%41b", "\x00", "\ud800", "%\udfff%", "/../é\U0001f600'"]
)
async def test_awkward_ids_come_back(history: ConversationStore, thread_id: str) -> None:
    for other in ("", "%", "%0000", "\x00", "\ud800", "%D800"):
        await history.commit(thread_id, thread_id, Conversation(other), [says("other")])
    conversation = await history.load(thread_id, thread_id, thread_id) or Conversation(thread_id)
    await history.commit(thread_id, thread_id, conversation, [says("mine")], digest=thread_id)
    assert await history.load(thread_id, thread_id, thread_id) == conversation
    assert await history.find(thread_id, thread_id, thread_id) == thread_id
    async with history.turn(thread_id, thread_id, thread_id):
        assert await history.delete(thread_id, thread_id, thread_id)


async def test_an_absent_tool_list_is_not_an_empty_one(history: ConversationStore) -> None:
    for tools in ([], None):
        conversation = Conversation("t", tools=tools)
        await history.delete("o", "s", "t")
        await history.commit("o", "s", conversation, [])
        assert (await stored(history)).tools == tools


async def test_messages_keep_their_order(history: ConversationStore) -> None:
    conversation = Conversation("t")
    expected = []
    for turn in range(12):
        new = [says(f"{turn}.{n}") for n in range(turn % 4)]
        expected += [f"{turn}.{n}" for n in range(turn % 4)]
        await history.commit("o", "s", conversation, new)
        assert conversation.version == turn + 1
        assert await stored(history) == conversation
    assert texts(conversation) == expected


async def test_what_stands_beside_the_talk_is_replaced(history: ConversationStore) -> None:
    conversation = Conversation("t", [], [Tool("f")], "b", [Interrupted("i")], {"a": 1})
    await history.commit("o", "s", conversation, [says("1")])
    conversation.tools, conversation.backend_thread, conversation.open_interrupts, conversation.extra = (
        None,
        None,
        [],
        {},
    )
    await history.commit("o", "s", conversation, [])
    again = await stored(history)
    assert (again.tools, again.backend_thread, again.open_interrupts, again.extra) == (None, None, [], {})
    assert texts(again) == ["1"]


async def test_of_others_there_is_nothing(history: ConversationStore) -> None:
    places = [("o", "s"), ("o", ""), ("", "s"), ("", ""), ("s", "o"), ("o", "s2"), ("%", "s"), ("%0025", "s")]
    for owner, scope in places:
        assert await history.load(owner, scope, "t") is None
        assert await history.find(owner, scope, "d") is None
        await history.commit(owner, scope, Conversation("t"), [says(f"{owner}/{scope}")], digest="d")
    for owner, scope in places:
        assert texts(await history.load(owner, scope, "t")) == [f"{owner}/{scope}"]
    assert await history.delete("o", "s", "t") is True
    assert await history.find("o", "s", "d") is None
    for owner, scope in places[1:]:
        assert texts(await history.load(owner, scope, "t")) == [f"{owner}/{scope}"]
        assert await history.find(owner, scope, "d") == "t"


async def test_what_was_changed_meanwhile_is_a_conflict(history: ConversationStore) -> None:
    first, second = Conversation("t"), Conversation("t")
    await history.commit("o", "s", first, [says("first")])
    with pytest.raises(StoreConflict) as caught:
        await history.commit("o", "s", second, [says("second")])
    assert caught.value.code is ErrorCode.CONFLICT
    assert (second.version, second.messages) == (0, [])
    stale = await stored(history)
    await history.commit("o", "s", first, [says("more")])
    with pytest.raises(StoreConflict):
        await history.commit("o", "s", stale, [says("lost")], keep=0, digest="lost")
    assert await stored(history) == first
    assert texts(first) == ["first", "more"]
    assert await history.find("o", "s", "lost") is None
    await history.delete("o", "s", "t")
    with pytest.raises(StoreConflict):
        await history.commit("o", "s", first, [says("gone")])
    assert await history.load("o", "s", "t") is None


async def test_of_many_at_once_one_wins(history: ConversationStore) -> None:
    for version in range(3):
        conversations = [await history.load("o", "s", "t") or Conversation("t") for _ in range(8)]
        done = await asyncio.gather(
            *(history.commit("o", "s", conversation, [says(str(n))]) for n, conversation in enumerate(conversations)),
            return_exceptions=True,
        )
        assert [type(d) for d in done].count(StoreConflict) == 7
        assert (await stored(history)).version == version + 1
    assert len((await stored(history)).messages) == 3


async def test_a_state_is_found_by_its_digest(history: ConversationStore) -> None:
    one, two = Conversation("one"), Conversation("two")
    await history.commit("o", "s", one, [says("hi")], digest="a")
    assert await history.find("o", "s", "a") == "one"
    assert (await stored(history, "one")).digest == "a"
    await history.commit("o", "s", two, [says("hi")], digest="a")
    assert await history.find("o", "s", "a") == "two", "the last one"
    await history.commit("o", "s", two, [says("hi")], digest="b")
    assert await history.find("o", "s", "a") == "one", "the state of two has moved on"
    assert await history.find("o", "s", "b") == "two"
    await history.commit("o", "s", one, [])
    assert await history.find("o", "s", "a") is None, "a state without a name"
    assert (await stored(history, "one")).digest is None


async def test_an_edited_talk_replaces_its_end(history: ConversationStore) -> None:
    conversation = Conversation("t")
    await history.commit("o", "s", conversation, [says("sys", "system"), says("1"), says("2", "assistant"), says("3")])
    await history.commit("o", "s", conversation, [says("3b"), says("4b", "assistant")], keep=3)
    assert texts(conversation) == ["sys", "1", "2", "3b", "4b"]
    assert await stored(history) == conversation
    await history.commit("o", "s", conversation, [], keep=5)
    assert texts(await stored(history)) == ["sys", "1", "2", "3b", "4b"]
    await history.commit("o", "s", conversation, [says("new")], keep=0)
    assert texts(conversation) == ["new"]
    assert await stored(history) == conversation
    await history.commit("o", "s", conversation, [], keep=0)
    assert await stored(history) == conversation
    assert conversation.messages == []


async def test_an_edited_talk_is_counted_anew(engine: Engine) -> None:
    history = engine.history(bounds=Bounds(messages=4))
    conversation = Conversation("t")
    for n in range(6):
        await history.commit("o", "s", conversation, [says(f"q{n}"), says(f"a{n}", "assistant")], keep=2 if n else None)
        assert conversation.dropped == 0
    assert texts(await stored(history)) == ["q0", "a0", "q5", "a5"]
    for n in range(3):
        await history.commit("o", "s", conversation, [says("q" * 10**n)])
    await history.commit("o", "s", conversation, [], keep=1)
    for column, truth in (("messages", "count(*)"), ("size", "sum(size)")):
        counted = await engine.execute(f"SELECT {column} FROM history_conversations")
        assert counted == await engine.execute(f"SELECT {truth} FROM history_messages")


async def test_the_oldest_turns_go(engine: Engine) -> None:
    history = engine.history(bounds=Bounds(messages=7))
    conversation = Conversation("t")
    await history.commit("o", "s", conversation, [says("sys", "system"), says("dev", "developer")])
    for n in range(5):
        await history.commit("o", "s", conversation, [says(f"q{n}"), says(f"a{n}", "assistant")])
        assert await stored(history) == conversation
    assert texts(conversation) == ["sys", "dev", "q3", "a3", "q4", "a4"]
    assert conversation.dropped == 6
    await history.commit("o", "s", conversation, [says("again")], keep=0)
    assert (conversation.dropped, (await stored(history)).dropped) == (0, 0)


async def test_a_call_and_its_result_go_together(engine: Engine) -> None:
    history = engine.history(bounds=Bounds(messages=5))
    conversation = Conversation("t")
    await history.commit("o", "s", conversation, [says("q0"), calls("a", "b")])
    await history.commit("o", "s", conversation, [says("q1"), result("a"), result("b")])
    assert len(conversation.messages) == 5
    await history.commit("o", "s", conversation, [says("a1", "assistant")])
    # The turn q1 holds the results of a call in the turn q0: both or neither.
    assert await stored(history) == conversation
    assert len(conversation.messages) == 6
    await history.commit("o", "s", conversation, [says("q2"), calls("c")])
    assert texts(conversation) == ["q2"]
    await history.commit("o", "s", conversation, [result("c")])
    assert await stored(history) == conversation
    assert [m.role for m in conversation.messages] == ["user", "assistant", "tool"]


async def test_one_endless_turn_loses_its_oldest_rounds(engine: Engine) -> None:
    history = engine.history(bounds=Bounds(messages=6))
    conversation = Conversation("t")
    await history.commit("o", "s", conversation, [says("sys", "system"), says("do it"), calls("0")])
    for n in range(6):
        await history.commit("o", "s", conversation, [result(str(n)), calls(str(n + 1))])
        assert await stored(history) == conversation
        assert len(conversation.messages) <= 6
    assert texts(conversation)[:2] == ["sys", "do it"]
    ids = [p.call_id for m in conversation.messages for p in m.parts if isinstance(p, (ToolCall, ToolResult))]
    assert ids == ["5", "5", "6"]


async def test_large_talks_are_bounded_by_size(engine: Engine) -> None:
    history = engine.history(bounds=Bounds(size=5000))
    conversation = Conversation("t")
    for n in range(12):
        await history.commit("o", "s", conversation, [says("abcdefghijkl"[n] * 1000), says("ok", "assistant")])
        assert await stored(history) == conversation
    assert len(conversation.messages) == 2 * 4
    await history.commit("o", "s", conversation, [says("x" * 9000)])
    assert len(conversation.messages) == 1, "the newest turn stays, however large"


async def test_of_one_owner_the_silent_ones_go(engine: Engine) -> None:
    history = engine.history(bounds=Bounds(conversations=3))
    for n in range(3):
        await history.commit("o", "s", Conversation(f"t{n}"), [says("hi")])
        await history.commit("p", "s", Conversation(f"t{n}"), [says("hi")])
        await engine.backdate(f"t{n}", 60 - n)
    await history.commit("o", "s", await stored(history, "t0"), [says("still here")])
    await history.commit("o", "other", Conversation("t3"), [says("hi")])
    assert await history.load("o", "s", "t1") is None
    assert texts(await history.load("o", "s", "t0")) == ["hi", "still here"]
    assert await history.load("o", "s", "t2") is not None
    assert await history.load("o", "other", "t3") is not None
    for n in range(3):
        assert await history.load("p", "s", f"t{n}") is not None, "of another owner"


async def test_what_is_in_a_turn_is_not_evicted(engine: Engine) -> None:
    history = engine.history(bounds=Bounds(conversations=1))
    conversation = Conversation("t0")
    await history.commit("o", "s", conversation, [says("hi")])
    async with history.turn("o", "s", "t0"):
        await history.commit("o", "s", Conversation("t1"), [says("hi")])
        await history.commit("o", "s", conversation, [says("more")])
    await history.commit("o", "s", Conversation("t2"), [says("hi")])
    assert await history.load("o", "s", "t0") is None
    assert await history.load("o", "s", "t1") is None


async def test_old_ones_are_pruned(engine: Engine, history: ConversationStore) -> None:
    for n in range(130):
        await history.commit("o", f"s{n % 3}", Conversation(f"t{n}"), [says("hi")], digest=f"d{n}")
    await history.commit("o", "s", Conversation("new"), [says("hi")], digest="d")
    for n in range(3):
        await engine.backdate(f"t{n}", 3600)
    async with history.turn("o", "s0", "t0"):
        assert await history.prune(600) == 2
        assert await history.load("o", "s0", "t0") is not None
    assert await history.load("o", "s1", "t1") is None
    assert await history.find("o", "s1", "d1") is None
    assert await history.prune(600) == 1
    assert await history.prune(0) == 128, "in more than one transaction"
    assert await history.prune(0) == 0


async def test_a_restart_changes_nothing(engine: Engine) -> None:
    first = engine.history()
    await first.open()
    conversation = Conversation("t", [], [Tool("f")], "b", [Interrupted("i")], {"a": 1})
    await first.commit("o", "s", conversation, [says("1"), says("2", "assistant")], digest="d")
    await first.close()
    await first.close()
    with pytest.raises(BridgeError) as caught:
        await first.load("o", "s", "t")
    assert caught.value.code is ErrorCode.STORE_UNAVAILABLE
    second = engine.history()
    assert await second.load("o", "s", "t") == conversation
    assert await second.find("o", "s", "d") == "t"
    await second.commit("o", "s", conversation, [says("3")])
    await first.open()
    assert texts(await first.load("o", "s", "t")) == ["1", "2", "3"]


async def test_fifty_conversations_at_once_stay_apart(history: ConversationStore) -> None:
    async def conversation(n: int) -> None:
        for turn in range(4):
            async with history.turn("o", "s", f"t{n}"):
                mine = await history.load("o", "s", f"t{n}") or Conversation(f"t{n}")
                await history.commit("o", "s", mine, [says(f"{n}:{turn}"), says("ok", "assistant")], digest=f"{n}")

    await asyncio.gather(*(conversation(n) for n in range(50)))
    for n in range(50):
        found = await stored(history, f"t{n}")
        assert texts(found)[::2] == [f"{n}:{turn}" for turn in range(4)]
        assert found.version == 4
        assert await history.find("o", "s", f"{n}") == f"t{n}"


async def test_a_long_talk(engine: Engine) -> None:
    history = engine.history(bounds=Bounds(messages=1000))
    conversation = Conversation("t")
    messages = [says(f"{n}", "assistant" if n % 2 else "user") for n in range(998)]
    await history.commit("o", "s", conversation, messages)
    await history.commit("o", "s", conversation, [says("q"), says("a", "assistant")])
    again = await stored(history)
    assert again == conversation
    assert len(again.messages) == 1000
    await history.commit("o", "s", conversation, [says("q"), says("a", "assistant")])
    assert conversation.dropped == 2
    assert await stored(history) == conversation


@pytest.mark.parametrize("what", ["owner", "scope", "conversation id"])
async def test_ids_are_bounded(history: ConversationStore, what: str) -> None:
    ids = ["o", "s", "t"]
    ids[["owner", "scope", "conversation id"].index(what)] = "é" * 256
    await history.commit(ids[0], ids[1], Conversation(ids[2]), [says("hi")], digest="d" * 512)
    assert texts(await history.load(ids[0], ids[1], ids[2])) == ["hi"]
    ids[["owner", "scope", "conversation id"].index(what)] += "x"
    for work in (
        lambda: history.load(ids[0], ids[1], ids[2]),
        lambda: history.commit(ids[0], ids[1], Conversation(ids[2]), []),
        lambda: history.delete(ids[0], ids[1], ids[2]),
    ):
        with pytest.raises(RequestError, match=f"expected a {what} of at most 512 bytes"):
            await work()
    with pytest.raises(RequestError, match=what):
        history.turn(ids[0], ids[1], ids[2])


async def test_a_cancelled_commit_is_whole_or_not_at_all(history: ConversationStore) -> None:
    conversation = Conversation("t")
    await history.commit("o", "s", conversation, [says("0")])
    for n in range(1, 30):
        task = asyncio.create_task(history.commit("o", "s", conversation, [says(f"{n}"), says(f"{n}", "assistant")]))
        for _ in range(n):
            await asyncio.sleep(0)  # lets it come a different way each time
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        conversation = await stored(history)
        assert len(conversation.messages) % 2 == 1
        assert conversation.version == len(conversation.messages) // 2 + 1


async def test_conversations_are_limited_for_each_owner_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Owners who begin conversations by turns have every second row each."""
    monkeypatch.setattr("random.random", lambda: 0.0)  # count at every new one
    history = engine.history(bounds=Bounds(conversations=200))
    for n in range(210):
        for owner in ("even", "odd"):
            await history.commit(owner, "s", Conversation(f"t{n}"), [])
    for owner in ("even", "odd"):
        assert await engine.execute(f"SELECT count(*) FROM history_conversations WHERE owner = '{owner}'") == 200
        assert await history.load(owner, "s", "t9") is None
        assert await history.load(owner, "s", "t10") is not None


async def test_owners_are_counted_often_enough(engine: Engine) -> None:
    """About as often as a hundredth part of the limit is begun, and always up to a limit of a hundred."""
    few = engine.history(bounds=Bounds(conversations=3))
    for n in range(6):
        await few.commit("few", "s", Conversation(f"t{n}"), [])
        assert await engine.execute("SELECT count(*) FROM history_conversations WHERE owner = 'few'") <= 3


async def test_a_limit_that_is_set_late_is_reached_in_steps(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest first, and never so many in one transaction that others wait for it."""
    monkeypatch.setattr(conversation_scripts, "_BATCH", 4)
    history = engine.history()
    for n in range(12):
        await history.commit("o", "s", Conversation(f"t{n}"), [])
    limited = engine.history(bounds=Bounds(conversations=3))
    left = []
    for n in range(4):
        await limited.commit("o", "s", Conversation(f"new{n}"), [])
        left.append(await engine.execute("SELECT count(*) FROM history_conversations"))
    assert left == [9, 6, 3, 3]
    assert await history.load("o", "s", "new0") is None
    for n in range(1, 4):
        assert await history.load("o", "s", f"new{n}") is not None


async def test_without_a_limit_nobody_is_counted(engine: Engine) -> None:
    from bridge.engine.config.schema.whole import StoresSection

    assert StoresSection().max_conversations is Bounds().conversations is None
    history = engine.history()
    for n in range(5):
        await history.commit("o", "s", Conversation(f"t{n}"), [])
    assert await engine.execute("SELECT count(*) FROM history_conversations") == 5


async def test_old_conversations_go_in_batches(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of so many messages, since a conversation may have thousands; the one that is too large for it goes alone."""
    monkeypatch.setattr(conversation_scripts, "_MESSAGES", 10)
    history = engine.history()
    for n, size in enumerate([3, 3, 3, 40, 1, 1]):
        await history.commit("o", "s", Conversation(f"t{n}"), [says("x")] * size)
        await engine.backdate(f"t{n}", 1000 - n)
    assert await history.prune(500) == 6
    assert await engine.execute("SELECT count(*) FROM history_messages") == 0


async def test_a_file_gets_smaller(tmp_path: Path) -> None:
    history = open_conversations(f"sqlite:///{tmp_path}/h.db")
    for n in range(60):
        await history.commit("o", "s", Conversation(f"t{n}"), [says("x" * 200_000)])
    await history.close()
    assert (before := (tmp_path / "h.db").stat().st_size) > 12_000_000
    history = open_conversations(f"sqlite:///{tmp_path}/h.db")
    assert await history.prune(-10) == 60
    await history.close()
    assert (tmp_path / "h.db").stat().st_size < before / 2
