"""`dialect-bridge mcp`: the same over standard input and output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.forkserver import ForkedProcess, run

from .client import FORMS, META, NEW, TASKS, config, route

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "bridge", "mcp")


def file(folder: Path, *routes: dict[str, Any], **server: Any) -> Path:
    path = folder / "tools.yaml"
    path.write_text(yaml.safe_dump(config(folder, *routes, **server)))
    return path


class Program:
    """The command, and the messages that it wrote. Anything else on its standard output is an error."""

    def __init__(self, process: ForkedProcess, stdin: asyncio.WriteTransport, stdout: asyncio.StreamReader) -> None:
        self.process, self.stdin, self.stdout = process, stdin, stdout
        self.number = 0

    def say(self, *messages: Any) -> None:
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message).encode()
            self.stdin.write(line + b"\n")

    async def hear(self) -> Any:
        async with asyncio.timeout(20):
            line = await self.stdout.readline()
        assert line, "the program ended"
        return json.loads(line)

    async def answer(self, to: Any) -> tuple[Any, list[Any]]:
        """The response to a request, and what came before it."""
        before = []
        while (message := await self.hear()).get("id") != to or "method" in message:
            before.append(message)
        return message, before

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> Any:
        self.number += 1
        self.say({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params or {}})
        return (await self.answer(self.number))[0]

    async def end(self) -> tuple[int, bytes]:
        """Close its input: the exit code, and what else came."""
        self.stdin.close()
        async with asyncio.timeout(20):
            rest = await self.stdout.read()
        return await asyncio.to_thread(self.process.wait, 20), rest


def new(prompt: str = "", tool: str = "ask_agent", *, token: Any = None, capabilities: Any = None) -> dict[str, Any]:
    meta: dict[str, Any] = {f"{META}protocolVersion": NEW, f"{META}clientCapabilities": capabilities or {}}
    if token is not None:
        meta["progressToken"] = token
    return {**({"name": tool, "arguments": {"prompt": prompt}} if prompt else {}), "_meta": meta}


@contextlib.asynccontextmanager
async def program(*arguments: str) -> AsyncIterator[Program]:
    (stdin, fed), (read, stdout) = os.pipe(), os.pipe()
    complaints = os.open(os.devnull, os.O_WRONLY)
    process = ForkedProcess(
        [*COMMAND, *arguments], cwd=ROOT, env=dict(os.environ), stdin=stdin, stdout=stdout, stderr=complaints
    )
    for inside in (stdin, stdout, complaints):
        os.close(inside)
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb", 0))
    writing, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(fed, "wb", 0))
    try:
        yield Program(process, writing, reader)
    finally:
        process.kill()
        await asyncio.to_thread(process.wait, 20)
        reading.close()
        writing.close()


async def test_a_client_of_each_kind_is_served(tmp_path: Path) -> None:
    async with program(str(file(tmp_path))) as it:
        assert (await it.ask("server/discover", new()))["result"]["supportedVersions"] == [NEW]
        assert [t["name"] for t in (await it.ask("tools/list", new()))["result"]["tools"]] == ["ask_agent"]
        it.say({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": new("say a b", token=0)})
        answer, before = await it.answer("c")
        assert "".join(m["params"]["message"] for m in before) == "a b "
        assert answer["result"]["content"][0]["text"] == "a b "
        assert (await it.ask("nope", new()))["error"]["code"] == -32601
        unopened = await it.ask("tools/list")
        assert "error" in unopened, "a client without metadata initializes first"
        result = (await it.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}}))["result"]
        assert result["protocolVersion"] == "2025-06-18"
        it.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (await it.ask("ping"))["result"] == {}
        it.say(b"{broken", b"")
        assert (await it.hear())["error"]["code"] == -32700
        answer = await it.ask("tools/call", {"name": "ask_agent", "arguments": {"prompt": "hi"}})
        assert answer["result"]["content"][0]["text"] == "hi ['user']"
        assert (await it.ask("tools/call", {"name": "nope", "arguments": {}}))["error"]["code"] == -32602
        assert (await it.ask("nope"))["error"]["code"] == -32601
        assert await it.end() == (0, b"")


async def test_several_calls_at_once_and_cancelled_by_notifications(tmp_path: Path) -> None:
    async with program("--config", str(file(tmp_path))) as it:
        await it.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
        slow = {"name": "ask_agent", "arguments": {"prompt": "slow"}, "_meta": {"progressToken": "t"}}
        it.say({"jsonrpc": "2.0", "id": "old", "method": "tools/call", "params": slow})
        it.say({"jsonrpc": "2.0", "id": "new", "method": "tools/call", "params": new("slow", token="n")})
        seen = set()
        while seen != {"t", "n"}:
            seen.add((await it.hear())["params"]["progressToken"])
        for call_id in ("old", "new"):
            it.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call_id}})
        quick = {"name": "ask_agent", "arguments": {"prompt": "hi"}}
        it.say({"jsonrpc": "2.0", "id": "q", "method": "tools/call", "params": quick})
        answer, before = await it.answer("q")
        assert answer["result"]["content"][0]["text"] == "hi ['user']"
        assert not [m for m in before if m.get("id") in ("old", "new")], "a cancelled call has no answer"
        assert await it.end() == (0, b""), "nothing of a cancelled call follows, and nothing is waited for"


async def test_questions_are_calls_of_the_server(tmp_path: Path) -> None:
    async with program(str(file(tmp_path))) as it:
        await it.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": FORMS})
        params = {"name": "ask_agent", "arguments": {"prompt": "approve"}}
        it.say({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": params})
        asked = await it.hear()
        assert (asked["method"], asked["params"]["message"]) == ("elicitation/create", "Send the mail?")
        told = {"action": "accept", "content": {"approved": True}}
        it.say({"jsonrpc": "2.0", "id": asked["id"], "result": told})
        answer, _ = await it.answer("c")
        assert answer["result"]["content"][0]["text"].endswith("answers: [('q-1', 'resolved', {'approved': True})]")
        it.say({"jsonrpc": "2.0", "id": "n", "method": "tools/call", "params": new("approve", capabilities=FORMS)})
        answer, _ = await it.answer("n")
        assert answer["result"]["resultType"] == "input_required"


async def test_messages_that_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """As from a pipe: all are answered before the program ends."""
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-03-26"}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        [
            {"jsonrpc": "2.0", "id": 2, "method": "ping"},
            {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "ask_agent", "arguments": {}}},
        ],
        {"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {**new("silent"), "_meta": {}}},
    ]
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    command = [*COMMAND, str(file(tmp_path))]
    done = await asyncio.to_thread(run, command, cwd=ROOT, env=dict(os.environ), timeout=60, input=text)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    flat = [m for each in found for m in (each if isinstance(each, list) else [each])]
    assert {m["id"] for m in flat} == {1, 2, 3, 4}
    assert [each for each in found if isinstance(each, list)], "a batch is answered by a batch"


async def test_several_routes_are_one_server(tmp_path: Path) -> None:
    more = route("/more", backend="demo", durable=True, options={"instructions": "B."})
    path = file(tmp_path, route(options={"instructions": "A."}), more)
    async with program(str(path)) as it:
        known = (await it.ask("server/discover", new()))["result"]
        assert known["instructions"] == "A.\n\nB."
        assert TASKS in known["capabilities"]["extensions"], "of the second route"
        tools = (await it.ask("tools/list", new()))["result"]["tools"]
        assert [t["name"] for t in tools] == ["ask_agent", "ask_demo"]
        answer = await it.ask("tools/call", new("hi", "ask_demo"))
        assert answer["result"]["content"][0]["text"].startswith("You said: hi")
        capable = {"extensions": {TASKS: {}}}
        made = (await it.ask("tools/call", new("hi", "ask_demo", capabilities=capable)))["result"]
        task = {"taskId": made["taskId"], **new(capabilities=capable)}
        assert (await it.ask("tasks/get", task))["result"]["taskId"] == made["taskId"]
        unknown = {"taskId": "nope", **new(capabilities=capable)}
        assert (await it.ask("tasks/get", unknown))["error"]["code"] == -32602
    async with program(str(path), "--route", "/more") as it:
        assert [t["name"] for t in (await it.ask("tools/list", new()))["result"]["tools"]] == ["ask_demo"]


async def test_keys_are_for_http(tmp_path: Path) -> None:
    path = file(tmp_path, auth={"keys": [{"name": "me", "key": "key-of-me"}]}, hosts=["bridge.example"])
    async with program(str(path)) as it:
        assert "result" in await it.ask("tools/list", new())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it(tmp_path: Path, number: int) -> None:
    async with program(str(file(tmp_path))) as it:
        it.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": new("slow", token=1)})
        await it.hear()
        it.process.send_signal(number)
        assert await asyncio.to_thread(it.process.wait, 20) == 0


def test_mistakes_are_told_on_standard_error(tmp_path: Path) -> None:
    twice = file(tmp_path, route("/a"), route("/b"))
    (tmp_path / "none").mkdir()
    none = file(tmp_path / "none", {"dialect": "openai-chat", "path": "/v1", "backend": "demo"})
    for arguments, words in (
        ([str(tmp_path / "gone.yaml")], "gone.yaml"),
        ([str(twice)], "both have a tool 'ask_agent'"),
        ([str(none)], "no route offers tools"),
        ([str(twice), "--route", "/c"], "--route /c"),
    ):
        done = run([*COMMAND, *arguments], cwd=ROOT, env=dict(os.environ), timeout=60)
        assert (done.returncode, done.stdout) == (2, b""), arguments
        assert words in done.stderr.decode()
