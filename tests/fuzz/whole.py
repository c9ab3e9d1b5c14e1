"""Whole requests and whole backends against the server in a process of its own, which reports on itself.

`python -m tests.fuzz.whole TIME` goes on for so many seconds; `--case SEED/NUMBER` or `--file PATH` plays one case and
prints what went over both wires.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import orjson

from bridge.contract import WireRequest, WireResponse, registry
from bridge.model import verify
from bridge.testing.wires import context
from tests.faults.wire import LIMIT, SPEAKING, Saw, connect, exchange, parsed, raw, read
from tests.fuzz.cases import Case, case, good
from tests.fuzz.corpus import CRASHERS
from tests.server.harness import Exchange, FakeBackend, fake_backend, free_port
from tests.watched import LONGEST

SLOTS = 4
"""Cases at a time. Each has routes and backends of its own."""
BATCH = 24
"""Cases after which the server reports."""
_FLOOD = 4 * 2**20
_PAUSE = 0.02
_FOUND = Path("build/fuzz/whole")


@dataclass(frozen=True)
class Report:
    """What the server says of itself: what held its loop since the report before, what it logged, what it holds."""

    held: float
    holder: str
    errors: list[str]
    memory: int
    files: int
    tasks: list[str]
    """What each task runs."""


@dataclass
class Finding:
    """A case that broke a promise, alone or among others."""

    case: Case
    problem: str


@dataclass
class Result:
    """`statuses` counts the answers by their status, 0 for a connection that closed without one."""

    findings: list[Finding] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    held: float = 0.0
    reports: list[Report] = field(default_factory=list)


class Server:
    """The process under test, the backend behind it, and what the backend has to play in which slot."""

    def __init__(self, backend: FakeBackend, process: asyncio.subprocess.Process, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}"
        self.playing: dict[str, Case] = {}
        self._process = process
        backend.plays(self._play)
        self._backend = backend

    def hang_up(self) -> None:
        """Closes the connections to the backends."""
        for task in self._backend.tasks:
            task.cancel()

    async def report(self) -> Report:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        async with asyncio.timeout(60):
            return Report(**orjson.loads(await self._process.stdout.readline()))

    async def _play(self, exchange: Exchange) -> None:
        self._backend.seen.clear()  # a long run does not keep what was asked
        playing = self.playing.get(exchange.seen.path.split("/")[1])
        if playing is None:
            exchange.close()
            return
        with suppress(ConnectionError):
            if playing.back == "agent-runs" and exchange.seen.method == "POST":
                await _queued(exchange)
            else:
                await _steps(exchange, playing)


async def _queued(exchange: Exchange) -> None:
    body = orjson.loads(exchange.seen.body or b"{}")
    named = {"taskId": "task", "threadId": body.get("threadId"), "runId": body.get("runId"), "created": True}
    await exchange.answer(202, orjson.dumps(named))


async def _steps(exchange: Exchange, playing: Case) -> None:
    for step, data in playing.answer:
        match step:
            case "raw":
                await exchange.raw(data)
            case "send":
                await exchange.send(data)
            case "pause":
                await asyncio.sleep(_PAUSE)
            case "flood":
                await _flood(exchange, data, chunked=not data.startswith(b"HTTP/"))
            case "end":
                await exchange.end()
            case "reset":
                exchange.reset()
            case "close":
                exchange.close()


async def _flood(exchange: Exchange, data: bytes, *, chunked: bool) -> None:
    piece = data * max(1, 2**16 // len(data))
    for _ in range(_FLOOD // len(piece)):
        if exchange.seen.gone.is_set():
            return
        await (exchange.send if chunked else exchange.raw)(piece)


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    """The server, with every HTTP dialect as front before every one as back, once for each slot."""
    with TemporaryDirectory() as folder:
        async with fake_backend() as backend:
            command = (sys.executable, "-m", "tests.fuzz.served")
            pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
            process = await asyncio.create_subprocess_exec(*command, **pipes, limit=2**24)
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(orjson.dumps(_config(backend.url, folder)) + b"\n")
                yield Server(backend, process, int(await process.stdout.readline()))
                process.stdin.close()
                async with asyncio.timeout(60):
                    await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()


def _config(url: str, folder: str) -> dict[str, Any]:
    backends, routes = {}, []
    for slot in range(SLOTS):
        for back in SPEAKING:
            backends[f"{slot}-{back}"] = {
                "dialect": back,
                "url": f"{url}/{slot}",
                "breaker": {"failures": 1_000_000},
                "timeouts": {"connect": "5s", "first_event": "2s", "idle": "2s", "total": "10s"},
                "max_event": "1MiB",
                "options": {"reconnect": []} if back == "agent-runs" else {},
            }
            for front in SPEAKING:
                options = {"connection_limit": 1_000} if front == "agent-runs" else {}
                path, name = f"/{slot}/{front}/{back}", f"{slot}-{back}"
                routes.append({"dialect": front, "path": path, "backend": name, "options": options})
    return {
        "server": {
            "port": free_port(),
            "drain": "1s",
            "body_time": "1s",
            "max_body": "1MiB",
            "limits": {"answer": "2MiB"},
            "hosts": ["*"],
        },
        "backends": backends,
        "routes": routes,
        "stores": {
            "history": f"sqlite:///{folder}/history.db",
            "runs": f"sqlite:///{folder}/runs.db",
            "attachments": f"file:///{folder}/files",
        },
    }


# ---------------------------------------------------------------------- one case


async def play(server: Server, each: Case, slot: int) -> tuple[Saw, str]:
    """What the client saw, and the problem with it; an empty string where there is none."""
    mount = f"/{slot}/{each.front}/{each.back}"
    server.playing[str(slot)] = each
    request = each.request.replace(b"{mount}", mount.encode(), 1)
    try:
        if each.cut is not None:
            await _leave(server.base, request, each.cut)
            return Saw(), ""
        saw = await (_first_answer if each.broken else exchange)(server.base, request)
        if saw.status == 202 and (events := _events_of(saw)) is not None:
            saw = await exchange(server.base, raw(events, mount))
    except TimeoutError:
        return Saw(), "no answer, and no close either"
    finally:
        del server.playing[str(slot)]
    return saw, _problem(each, saw)


async def _first_answer(base: str, request: bytes) -> Saw:
    """As `exchange`, without waiting for the connection to close: it may stay open behind what was no good request."""
    async with asyncio.timeout(LIMIT):
        reader, writer = await connect(base)
        data = b""
        with suppress(ConnectionError):
            writer.write(request)
            while not parsed(data).whole and (piece := await reader.read(2**20)):
                data += piece
        writer.transport.abort()
        return parsed(data)


async def _leave(base: str, request: bytes, after: int) -> None:
    reader, writer = await connect(base)
    try:
        writer.write(request)
        if after:
            async with asyncio.timeout(LIMIT):
                await reader.readexactly(after)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.transport.abort()


def _events_of(saw: Saw) -> WireRequest | None:
    """What reads the run that this answer says was started."""
    told = orjson.loads(saw.body)
    if not isinstance(told, dict) or "runId" not in told or "threadId" not in told:
        return None
    thread, run = quote(told["threadId"], safe=""), quote(told["runId"], safe="")
    return WireRequest("GET", f"/runs/{thread}/events?runId={run}")


def _problem(each: Case, saw: Saw) -> str:
    if b"The bridge failed" in saw.body:
        return f"an internal error: {saw.body[-300:]!r}"
    if not saw.status:
        return "" if each.broken else "the connection closed without an answer"
    if each.broken:
        return ""
    try:
        _read(each, saw)
    except Exception as error:
        return f"no answer of the dialect: {type(error).__name__}: {error}; {saw.status} {saw.body[:300]!r}"
    return ""


def _read(each: Case, saw: Saw) -> None:
    """Raises where the answer is none of the dialect."""
    front = registry.get(each.front)
    streamed = saw.headers.get("content-type", "").startswith("text/event-stream")
    if saw.status >= 400 or (each.valid and streamed):
        verdict = read(front, saw).verdict
        if verdict.endswith("whole") and verdict != "whole":
            raise AssertionError(verdict)
    elif each.valid and saw.status == 200:
        verify(front.parse_response(WireResponse(200, saw.headers, saw.body), context(front.back_options())))


# ---------------------------------------------------------------------- many cases


async def run(server: Server, cases: Iterable[Case], result: Result) -> None:
    """Plays the cases, some at a time. What breaks a promise is played again alone, to tell whose fault it was."""
    for batch in _batches(cases):
        slots = asyncio.Queue[int]()
        for slot in range(SLOTS):
            slots.put_nowait(slot)

        async def one(each: Case, slots: asyncio.Queue[int] = slots) -> None:
            slot = await slots.get()
            saw, problem = await play(server, each, slot)
            slots.put_nowait(slot)
            result.statuses[saw.status] = result.statuses.get(saw.status, 0) + 1
            if problem:
                result.findings.append(Finding(each, problem))

        await asyncio.gather(*(one(each) for each in batch))
        report = await server.report()
        result.reports.append(report)
        result.held = max(result.held, report.held)
        if problem := problem_of(report):
            alone = await _alone(server, batch)
            if report.errors and not alone:
                alone.append(Finding(batch[0], f"in a batch of {len(batch)}, and not alone: {problem}"))
            result.findings += alone


def _batches(cases: Iterable[Case]) -> Iterator[list[Case]]:
    rest = iter(cases)
    while batch := list(islice(rest, BATCH)):
        yield batch


def problem_of(report: Report) -> str:
    if report.errors:
        return "logged as an error: " + "\n".join(report.errors)
    if report.held > LONGEST:
        return f"the event loop was held for {report.held * 1e3:.0f} ms of CPU time by {report.holder}"
    return ""


async def _alone(server: Server, batch: list[Case]) -> list[Finding]:
    """The cases of the batch that break the promise alone.

    In a batch the sockets of several cases are read in one iteration of the loop, and count as one callback. Alone each
    case is measured by itself, twice:
    what a client that left has set off may go on into the next measurement.
    """
    found = []
    for each in batch:
        await play(server, each, 0)
        if problem_of(await server.report()):
            await play(server, each, 0)
            if problem := problem_of(await server.report()):
                found.append(Finding(each, problem))
    return found


async def settled(server: Server, before: Report | None = None) -> Report:
    """What the server holds once its connections to the backends are closed: at the latest after 15 seconds."""
    until = asyncio.get_running_loop().time() + 15
    while True:
        server.hang_up()
        now = await server.report()
        if before is None or not left_of(before, now):
            return now
        if asyncio.get_running_loop().time() > until:
            return now
        await asyncio.sleep(0.1)


async def warm(server: Server) -> Report:
    """What the server holds after a few good requests: what is opened once is open then."""
    for front in SPEAKING:
        await play(server, good(front), 0)
        # A conversation that the bridge keeps: the first one starts the task that renews its locks.
        await play(server, good(front, "openai-chat"), 0)
    before = await settled(server)
    return await settled(server, before)


def keep(finding: Finding, folder: Path = _FOUND) -> Path:
    """Writes the case to a file and returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    data = finding.case.dump()
    path = folder / f"{sha256(data).hexdigest()[:12]}.case.json"
    path.write_bytes(data)
    return path


