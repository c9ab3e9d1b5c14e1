"""The same judges before this bridge and before other gateways, on one machine: `make compare` prints the tables.

The judges are `llm-comply`, the types of the official Python SDKs without conversions, and the coding agents of
`test_coding_agents.py`. Behind every gateway stands the same scripted model, which answers in the wire that it is asked
in: it thinks if it is asked to, calls a tool that it is offered, and else says a sentence. Nothing else is contacted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
from anthropic.types import RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from bridge.model import Reasoning, Request, Text, ToolCall, ToolResult, UsageReported, result_text
from bridge.testing import Exchange, ScriptedBackend, fake_backend, free_port
from bridge.translation.framing import sse
from tests.docs.helpers import environment
from tests.interop.test_coding_agents import ANSWER, FOLDER, PROGRAMS, SAID, Program, said_by
from tests.server.harness import serving

VENVS = Path(sys.prefix)
BACKS = ("openai-chat", "openai-responses", "anthropic-messages")
FORMATS = {
    "openai-chat": "openai-chat",
    "openai-responses": "open-responses",
    "anthropic-messages": "anthropic",
    "gemini": "google-genai",
}
"""The fronts, and what `llm-comply` calls their formats."""
SWITCHYARD = """
import signal, sys
from switchyard_rust.server import Server
server = Server(sys.argv[1], int(sys.argv[2]))
signal.pause()
"""
STARTING = 60.0
TOOL = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}


# ---------------------------------------------------------------------- the model


class Model(ScriptedBackend):
    """Answers by what a request asks for."""

    def next(self, request: Request) -> list[Any]:
        self.requests.append(request)
        thinks = request.reasoning_effort not in (None, "none")
        said: list[Any] = [Reasoning("Let me think.")] if thinks else []
        if request.tools and request.messages[-1].role != "tool":
            said.append(ToolCall("call_1", request.tools[0].name, '{"location":"San Francisco"}'))
        else:
            said.append(Text("Hello to you."))
        return [*said, UsageReported(12, 9, reasoning=4 if thinks else None)]


class AgentModel(Model):
    """What a coding agent's model says: a command, then what it heard of it."""

    def __init__(self, dialect: str, program: Program) -> None:
        super().__init__(dialect)
        self._program = program

    def next(self, request: Request) -> list[Any]:
        self.requests.append(request)
        program, offered = self._program, {tool.name for tool in request.tools or ()}
        if self.results:
            return [Text(ANSWER)]
        if program.tool in offered:
            return [ToolCall("call_1", program.tool, json.dumps(program.arguments))]
        return [Text("A command")]

    @property
    def results(self) -> list[str]:
        """What came of the command, as often as it was told."""
        parts = [part for request in self.requests for message in request.messages for part in message.parts]
        return [result_text(part.parts) for part in parts if isinstance(part, ToolResult)]


@contextlib.asynccontextmanager
async def model(speaker: Model) -> AsyncIterator[str]:
    """The base URL of this model."""

    async def script(exchange: Exchange) -> None:
        seen = exchange.seen
        reply = speaker.reply(seen.body, seen.headers, path=seen.path)
        headers = {name.replace("-", "_"): value for name, value in reply.headers.items()}
        await exchange.head(reply.status, headers.pop("content_type", None), **headers)
        for piece in reply.pieces:
            await exchange.send(piece)
        await exchange.end()

    async with fake_backend() as backend:
        backend.plays(script)
        yield backend.url


# ---------------------------------------------------------------------- the gateways


@contextlib.asynccontextmanager
async def dialect_bridge(back: str, url: str) -> AsyncIterator[str]:
    paths = {"openai-chat": "/v1", "openai-responses": "/v1", "anthropic-messages": "/v1", "gemini": "/"}
    config = {
        "backends": {"it": {"dialect": back, "url": f"{url}/v1"}},
        "routes": [{"dialect": front, "path": path, "backend": "it"} for front, path in paths.items()],
    }
    async with serving(config) as base:
        yield base


