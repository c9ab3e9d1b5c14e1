"""Several processes that share one port. This one starts and replaces them, and changes their configuration."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence

from bridge.cli.handover import Handover, kept
from bridge.config import Config
from bridge.errors import ConfigError
from bridge.server import sockets as listening

log = logging.getLogger("bridge.workers")

_SOON = 10.0
"""Seconds within which a worker that ends has died at once."""
_DEATHS = 5
"""So many times in a row; then the server gives up."""
_PAUSE = 0.1
"""Seconds before the third start in a row; doubled for each further one. The second is not waited for."""

_START = 60.0
"""Seconds for the workers of a new configuration to listen."""

Load = Callable[[], tuple[str, Config]]
"""Read and check the configuration. Return its text and the configuration. Raises `ConfigError`."""


class WorkerProcess:
    """One place among the workers of one configuration: a process, and the next one when it died."""

    def __init__(self, number: int, command: Sequence[str], sockets: list[socket.socket], config: int) -> None:
        self._number = number
        self._command = command
        self.sockets = sockets
        self._config = config
        self._process: Process | None = None
        self._signals: signal.Signals | None = None
        self._leaving = asyncio.Event()
        self._deaths = 0
        self.ready = asyncio.Event()

    async def run(self, *, announces: bool) -> int:
        """Run until stopped, or until it has died too often. Return its exit code, 1 if it was given up."""
        loop = asyncio.get_running_loop()
        while not self._leaving.is_set():
            began = loop.time()
            code = await self._live(announces=announces and not self._deaths)
            if self._leaving.is_set():
                # If it is stopped while starting, the signal kills it, which is the intended result.
                return 0 if code == -(self._signals or 0) else max(code, 0) or int(code < 0)
            self._deaths = self._deaths + 1 if loop.time() - began < _SOON else 1
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            log.error("worker %d ended with %s", self._number, how)
            if self._deaths >= _DEATHS:
                return 1
            if self._deaths > 1:
                await self._pause(_PAUSE * 2 ** (self._deaths - 2))
        return 0

    async def _pause(self, seconds: float) -> None:
        """Wait for so many seconds, or until the end is requested."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._leaving.wait(), seconds)

    async def _live(self, *, announces: bool) -> int:
        """One process, from start to end."""
        hears, says = os.pipe()
        own = [sock.fileno() for sock in self.sockets]
        handed = Handover(self._number, own, self._config, says, announces)
        try:
            # A group of its own: a terminal's Ctrl-C reaches this process, which passes it on, once.
            self._process = await asyncio.create_subprocess_exec(
                *self._command, env=handed.environment(), pass_fds=handed.descriptors, process_group=0
            )
        except BaseException:
            os.close(hears)
            raise
        finally:
            os.close(says)
        loop = asyncio.get_running_loop()
        loop.add_reader(hears, self._heard, hears)
        if self._signals is not None:
            self._send(self._signals)
        try:
            return await self._process.wait()
        finally:
            self._process = None
            loop.remove_reader(hears)
            os.close(hears)

    def _heard(self, hears: int) -> None:
        if os.read(hears, 1):
            self.ready.set()
        asyncio.get_running_loop().remove_reader(hears)

    def tell(self, what: signal.Signals) -> None:
        """Passes the signal on; the process is not replaced any more."""
        self._leaving.set()
        self._signals = what
        self._send(what)

    def _send(self, what: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            # Not by its own method, which looks whether it has ended and then keeps its exit code from the loop.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, what)


class Crew:
    """The workers of one configuration."""

    def __init__(self, text: str, config: Config, command: Sequence[str], before: Crew | None = None) -> None:
        """Takes over the sockets of the crew before where the address stays. Raises `OSError`."""
        self.config = config
        server = config.server
        known = [worker.sockets for worker in before.workers] if before is not None and before.is_at(config) else []
        count = server.workers
        while len(known) < count:
            known.append(listening.bind(server.host, server.port, shared=True))
        self._text = kept(text)
        self.workers: list[WorkerProcess] = [WorkerProcess(n + 1, command, known[n], self._text) for n in range(count)]
        self.tasks: list[asyncio.Task[int]] = []

    def is_at(self, config: Config) -> bool:
        """Return whether that configuration is served at the same address."""
        return (self.config.server.host, self.config.server.port) == (config.server.host, config.server.port)

    def start(self, *, announces: bool = False) -> None:
        loop = asyncio.get_running_loop()
        runs = (worker.run(announces=announces and worker is self.workers[0]) for worker in self.workers)
        self.tasks = [loop.create_task(run) for run in runs]

    async def is_up(self) -> bool:
        """Returns when all workers listen: True; or when one of them ended for good, or took too long: False."""
        up = asyncio.get_running_loop().create_task(self._all_ready())
        await asyncio.wait({up, *self.tasks}, timeout=_START, return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        return up.done() and not any(task.done() for task in self.tasks)

    async def _all_ready(self) -> None:
        for worker in self.workers:
            await worker.ready.wait()

    def tell(self, what: signal.Signals) -> None:
        for worker in self.workers:
            worker.tell(what)

    async def ended(self) -> list[int]:
        """The exit codes, when the last one has ended."""
        codes = await asyncio.gather(*self.tasks)
        os.close(self._text)
        return codes

    def close(self, after: Crew | None = None) -> None:
        """Closes the sockets that the crew after this one does not use."""
        used = [worker.sockets for worker in after.workers] if after is not None else []
        for worker in self.workers:
            if worker.sockets not in used:
                listening.close(worker.sockets)


class Parent:
    """Start the workers and handle signals: stop (SIGTERM, SIGINT), reload the configuration (SIGHUP)."""

    def __init__(self, load: Load, arguments: Sequence[str]) -> None:
        self._load = load
        self._command = [sys.executable, "-m", "bridge.cli", *arguments]
        self._signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
        self._retired: set[asyncio.Task[list[int]]] = set()
        self._leaving: list[Crew] = []

    async def run(self, text: str, config: Config) -> int:
        """The exit code: the first of the workers' that is not 0; 1 when one died too often.

        Begins with this configuration. Raises `OSError` for an address that cannot be had.
        """
        loop = asyncio.get_running_loop()
        # Before the first worker, so that a signal in between is passed on.
        for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(name, self._signals.put_nowait, name)
        crew = Crew(text, config, self._command)
        crew.start(announces=True)
        failed = False
        while not failed:
            signaled = loop.create_task(self._signals.get())
            await asyncio.wait({signaled, *crew.tasks}, return_when=asyncio.FIRST_COMPLETED)
            signaled.cancel()
            if not signaled.done():
                failed = True
                log.error("workers exit as soon as they start; the server stops")
            elif signaled.result() is not signal.SIGHUP:
                break
            else:
                crew = await self._changed(crew)
        codes = await self._stopped(crew)
        return 1 if failed else next((code for code in codes if code), 0)

    async def _changed(self, crew: Crew) -> Crew:
        """The crew of the new configuration; the old one when that cannot be had."""
        try:
            following = Crew(*await asyncio.to_thread(self._load), self._command, crew)
        except ConfigError as error:
            log.error("the configuration is not changed: %s", error.message)
            return crew
        except OSError as error:
            log.error("the configuration is not changed: cannot listen on the new address: %s", error.strerror)
            return crew
        following.start()
        good = await following.is_up()
        left, stays = (crew, following) if good else (following, crew)
        if good:
            log.info("the new configuration is active; open requests finish with the old one")
        else:
            log.error("the configuration is not changed: its workers do not start")
        left.tell(signal.SIGUSR1 if good else signal.SIGTERM)
        left.close(after=stays)
        self._leave(left)
        return stays

    def _leave(self, crew: Crew) -> None:
        task = asyncio.get_running_loop().create_task(crew.ended())
        self._retired.add(task)
        self._leaving.append(crew)

        def gone(done: asyncio.Task[list[int]]) -> None:
            self._retired.discard(done)
            self._leaving.remove(crew)

        task.add_done_callback(gone)

    async def _stopped(self, crew: Crew) -> list[int]:
        """Stop the workers and return their exit codes; a second signal reaches them, too."""
        loop = asyncio.get_running_loop()
        ended = loop.create_task(crew.ended())
        crews = [crew, *self._leaving]
        for each in crews:
            each.tell(signal.SIGTERM)
        # Workers are no longer replaced: close the sockets here, which would accept connections while the workers
        # drain.
        crew.close()
        while not ended.done() or self._retired:
            signaled = loop.create_task(self._signals.get())
            open_still = {signaled, *self._retired} if ended.done() else {signaled, ended, *self._retired}
            await asyncio.wait(open_still, return_when=asyncio.FIRST_COMPLETED)
            signaled.cancel()
            if signaled.done() and signaled.result() is not signal.SIGHUP:
                for each in crews:
                    each.tell(signal.SIGTERM)
        return ended.result()
