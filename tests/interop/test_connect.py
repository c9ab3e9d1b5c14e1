"""The lines that connect a program, as `docs/connect` and the page show them, run by the program itself."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from bridge.server.connect import CLIENTS, RouteAddress
from tests.browser import PATIENCE, browser, site
from tests.docs.connect import place
from tests.docs.helpers import environment
from tests.interop.conftest import node_client
from tests.interop.test_coding_agents import FOLDER, said_by, started_in
from tests.interop.test_open_webui import PROGRAM as OPEN_WEBUI
from tests.interop.test_open_webui import SETTINGS, STARTS, is_up
from tests.server.harness import ask, free_port, serving

__all__ = ["browser"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

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
LARGE = {
    "aider": ("aider", "aider --no-git --yes-always --no-check-update --analytics-disable --message {}"),
    "cline": ("cline", "cline {}"),
    "continue": ("", "cn -p {}"),
}
"""How a program in `SHELL` or here is asked: what stands in its lines, and what in place of it asks a question."""
PAGES = {
    "assistant-ui": """
useEffect(() => { runtime.thread.append(QUESTION); }, []);
const [messages, show] = useState([]);
useEffect(() => runtime.thread.subscribe(() => show(runtime.thread.getState().messages)), []);
return <AssistantRuntimeProvider runtime={runtime}><Shown messages={messages} /></AssistantRuntimeProvider>;""",
    "usechat": """
useEffect(() => { chat.sendMessage({ text: QUESTION }); }, []);
return <Shown messages={chat.messages} />;""",
    "tanstack-ai": """
const [messages, show] = useState([]);
useEffect(() => { client.sendMessage(QUESTION).then(() => show(client.getMessages())); }, []);
return <Shown messages={messages} />;""",
}
"""What a page does with what the lines of its library make: it asks, and shows the text of what was said."""
QUIET = {
    "CONTINUE_TELEMETRY_ENABLED": "0",
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
    told = RouteAddress(base, where.path)
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


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.interop) for name in SHELL),
        *(pytest.param(name, marks=pytest.mark.interop_all) for name in LARGE),
    ],
)
async def test_the_lines_of_a_coding_agent(name: str, tmp_path: Path) -> None:
    folder = FOLDER if name in SHELL else FOLDER.with_name("agents-all")
    if name != "aider":
        node_client(folder, name)
    async with serving(demo(name)) as base:
        for language in ("toml", "json", "yaml"):
            for where, text in shown(name, base, language).items():
                file = tmp_path / where.removeprefix("~/")
                file.parent.mkdir(parents=True, exist_ok=True)
                if name == "gemini-cli":
                    text = json.dumps(json.loads(text) | QUIET_GEMINI)
                file.write_text(text, encoding="utf-8")
        (lines,) = shown(name, base, "bash").values() or [""]
        command, asking = {**SHELL, **LARGE}[name]
        head, found, tail = lines.rpartition(command) if command else ("", "", "")
        assert found == command
        script = head + asking.format(shlex.quote(QUESTION)) + tail
        own = Path(sys.prefix) / "aider" / "bin" if name == "aider" else folder / "node_modules" / ".bin"
        programs = f"{own}:{environment()['PATH']}"
        out = await said_by(["bash", "-ec", script], tmp_path, HOME=str(tmp_path), PATH=programs, **QUIET)
    assert "You said: " in out
    assert "Good morning" in out.partition("You said: ")[2]
    assert started_in(str(tmp_path)) == []


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


@pytest.mark.interop_all
@pytest.mark.parametrize("name", PAGES)
async def test_the_lines_of_a_page(browser: Browser, name: str, tmp_path: Path) -> None:
    folder = Path(__file__).parent / "connect-js"
    node_client(folder, name)
    async with serving(demo(name)) as base, site(tmp_path) as origin:
        (lines,) = shown(name, base, "js").values()
        imports = re.findall(r"^import .*$", lines, re.MULTILINE)
        inside = "\n".join(line for line in lines.splitlines() if line not in imports)
        # A client is made once, a hook is called in the component.
        made, used = (inside, "") if "new ChatClient" in inside else ("", inside)
        script = f"""
