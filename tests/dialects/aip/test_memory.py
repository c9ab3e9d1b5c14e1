"""`ContextMemory`: written, read after a restart, cleared; what cannot be done is told by False."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adapters.aip import (
    AgentMessage,
    ContentItem,
    ContextMemory,
    SessionStatus,
    TaskInfo,
    TaskStatus,
    ToolRequest,
    ToolResponse,
)

ASKED = AgentMessage(
    "me", "you", "s", SessionStatus.HOLD_QUEST, TaskInfo("t", ["p"], TaskStatus.WAITING), "m", "r",
    [ContentItem("words"), ContentItem(image=b"\xff\x00")],
)  # fmt: skip
CALLED = ToolRequest("me", "tool", "s", "add", {"a": 1, "b": {"c": [None, "2"]}})
CAME = ToolResponse("tool", "me", "s", True, "Error executing tool: no", [])

WRITES = """
import sys
from adapters.aip import AgentMessage, ContentItem, ContextMemory
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
    assert memory.save_dir.parent == tmp_path
    assert memory.save_dir != ContextMemory(f"{agent_id}_", tmp_path).save_dir
    assert [p.parent for p in tmp_path.rglob("memory.db")] == [memory.save_dir]


def test_ids_that_look_alike_are_apart(tmp_path: Path) -> None:
    names = ["a/b", "a%2fb", "a_b", ".a", "a", "..a"]
    assert len({ContextMemory(name, tmp_path).save_dir for name in names}) == len(names)
