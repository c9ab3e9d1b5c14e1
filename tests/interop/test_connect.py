"""The lines that connect a program, as `docs/connect` and the page show them, run by the program itself."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from bridge.connect import CLIENTS, Place
from tests.docs.connect import place
from tests.docs.helpers import environment
from tests.interop.conftest import node_client
from tests.interop.test_coding_agents import FOLDER, said_by
from tests.server.harness import serving

QUESTION, ANSWER = "Good morning, bridge", "You said: Good morning, bridge"
PYTHON = {
    "openai-sdk": """
told = client.chat.completions.create(model="demo", messages=[{"role": "user", "content": QUESTION}])
print(told.choices[0].message.content)""",
    "anthropic-sdk": """
told = client.messages.create(model="demo", max_tokens=99, messages=[{"role": "user", "content": QUESTION}])
print(told.content[0].text)""",
    "google-genai": """
print(client.models.generate_content(model="demo", contents=QUESTION).text)""",
    "langchain": """
print(model.invoke(QUESTION).text)""",
    "a2a-sdk": """
from a2a.helpers import new_text_message
from a2a.types import Role, SendMessageRequest

async for told in client.send_message(SendMessageRequest(message=new_text_message(QUESTION, role=Role.ROLE_USER))):
    print(told)""",
}
ENVIRONMENTS = {"google-genai": "genai", "langchain": "langchain", "a2a-sdk": "a2a"}
SHELL = {
    "claude-code": ("claude", "claude -p {}"),
    "codex": ("codex", "codex exec --skip-git-repo-check {}"),
    "gemini-cli": ("gemini --model", "gemini --prompt {} --model"),
    "qwen-code": ("qwen --auth-type openai", "qwen --auth-type openai -p {}"),
    "opencode": ("opencode -m", "opencode run {} -m"),
}
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "GEMINI_CLI_NO_RELAUNCH": "true",
    "GEMINI_CLI_TRUST_WORKSPACE": "true",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "true",
    "OPENCODE_DISABLE_MODELS_FETCH": "true",
    "QWEN_CODE_NO_RELAUNCH": "true",
}
"""Variables that keep programs from asking other hosts, or from starting themselves again."""
QUIET_GEMINI = {"privacy": {"usageStatisticsEnabled": False}, "general": {"enableAutoUpdate": False}}


def shown(name: str, base: str, language: str) -> dict[str, str]:
    """The lines of a program in this language, by where they belong, for a bridge at `base`."""
    where = place(CLIENTS[name].dialects[0])
    told = Place(base, where.path)
    return {each.where: each.at(told) for each in CLIENTS[name].snippets if each.language == language}


def demo(name: str) -> dict[str, object]:
    dialect = CLIENTS[name].dialects[0]
    return {
        "backends": {"demo": {"dialect": "demo"}},
        "routes": [{"dialect": dialect, "path": place(dialect).path, "backend": "demo"}],
        "stores": {"history": "off"},
    }


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.interop] * (name in ENVIRONMENTS)) for name in PYTHON]
)
async def test_the_lines_of_a_package(name: str, tmp_path: Path) -> None:
    python = Path(sys.prefix) / ENVIRONMENTS[name] / "bin" / "python" if name in ENVIRONMENTS else Path(sys.executable)
    assert python.exists(), f"{name} is not installed: make interop"
    async with serving(demo(name)) as base:
        (lines,) = shown(name, base, "python").values()
        script = f"QUESTION = {QUESTION!r}\n{lines}\n{PYTHON[name]}\n"
        if "await " in script:
            inside = "\n".join(f"    {line}" for line in script.splitlines())
            script = f"import asyncio\n\n\nasync def main():\n{inside}\n\n\nasyncio.run(main())\n"
        (tmp_path / "script.py").write_text(script, encoding="utf-8")
        out = await said_by([str(python), "script.py"], tmp_path)
    assert ANSWER in ("".join(re.findall(r'text: "([^"]*)"', out)) or out)


@pytest.mark.interop
@pytest.mark.parametrize("name", SHELL)
async def test_the_lines_of_a_coding_agent(name: str, tmp_path: Path) -> None:
    node_client(FOLDER, name)
    async with serving(demo(name)) as base:
        for language in ("toml", "json"):
            for where, text in shown(name, base, language).items():
                file = tmp_path / where.removeprefix("~/")
                file.parent.mkdir(parents=True, exist_ok=True)
                if name == "gemini-cli":
                    text = json.dumps(json.loads(text) | QUIET_GEMINI)
                file.write_text(text, encoding="utf-8")
        (lines,) = shown(name, base, "bash").values()
        command, asking = SHELL[name]
        head, found, tail = lines.rpartition(command)
        assert found
        script = head + asking.format(shlex.quote(QUESTION)) + tail
        programs = f"{FOLDER / 'node_modules' / '.bin'}:{environment()['PATH']}"
        out = await said_by(["bash", "-ec", script], tmp_path, HOME=str(tmp_path), PATH=programs, **QUIET)
    assert "You said: " in out
    assert "Good morning" in out.partition("You said: ")[2]


@pytest.mark.interop
async def test_the_lines_of_the_ai_sdk() -> None:
    folder = Path(__file__).parent / "ai-sdk"
    node_client(folder, "the AI SDK")
    async with serving(demo("vercel-ai-sdk")) as base:
        (lines,) = shown("vercel-ai-sdk", base, "js").values()
        ask = f"console.log((await generateText({{ model, prompt: {json.dumps(QUESTION)} }})).text);"
        script = f'import {{ generateText }} from "ai";\n{lines}\n{ask}\n'
        out = await said_by(["node", "--input-type=module", "-e", script], folder)
    assert ANSWER in out
