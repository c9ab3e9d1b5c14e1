"""The processes of an agent for all owners, and in which one of them a session is.

No process serves two owners. A session that is in no process is restored in one, if the agent can do that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from weakref import WeakValueDictionary

from aiohttp import ClientSession

from bridge.contract.optional.agents import AgentConnection, AgentLimits
from bridge.errors import BackendError, ErrorCode, Failure
from bridge.run.backends.agents.agent_process import AgentProcess
from bridge.run.backends.agents.program import Program
from bridge.run.backends.agents.session import AgentSession
from bridge.toolkit.redact import Secrets

log = logging.getLogger("bridge.agents")

_MINUTE, _CRASHES = 60.0, 3
"""Starts are refused for a minute after so many crashes of one owner's processes."""
_MOST_NAMES = 10_000
"""Conversations whose sessions are known by the names of clients."""


class AgentPool:
    """The processes of one backend."""

    def __init__(
        self,
        name: str,
        program: Program,
        limits: AgentLimits,
        secrets: Secrets,
        connection: Callable[[], AgentConnection],
    ) -> None:
        self.name = name
        self.program = program
        self.limits = limits
        self.processes: list[AgentProcess] = []
        self._secrets = secrets
        self._connection = connection
        self._starting = 0
        self._crashes: dict[str, deque[float]] = {}
        self._placing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._names: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._name_locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._http: ClientSession | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    # ------------------------------------------------------------------ names

    def name_session(self, owner: str, name: str, session_id: str) -> None:
        """Note by which name of a client a session continues."""
        self._names[owner, name] = session_id
        self._names.move_to_end((owner, name))
        while len(self._names) > _MOST_NAMES:
            self._names.popitem(last=False)

    def naming(self, owner: str, name: str) -> asyncio.Lock:
        """Return the lock of a name: requests that begin a conversation at the same time share its session."""
        return self._name_locks.setdefault((owner, name), asyncio.Lock())

    def named(self, owner: str, name: str) -> str | None:
        """Return the id of the session that continues by this name of the owner's client."""
        return self._names.get((owner, name))

    # ------------------------------------------------------------------ sessions

    def find(self, owner: str, session_id: str) -> AgentSession | None:
        """Return the session if it is in a process of this owner."""
        for process in self.processes:
            if process.owner == owner and process.alive and (session := process.sessions.get(session_id)) is not None:
                return session
        return None

    async def open(self, owner: str, session_id: str | None) -> AgentSession:
        """Return a session of this owner, locked: the one of this id, or a new one. Raises `BridgeError`."""
        while True:
            session = await self.find_or_open(owner, session_id)
            if await self.locked(session) is not None:
                return session

    async def find_or_open(self, owner: str, session_id: str | None) -> AgentSession:
        """Return a session of this owner: the one of this id, or a new one. Raises `BridgeError`."""
        session = self.find(owner, session_id) if session_id is not None else None
        return session if session is not None else await self._opened(owner, session_id)

    async def locked(self, session: AgentSession) -> AgentSession | None:
        """Wait until a session has no other run, and lock it. Return None if its process ended meanwhile."""
        await session.lock.acquire()
        if not session.usable:
            session.lock.release()
            return None
        session.used = session.process.used = time.monotonic()
        return session

    async def _opened(self, owner: str, session_id: str | None) -> AgentSession:
        """Begin or restore a session. One owner's requests take turns, so that they share a process."""
        lock = self._placing.setdefault(owner, asyncio.Lock())
        async with lock:
            if session_id is not None and (session := self.find(owner, session_id)) is not None:
                return session
            process = await self._place(owner)
            process.promised += 1
        try:
            return await (process.begin() if session_id is None else process.restore(session_id))
        finally:
            process.promised -= 1
            process.used = time.monotonic()

    def release(self, session: AgentSession) -> None:
        """A run does not need the session any more."""
        session.used = session.process.used = time.monotonic()
        session.lock.release()

    # ------------------------------------------------------------------ processes

    async def _place(self, owner: str) -> AgentProcess:
        """Return a process of this owner that takes one more session. Raises `BackendError`."""
        while True:
            own = [each for each in self.processes if each.owner == owner and each.alive]
            for process in own:
                if process.has_room:
                    return process
            if len(self.processes) + self._starting < self.limits.processes:
                return await self._start(owner)
            for process in own:
                idle = sorted((s for s in process.sessions.values() if s.is_idle), key=lambda s: s.used)
                if idle and await process.forget(idle[0]):
                    return process
            idle_processes = [each for each in self.processes if each.is_idle]
            if not idle_processes:
                limit = self.limits.processes
                text = f"All processes of the agent are in use; the limit is {limit} (options.processes)."
                raise BackendError(text, code=ErrorCode.OVERLOADED, headers={"retry-after": "10"})
            # Another owner may be given the place meanwhile.
            await min(idle_processes, key=lambda each: each.used).close()

    async def _start(self, owner: str) -> AgentProcess:
        if self._closed:
            raise BackendError("The bridge stops.", code=ErrorCode.BACKEND_UNAVAILABLE)
        self._refuse_crashing(owner)
        if self.program.url is not None and self._http is None:
            self._http = ClientSession()
        process = AgentProcess(
            self.name, owner, self.program, self._connection(), self.limits, self._secrets, self._ended
        )
        self._starting += 1
        try:
            await process.start(self._http)
        except BackendError as error:
            if error.code is not ErrorCode.BACKEND_AUTH:
                self._note_crash(owner)
            raise
        finally:
            self._starting -= 1
        if self._closed or not process.alive:
            await process.close()
            raise BackendError("The agent ended as soon as it had started.", code=ErrorCode.BACKEND_UNAVAILABLE)
        self.processes.append(process)
        self._look_again(process, self.limits.idle)
        return process

    def _ended(self, process: AgentProcess, by_itself: bool) -> None:
        if process in self.processes:
            self.processes.remove(process)
            if by_itself:
                self._note_crash(process.owner)

    # ------------------------------------------------------------------ crashes

    def _note_crash(self, owner: str) -> None:
        self._crashes.setdefault(owner, deque(maxlen=_CRASHES)).append(time.monotonic())

    def _refuse_crashing(self, owner: str) -> None:
        """Raise `BackendError` if the owner's processes ended by themselves too often."""
        crashes = self._crashes.get(owner)
        if crashes is None:
            return
        wait = crashes[0] + _MINUTE - time.monotonic()
        if len(crashes) == _CRASHES and wait > 0:
            text = f"The agent ended by itself {len(crashes)} times within a minute."
            failure = Failure(ErrorCode.BACKEND_UNAVAILABLE, text, headers={"retry-after": str(int(wait) + 1)})
            raise BackendError.of(failure)
        if wait <= 0 and crashes[-1] + _MINUTE < time.monotonic():
            del self._crashes[owner]

    # ------------------------------------------------------------------ the end

    def _look_again(self, process: AgentProcess, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._look, process)

    def _look(self, process: AgentProcess) -> None:
        """End a process that nobody has needed for long."""
        if not process.alive:
            return
        left = process.used + self.limits.idle - time.monotonic()
        if left > 0 or not process.is_idle:
            self._look_again(process, max(left, min(self.limits.idle, 1.0)))
            return
        log.info("backend %s: an agent was idle for %g s and is ended", self.name, self.limits.idle)
        ending = asyncio.get_running_loop().create_task(process.close())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End all processes."""
        self._closed = True
        await asyncio.gather(*(each.close() for each in [*self.processes]), *self._ending, return_exceptions=True)
        http, self._http = self._http, None
        if http is not None:
            await http.close()
