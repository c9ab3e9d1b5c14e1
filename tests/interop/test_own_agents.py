"""The recipes of `examples/agents`: an agent object of each framework as a backend, over a scripted model."""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.docs.helpers import EXAMPLES, server
from tests.interop import scripted_model
from tests.interop.scripted_model import WORDS
from tests.server.harness import post, serving

RUNNER = str(Path(__file__).parent / "own_agents" / "serve.py")
FRAMEWORKS = {
    "agentscope": ("own-agents", pytest.mark.interop_all),
    "langgraph": ("own-agents", pytest.mark.interop_all),
    "pydantic_ai": ("own-agents", pytest.mark.interop_all),
    "openai_agents": ("own-agents", pytest.mark.interop_all),
    "adk": ("a2a-agents", pytest.mark.interop),
    "crewai": ("crewai", pytest.mark.interop_all),
}


@pytest.mark.parametrize(
    ("name", "place"), [pytest.param(name, place, marks=mark) for name, (place, mark) in FRAMEWORKS.items()]
)
async def test_an_agent_object_is_served(name: str, place: str, tmp_path: Path) -> None:
    python = Path(sys.prefix) / place / "bin" / "python"
    assert python.exists(), f"{name} is not installed: make interop{'' if name == 'adk' else '-all'}"
    scripted_model.heard.clear()
    config = {
        "backends": {"llm": {"dialect": "python", "target": "tests.interop.scripted_model:run"}},
        "routes": [
            {"dialect": "openai-chat", "path": "/v1", "backend": "llm"},
            {"dialect": "gemini", "path": "/gemini", "backend": "llm"},
        ],
    }
    async with serving(config) as base:
        variables = {
            "AGENT": f"{name}_agent",
            "OPENAI_BASE_URL": f"{base}/v1",
            "OPENAI_API_KEY": "unused",
            "OPENAI_MODEL": "m",
            "GOOGLE_GEMINI_BASE_URL": f"{base}/gemini",
            "GEMINI_API_KEY": "unused",
            "CREWAI_DISABLE_TELEMETRY": "true",
            "CREWAI_TRACING_ENABLED": "false",
            "HOME": str(tmp_path),
        }
        command = (str(python), RUNNER, sysconfig.get_path("purelib"))
        settings = str(EXAMPLES / "agents" / "config.yaml")
        with server(tmp_path, *command, settings, "{port}", **variables) as mine:
            talk = [{"role": "user", "content": "What is the weather in Paris?"}]
            asked = {"model": "m", "messages": talk, "stream": True, "stream_options": {"include_usage": True}}
            reply = await post(f"{mine.url}/v1/chat/completions", asked)
            assert reply.status == 200, (reply.body, mine.err)
            chunks = [json.loads(line[6:]) for line in reply.body.splitlines() if line.startswith(b"data: {")]
            pieces = [c["choices"][0]["delta"].get("content") or "" for c in chunks if c.get("choices")]
            told = "".join(pieces)
            assert told.endswith(WORDS[1]), (told, reply.body, mine.err)
            assert sum(map(bool, pieces)) > 2, "it came in pieces"
            assert chunks[-1]["usage"]["total_tokens"] == 30
            assert "It is sunny in Paris." in str(scripted_model.heard[1].messages), "the agent ran its tool"
            talk += [{"role": "assistant", "content": told}, {"role": "user", "content": "Thanks."}]
            reply = await post(f"{mine.url}/v1/chat/completions", {"model": "m", "messages": talk})
            assert reply.json["choices"][0]["message"]["content"].endswith(WORDS[2]), (reply.body, mine.err)
            heard = str(scripted_model.heard[-1].messages)
            assert "What is the weather in Paris?" in heard, "the agent knows what was said before"
            assert WORDS[1] in heard


async def test_a_function_is_served(tmp_path: Path) -> None:
    command = (sys.executable, RUNNER, sysconfig.get_path("purelib"), str(EXAMPLES / "agents" / "config.yaml"))
    with server(tmp_path, *command, "{port}") as mine:
        asked = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
        reply = await post(f"{mine.url}/v1/chat/completions", asked)
        assert reply.json["choices"][0]["message"]["content"] == "You said: Hello", mine.err
        asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}
        reply = await post(f"{mine.url}/v1/messages", asked)
        assert reply.json["content"][0]["text"] == "You said: Hello", mine.err
