"""One library of each family of applications, unchanged, over backends of three dialects: a tool, and a second turn."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop.test_frameworks import said_by
from tests.pairs.agents import AGENTS, Heard, Say, Step, Use
from tests.server.harness import fake_backend, serving

TALK = Path(__file__).parent / "libraries" / "talk.py"
FEW = ("autogen", "llm", "openai-agents")
MANY = ("haystack", "llama-index", "mirascope", "qwen-agent", "semantic-kernel", "smolagents")
TOGETHER = {
    **dict.fromkeys(FEW, "libraries"),
    **dict.fromkeys(("mirascope", "qwen-agent", "semantic-kernel"), "libraries-all"),
}
BACKS = ("openai-chat", "anthropic-messages", "agentscope")
ANSWER, GOODBYE = "It is sunny there.", "You are welcome. 🙂"


def brain(heard: Heard) -> list[Step]:
    if heard.last[0] == "result":
        return [Say(ANSWER)]
    if "Thanks" in heard.last[1]:
        return [Say(GOODBYE)]
    return [Say("I look."), Use("call_1", "get_weather", '{"city": "Paris"}')]


def in_a_plugin(heard: Heard) -> list[Step]:
    """Semantic Kernel puts the name of the plugin before that of the function."""
    return [replace(s, name="Weather-get_weather") if isinstance(s, Use) else s for s in brain(heard)]


def final(heard: Heard) -> list[Step]:
    """smolagents takes an answer only from the tool for it, and tells results as a text of the user."""
    last = str(heard.last[-1])
    if "Thanks" not in last and "sunny in Paris" not in last:
        return brain(heard)
    answer = GOODBYE if "Thanks" in last else ANSWER
    return [Say("I know."), Use(f"call_{len(heard.conversation)}", "final_answer", json.dumps({"answer": answer}))]


def by_fields(heard: Heard) -> list[Step]:
    """DSPy offers no tools: it describes them, and asks for named fields of a text, of which one names a tool."""
    words = str(heard.last[-1])
    thanked = "Thanks." in words
    if "next_thought" not in words.rpartition("Respond with")[2]:
        fields = {"reasoning": "I know.", "answer": GOODBYE if thanked else ANSWER}
    else:
        tool = "finish" if thanked or "sunny in Paris" in words else "get_weather"
        arguments = '{"city": "Paris"}' if tool == "get_weather" else "{}"
        fields = {"next_thought": "I look.", "next_tool_name": tool, "next_tool_args": arguments}
    return [Say("".join(f"[[ ## {name} ## ]]\n{value}\n\n" for name, value in fields.items()))]


@pytest.mark.turns(3)
@pytest.mark.parametrize("back", BACKS)
@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.interop) for name in FEW),
        *(pytest.param(name, marks=pytest.mark.interop_all) for name in MANY),
    ],
)
async def test_a_talk(name: str, back: str, tmp_path: Path) -> None:
    python = Path(sys.prefix) / TOGETHER.get(name, name) / "bin" / "python"
    assert python.exists(), f"{name} is not installed: make interop{'' if name in FEW else '-all'}"
    async with fake_backend() as backend:
        agent = AGENTS[back](backend)
        agent.brain = {"smolagents": final, "semantic-kernel": in_a_plugin}.get(name, brain)
        config = {
            "backends": {"it": {"dialect": agent.dialect, "url": agent.url, "options": agent.options}},
            "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
            "stores": {"history": f"sqlite:///{tmp_path}/talks.db"},
        }
        async with serving(config) as base:
            seen = await said_by([str(python), str(TALK), name, f"{base}/v1"], tmp_path)
    assert [seen["turns"][n][0].endswith(words) for n, words in enumerate((ANSWER, GOODBYE))] == [True] * 2
    assert all(pieces > 1 for _, pieces in seen["turns"]), "it came in pieces"
    last = [str(entry[-1]) for heard in agent.heard for entry in heard.conversation]
    assert any("sunny in Paris" in words for words in last), "the library ran the tool"
    talk = [entry for entry in agent.heard[-1].conversation if entry[0] != "system"]
    assert any("What is it like in Paris?" in str(entry[-1]) for entry in talk), "the talk goes on"
    assert "Thanks." in str([entry for entry in talk if entry[0] == "user"][-1][1])
    if agent.brain is brain:
        assert [e[1] for e in talk if e[0] == "assistant"] == ["I look.", ANSWER]
        assert [e[2] for e in talk if e[0] == "result"] == ["sunny in Paris"]
        assert agent.heard[0].tools == ["get_weather"] or agent.remembers


@pytest.mark.interop_all
@pytest.mark.parametrize("back", BACKS)
async def test_dspy(back: str, tmp_path: Path) -> None:
    """Three requests for the turn with the tool, two for the other one: it asks for the answer apart."""
    python = Path(sys.prefix) / "dspy" / "bin" / "python"
    assert python.exists(), "DSPy is not installed: make interop-all"
    async with fake_backend() as backend:
        agent = AGENTS[back](backend)
        agent.brain = by_fields
        config = {
            "backends": {"it": {"dialect": agent.dialect, "url": agent.url, "options": agent.options}},
            "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
            "stores": {"history": f"sqlite:///{tmp_path}/talks.db"},
        }
        async with serving(config) as base:
            seen = await said_by([str(python), str(TALK), "dspy", f"{base}/v1"], tmp_path)
    assert [text for text, _ in seen["turns"]] == [ANSWER, GOODBYE]
    assert len(agent.heard) == 5
    assert "sunny in Paris" in str(agent.heard[2].last[-1])
    assert ANSWER in str(agent.heard[-1].conversation)
