"""`ContextMemory`: written, read after a restart, cleared; what cannot be done is told by False."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeGuard

import pytest

from bridge import Text, ToolCall, ToolResult
from bridge.sdk.aip import (
    AgentMessage,
    ContentItem,
    ContextMemory,
    SessionStatus,
    TaskInfo,
    TaskStatus,
    ToolRequest,
    ToolResponse,
)
from bridge.stores import open_conversations

ASKED = AgentMessage(
    "me", "you", "s", SessionStatus.HOLD_QUEST, TaskInfo("t", ["p"], TaskStatus.WAITING), "m", "r",
    [ContentItem("words"), ContentItem(image=b"\xff\x00")],
)  # fmt: skip
CALLED = ToolRequest("me", "tool", "s", "add", {"a": 1, "b": {"c": [None, "2"]}})
CAME = ToolResponse("tool", "me", "s", True, "Error executing tool: no", [])

WRITES = """
import sys
from bridge.sdk.aip import AgentMessage, ContentItem, ContextMemory
memory = ContextMemory("agent", sys.argv[1])
print(memory.create("task"), memory.write("task", AgentMessage("me", content=[ContentItem("kept")])))
"""


def test_what_was_written_is_read_after_a_restart(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WRITES, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"
    memory = ContextMemory("agent", tmp_path)
    assert not memory.create("task")
    assert memory.write("task", CALLED)
    again = ContextMemory("agent", tmp_path)
    assert again.read("task") == [AgentMessage("me", content=[ContentItem("kept")]), CALLED]
    assert again.clear("task")
    assert ContextMemory("agent", tmp_path).read("task") == []
    assert again.write("task", CAME)
    assert ContextMemory("agent", tmp_path).read("task") == [CAME]


def test_every_kind_of_message_comes_back_as_it_was(tmp_path: Path) -> None:
    memory = ContextMemory("agent", tmp_path)
    memory.create("t")
    for message in (ASKED, CALLED, CAME):
        assert memory.write("t", message)
    assert memory.read("t") == [ASKED, CALLED, CAME]


def test_programs_may_read_plain_data(tmp_path: Path) -> None:
    memory = ContextMemory("agent", tmp_path)
    assert (memory.create("one"), memory.create("two"), memory.create("one")) == (True, True, False)
    memory.write("two", ASKED)
    assert (memory.agent_id, list(memory.dbs), len(memory.dbs), len(memory.dbs["two"])) == (
        "agent",
        ["one", "two"],
        2,
        1,
    )
    [plain] = memory.dbs["two"].all()
    assert (plain["session_status"], plain["task_info"]["parent_task_ids"]) == (1, ["p"])
    assert plain["content"][1] == {"text": None, "image": b"\xff\x00", "audio": None, "embedded": None}
    with pytest.raises(KeyError):
        memory.dbs["three"]


WRITES_MANY = """
import sys
from bridge.sdk.aip import ContextMemory, ToolRequest
memory = ContextMemory(sys.argv[2], sys.argv[1])
memory.create("task")
print("ready", flush=True)
sys.stdin.readline()
print(all(memory.write("task", ToolRequest(sys.argv[3], arguments={"n": n})) for n in range(100)))
"""


def test_several_processes_and_threads_write_at_once(tmp_path: Path) -> None:
    """Two processes to one memory, a third to that of another agent, and this one beside them, in threads."""
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [
        subprocess.Popen([sys.executable, "-c", WRITES_MANY, str(tmp_path), *who], **pipes)
        for who in (("agent", "one"), ("agent", "two"), ("another", "three"))
    ]
    here = ContextMemory("agent", tmp_path)
    here.create("task")
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    with ThreadPoolExecutor(2) as threads:
        mine = [threads.submit(here.write, "task", ToolRequest("here", arguments={"n": n})) for n in range(100)]
    assert all(each.result() for each in mine)
    assert [process.communicate()[0] for process in processes] == ["True\n"] * 3
    kept = [(m.sender_id, m.arguments["n"]) for m in ContextMemory("agent", tmp_path).read("task") if is_call(m)]
    for who in ("one", "two"):
        assert [n for name, n in kept if name == who] == list(range(100))
    assert (sorted(n for name, n in kept if name == "here"), len(kept)) == (list(range(100)), 300)
    assert len(ContextMemory("another", tmp_path).dbs["task"]) == 100


FORKS = """
import os, sys
from bridge.sdk.aip import ContextMemory, ToolRequest
memory = ContextMemory("agent", sys.argv[1])
memory.create("task")
child = os.fork()
for n in range(20):
    assert memory.write("task", ToolRequest("parent" if child else "child"))