import {{ AssistantRuntimeProvider }} from "@assistant-ui/react";
import {{ useEffect, useState }} from "react";
import {{ createRoot }} from "react-dom/client";
{chr(10).join(imports)}
const QUESTION = {json.dumps(QUESTION)};
const text = ({{ parts, content }}) => (parts ?? content).map((part) => part.text ?? part.content ?? "").join("");
const Shown = ({{ messages }}) => messages.map((each, index) => <p key={{index}}>{{text(each)}}</p>);
{made}
const Page = () => {{
{used}{PAGES[name]}
}};
createRoot(document.getElementById("root")).render(<Page />);
"""
        bundling = await asyncio.create_subprocess_exec(
            "node", "build.mjs", str(tmp_path), cwd=folder, stdin=asyncio.subprocess.PIPE
        )
        await bundling.communicate(script.encode())
        assert bundling.returncode == 0
        page = await browser.new_page()
        page.set_default_timeout(PATIENCE)
        await page.goto(f"{origin}/index.html")
        await expect(page.locator("p").last).to_contain_text(ANSWER, timeout=PATIENCE)
        await page.close()


@pytest.mark.interop_all
async def test_the_lines_of_copilotkit() -> None:
    folder = Path(__file__).parent / "copilotkit"
    node_client(folder, "CopilotKit")
    port = free_port()
    body = {"threadId": "t", "runId": "r", "tools": [], "context": [], "state": {}, "forwardedProps": {}}
    body["messages"] = [{"id": "1", "role": "user", "content": QUESTION}]
    told = {"method": "agent/run", "params": {"agentId": "default"}, "body": body}
    async with serving(demo("copilotkit")) as base:
        (lines,) = shown("copilotkit", base, "js").values()
        assert "listen(4000)" in lines
        script = lines.replace("listen(4000)", f'listen({port}, "127.0.0.1", () => console.log("ready"))')
        process = await asyncio.create_subprocess_exec(
            *("node", "--input-type=module", "-e", script),
            cwd=folder,
            env=environment(COPILOTKIT_TELEMETRY_DISABLED="true"),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            while b"ready" not in (line := await asyncio.wait_for(process.stdout.readline(), STARTS)):
                assert line, "it ended"
            head = {
                "content-type": "application/json",
                "origin": "http://localhost:3000",
                "accept": "text/event-stream",
            }
            reply = await ask("POST", f"http://127.0.0.1:{port}/api/copilotkit", json.dumps(told).encode(), head)
        finally:
            process.kill()
            await process.wait()
    assert reply.headers["access-control-allow-origin"] in ("*", "http://localhost:3000")
    deltas = re.findall(r'"TEXT_MESSAGE_CONTENT".*?"delta":"(.*?)"', reply.body.decode())
    assert ANSWER in "".join(deltas)


@pytest.mark.interop_all
async def test_the_lines_of_open_webui(tmp_path: Path) -> None:
    assert OPEN_WEBUI.exists(), "Open WebUI is not installed: make interop-all"
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with serving(demo("open-webui")) as base:
        (lines,) = shown("open-webui", base, "bash").values()
        assert "--port 3000" in lines
        settings = {name: value for name, value in SETTINGS.items() if not name.startswith("OPENAI_")}
        variables = environment(**settings, DATA_DIR=str(tmp_path))
        variables["PATH"] = f"{OPEN_WEBUI.parent}:{variables['PATH']}"
        with (tmp_path / "log.txt").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *("bash", "-ec", f"exec env {lines.replace('3000', str(port))}"), env=variables, stdout=log, stderr=log
            )
        try:
            async with asyncio.timeout(STARTS):
                while not await is_up(f"{url}/health"):
                    assert process.returncode is None, (tmp_path / "log.txt").read_text(errors="replace")
                    await asyncio.sleep(0.5)
            signed = {"content-type": "application/json"}
            reply = await ask("POST", f"{url}/api/v1/auths/signin", b'{"email":"","password":""}', signed)
            signed["authorization"] = f"Bearer {reply.json['token']}"
            (model,) = (await ask("GET", f"{url}/api/models", headers=signed)).json["data"]
            talk = {"model": model["id"], "messages": [{"role": "user", "content": QUESTION}], "stream": False}
            reply = await ask("POST", f"{url}/api/chat/completions", json.dumps(talk).encode(), signed)
        finally:
            process.kill()
            await process.wait()
    assert ANSWER in reply.json["choices"][0]["message"]["content"]
