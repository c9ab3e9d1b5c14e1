"""Conversations that begin with others: their messages are stored once, and stay as long as somebody needs them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bridge.contract import StoredAnswer
from bridge.model import Message, Text
from bridge.run.conversation.response_store import ResponseStore
from bridge.stores import Bounds, Conversation, StoreConflict
from bridge.stores.conversation_store import BaseGone, derived_id
from tests.stores.conftest import Engine

LONG_AGO = -86400.0


def says(text: str, role: str = "user") -> Message:
    return Message(role, [Text(text)])


def texts(answer: StoredAnswer | Conversation | None) -> list[str]:
    assert answer is not None
    return [part.text for m in answer.messages for part in m.parts if isinstance(part, Text)]


async def count(engine: Engine, table: str) -> int:
    number: int = await engine.execute(f"SELECT count(*) FROM history_{table}")
    return number


class Chat:
    """Answers, each of which may continue another one."""

    def __init__(self, engine: Engine, bounds: Bounds | None = None) -> None:
        self.history: Any = engine.history(bounds=bounds)
        self.answers = ResponseStore(self.history, "me", "/v1")

    async def say(self, name: str, previous: str | None = None) -> StoredAnswer:
        before = await self.answers.find(previous) if previous is not None else None
        said = list(before.messages) if before is not None else []
        answer = StoredAnswer(name, {"n": name}, [*said, says(f"{name}?"), says(f"{name}!", "assistant")])
        await self.answers.keep(answer, before)
        return answer

    async def chain(self, length: int) -> list[StoredAnswer]:
        return [await self.say(f"a{n}", f"a{n - 1}" if n else None) for n in range(length)]


async def test_a_chain_stores_each_message_once(engine: Engine) -> None:
    chat = Chat(engine)
    said = await chat.chain(40)
    assert await count(engine, "messages") == 80
    other = Chat(engine)
    for known in (said[0], said[20], said[-1]):
        assert await other.answers.find(known.id) == known
    assert (await other.answers.load("a39", messages=False)) == StoredAnswer("a39", {"n": "a39"})


async def test_branches_share_what_comes_before_them(engine: Engine) -> None:
    chat = Chat(engine)
    await chat.chain(5)
    left, right = await asyncio.gather(chat.say("left", "a2"), chat.say("right", "a2"))
    await chat.say("leaf", "left")
    assert await count(engine, "messages") == 2 * 8
    before = ["a0?", "a0!", "a1?", "a1!", "a2?", "a2!"]
    assert texts(await chat.answers.find("right")) == texts(right) == [*before, "right?", "right!"]
    assert texts(await chat.answers.find("leaf")) == [*texts(left), "leaf?", "leaf!"]


async def test_a_deleted_answer_leaves_what_others_need(engine: Engine) -> None:
    chat = Chat(engine)
    said = await chat.chain(6)
    branch = await chat.say("branch", "a2")
    for name in ("a1", "a3", "a0", "a2"):
        assert await chat.answers.delete(name)
        assert await chat.answers.find(name) is None
        assert not await chat.answers.delete(name)
    assert await chat.answers.find("a5") == said[5]
    assert await chat.answers.find("branch") == branch
    assert not await engine.execute("SELECT count(*) FROM history_conversations WHERE beside LIKE '%a1%'")
    with pytest.raises(BaseGone):
        await chat.history.commit(derived_id("me", after="\0responses"), "/v1", Conversation("x"), [], after="a1")
    assert await chat.answers.delete("branch")
    assert await count(engine, "messages") == 12
    assert await chat.answers.delete("a5")
    assert await chat.answers.find("a4") == said[4]
    assert await count(engine, "messages") == 10
    assert await chat.answers.delete("a4")
    assert (await count(engine, "messages"), await count(engine, "conversations")) == (0, 0)


async def test_an_answer_whose_base_is_deleted_meanwhile_is_stored_whole(engine: Engine) -> None:
    chat = Chat(engine)
    (first,) = await chat.chain(1)
    await chat.answers.delete("a0")
    answer = StoredAnswer("a1", {}, [*first.messages, says("more")])
    await chat.answers.keep(answer, first)
    assert await chat.answers.find("a1") == answer
    with pytest.raises(StoreConflict):
        await chat.answers.keep(answer)


async def test_an_answer_that_does_not_go_on_with_the_same_messages_is_stored_whole(engine: Engine) -> None:
    """As after a compaction, also of an answer that is made in the background."""
    chat = Chat(engine)
    first, _ = await chat.chain(2)
    short = StoredAnswer("short", {}, [says("a summary")])
    await chat.answers.keep(short, first)
    begun = StoredAnswer("late", {"n": 0}, [*first.messages, says("go on")], "run", ended=False)
    await chat.answers.keep(begun, first)
    assert await chat.answers.find("late") == begun
    ended = StoredAnswer("late", {"n": 1}, [says("a summary")], "run")
    assert await chat.answers.settle(ended)
    assert (await chat.answers.find("short"), await chat.answers.find("late")) == (short, ended)
    await chat.answers.delete("a0")
    await chat.answers.delete("a1")
    assert (await count(engine, "messages"), await count(engine, "conversations")) == (2, 2)


async def test_the_end_of_an_answer_in_the_background_is_appended(engine: Engine) -> None:
    chat = Chat(engine)
    first, _ = await chat.chain(2)
    await chat.answers.keep(StoredAnswer("late", {}, [*first.messages, says("go on")], "run", ended=False), first)
    ended = StoredAnswer("late", {"n": 1}, [*first.messages, says("go on"), says("done", "assistant")], "run")
    assert await chat.answers.settle(ended)
    assert await chat.answers.find("late") == ended
    assert await count(engine, "messages") == 6


async def test_what_expires_leaves_the_rest_of_its_chain(engine: Engine) -> None:
    chat = Chat(engine)
    said = await chat.chain(30)
    await chat.say("branch", "a3")
    await engine.execute("UPDATE history_conversations SET updated_at = 0 WHERE thread_id <> 'a29'")
    assert await chat.history.prune(86400.0) == 30
    assert await chat.answers.find("a28") is None
    assert await chat.answers.find("a29") == said[29]
    assert await chat.history.prune(86400.0) == 0
    assert await count(engine, "messages") == 60, "of the branch nothing is left"
    assert await chat.history.prune(LONG_AGO) == 1
    assert (await count(engine, "messages"), await count(engine, "conversations")) == (0, 0)


async def test_the_number_of_answers_is_bounded_within_a_chain(engine: Engine) -> None:
    chat = Chat(engine, Bounds(conversations=3))
    said = await chat.chain(10)
    assert [await chat.answers.find(each.id) is not None for each in said] == [False] * 7 + [True] * 3
    assert await chat.answers.find("a9") == said[9]


async def test_a_chain_beyond_the_bounds_begins_anew_with_half_of_it(engine: Engine) -> None:
    """So that what is stored stays linear in what is said."""
    chat = Chat(engine, Bounds(messages=20))
    await chat.chain(60)
    assert await count(engine, "messages") < 2 * 120 + 20
    last = await chat.answers.find("a59")
    assert last is not None
    assert 10 <= len(last.messages) <= 20
    assert texts(last)[-2:] == ["a59?", "a59!"]
    assert len(texts(await chat.answers.find("a9"))) == 20, "earlier answers keep what they had"


async def test_a_chain_with_a_hole_is_not_taken_for_whole(engine: Engine) -> None:
    """Versions that know no bases delete them like all others."""
    chat = Chat(engine)
    (_, _, third) = await chat.chain(3)
    await engine.execute("DELETE FROM history_conversations WHERE thread_id = 'a1'")
    assert await chat.answers.find("a2") is None
    await chat.answers.keep(StoredAnswer("a3", {}, [*third.messages, says("more")]), third)
    assert texts(await chat.answers.find("a3")) == [*texts(third), "more"]


async def test_answers_of_older_versions_are_found_and_continued(engine: Engine) -> None:
    chat = Chat(engine)
    said = [says("Hi"), says("Ho", "assistant")]
    owner = derived_id("me", after="\0answers")
    await chat.history.commit(owner, "/v1", Conversation("old", extra={"body": {"n": 1}}), said)
    await chat.history.commit(
        owner, "/v1", Conversation("late", extra={"body": {}, "run": "r", "ended": False}), said[:1]
    )
    assert await chat.answers.find("old") == StoredAnswer("old", {"n": 1}, said)
    assert texts(await chat.say("new", "old")) == ["Hi", "Ho", "new?", "new!"]
    await chat.say("newer", "new")
    assert await count(engine, "messages") == 2 + 1 + 4 + 2
    assert await chat.answers.settle(StoredAnswer("late", {"n": 2}, said, "r"))
    assert await chat.answers.find("late") == StoredAnswer("late", {"n": 2}, said, "r")
    assert await chat.answers.delete("old")
    assert await chat.answers.find("old") is None
    assert texts(await chat.answers.find("newer")) == ["Hi", "Ho", "new?", "new!", "newer?", "newer!"]


async def test_a_base_cannot_lose_a_part(engine: Engine) -> None:
    chat = Chat(engine)
    await chat.chain(2)
    owner = derived_id("me", after="\0responses")
    conversation = await chat.history.load(owner, "/v1", "a1")
    with pytest.raises(ValueError, match="keep all messages"):
        await chat.history.commit(owner, "/v1", conversation, [], keep=1)
    await chat.history.commit(owner, "/v1", conversation, [says("x")], keep=3)
    assert texts(await chat.history.load(owner, "/v1", "a1")) == texts(conversation) == ["a0?", "a0!", "a1?", "x"]


async def test_who_deletes_and_who_continues_at_once_agree(engine: Engine) -> None:
    """The base is there with its messages, or the answer is stored whole: never an answer without its beginning."""
    chat, other = Chat(engine), Chat(engine)
    for number in range(12):
        base = StoredAnswer(f"base{number}", {}, [says("base")])
        await chat.answers.keep(base)
        answer = StoredAnswer(f"next{number}", {}, [says("base"), says("next")])
        await asyncio.gather(chat.answers.delete(base.id), other.answers.keep(answer, base))
        assert await chat.answers.find(base.id) is None
        assert await chat.answers.find(answer.id) == answer
        assert await chat.answers.delete(answer.id)
    assert (await count(engine, "messages"), await count(engine, "conversations")) == (0, 0)


async def test_a_base_of_two_stays_when_one_of_its_branches_goes(engine: Engine) -> None:
    chat = Chat(engine)
    await chat.chain(3)
    other = await chat.say("other", "a0")
    for name in ("a0", "a1", "a2"):
        assert await chat.answers.delete(name)
    assert await chat.answers.find("other") == other
    assert await count(engine, "messages") == 4
