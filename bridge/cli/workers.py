"""Several processes that share one port. This one starts and replaces them, and changes their configuration.

A worker that dies is replaced, and so is one that hangs: while it serves, its event loop writes a byte into a pipe
every second. This process judges by that only after it has itself run without a pause (`bridge.stores.liveness`).
"""

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

from bridge.cli import early_signals
from bridge.cli.health_file import write_health_file
from bridge.cli.worker_channel import SilentCount, WorkerChannel, kept
from bridge.engine.config import Config
from bridge.errors import ConfigError
from bridge.server.host import listeners as listening
from bridge.server.requests.coalescing import MergedWork, in_daemon_thread
from bridge.stores.liveness import Liveness

log = logging.getLogger("bridge.workers")

_SOON = 10.0
"""Seconds within which a worker that ends has died at once."""
_DEATHS = 5
"""So many times in a row; then the server gives up."""
_PAUSE = 0.1
"""Seconds before the third start in a row; doubled for each further one. The second is not waited for."""

_START = 60.0
"""Seconds for the workers of a new configuration to listen."""
_CHECK = 1.0
"""Seconds between two looks at the workers."""
_UNHEARD = 5.0
"""Seconds without a sign of life after which the other workers are not ready."""
_HANGS = 10.0
"""Seconds without a sign of life after which a worker is killed and replaced."""
_SLOW = 300.0
"""As `_HANGS`, of a worker that has not begun to serve, or has ended to: it may import what takes its time."""

Load = Callable[[], tuple[str, Config]]
"""Read and check the configuration. Return its text and the configuration. Raises `ConfigError`."""


class WorkerProcess:
    """One place among the workers of one configuration: a process, and the next one when it died."""

    def __init__(
        self, number: int, command: Sequence[str], sockets: list[socket.socket], config: int, silent: int
    ) -> None:
        """`config` and `silent` are the descriptors of `WorkerChannel`."""
        self._silent = silent
        self._number = number
        self._command = command
        self.sockets = sockets
        self._config = config
        self._process: Process | None = None
        self._signals: signal.Signals | None = None
        self._leaving = asyncio.Event()
        self._deaths = 0
        self._heard_at = 0.0
        """When this process was heard last, or began."""
        self._serves = False
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
        handed = WorkerChannel(self._number, own, self._config, says, self._silent, announces)
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
        self._heard_at, self._serves = loop.time(), False
        os.set_blocking(hears, False)
        loop.add_reader(hears, self._heard, hears)
        if self._signals is not None:
            self._send(self._signals)
        try:
            return await self._process.wait()
        finally:
            self._process = None
            self._serves = False
            loop.remove_reader(hears)
            os.close(hears)

    def _heard(self, hears: int) -> None:
        """Note a sign of life, or that the process has ended to serve and closed the pipe."""
        loop = asyncio.get_running_loop()
        self._heard_at = loop.time()
        self._serves = bool(os.read(hears, 4096))
        if self._serves:
            self.ready.set()
        else:
            loop.remove_reader(hears)

    @property
    def is_silent(self) -> bool:
        """True if connections to this worker wait: it does not serve yet, or does not answer."""
        silence = asyncio.get_running_loop().time() - self._heard_at
        return not self._leaving.is_set() and (not self._serves or silence > _UNHEARD)

    def kill_if_hung(self) -> None:
        """Kill the process if it has not been heard for too long; `run` starts the next one.

        Before that, it sends SIGCONT, so that a suspended process keeps its streams.
        """
        silence = asyncio.get_running_loop().time() - self._heard_at
        if self._process is None:
            return
        if silence > (_HANGS if self._serves else _SLOW):
            log.error("worker %d does not answer since %.0f s and is killed", self._number, silence)
            self._heard_at += silence
            self._send(signal.SIGKILL)
        elif self._serves and silence > _UNHEARD:
            self._send(signal.SIGCONT)

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


class WorkerPool:
    """The workers of one configuration."""

    def __init__(self, text: str, config: Config, command: Sequence[str], before: WorkerPool | None = None) -> None:
        """Takes over the sockets of the workers before where the address stays. Raises `OSError`."""
        self.config = config
        host, port, count = config.server.host, config.server.port, config.server.workers
        known = [worker.sockets for worker in before.workers] if before is not None and before.is_at(config) else []
        self._is_followed = bool(known)
        """The workers before serve while these start."""
        if not known:
            listening.claim(host, port)
        try:
            while len(known) < count:
                known.append(listening.bind(host, port, shared=True))
                if not self._is_followed:
                    # At once, so that the next server is refused. Connections wait until the worker serves.
                    listening.listen_on(known[-1])
        except OSError:
            for sockets in known if not self._is_followed else known[len(before.workers if before else ()) :]:
                listening.close(sockets)
            raise
        self._text, self._silent = kept(text), SilentCount()
        self.workers: list[WorkerProcess] = [
            WorkerProcess(n + 1, command, known[n], self._text, self._silent.descriptor) for n in range(count)
        ]
        self.tasks: list[asyncio.Task[int]] = []

    def look(self, *, may_judge: bool) -> None:
        """Tell the workers how many of them do not answer, and replace those that hang, if that can be known."""
        silent = [worker for worker in self.workers if worker.is_silent]
        if not may_judge:
            silent = [worker for worker in silent if not worker.ready.is_set()]
        if self._is_followed:
            silent = [worker for worker in silent if worker.ready.is_set()]
        self._silent.write(len(silent))
        if may_judge:
            for worker in self.workers:
                worker.kill_if_hung()

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
        self._silent.close()
        return codes

    def close(self, after: WorkerPool | None = None) -> None:
        """Closes the sockets that the next workers do not use."""
        used = [worker.sockets for worker in after.workers] if after is not None else []
        for worker in self.workers:
            if worker.sockets not in used:
                listening.close(worker.sockets)


