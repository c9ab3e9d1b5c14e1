"""The official AG-UI client (`agui/driver.mjs`) as seen from Python."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "agui"
VERSIONS = {"0": "0.0.59", "1": "1.0.0"}
PATIENCE = 30.0
"""Seconds after which a client that says nothing is ended, so that the test fails instead of hanging."""

_NAMES = itertools.count()


@dataclass
class View:
    """What the client made of one run; `messages` is its whole list, `fresh` what this run added."""

    events: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    fresh: list[dict[str, Any]]
    state: Any
    finished: dict[str, Any] | None
    rejected: dict[str, str] | None
    console: list[list[str]] = field(default_factory=list)
    unhandled: list[dict[str, str]] = field(default_factory=list)

    def _said(self, role: str) -> list[dict[str, Any]]:
        return [m for m in self.fresh if m["role"] == role]

    @property
    def text(self) -> str:
        return "".join(m.get("content") or "" for m in self._said("assistant"))

    @property
    def reasoning(self) -> str:
        return "".join(m["content"] for m in self._said("reasoning"))

    @property
    def calls(self) -> list[tuple[str, str, Any]]:
        """Id, name and parsed arguments."""
        calls = [c for m in self._said("assistant") for c in m.get("toolCalls") or ()]
        return [(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls]

    @property
    def results(self) -> list[tuple[str, str]]:
        return [(m["toolCallId"], m["content"]) for m in self._said("tool")]

    @property
    def types(self) -> list[str]:
        return [e["type"] for e in self.events]

    @property
    def last(self) -> dict[str, Any]:
        return self.events[-1]

    @property
    def error(self) -> str | None:
        """The message of a RUN_ERROR."""
        return self.last["message"] if self.last["type"] == "RUN_ERROR" else None

    @property
    def interrupts(self) -> list[dict[str, Any]]:
        return (self.finished or {}).get("interrupts") or []


class Driver:
    """One Node process that answers a line for each line; started when it is needed, and again after it died."""

    def __init__(self, folder: Path = HERE, script: str = "driver.mjs") -> None:
        self._command, self._folder = ["node", script], folder
        self._process: subprocess.Popen[str] | None = None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        return self._process

    def play_now(self, command: dict[str, Any]) -> dict[str, Any]:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, f"the client died with {process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def play(self, command: dict[str, Any]) -> dict[str, Any]:
        try:
            return await asyncio.wait_for(asyncio.to_thread(self.play_now, command), PATIENCE)
        except BaseException:
            # What it says later would be taken for the answer to the next command.
            if self._process is not None:
                self._process.kill()
            raise

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def read(driver: Driver, version: str, body: bytes, messages: list[dict[str, Any]] | None = None) -> View:
    """What the client makes of this stream, without a network."""
    command = {
        "agent": "reader",
        "client": version,
        "url": "http://127.0.0.1/",
        "threadId": "t1",
        "add": messages or [],
        "params": {"runId": "r1"},
        "body": base64.b64encode(body).decode(),
    }
    return View(**driver.play_now(command))


class Frontend:
    """One conversation of an application with an agent at `url`; `version` is a key of `VERSIONS`."""

    def __init__(self, driver: Driver, version: str, url: str, **config: Any) -> None:
        self.version = version
        self._driver = driver
        name = f"agent-{next(_NAMES)}"
        self._config = {"agent": name, "client": version, "url": url, "threadId": f"thread-{name}", **config}

    @property
    def new(self) -> bool:
        """Whether it speaks 1.0."""
        return self.version == "1"

    async def run(self, *add: dict[str, Any], abort_at: str | None = None, quiet: bool = True, **params: Any) -> View:
        """Adds these messages and runs the agent. `quiet`: the client must have nothing to complain about."""
        command = {**self._config, "add": list(add), "params": params, "abortAt": abort_at}
        view = View(**await self._driver.play(command))
        assert view.unhandled == [], "an application would have been ended by this"
        if quiet:
            assert view.rejected is None, view.rejected
            assert view.console == []
        return view

    async def say(self, text: Any, **more: Any) -> View:
        return await self.run({"role": "user", "content": text}, **more)

    async def answer(self, results: dict[str, str], **more: Any) -> View:
        """The results of client tools, by the ids of the calls."""
        return await self.run(*({"role": "tool", "toolCallId": i, "content": r} for i, r in results.items()), **more)
