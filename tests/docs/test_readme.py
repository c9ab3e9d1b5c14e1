"""README.md, the quick start and the library page say what is true: blocks run, outputs are real, names exist."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from bridge import translate
from bridge.cli.parser import _arguments
from bridge.cli.serve import curls
from bridge.engine.assembly import assemble
from bridge.engine.config import json_schema, load
from bridge.run.backends.demo_backend import SCENES
from bridge.testing import free_port
from tests.docs.helpers import (
    CONFIGS,
    EXAMPLES,
    LIBRARY,
    QUICKSTART,
    README,
    ROOT,
    USUAL,
    Block,
    Server,
    block,
    blocks_of,
    environment,
    run,
    serve,
    server,
)
from tests.docs.links import documents
from tests.docs.tables import dialects

pytestmark = pytest.mark.slow

ROUTES = len(load(ROOT / "config.yaml").routes)
CALLED = ROUTES - 1
"""Those that `curl` can call: all but the one over a WebSocket."""
SECRETS = {"WEB_KEY": "key-of-web", "FRIDAY_KEY": "key-of-friday", "BRIDGE_KEY": "key-of-bridge-1234"}


def _ids(block: Block) -> str:
    return f"line {block.line}"


# ------------------------------------------------------------------ what make run shows


def test_what_serve_prints_is_what_the_quick_start_shows(demo: Server) -> None:
    assert demo.out.replace(demo.url, USUAL) == block(QUICKSTART, "make run").text


def test_what_curl_shows_is_what_the_quick_start_shows(demo: Server) -> None:
    shown = _paste(_curl_lines(demo)[0])
    assert _steady(shown.rstrip() + "\n") == _steady(block(QUICKSTART, "curl").text)


def _steady(text: str) -> str:
    return re.sub(r'"created":\d+', '"created":0', re.sub(r"chatcmpl-[0-9a-f]{32}", "chatcmpl-0", text))


def _curl_lines(served: Server) -> list[str]:
    # Of several workers the first one answers before the last one is there, and only then are the routes printed.
    served.wait_to_say("  curl ")
    return [line.strip() for line in served.out.splitlines() if line.startswith("  curl ")]


def _paste(line: str) -> str:
    """What a shell shows when the line is pasted into it."""
    done = run("bash", "-c", line.replace("curl -N", "curl -sSN --fail-with-body", 1))
    assert done.returncode == 0, f"{line}\n{done.stdout.decode()}{done.stderr.decode()}"
    return done.stdout.decode()


def _ends_well(told: str) -> bool:
    """Whether a stream of one of these dialects ended, and not by a failure."""
    frame = told.rstrip().rpartition("\n\n")[2]
    if told.startswith('{"model"'):
        return '"done":true,"done_reason":"stop"' in frame.rpartition("\n")[2]  # JSON lines
    last = frame.rpartition("data: ")[2]
    if frame.startswith("event: response."):
        return frame.startswith("event: response.completed\n")
    if frame.startswith("event: message\n") and '"jsonrpc"' in last:
        return '"isError":false' in last and 'finish_reason":"stop"' in last
    if frame.startswith("event: "):
        return frame.startswith("event: message_stop\n") and '"stop_reason":"end_turn"' in told
    if last == "[DONE]":
        return '"finish_reason":"stop"' in told if '"choices":' in told else '"error"' not in told
    response = json.loads(last)
    if "taskId" in response:
        return bool(response["runId"])  # queued; its events are read elsewhere
    if "jsonrpc" in response:
        return bool(response["result"]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED")
    if "candidates" in response:
        return bool(response["candidates"][0]["finishReason"] == "STOP")
    if "type" in response:
        return bool(response["type"] == "RUN_FINISHED")
    return (response["object"], response["status"]) == ("response", "completed")


def _every_line(served: Server, config: Path, **variables: str) -> list[str]:
    """Those of all routes; a server prints those of its first two."""
    loaded = load(config, env=variables)
    routes = assemble(loaded)
    lines = [line for route in routes for line in curls(served.url, route, keyed=not loaded.server.is_open)]
    assert _curl_lines(served) == lines[: len(_curl_lines(served))]
    return lines


def _all_lines_work(served: Server, **variables: str) -> None:
    lines = _every_line(served, ROOT / "config.yaml", **variables)
    assert len(lines) == CALLED
    assert len(_curl_lines(served)) == 2
    for line in lines:
        told = _paste(line)
        assert _ends_well(told), told
        assert "You said: Hello" in "".join(re.findall(r'"(?:content|delta|text)":"([^"]*)"', told)), told


def test_every_printed_curl_line_works(demo: Server) -> None:
    _all_lines_work(demo)


def test_in_front_of_a_chat_model(demo: Server, tmp_path: Path) -> None:
    variables = {"BRIDGE_BACKEND": "llm", "OPENAI_BASE_URL": f"{demo.url}/v1", "OPENAI_MODEL": "some-model"}
    with serve(tmp_path, "config.yaml", **variables) as served:
        _all_lines_work(served, **variables)
        assert served.out.count("->  llm\n") == ROUTES
        assert '"model": "some-model"' in served.out
        assert served.stop() == 0
        assert served.err.count("back=llm http=200 status=stop") == CALLED


def test_in_front_of_an_agentscope_agent(demo: Server, tmp_path: Path) -> None:
    variables = {"BRIDGE_BACKEND": "agent", "AGENTSCOPE_URL": f"{demo.url}/agentscope"}
    with serve(tmp_path, "config.yaml", **variables) as served:
        _all_lines_work(served, **variables)
        assert served.out.count("->  agent\n") == ROUTES
        assert served.stop() == 0


CLOUDS = ("azure", "bedrock", "vertex")


# The demo is none of these services and agents, and an editor starts its bridge by itself; `test_recipes.py` has them,
# and `test_clouds.py` those of clouds.
@pytest.mark.parametrize(
    "config",
    [
        path
        for path in CONFIGS
        if path.stem not in ("agentscope-service", "langgraph", "claude-in-chat", "codex-a2a", "acp", *CLOUDS)
    ],
    ids=lambda path: path.stem,
)
def test_the_curl_lines_of_the_recipes_work(
    config: Path, demo: Server, messages: Server, runs: Server, tmp_path: Path
) -> None:
    variables = {
        "OPENAI_BASE_URL": f"{demo.url}/v1",
        "AGENTSCOPE_URL": f"{demo.url}/agentscope",
        "ANTHROPIC_BASE_URL": messages.url,
        "GEMINI_BASE_URL": f"{demo.url}/gemini",
        "A2A_URL": f"{demo.url}/a2a",
        "AGENT_URL": f"{runs.url}/api/v1/agent",
        "AG_KIT_URL": f"{demo.url}/ag-kit",
        "POSTGRES_URL": "sqlite:///data/bridge.db",
        "AGENT_KEY": SECRETS["WEB_KEY"],
        "AIP_LISTEN": f"127.0.0.1:{free_port()}",
        **SECRETS,
    }
    with serve(tmp_path, config, "--host", "127.0.0.1", **variables) as served:
        lines = _every_line(served, config, **variables)
        assert lines
        for line in lines:
            told = _paste(line.replace("YOUR_KEY", SECRETS["WEB_KEY"]))
            if config.stem == "agent":
                assert "get_weather" in told
            else:
                assert _ends_well(told), told
        assert served.stop() == 0
        assert "Traceback" not in served.err


def test_the_variables_that_the_quick_start_names_are_those_of_config_yaml() -> None:
    config = (ROOT / "config.yaml").read_text(encoding="utf-8")
    of_config = set(re.findall(r"\$\{(\w+)", config)) - {"BRIDGE_KEY"}
    section = QUICKSTART[QUICKSTART.index("## 2. Use your own") :].partition("\n## ")[0]
    assert set(re.findall(r"\b([A-Z]+_[A-Z_]+)=", section)) == of_config


@pytest.mark.parametrize("backend", ["demo", "llm", "agent"])
def test_config_yaml_loads_with_every_backend(backend: str) -> None:
    config = load(ROOT / "config.yaml", env={"BRIDGE_BACKEND": backend})
    assert {route.backends[0].name for route in assemble(config)} == {backend}


def test_the_scenes_of_the_demo_are_named() -> None:
    sentence = QUICKSTART[QUICKSTART.index("The demo agent plays") :].partition("; `help`")[0]
    assert re.findall(r"`([^`]+)`", sentence.partition(":")[2]) == list(SCENES)


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:^    |`|[\w.-] )make ([a-z]+)", README + QUICKSTART, re.MULTILINE))
    assert {"run", "test", "bench"} <= named <= targets


def test_make_run_takes_another_configuration() -> None:
    done = run("make", "-n", "run", "CONFIG=examples/configs/stage.yaml")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().endswith("dialect-bridge serve examples/configs/stage.yaml\n")


# ------------------------------------------------------------------ the blocks


# By what is in a block: what it shows.
SHOWN = {
    "OpenAI(": "You said: Hello Write help to see what else I can show.",
    "import translate": '"text":"Hello"',
    "translator.feed(data)": "lost: []",
    "register_to_gateway(": "HELLO",
    "complete(question)": "Six times seven is forty-two. The answer is 42. UsageReported(input=12, output=34",
}


PYTHON = [block for page in (README, QUICKSTART, LIBRARY) for block in blocks_of(page) if block.language == "python"]


def _elsewhere(text: str) -> str:
    """At free ports instead of the ones that AIP's own examples use."""
    return re.sub(r"127\.0\.0\.1:5005\d", lambda _: f"127.0.0.1:{free_port()}", text)


