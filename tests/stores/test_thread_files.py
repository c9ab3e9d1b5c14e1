"""The files of a thread go with its conversation, on every engine of conversations."""

from __future__ import annotations

from typing import Any

from bridge.model import Message, Text
from bridge.stores import Conversation, ConversationStore
from tests.stores.conftest import Engine

DAY = 86400.0


class Removed(list[tuple[str, str, float]]):
    """What was to be deleted; `left` young files stay each time."""

    left = 0

    async def __call__(self, owner: str, thread: str, older_than: float) -> int:
        self.append((owner, thread, older_than))
        return self.left


async def aged(engine: Engine, table: str, thread: str, days: float) -> None:
    await engine.execute(
        f"UPDATE history_{table} SET updated_at = updated_at - {days * DAY} WHERE thread_id = '{thread}'"
    )


async def talk(history: ConversationStore, thread: str, scope: str = "s") -> None:
    await history.commit("o", scope, Conversation(thread), [Message("user", [Text("x")])])


async def noted(engine: Engine) -> int:
    count: int = await engine.execute("SELECT count(*) FROM history_files")
    return count


async def test_files_go_when_their_conversation_has_gone(engine: Engine, history: ConversationStore) -> None:
    removed = Removed()
    for thread in ("old", "alive", "unsaid%", "young"):
        await history.note_file("o", "s", thread)
    for thread in ("old", "alive"):
        await talk(history, thread)
    for thread in ("old", "alive", "unsaid%0025"):
        await aged(engine, "files", thread, 3)
    await aged(engine, "conversations", "old", 3)
    await history.prune(2 * DAY)
    await history.prune_files(2 * DAY, removed)
    assert sorted(removed) == [("o", "old", 2 * DAY), ("o", "unsaid%", 2 * DAY)]
    assert await noted(engine) == 2
    removed.clear()
    await aged(engine, "conversations", "alive", 3)
    await aged(engine, "files", "alive", 3)
    await history.prune(2 * DAY)
    await history.prune_files(2 * DAY, removed)
    assert removed == [("o", "alive", 2 * DAY)]


async def test_a_conversation_that_is_deleted_takes_all_its_files_along(
    engine: Engine, history: ConversationStore
) -> None:
    removed = Removed()
    for thread in ("t", "u"):
        await history.note_file("o", "s", thread)
        await talk(history, thread)
    assert await history.delete("o", "s", "t")
    await history.prune_files(2 * DAY, removed)
    assert removed == [("o", "t", 0.0)]
    assert await noted(engine) == 1
    assert await history.delete("o", "s", "u", files=False)
    await history.prune_files(2 * DAY, removed)
    assert await noted(engine) == 1


async def test_one_place_of_two_scopes_goes_with_the_last_of_them(engine: Engine, history: ConversationStore) -> None:
    removed = Removed()
    for scope in ("s", "r"):
        await history.note_file("o", scope, "t")
    await talk(history, "t", "r")
    await aged(engine, "files", "t", 3)
    await history.prune_files(2 * DAY, removed)
    assert (removed, await noted(engine)) == ([], 1)
    await history.delete("o", "r", "t")
    await history.prune_files(2 * DAY, removed)
    assert (removed, await noted(engine)) == ([("o", "t", 0.0)], 0)


async def test_a_thread_with_young_files_stays_noted(engine: Engine, history: ConversationStore) -> None:
    removed = Removed()
    removed.left = 1
    await history.note_file("o", "s", "t")
    await aged(engine, "files", "t", 3)
    await history.prune_files(2 * DAY, removed)
    assert (len(removed), await noted(engine)) == (1, 1)
    removed.left = 0

    async def uploading(owner: str, thread: str, older_than: float) -> int:
        await history.note_file(owner, "s", thread)
        return 0

    await history.prune_files(2 * DAY, uploading)
    assert await noted(engine) == 1, "what comes meanwhile is not forgotten"


async def test_many_threads_go_in_one_look(engine: Engine, history: Any) -> None:
    removed = Removed()
    for n in range(230):
        await history.note_file("o", "s", f"t{n}")
    await engine.execute("UPDATE history_files SET updated_at = 0")
    await history.prune_files(2 * DAY, removed)
    assert len(set(removed)) == 230
    assert await noted(engine) == 0