class ProcessSupervisor:
    """Start the workers and handle signals: stop (SIGTERM, SIGINT), reload the configuration (SIGHUP)."""

    def __init__(self, load: Load, arguments: Sequence[str]) -> None:
        self._load = load
        # With -P, the working directory does not come first where the worker searches its modules.
        self._command = [sys.executable, "-P", "-m", "bridge.cli", *arguments]
        self._events: asyncio.Queue[signal.Signals | None] = asyncio.Queue()
        """Signals, and None when the workers have changed."""
        self._reloading = MergedWork(self._change)
        self._pool: WorkerPool
        self._starting: WorkerPool | None = None
        self._retired: set[asyncio.Task[list[int]]] = set()
        self._leaving: list[WorkerPool] = []

    async def run(self, text: str, config: Config) -> int:
        """The exit code: the first of the workers' that is not 0; 1 when one died too often.

        Begins with this configuration. Raises `OSError` for an address that cannot be had.
        """
        loop = asyncio.get_running_loop()
        # Before the first worker, so that a signal in between is passed on.
        for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(name, self._events.put_nowait, name)
        if early_signals.kept():
            self._events.put_nowait(signal.SIGHUP)
        self._pool = WorkerPool(text, config, self._command)
        self._pool.start(announces=True)
        write_health_file(config, config.server.port)
        watching = loop.create_task(self._watch())
        try:
            failed = await self._until_stopped()
            # A reload that goes on is given up: it may take minutes to import what it needs.
            await self._reloading.stop()
            codes = await self._stopped(self._pool)
        finally:
            watching.cancel()
        return 1 if failed else next((code for code in codes if code), 0)

    async def _until_stopped(self) -> bool:
        """Return True when the workers cannot be kept alive, False after a signal to stop."""
        loop = asyncio.get_running_loop()
        while True:
            event = loop.create_task(self._events.get())
            await asyncio.wait({event, *self._pool.tasks}, return_when=asyncio.FIRST_COMPLETED)
            event.cancel()
            if event.done():
                if event.result() is signal.SIGHUP:
                    self._reloading.request()
                elif event.result() is not None:
                    return False
            elif any(task.done() for task in self._pool.tasks):
                log.error("workers exit as soon as they start; the server stops")
                return True

    async def _watch(self) -> None:
        """Look at the workers again and again."""
        life = Liveness(_HANGS)
        while True:
            may_judge = not life.grace()
            life.renewed()
            for pool in (self._pool, self._starting, *self._leaving):
                if pool is not None:
                    pool.look(may_judge=may_judge)
            await asyncio.sleep(_CHECK)

    async def _change(self) -> None:
        """From the workers of the old configuration to those of the new one, or not at all."""
        # Not while the first one starts: both together would take twice as long.
        await self._pool.is_up()
        try:
            text, config = await in_daemon_thread(self._load)
            following = WorkerPool(text, config, self._command, self._pool)
        except ConfigError as error:
            log.error("the configuration is not changed: %s", error.message)
            return
        except OSError as error:
            log.error("the configuration is not changed: cannot listen on the new address: %s", error.strerror)
            return
        self._starting = following
        following.start()
        good = False
        try:
            if good := await following.is_up():
                log.info("the new configuration is active; open requests finish with the old one")
                write_health_file(config, config.server.port)
            else:
                log.error("the configuration is not changed: its workers do not start")
        finally:
            self._starting = None
            self._settle(following, good=good)

    def _settle(self, following: WorkerPool, *, good: bool) -> None:
        """Go on with the new workers if they are `good`; stop the others."""
        left, stays = (self._pool, following) if good else (following, self._pool)
        left.tell(signal.SIGUSR1 if good else signal.SIGTERM)
        left.close(after=stays)
        self._pool = stays
        self._leave(left)
        self._events.put_nowait(None)

    def _leave(self, pool: WorkerPool) -> None:
        task = asyncio.get_running_loop().create_task(pool.ended())
        self._retired.add(task)
        self._leaving.append(pool)

        def gone(done: asyncio.Task[list[int]]) -> None:
            self._retired.discard(done)
            self._leaving.remove(pool)

        task.add_done_callback(gone)

    async def _stopped(self, pool: WorkerPool) -> list[int]:
        """Stop the workers and return their exit codes; a second signal reaches them, too."""
        loop = asyncio.get_running_loop()
        ended = loop.create_task(pool.ended())
        pools = [pool, *self._leaving]
        for each in pools:
            each.tell(signal.SIGTERM)
        # Workers are no longer replaced: close the sockets here, which would accept connections while the workers
        # drain.
        pool.close()
        while not ended.done() or self._retired:
            signaled = loop.create_task(self._events.get())
            open_still = {signaled, *self._retired} if ended.done() else {signaled, ended, *self._retired}
            await asyncio.wait(open_still, return_when=asyncio.FIRST_COMPLETED)
            signaled.cancel()
            if signaled.done() and signaled.result() not in (signal.SIGHUP, None):
                for each in pools:
                    each.tell(signal.SIGTERM)
        return ended.result()