@contextlib.asynccontextmanager
async def llm_rosetta(back: str, url: str) -> AsyncIterator[str]:
    kind = {"openai-chat": "openai_chat", "openai-responses": "openai_responses", "anthropic-messages": "anthropic"}
    port, base = free_port(), url if back == "anthropic-messages" else f"{url}/v1"
    config = {
        "providers": {"it": {"type": kind[back], "api_key": "x", "base_url": base}},
        "models": {"m": "it"},
        "server": {"host": "127.0.0.1", "port": port, "open_on_no_keys": True},
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.jsonc"
        file.write_text(json.dumps(config))
        program = str(VENVS / "llm-rosetta" / "bin" / "llm-rosetta-gateway")
        command = [program, "--config", str(file), "--no-banner", "--data-dir", folder, "--log-level", "error"]
        async with started(command, port):
            yield f"http://127.0.0.1:{port}"


@contextlib.asynccontextmanager
async def nemo_switchyard(back: str, url: str) -> AsyncIterator[str]:
    kind = back.replace("-", "_")
    port, base = free_port(), url if back == "anthropic-messages" else f"{url}/v1"
    lines = [
        "schema_version = 1",
        "[llm_clients]",
        f'it = {{format = "{kind}", base_url = "{base}", max_retries = 0}}',
        "[targets]",
        'it = {id = "m", llm_client = "it"}',
        "[routes]",
        'it = {id = "m", type = "passthrough", target = "it"}',
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "routes.toml"
        file.write_text("\n".join(lines))
        python = str(VENVS / "nemo-switchyard" / "bin" / "python")
        async with started([python, "-c", SWITCHYARD, str(file), str(port)], port):
            yield f"http://127.0.0.1:{port}"


@contextlib.asynccontextmanager
async def started(command: list[str], port: int) -> AsyncIterator[None]:
    """A gateway that answers `/health`, ended afterwards."""
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdin=quiet, stdout=quiet, stderr=quiet, env=environment())
    try:
        async with asyncio.timeout(STARTING), aiohttp.ClientSession() as session:
            while True:
                assert process.returncode is None, f"{command[0]} ended"
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"http://127.0.0.1:{port}/health"):
                        break
                await asyncio.sleep(0.05)
        yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


# ---------------------------------------------------------------------- the judges


@dataclass
class Score:
    passed: int = 0
    tried: int = 0
    failures: list[str] = field(default_factory=list)

    def count(self, what: str, error: str | None) -> None:
        self.tried += 1
        self.passed += error is None
        if error is not None:
            self.failures.append(f"{what}: {error}")

    def __str__(self) -> str:
        return f"{self.passed} of {self.tried}"


async def comply(front: str, base: str, score: Score) -> None:
    """The tests of `llm-comply` for this front; what it skips does not count."""
    program = str(VENVS / "llm-comply" / "bin" / "llm-comply")
    options = ["--format", FORMATS[front], "-u", f"{base}/v1", "-k", "x", "-m", "m", "--json", "--timeout", "20"]
    process = await asyncio.create_subprocess_exec(program, *options, stdout=asyncio.subprocess.PIPE, env=environment())
    out, _ = await process.communicate()
    for result in json.loads(out)["results"]:
        if result["status"] != "skipped":
            score.count(result["id"], "; ".join(result["errors"]) if result["status"] == "failed" else None)


async def strict(front: str, base: str, score: Score) -> None:
    """Answers as the SDK's own types: a text, a call, and reasoning, streamed and in one piece."""
    ask, event_type, whole_type = STRICT[front]
    for what in ("text", "call", "reasoning"):
        path, body = ask(what)
        for stream in (True, False):
            error = None
            try:
                data = await answered(base + path, {**body, "stream": stream})
                for value in _payloads(data) if stream else [json.loads(data)]:
                    TypeAdapter(event_type if stream else whole_type).validate_python(value, strict=True)
            except (AssertionError, ValueError, TimeoutError, aiohttp.ClientError) as problem:
                error = f"{type(problem).__name__}: {problem}"
            score.count(f"{what}, {'streamed' if stream else 'whole'}", error)


async def answered(url: str, body: dict[str, Any]) -> bytes:
    limit = aiohttp.ClientTimeout(20)
    async with (
        aiohttp.ClientSession(timeout=limit) as session,
        session.post(url, json=body, headers={"x-api-key": "x"}) as response,
    ):
        data = await response.read()
        assert response.status == 200, f"status {response.status}: {data[:300]!r}"
    return data


def _payloads(data: bytes) -> list[Any]:
    splitter = sse.Splitter()
    frames = [f if isinstance(f, bytes) else f.data for f in [*splitter.feed(data), *splitter.close()]]
    values = [json.loads(frame) for frame in frames if frame and frame != b"[DONE]"]
    assert values, "no event came"
    return values


def _chat(what: str) -> tuple[str, dict[str, Any]]:
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": TOOL}}
    more = {"text": {}, "call": {"tools": [tool]}, "reasoning": {"reasoning_effort": "low"}}
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream_options": {"include_usage": True}}
    return "/v1/chat/completions", {**body, **more[what]}