@pytest.mark.parametrize("block", PYTHON, ids=_ids)
def test_a_python_block_runs(block: Block, demo: Server, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    if "run_app(app" in block.text:
        script.write_text(block.text.replace("port=8080", "port=int(__import__('sys').argv[1])"), encoding="utf-8")
        with server(tmp_path, sys.executable, "-W", "error", str(script), "{port}", ready="/llm/v1/models") as served:
            told = _paste(_curl_lines(demo)[0].replace(demo.url, f"{served.url}/llm"))
            assert _ends_well(told)
            assert served.stop() == 0
        return
    script.write_text(_elsewhere(block.text.replace(USUAL, demo.url)), encoding="utf-8")
    done = run(sys.executable, "-W", "error", str(script))
    assert (done.returncode, done.stderr) == (0, b"")
    for sign, told in SHOWN.items():
        assert sign not in block.text or told in done.stdout.decode()


def test_what_is_expected_is_of_blocks_that_are_there() -> None:
    for sign in SHOWN:
        assert any(sign in block.text for block in PYTHON), sign


def test_the_library_page_shows_what_its_stream_prints(tmp_path: Path) -> None:
    told = blocks_of(LIBRARY)
    (at,) = [i for i, block in enumerate(told) if block.language == "text"]
    script = tmp_path / "block.py"
    script.write_text(told[at - 1].text, encoding="utf-8")
    assert run(sys.executable, str(script)).stdout.decode() == told[at].text


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_a_recipe_loads_and_assembles(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    loaded = load(config, env=SECRETS)
    assert len(assemble(loaded)) == len(loaded.routes)


BASH = [line for b in blocks_of(README) if b.language == "bash" for line in b.text.splitlines()]
CURL = [line for line in BASH if line.startswith("curl ")]


@pytest.mark.parametrize("line", CURL)
def test_a_curl_line_of_the_readme_works(line: str, demo: Server) -> None:
    assert _ends_well(_paste(line.replace(USUAL, demo.url)))


def test_the_commands_of_the_readme_are_valid() -> None:
    """What they do is tried in `test_first_use` and `test_run_agent`."""
    lines = [shlex.split(line, comments=True) for line in BASH if line not in CURL]
    assert [line[:2] for line in lines] == [["dialect-bridge", name] for name in ("run", "init", "serve")]
    for line in lines:
        _arguments(line[1:])


@pytest.mark.parametrize("number", [0, 1])
async def test_a_configuration_of_the_readme_serves(number: int, demo: Server, tmp_path: Path) -> None:
    """In front of the demo, which stands for the model and for the agent."""
    told = [b.text for b in blocks_of(README) if b.language == "yaml"]
    assert len(told) == 2
    config = tmp_path / "config.yaml"
    config.write_text(told[number], encoding="utf-8")
    variables = {"OPENAI_BASE_URL": f"{demo.url}/v1", "AGENTSCOPE_URL": f"{demo.url}/agentscope"}
    with serve(tmp_path, config, **variables) as served:
        lines = _every_line(served, config, **variables)
        assert len(lines) == told[number].count("- {dialect:")
        for line in lines:
            assert _ends_well(_paste(line)), line
        assert served.stop() == 0


def test_the_lines_that_start_make_name_real_things() -> None:
    lines = [line for b in blocks_of(QUICKSTART) if b.language == "bash" for line in b.text.splitlines()]
    lines = [line for line in lines if "dialect-bridge" not in line]
    assert len(lines) == 2
    for line in lines:
        *variables, make, target = shlex.split(line)
        assert (make, target) == ("make", "run")
        load(ROOT / "config.yaml", env=dict(v.split("=", 1) for v in variables))


# ------------------------------------------------------------------ tables, keys, files


def test_the_readme_is_read_in_minutes() -> None:
    assert len(README.splitlines()) <= 230
    assert [line for line in README.splitlines() if re.match(r"    make (run|test) ", line)] != []
    assert (ROOT / "docs" / "page.png").stat().st_size < 200_000


def test_the_readme_lists_the_dialects_and_extras_that_there_are() -> None:
    rows = re.findall(r"^\| \[`([\w-]+)`\]\(docs/dialects/", README, re.MULTILINE)
    assert sorted(rows) == sorted(dialects())
    sentence = re.search(r"Extras are installed as in [^:]*: (.*?);", README, re.DOTALL)
    assert sentence
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    told = set(re.findall(r"`(\w+)`", sentence[1]))
    assert told == {*project["optional-dependencies"]} - {"all", "dev", "docs", "fuzz"}


def test_every_key_that_is_named_exists() -> None:
    every = "".join(
        path.read_text(encoding="utf-8") for path in documents() if path.name not in ("CHANGELOG.md", "architecture.md")
    )
    keys = set(re.findall(r"`((?:server|backends|routes|stores|speech)(?:\.[\w*]+)*)`", every))
    assert len(keys) > 30
    for key in keys:
        assert _exists(key.split(".")), key


def test_a_key_that_does_not_exist_would_be_seen() -> None:
    assert not _exists(["server", "drian"])
    assert not _exists(["routes", "*", "bakend"])


_schema = cache(json_schema)


def _exists(steps: list[str]) -> bool:
    """Whether a path of keys is in the JSON Schema; `*` stands for a name or an index."""
    schema = _schema()
    places = [schema["$defs"]["Config"]]
    for step in steps:
        places = [below for place in places for below in _below(place, step, schema["$defs"])]
    return bool(places)


def _below(place: dict, step: str, definitions: dict) -> list[dict]:
    found = []
    for choice in _choices(place, definitions):
        if step in choice.get("properties", {}):
            found.append(choice["properties"][step])
        elif step == "*":
            found += [choice[k] for k in ("additionalProperties", "items") if isinstance(choice.get(k), dict)]
    return found


def _choices(place: dict, definitions: dict) -> list[dict]:
    if "$ref" in place:
        place = {**place, **definitions[place["$ref"].rpartition("/")[2]]}
    return [place, *(each for choice in place.get("anyOf", []) for each in _choices(choice, definitions))]


@pytest.mark.parametrize(
    "document",
    [
        "docs/architecture.md",
        "docs/extending.md",
        "docs/reference/contract.md",
        "CONTRIBUTING.md",
    ],
)
def test_files_that_are_named_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    folders = r"(?:bridge|adapters|tests|examples|docs|bench)/[\w./-]*"
    named = re.findall(rf"`({folders}|\w+\.(?:md|yaml|toml))`", text)
    assert named
    for name in named:
        assert (ROOT / name).exists(), name


def test_java_agents_are_read_as_readme_says() -> None:
    recorded = (ROOT / "tests" / "captures" / "agentscope" / "java_camelcase_text.events.jsonl").read_bytes()
    stream = b"".join(b"data: %b\n\n" % line for line in recorded.splitlines() if line.strip())
    assert translate(stream, "agentscope", "openai-chat").endswith(b"data: [DONE]\n\n")


PLACES = {
    "127.0.0.1", "localhost", "api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com", "semver.org",
    # Clouds, whose credentials expire, and a placeholder.
    "www.googleapis.com", "cognitiveservices.azure.com", "bedrock-runtime.us-west-2.amazonaws.com",
    "my-resource.openai.azure.com", "us-central1-aiplatform.googleapis.com", "models.example",
    "bridge.example", "app.example",
    "europe-west4-aiplatform.googleapis.com", "aiplatform.googleapis.com", "ai.azure.com",
    "bedrock-mantle.us-east-1.api.aws", "bedrock-runtime.REGION.amazonaws.com",
    "bedrock-mantle.REGION.api.aws",
    # Servers that `docs/connect` names, each with its base URL.
    "api.deepseek.com", "api.groq.com", "api.mistral.ai", "dashscope.aliyuncs.com", "openrouter.ai",
}  # fmt: skip


def test_other_places_are_not_named() -> None:
    for path in [*documents(), *EXAMPLES.rglob("*.*")]:
        if path.suffix in (".md", ".py", ".yaml"):
            addresses = re.findall(r"https?://([\w.-]+)", path.read_text(encoding="utf-8"))
            assert set(addresses) <= PLACES, path


def test_children_see_none_of_our_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIDGE_BACKEND", "llm")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    assert not {"BRIDGE_BACKEND", "HTTPS_PROXY"} & environment().keys()