if child:
    assert os.waitpid(child, 0)[1] == 0
    print(len(memory.read("task")))
else:
    os._exit(0)
"""


def test_a_memory_goes_on_in_a_process_that_is_forked_off(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FORKS, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "40\n"


def is_call(message: Any) -> TypeGuard[ToolRequest]:
    return isinstance(message, ToolRequest)


async def test_a_memory_is_a_history_of_the_bridge(tmp_path: Path) -> None:
    """The same tables and the same messages: what reads one reads the other."""
    memory = ContextMemory("agent", tmp_path)
    memory.create("t")
    for message in (ASKED, CALLED, CAME):
        memory.write("t", message)
    history = open_conversations(f"sqlite:///{memory.save_dir}/memory.db")
    conversation = await history.load("agent", "tasks", "t")
    await history.close()
    assert conversation is not None
    assert [(m.role, type(m.parts[0])) for m in conversation.messages] == [
        ("user", Text), ("assistant", ToolCall), ("tool", ToolResult),
    ]  # fmt: skip
    assert conversation.version == 4


def test_a_memory_keeps_more_than_a_conversation_of_the_bridge(tmp_path: Path) -> None:
    """Nothing is dropped: a program that is told True finds it again."""
    memory = ContextMemory("agent", tmp_path)
    memory.create("t")
    assert all(memory.write("t", ToolRequest(str(n))) for n in range(1002))
    assert [message.sender_id for message in memory.read("t")] == [str(n) for n in range(1002)]


@pytest.mark.parametrize("task_id", ["", "a/b", "nul\x00", "\ud800", "%00", "x" * 512])
def test_any_name_of_a_task(tmp_path: Path, task_id: str) -> None:
    memory = ContextMemory("agent", tmp_path)
    assert memory.create(task_id)
    assert memory.tasks() == [task_id]
    assert memory.write(task_id, CAME)
    assert memory.read(task_id) == [CAME]


def test_a_name_that_is_too_long_is_told_by_false(tmp_path: Path) -> None:
    memory = ContextMemory("agent", tmp_path)
    assert (memory.create("x" * 513), memory.write("x" * 513, CAME), memory.clear("x" * 513)) == (False, False, False)


def test_every_item_comes_back_as_it_was(tmp_path: Path) -> None:
    memory = ContextMemory("agent", tmp_path)
    memory.create("t")
    items = [ContentItem(""), ContentItem(audio=b""), ContentItem(embedded=b'{"a":1}'), ContentItem(image=b"\x89PNG")]
    memory.write("t", AgentMessage(content=items))
    memory.write("t", ToolResponse(content=items))
    assert [message.content for message in memory.read("t") if not isinstance(message, ToolRequest)] == [items, items]


def test_an_unknown_task_is_told_by_false(tmp_path: Path) -> None:
    memory = ContextMemory("agent", tmp_path)
    assert (memory.write("nothing", CAME), memory.clear("nothing"), memory.read("nothing")) == (False, False, [])


def test_a_folder_that_cannot_be_had_is_told_by_false(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    memory = ContextMemory("agent", tmp_path / "file")
    assert (memory.create("t"), memory.write("t", CAME), memory.clear("t")) == (False, False, False)


def test_what_is_no_message_is_refused(tmp_path: Path) -> None:
    message: Any = {"content": "words"}
    with pytest.raises(TypeError, match="expected an AgentMessage, ToolRequest or ToolResponse, got dict"):
        ContextMemory("agent", tmp_path).write("t", message)


@pytest.mark.parametrize("agent_id", ["../up", "a/b", "", "..", "a b", "ä", ".hidden", "x" * 3])
def test_no_agent_writes_outside_of_its_folder_or_into_anothers(tmp_path: Path, agent_id: str) -> None:
    memory = ContextMemory(agent_id, tmp_path)
    memory.create("t")
    assert Path(memory.save_dir).parent == tmp_path
    assert memory.save_dir != ContextMemory(f"{agent_id}_", tmp_path).save_dir
    assert [p.parent for p in tmp_path.rglob("memory.db")] == [Path(memory.save_dir)]


def test_ids_that_look_alike_are_apart(tmp_path: Path) -> None:
    names = ["a/b", "a%2fb", "a_b", ".a", "a", "..a"]
    assert len({ContextMemory(name, tmp_path).save_dir for name in names}) == len(names)