def _responses(what: str) -> tuple[str, dict[str, Any]]:
    tool = {"type": "function", "name": "get_weather", "parameters": TOOL}
    more = {"text": {}, "call": {"tools": [tool]}, "reasoning": {"reasoning": {"effort": "low", "summary": "auto"}}}
    return "/v1/responses", {"model": "m", "input": "Hi", **more[what]}


def _messages(what: str) -> tuple[str, dict[str, Any]]:
    tool = {"name": "get_weather", "input_schema": TOOL}
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    more = {"text": {}, "call": {"tools": [tool]}, "reasoning": thinking}
    return "/v1/messages", {
        "model": "m", "max_tokens": 2048, "messages": [{"role": "user", "content": "Hi"}], **more[what],
    }  # fmt: skip


STRICT: dict[str, tuple[Callable[[str], tuple[str, dict[str, Any]]], Any, Any]] = {
    "openai-chat": (_chat, ChatCompletionChunk, ChatCompletion),
    "openai-responses": (_responses, ResponseStreamEvent, Response),
    "anthropic-messages": (_messages, RawMessageStreamEvent, anthropic.types.Message),
}


# ---------------------------------------------------------------------- the tables

GATEWAYS = {"dialect-bridge": dialect_bridge, "llm-rosetta": llm_rosetta, "nemo-switchyard": nemo_switchyard}


async def judged(name: str, back: str, scores: dict[tuple[str, str, str], Score]) -> None:
    async with model(Model(back)) as url, GATEWAYS[name](back, url) as base:
        for front in FORMATS:
            await comply(front, base, scores.setdefault((name, "llm-comply", front), Score()))
            if front in STRICT:
                await strict(front, base, scores.setdefault((name, "SDK", front), Score()))


async def agents(name: str, back: str, scores: dict[tuple[str, str, str], Score]) -> None:
    for program in PROGRAMS:
        error = None
        try:
            await a_turn(name, back, program)
        except (AssertionError, TimeoutError, OSError) as problem:
            error = f"{type(problem).__name__}: {str(problem)[-300:]}"
        scores.setdefault((name, "agent", program), Score()).count(f"over {back}", error)


async def a_turn(name: str, back: str, agent: str) -> None:
    """An agent runs the command that the model calls for, tells the model and then the user."""
    program = PROGRAMS[agent]
    speaker = AgentModel(back, program)
    with tempfile.TemporaryDirectory() as folder:
        home, work = Path(folder) / "home", Path(folder) / "work"
        home.mkdir()
        work.mkdir()
        async with model(speaker) as url, GATEWAYS[name](back, url) as base:
            arguments, variables = program.setup(home, base)
            if agent == "codex" and name != "dialect-bridge":  # the others have no WebSocket
                config = home / "config.toml"
                config.write_text(config.read_text().replace("supports_websockets = true", ""))
            command = FOLDER / "node_modules" / ".bin" / agent
            out = await said_by([str(command), *arguments], work, HOME=str(home), KEY="x", **variables)
    assert any(SAID in result for result in speaker.results), "the model did not get the result"
    assert ANSWER in out, f"the answer was not shown: {out}"


def table(judge: str, scores: dict[tuple[str, str, str], Score]) -> str:
    rows = list(dict.fromkeys(what for _, by, what in scores if by == judge))
    lines = [f"| {judge} | {' | '.join(GATEWAYS)} |", "|---" * (len(GATEWAYS) + 1) + "|"]
    lines += [f"| `{row}` | {' | '.join(str(scores[name, judge, row]) for name in GATEWAYS)} |" for row in rows]
    return "\n".join(lines)


def report(scores: dict[tuple[str, str, str], Score]) -> Iterator[str]:
    """The tables, then what failed."""
    for judge in dict.fromkeys(by for _, by, _ in scores):
        yield table(judge, scores) + "\n"
    for (name, judge, what), score in scores.items():
        for failure in score.failures:
            yield f"{name}, {judge} of {what}: {failure[:600]}"


async def main(judges: set[str]) -> None:
    scores: dict[tuple[str, str, str], Score] = {}
    for name in GATEWAYS:
        for back in BACKS:
            if "wires" in judges:
                await judged(name, back, scores)
            if "agents" in judges:
                await agents(name, back, scores)
    sys.stdout.writelines(line + "\n" for line in report(scores))


if __name__ == "__main__":
    asyncio.run(main(set(sys.argv[1:]) or {"wires", "agents"}))