def crashers() -> list[Case]:
    """Cases that once broke a promise."""
    return [Case.load(path.read_bytes()) for path in sorted(CRASHERS.glob("*.case.json"))]


# ---------------------------------------------------------------------- by hand


async def _forever(seconds: float, seed: int) -> int:
    result, end = Result(), time.monotonic() + seconds
    async with serving() as server:
        before, first = await warm(server), 0
        while time.monotonic() < end and not result.findings:
            await run(server, (case(seed, n) for n in range(first, first + BATCH)), result)
            first += BATCH
        left = left_of(before, await settled(server, before))
    _tell(result, left)
    return int(bool(result.findings or left))


def left_of(before: Report, after: Report) -> str:
    """What the server holds that it did not hold before, or an empty string."""
    tasks = Counter(after.tasks) - Counter(before.tasks)
    left = [f"{number} more tasks in {name}" for name, number in sorted(tasks.items())]
    if after.files > before.files:
        left.append(f"{after.files - before.files} more files")
    return ", ".join(left)


def _tell(result: Result, left: str) -> None:
    for finding in result.findings:
        print(f"{finding.case.name} ({finding.case.front} before {finding.case.back}): {finding.problem}")
        print(f"  again: python -m tests.fuzz.whole --file {keep(finding)}")
    answers = ", ".join(f"{count} x {status}" for status, count in sorted(result.statuses.items()))
    print(f"{sum(result.statuses.values())} cases: {answers}")
    print(f"longest callback {result.held * 1e3:.1f} ms of CPU time; left: {left or 'nothing'}")
    if result.reports:
        memory = [report.memory / 2**20 for report in result.reports]
        print(f"memory: {memory[0]:.0f} MiB at first, {max(memory):.0f} MiB at most, {memory[-1]:.0f} MiB at last")


async def _again(each: Case) -> int:
    async with serving() as server:
        await server.report()
        saw, problem = await play(server, each, 0)
        report = await server.report()
        problem = "\n".join(filter(None, (problem, problem_of(report))))
    print(f"{each.name}: {each.front} before {each.back}\n> {each.request[:2_000]!r}")
    for step, data in each.answer:
        print(f"  backend: {step} {data[:500]!r}" + f" ... {len(data)} bytes" * (len(data) > 500))
    print(f"< {saw.status} {saw.body[:2_000]!r}\n{problem or f'fine; held {report.held * 1e3:.1f} ms'}")
    return int(bool(problem))


def main() -> int:
    """Plays cases as the command line says; the exit status is 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.whole")
    parser.add_argument("time", nargs="?", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--case", help="SEED/NUMBER")
    parser.add_argument("--file", type=Path)
    said = parser.parse_args()
    if said.file or said.case:
        one = Case.load(said.file.read_bytes()) if said.file else case(*map(int, said.case.split("/")))
        return asyncio.run(_again(one))
    return asyncio.run(_forever(said.time, said.seed))


if __name__ == "__main__":
    sys.exit(main())
