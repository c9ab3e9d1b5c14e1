"""A2A's own SDKs, unchanged, as clients: Python and JavaScript over both bindings, and the Python one of version 0.3;
and agents of other projects that call agents: AgentScope's `A2AAgent` and google-adk's `RemoteA2aAgent`.

Each SDK streams an answer, takes one whole, and answers a question. On a durable route it also reads its tasks again,
watches one from a second place, and cancels.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bridge.run.backends import fetch
from tests.interop.test_frameworks import said_by
from tests.server.harness import bound_socket, serving

pytestmark = pytest.mark.interop

ANSWER = "You said: hello Write help to see what else I can show."
QUESTION = 'confirmation: delete_file({"path": "a.txt"})'
PARTS = ["May I delete a.txt?", "You decided: resolved."]
NAMES = {1: "SUBMITTED", 2: "WORKING", 3: "COMPLETED", 5: "CANCELED", 6: "INPUT_REQUIRED"}


async def conversation(folder: Path, command: list[str], *more: str, durable: bool, **options: Any) -> Any:
    """What the application saw."""
    config = {
        "backends": {"demo": {"dialect": "demo"}},
        "routes": [{"dialect": "a2a", "path": "/a2a", "backend": "demo", "durable": durable, "options": options}],
        "stores": {"history": f"sqlite:///{folder}/history.db", "runs": f"sqlite:///{folder}/runs.db"},
    }
    async with serving(config) as base:
        return await said_by([*command, f"{base}/a2a", *more])


def plain(state: Any) -> str:
    """A state without what an SDK adds to its name."""
    return NAMES[state] if isinstance(state, int) else state.removeprefix("TASK_STATE_")


def judge_stream(seen: dict[str, Any], text: str, *states: str) -> None:
    kinds = [kind.replace("_u", "U") for kind in seen["kinds"]]
    assert kinds[0] == "task"
    assert set(kinds[1:]) == {"statusUpdate", "artifactUpdate"}
    assert kinds.count("artifactUpdate") >= 2, "it came in pieces"
    assert list(map(plain, seen["states"])) == list(states)
    assert seen["text"] == text


def judge_talk(seen: dict[str, Any]) -> None:
    judge_stream(seen["streamed"], ANSWER, "SUBMITTED", "WORKING", "COMPLETED")
    judge_stream(seen["asked"], PARTS[0], "SUBMITTED", "WORKING", "INPUT_REQUIRED")
    assert seen["asked"]["question"] == QUESTION
    judge_stream(seen["answered"], PARTS[1], "SUBMITTED", "WORKING", "COMPLETED")


def judge_tasks(seen: dict[str, Any]) -> None:
    assert [plain(seen["kept"][0]), seen["kept"][1]] == ["COMPLETED", PARTS]
    assert plain(seen["canceled"]) == "CANCELED"
    assert seen["failures"] == ["TaskNotCancelableError", "TaskNotFoundError", "UnsupportedOperationError"]
    same, first, *last = seen["watched"]
    assert same, "who came later saw the same answer"
    assert first in ("task", ["task", "artifact_update"])
    assert list(map(plain, last)) == ["CANCELED", "CANCELED"]


@pytest.mark.parametrize("durable", [False, True], ids=["live", "durable"])
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_the_python_sdk(binding: str, durable: bool, a2a: list[str], tmp_path: Path) -> None:
    seen = await conversation(tmp_path, a2a, binding, *(["tasks"] if durable else []), durable=durable)
    judge_talk(seen)
    assert seen["whole"]["text"] == ANSWER
    assert seen["usage"] == {"input": 12, "output": 34, "total": 46, "cached": 2, "reasoning": 5}
    if durable:
        judge_tasks(seen)
        assert (seen["kept"][2], seen["brief"]) == (3, 0)
        assert seen["listed"] == [[True], 1, ""]


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_the_python_sdk_is_notified(
    binding: str, a2a: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "is_public", lambda address: address.is_loopback)
    got: asyncio.Queue[tuple[str | None, dict[str, Any]]] = asyncio.Queue()

    async def take(request: web.Request) -> web.Response:
        got.put_nowait((request.headers.get("x-a2a-notification-token"), await request.json()))
        return web.Response(status=204)

    app = web.Application()
    app.router.add_post("/hook", take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    with bound_socket() as listening:
        await web.SockSite(runner, listening).start()
        host = f"127.0.0.1:{listening.getsockname()[1]}"
        seen = await conversation(tmp_path, a2a, binding, "push", f"http://{host}/hook", durable=True, push=[host])
        assert seen["same"] == [True, True, True]
        assert (seen["refused"], seen["gone"]) == ("InvalidParamsError", "TaskNotFoundError")
        said = [await asyncio.wait_for(got.get(), 20) for _ in seen["answered"]["kinds"]]
        await runner.cleanup()
    assert {token for token, _ in said} == {"a-token"}
    kinds = [next(iter(body)) for _, body in said]
    assert kinds == [kind.replace("_u", "U") for kind in seen["answered"]["kinds"]]
    assert got.empty()


async def test_the_python_sdk_where_only_0_3_is_served(a2a: list[str], tmp_path: Path) -> None:
    seen = await conversation(tmp_path, a2a, "JSONRPC", "tasks", "0.3", durable=True, versions=["0.3"])
    judge_talk(seen)
    judge_tasks(seen)


async def test_the_python_sdk_over_http_where_only_0_3_is_served(a2a: list[str], tmp_path: Path) -> None:
    judge_talk(await conversation(tmp_path, a2a, "HTTP+JSON", durable=True, versions=["0.3"]))


@pytest.mark.parametrize("durable", [False, True], ids=["live", "durable"])
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_the_javascript_sdk(binding: str, durable: bool, a2a_js: list[str], tmp_path: Path) -> None:
    seen = await conversation(tmp_path, a2a_js, binding, *(["tasks"] if durable else []), durable=durable)
    judge_talk(seen)
    assert [plain(seen["whole"][0]), seen["whole"][1]] == ["COMPLETED", [ANSWER]]
    if durable:
        judge_tasks(seen)


@pytest.mark.parametrize(("transport", "failure"), [("JSONRPC", "code=-32002"), ("HTTP+JSON", "400")])
async def test_the_python_sdk_of_0_3(transport: str, failure: str, a2a_old: list[str], tmp_path: Path) -> None:
    """It finds its fields in the card of both versions. Of an error over HTTP+JSON it reads the status."""
    seen = await conversation(tmp_path, a2a_old, transport, durable=True, versions=["1.0", "0.3"])
    for name in ("streamed", "whole"):
        assert seen[name][1:] == ["completed", [ANSWER], ""]
    assert seen["streamed"][0][0] == "task"
    assert seen["asked"][1:] == ["input-required", PARTS[:1], QUESTION]
    assert seen["answered"][1:] == ["completed", PARTS[1:], ""]
    assert seen["kept"] == [[], "completed", PARTS, ""]
    assert seen["canceled"] == "canceled"
    assert failure in seen["failure"]


# ---------------------------------------------------------------------- agents that call agents

SAID = ["hello", "reasoning", "interrupt", "yes", "hello"]


def agents(venv: str, script: str) -> list[str]:
    python = Path(sys.prefix) / venv / "bin" / "python"
    assert python.exists(), f"{venv} is not installed: make interop"
    return [str(python), str(Path(__file__).parent / "a2a" / script)]


async def test_agentscope_as_a_client(tmp_path: Path) -> None:
    """What it streams is what it keeps, one block for each text, in one context."""
    seen = await conversation(tmp_path, agents("agentscope2", "agentscope_client.py"), *SAID, durable=True)
    hello, thought, asked, answered, again = seen
    assert [hello["blocks"], again["blocks"]] == [[ANSWER]] * 2
    assert len(thought["blocks"]) == 1
    assert [asked["blocks"], asked["waits"]] == [[PARTS[0], QUESTION], True]
    assert [answered["blocks"], answered["waits"]] == [[PARTS[1]], False]
    assert len({each["context"] for each in seen}) == 1
    for each in seen:
        assert [each["streamed"], each["reason"]] == ["".join(each["blocks"]), "completed"]


async def test_agentscope_as_a_client_of_a_route_that_is_not_durable(tmp_path: Path) -> None:
    """It asks for the task that waits before it answers: the process keeps it (docs/dialects/a2a.md)."""
    command = agents("agentscope2", "agentscope_client.py")
    seen = await conversation(tmp_path, command, "hello", "hello", "interrupt", "yes", durable=False)
    assert [each["blocks"] for each in seen] == [[ANSWER], [ANSWER], [PARTS[0], QUESTION], [PARTS[1]]]
    assert len({each["context"] for each in seen}) == 1


@pytest.mark.parametrize("durable", [False, True], ids=["live", "durable"])
async def test_google_adk_as_a_client(durable: bool, tmp_path: Path) -> None:
    """Pieces of an artifact are partial events; the last one, which has no text, is not."""
    seen = await conversation(tmp_path, agents("a2a-agents", "adk_client.py"), *SAID, durable=durable)
    hello, thought, asked, answered, again = seen
    assert [hello["streamed"], again["streamed"]] == [ANSWER] * 2
    assert thought["streamed"]
    assert asked["streamed"] == PARTS[0]
    assert asked["asked"] == [["mock_function_call_for_required_user_input", {"input_required": QUESTION}]]
    assert answered["streamed"] == PARTS[1]
    for each in seen:
        assert [each["errors"], each["whole"]] == [[], ""]
