"""`Bridge`: from a request to a run, and what lives as long as the routes do."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

from bridge.contract import (
    AgentTasksDialect,
    Embeddings,
    EmbeddingsRequest,
    Losses,
    Operation,
    QueuedRunsDialect,
    QueuedRunsOptions,
    StoredAnswer,
    StoredAnswersDialect,
    StoredResponses,
    ToolServerDialect,
    WireRequest,
    require,
)
from bridge.engine.route import Route, RunCaller
from bridge.engine.services import Host, Services
from bridge.engine.store_watch import StoreWatch
from bridge.engine.watching import RunWatch, WatchedRequest, Watcher
from bridge.errors import BackendError, BridgeError, ConfigError, ErrorCode, RequestError
from bridge.model import Answer, Event, Folder, Request, estimate_tokens
from bridge.run.attached import Attached, LinkedMedia, has_media
from bridge.run.attempt import BackendAttempt, NextAttempt
from bridge.run.backend import Backend, CallInfo
from bridge.run.continuation import StreamContinuation, continued_request
from bridge.run.conversation import queued_turns, threads
from bridge.run.conversation.interrupts import answer_open_interrupts
from bridge.run.conversation.push_targets import PushTargets
from bridge.run.conversation.response_store import ResponseStore
from bridge.run.conversation.task_index import TaskIndex
from bridge.run.conversation.turns import ConversationTurns, Turn
from bridge.run.group import BackendGroup
from bridge.run.retries import may_ask_elsewhere
from bridge.run.run import Run
from bridge.run.timer_wheel import TimerWheel
from bridge.run.tools.tool_sources import with_tools
from bridge.stores import open_held_places, open_places
from bridge.stores.memory_budget import LoadedBytes, MemoryBudget
from bridge.translation.pair import pair_of
from bridge.translation.policies.forbidden_fields import without_redirects

if TYPE_CHECKING:
    from bridge.engine.breaker_advice import BreakerAdvice
    from bridge.engine.config import Config, HttpClient
    from bridge.run.durable import RunKey, RunPlan, Runs
    from bridge.run.durable.waiting import WaitingTasks
    from bridge.stores import Attachments, ConversationStore, RunStore
    from bridge.stores.attachments import NoteFile
    from bridge.stores.held_places import HeldPlaces

_LARGE = 256 * 1024
"""Bytes from which on a request is encoded in a thread."""
_MANY = 2_000
"""Messages from which on it is."""


log = logging.getLogger("bridge.run")


class Bridge:
    """Routes, backends and stores. Use it as an async context manager, or `start` and `close` it."""

    def __init__(self, routes: Sequence[Route], config: Config, services: Services | None = None) -> None:
        services = services or Services()
        self.routes = list(routes)
        self.config = config
        self.speech = services.speech
        self.tracing = services.tracing
        self.host = Host()
        """The server in front, once there is one."""
        self._public_url = f"{config.server.public_url or ''}".rstrip("/")
        self._max_answer = config.server.limits.answer
        self._turns = services.turns
        self._store = services.store
        self._attachments = services.attachments
        self._fetchers = services.fetchers
        self._pushers = services.pushers
        self._files_route = next((route for route in self.routes if route.serves(Operation.ATTACH)), None)
        self.watchers: list[tuple[str, Watcher]] = []
        self._watches: dict[str, RunWatch] = {}
        self.timers = TimerWheel()
        """The deadlines of runs and streams."""
        self.memory_budget = MemoryBudget(config.server.limits.bodies)
        """What the bodies of requests, and what they load, may take in memory."""
        self.store_watch = StoreWatch({})
        """Which stores cannot be written to, once the bridge is open."""
        self.places: HeldPlaces | None = self._make_places()
        """The slots and sessions of this process that others count, too; None where nothing of the kind is needed."""
        self._runs: Runs | None = None
        self._response_now: Callable[..., Awaitable[StoredAnswer]] | None = None
        """`bridge.run.durable.response_now` if there are runs: importing it in each request would cost time."""
        self._open: AsyncExitStack | None = None

    @classmethod
    def from_config(cls, source: str | os.PathLike[str] | Mapping[str, Any]) -> Bridge:
        """Return a bridge from a YAML file or a mapping. Raises `ConfigError`, which names key and mistake."""
        from bridge.engine.config import load, parse

        return cls.of(parse(dict(source)) if isinstance(source, Mapping) else load(source))

    @classmethod
    def of(cls, config: Config, *, http_client: HttpClient = "aiohttp") -> Bridge:
        """Return a bridge from a validated configuration. Raises `ConfigError` for a target that cannot be imported.

        `http_client` reads the streams of backends unless the configuration names another.
        """
        try:
            return cls._assembled(config, http_client)
        except ConfigError as error:
            raise config.located(error) from error.__cause__

    @classmethod
    def _assembled(cls, config: Config, http_client: HttpClient) -> Bridge:
        from bridge.engine import assembly as make
        from bridge.engine.extras import check_extras

        check_extras(config)
        tracing = make.tracing_for(config)
        routes = make.assemble(config, tracing, config.server.http_client or http_client)
        services = Services(
            turns=make.turns_for(routes, config),
            store=make.store_for(routes, config),
            attachments=make.attachments_for(config) if any(r.serves(Operation.ATTACH) for r in routes) else None,
            speech=make.speech_for(config) if any(r.serves(Operation.TRANSCRIBE) for r in routes) else None,
            fetchers=make.fetchers_for(config),
            pushers=make.pushers_for(routes),
            tracing=tracing,
        )
        return cls(routes, config, services)

    def serve_for(self, host: Host) -> None:
        """Take what a server adds: its limits apply to stored runs from now on, and it counts what they used."""
        self.host = host

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Open the connection pools. Calling it again has no effect."""
        if self._open is not None:
            return
        async with AsyncExitStack() as stack:
            if self.tracing is not None:
                stack.push_async_callback(self.tracing.close)
                self.tracing.start()
            for backend in {b.name: b for route in self.routes for b in route.opened}.values():
                stack.push_async_callback(backend.close)
                await backend.start()
            for fetcher in self._fetchers.values():
                stack.push_async_callback(fetcher.close)
                await fetcher.start()
            for pusher in self._pushers.values():
                stack.push_async_callback(pusher.close)
                await pusher.start()
            if self._turns is not None:
                stack.push_async_callback(self._turns.close)
                self._turns.start(self.config.stores.retention.history, self._attachments)
            if self.places is not None:
                stack.push_async_callback(self.places.close)
                self.places.start()
            if self._store is not None:
                self._runs = self._make_runs(self._store)
                stack.push_async_callback(self._runs.close)
            if (advice := self._make_advice()) is not None:
                stack.push_async_callback(advice.close)
                advice.start()
            if self._attachments is not None:
                stack.push_async_callback(self._attachments.close)
                await self._attachments.open()
            self.store_watch = self._make_watch()
            stack.push_async_callback(self.store_watch.close)
            self.store_watch.start()
            self._open = stack.pop_all()
        if self._runs is not None:
            await self._runs.open()

    def _make_advice(self) -> BreakerAdvice | None:
        """Return what shares the breakers of backends with alternatives; None where there are none, or no database."""
        groups = [group for route in self.routes for group in route.groups if len(group.members) > 1]
        backends = {b.name: b.breaker for group in groups for b in group.members if b.breaker is not None}
        places = open_places(self.config.stores.runs, "breakers") if backends else None
        if places is None:
            return None
        from bridge.engine.breaker_advice import BreakerAdvice

        urls = {name: section.url for name, section in self.config.backends.items()}
        return BreakerAdvice(places, {f"{name} {urls.get(name) or ''}": each for name, each in backends.items()})

    def _make_places(self) -> HeldPlaces | None:
        """Return what counts over the processes that share the database of runs: those of one file, if they use it."""
        url, server = self.config.stores.runs, self.config.server
        used = self._store is not None or (self._turns is not None and self.config.stores.history == url)
        if url.startswith("sqlite:") and not (used or server.workers > 1):
            return None
        per_key = server.limits.per_key
        limited = per_key is not None and per_key.concurrent is not None
        if not limited and not any(_is_counted(route) for route in self.routes):
            return None
        return open_held_places(url, self.config.stores.lease)

    def _make_watch(self) -> StoreWatch:
        urls = self.config.stores
        watched: dict[str, tuple[str, Callable[[], Awaitable[object]]]] = {}
        if self._turns is not None and urls.history is not None:
            watched["history"] = urls.history, self._turns.store.probe
        if (runs := self._store) is not None:
            watched["runs"] = urls.runs, lambda: runs.renew("probe", 1.0)
        if self._attachments is not None:
            watched["attachments"] = urls.attachments, self._attachments.probe
        return StoreWatch(watched)

    async def probe_stores(self) -> list[tuple[str, str, str | None]]:
        """Open and write to each store of a bridge that is not open. Return name, place and failure (None = it works)
        of each.
        """
        found = await self._make_watch().probe()
        for store in (self._turns.store if self._turns is not None else None, self._store, self._attachments):
            if store is not None:
                await store.close()
        return found

    @property
    def is_open(self) -> bool:
        return self._open is not None

    @property
    def runs(self) -> Runs:
        """The asynchronous runs, of an open bridge that has a durable route. Raises `RuntimeError` without."""
        if self._runs is None:
            raise RuntimeError("this bridge is not open, or none of its routes is durable")
        return self._runs

    @cached_property
    def waiting_tasks(self) -> WaitingTasks:
        """The tasks that wait for an answer on routes that are not durable."""
        from bridge.run.durable.waiting import WaitingTasks

        return WaitingTasks()

    @property
    def has_runs(self) -> bool:
        return self._runs is not None

    @property
    def history(self) -> ConversationStore:
        """The conversations that clients read back. Raises `RuntimeError` if no route stores any."""
        if self._turns is None:
            raise RuntimeError("no route of this bridge stores conversations")
        return self._turns.store

    @property
    def attachments(self) -> Attachments:
        """Uploaded images. Raises `RuntimeError` if no route accepts uploads."""
        if self._attachments is None:
            raise RuntimeError("no route of this bridge accepts attachments")
        return self._attachments

    def notes_file(self, route: Route) -> NoteFile | None:
        """Return what notes that an owner's thread on a route gets a file, before it is stored."""
        if self._turns is None:
            return None
        history = self._turns.store
        return lambda owner, thread: history.note_file(owner, route.path, thread)

    def _make_runs(self, store: RunStore) -> Runs:
        from bridge.run.durable import Runs, response_now

        self._response_now = response_now
        stores = self.config.stores
        return Runs(
            store,
            self._drive,
            concurrent=self.config.server.limits.concurrent,
            slots=lambda: self.host.slots,
            lease=stores.lease,
            events=stores.retention.events,
            threads=stores.retention.history,
            max_run=stores.max_run,
            ended=self._settle,
            drove=self._drove,
            begun=self._begun if self._pushers else None,
            memory=self.memory_budget,
        )

    def counting(self) -> LoadedBytes:
        """Serve one request in this block: what it loads counts against `memory_budget`."""
        return LoadedBytes(self.memory_budget)

    async def close(self) -> None:
        """Close connection pools and stores. Calling it again has no effect."""
        stack, self._open = self._open, None
        if stack is not None:
            await stack.aclose()
        self.timers.close()
        self._runs = self._response_now = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # ------------------------------------------------------------------ watching

    def watch(self, header: str, watcher: Watcher) -> None:
        """Show a watcher the requests to a server of this bridge that have this header."""
        self.watchers.append((header, watcher))

    def watch_of(self, headers: Mapping[str, str], request: Callable[[], WatchedRequest]) -> RunWatch | None:
        """Return what watches the run of a request with these headers; None if nothing does."""
        for header, watcher in self.watchers:
            if header in headers and (watch := watcher.begin(asked := request())) is not None:
                self._watches[asked.run_id] = watch
                return watch
        return None

    def unwatch(self, run_id: str) -> None:
        """Let nothing see the rest of a run. Calling it for a run that nothing watches has no effect."""
        self._watches.pop(run_id, None)

    # ------------------------------------------------------------------ runs

    async def run(self, route: Route, request: Request, caller: RunCaller | None = None) -> Run:
        """Prepare a run: choose the backend, load the conversation and encode the request. Nothing is sent yet: an
        answer may begin before the backend's does, and a request that the backend's dialect cannot express is refused
        before.

        Raises `RequestError` for an unknown model and `Unsupported` if the backend's dialect cannot express it.
        """
        if self._open is None:
            raise RuntimeError("this bridge is not open: use it as `async with bridge:`, or call start()")
        caller = caller or RunCaller()
        group = route.group_for(request)
        first, *others = _in_order(group, request, caller)
        next_attempts = self._next_attempts(route, request, caller, group, others) if others else ()
        continuation = StreamContinuation() if route.mid_stream_fallback else None
        attempt = await self._attempt(route, request, caller, group, first)
        return Run(attempt, next_attempts, continuation, self._max_answer, self.timers)

    def _next_attempts(
        self, route: Route, request: Request, caller: RunCaller, group: BackendGroup, backends: Sequence[Backend]
    ) -> list[NextAttempt]:
        """Return what makes the attempts after the first one, each with what was lost before all of them."""
        before = caller.lost.copy()

        async def prepare(backend: Backend, continued: str) -> BackendAttempt:
            caller.lost.rewind(before)
            return await self._attempt(route, request, caller, group, backend, continued)

        return [partial(prepare, backend) for backend in backends]

    async def _attempt(
        self,
        route: Route,
        asked: Request,
        caller: RunCaller,
        group: BackendGroup,
        backend: Backend,
        continued: str = "",
    ) -> BackendAttempt:
        """One backend's side of the run: its turn in the conversation is begun, its request encoded.

        `asked`: the request as it came. `continued`: the text of an answer that another backend broke off.
        """
        if self._watches and (watch := self._watches.get(caller.run_id)) is not None:
            backend = watch.watched(backend)
        if route.tools is not None:
            backend = await with_tools(backend, route.tools, route.max_tool_rounds, caller.lost)
        turn = None
        if self._turns is not None and not route.passthrough:
            turn = await self._turn(route, asked, caller, backend, group, self._turns)
        request = turn.request if turn is not None else asked
        if turn is None and request.open_interrupts and not route.passthrough:
            request = answer_open_interrupts(request)
        pair = pair_of(caller.capabilities, backend.capabilities)
        info = _call_info(route, asked, caller, backend, request)
        info.continues = turn is not None and turn.continues
        if turn is not None and backend.capabilities.names_threads:
            info.shown_thread = asked.thread_id or info.run_id
            info.thread_of_backend = True
        elif info.owner and not route.passthrough and pair.threads_travel:
            request = self._with_own_thread(request, info)
        info.may_ask = pair.may_ask if turn is None else pair.may_ask_with_memory
        if continued and (route.mid_stream_fallback != "continue" or backend.capabilities.keeps_history):
            # One that remembers by itself cannot be told what another one said.
            continued = ""
        if continued:
            request = continued_request(request, continued)
        try:
            if self._attachments is not None and has_media(request):
                files = Attached(self._attachments, caller.owner, self._files_base(route))
                request = await files.request(request)
            fetcher = self._fetchers.get(backend.name)
            if fetcher is not None and not route.passthrough:
                request = await fetcher.request(request, backend.capabilities)
            prepare = partial(
                BackendAttempt,
                request,
                backend,
                caller.capabilities,
                info,
                options=route.options,
                stages=route.stages,
                lost=caller.lost,
                untouched=route.passthrough,
                turn=turn,
                continued=continued,
                linked=self._linked(route, asked, caller, backend) if self._attachments is not None else None,
            )
            is_large = len(caller.raw_body or b"") > _LARGE or len(request.messages) > _MANY
            if is_large and not route.stages and _is_http(backend):
                # Many small parts would hold the event loop for seconds. A dialect has no I/O and shares nothing;
                # agents in this process, and stages of the configuration, may expect the loop.
                return await asyncio.to_thread(prepare)
            return prepare()
        except BaseException as error:
            if turn is not None:
                await _leave(turn, error)
            raise

    async def _turn(
        self,
        route: Route,
        request: Request,
        caller: RunCaller,
        backend: Backend,
        group: BackendGroup,
        turns: ConversationTurns,
    ) -> Turn | None:
        """The request's turn in its conversation, begun; None when nothing has to be kept."""
        history, owner, run_id = turns.store, caller.owner, caller.run_id
        if route.serves(Operation.HISTORY):
            options = route.options if isinstance(route.options, QueuedRunsOptions) else QueuedRunsOptions()
            front, back = caller.capabilities, backend.capabilities
            turn = queued_turns.QueuedRunTurn(history, owner, route.path, request, front, back, options)
            return await turn.begin_or_close(run_id)
        backend_name = backend.name if group.shares_conversations else None
        return await turns.begin(
            owner, route.path, request, caller.capabilities, backend.capabilities, run_id, backend_name=backend_name
        )

    def _with_own_thread(self, request: Request, info: CallInfo) -> Request:
        """The request with a thread at the backend that is its owner's alone."""
        secret = self.config.server.secret
        info.shown_thread = request.thread_id or info.run_id
        key = secret.get_secret_value() if secret is not None else ""
        info.thread_id = threads.name_at_backend(key, info.owner, info.shown_thread)
        request = request.copy()
        request.thread_id = info.thread_id
        return request

    def _files_base(self, route: Route) -> str | None:
        """The public URL of files where backends can fetch them there; None = they get the bytes."""
        chosen = route.options.inline_attachments if isinstance(route.options, QueuedRunsOptions) else None
        return None if chosen or (chosen is None and self.config.server.is_local) else self._files_url(route)

    def _files_url(self, route: Route) -> str | None:
        """The public URL below which files are served; None if none is configured."""
        serving = route if route.serves(Operation.ATTACH) else self._files_route
        return self._public_url + serving.path.rstrip("/") if self._public_url and serving is not None else None

    def _linked(self, route: Route, asked: Request, caller: RunCaller, backend: Backend) -> LinkedMedia | None:
        """What stores media that the client can only be told of; None where all arrive, or no files are served."""
        store, front = self._attachments, caller.capabilities
        if store is None or not self._public_url:
            return None
        files_url = self._files_url(route)
        if files_url is None or route.passthrough or backend.capabilities is front:
            return None
        if getattr(route.options, "media", None) == "drop":
            return None
        owner, thread = caller.owner, asked.thread_id or caller.run_id
        return LinkedMedia(store, owner, thread, files_url, front, self.notes_file(route))

    def remembers(self, route: Route) -> bool:
        """Return whether a client that sends only new messages can continue its conversations on a route."""
        return self._turns is not None or all(backend.capabilities.keeps_history for backend in route.backends)

    async def has_conversation(self, route: Route, owner: str, request: Request) -> bool:
        """Return False if the conversation that a request continues would be stored here, and is not (any more)."""
        if self._turns is None or route.passthrough or request.thread_id is None:
            return True
        group = route.group_for(request)
        backs = [backend.capabilities for backend in group.members]
        shared = group.shares_conversations
        return await self._turns.has(owner, route.path, request, backs, shared=shared)

    def answers(self, route: Route, owner: str) -> ResponseStore | None:
        """Return the stored answers that an owner's clients can refer to by id on a route; None if none are stored."""
        if self._turns is None or not route.keeps_answers:
            return None
        look = self._response_now and partial(
            self._response_now, self.runs, owner, route.path, route.dialect, route.options
        )
        return ResponseStore(self._turns.store, owner, route.path, look)

    async def stored_responses(self, route: Route, owner: str, wire: WireRequest) -> StoredResponses | None:
        """Return the stored answers that a request refers to; None if none are stored. Raises `RequestError`."""
        answers = self.answers(route, owner)
        if answers is None:
            return None
        return await answers.stored_responses(require(route.dialect, StoredAnswersDialect).stored_ids(wire))

    def task_index(self, route: Route, owner: str) -> TaskIndex | None:
        """Return the list of this owner's tasks on a route; None without a store for it."""
        return TaskIndex(self._turns.store, owner, route.path) if self._turns is not None else None

    def push_targets(self, route: Route, owner: str, task_id: str) -> PushTargets | None:
        """The targets of the notifications of a task; None for a route that sends none."""
        if self._turns is None or not isinstance(route.dialect, AgentTasksDialect) or route.path not in self._pushers:
            return None
        return PushTargets(self._turns.store, owner, route.path, task_id)

    def may_push(self, route: Route, url: str) -> bool:
        """Return whether notifications of a route that sends some may go to this URL."""
        return self._pushers[route.path].may_call(url)

    async def _begun(self, key: RunKey, plan: RunPlan, entries: int) -> None:
        route = self._planned(plan)
        targets = self.push_targets(route, key.owner, key.thread_id) if route is not None else None
        if route is not None and targets is not None and isinstance(route.dialect, AgentTasksDialect):
            pusher = self._pushers[route.path]
            await pusher.push(self.runs, key, plan, route.dialect, route.options, targets, entries)

    async def _settle(self, key: RunKey, plan: RunPlan) -> None:
        from bridge.run.durable import settle

        route = self._planned(plan) if plan.background else None
        answers = self.answers(route, key.owner) if route is not None else None
        if route is not None and answers is not None:
            await settle(self.runs, key, answers, route.dialect, route.options)

    def _drove(self, key: RunKey, plan: RunPlan, run: Run) -> None:
        if self.host.metrics is not None:
            self.host.metrics.run(plan.route, plan.front, run, key.owner, run.lost.names)
        if self.host.spent is not None:
            self.host.spent(key.owner, run.used)

    async def count(self, route: Route, request: Request, caller: RunCaller | None = None) -> tuple[int, bool]:
        """Return the number of input tokens of a request, and True if it is an estimate of the bridge.

        Raises `RequestError` for an unknown model and `BackendError` if the backend refuses.
        """
        if self._open is None:
            raise RuntimeError("this bridge is not open: use it as `async with bridge:`, or call start()")
        caller = caller or RunCaller(capabilities=route.capabilities)
        *others, last = _in_order(route.group_for(request), request, caller)
        for backend in others:
            try:
                return await _counted(route, request, caller, backend)
            except BackendError as error:
                if not may_ask_elsewhere(error.failure):
                    raise
        return await _counted(route, request, caller, last)

    async def embed(self, route: Route, asked: EmbeddingsRequest, caller: RunCaller | None = None) -> Embeddings:
        """Return the vectors of texts, by the first backend of the model that has embeddings.

        Raises `RequestError` for an unknown model and if no backend has any, and `BackendError` if one refuses.
        """
        if self._open is None:
            raise RuntimeError("this bridge is not open: use it as `async with bridge:`, or call start()")
        request = Request([], model=asked.model or None)
        caller = caller or RunCaller(capabilities=route.capabilities)
        failed: BackendError | None = None
        for backend in _in_order(route.group_for(request), request, caller):
            try:
                found = await backend.embed(asked, _call_info(route, request, caller, backend, request))
            except BackendError as error:
                if not may_ask_elsewhere(error.failure):
                    raise
                failed = error
                continue
            if found is not None:
                return found
        if failed is not None:
            raise failed
        raise RequestError("No backend of this route has embeddings.", code=ErrorCode.UNSUPPORTED, status=501)

    def plan(self, route: Route, request: Request, caller: RunCaller) -> tuple[RunKey, RunPlan]:
        """Return the key and the plan of a run for this request. The caller's `run_id` names it if the client did not.

        Raises `RequestError` for an unknown model.
        """
        from bridge.run.durable import RunKey, RunPlan

        run = request.run_id or caller.run_id
        backends = _by_conversation(route.group_for(request), request, caller)
        forwarded = {k: v for backend in backends for k, v in backend.forwards(caller.headers, route.dialect).items()}
        plan = RunPlan(
            route.path,
            route.dialect.name,
            caller.run_id,
            caller.created_at,
            request,
            request.model or backends[0].model_for(request.model),
            route.capabilities.eager_start,
            caller.request_id,
            forwarded,
        )
        return RunKey(caller.owner, route.path, request.thread_id or run, run), plan

    async def _drive(self, key: RunKey, plan: RunPlan, lost: Losses) -> Run:
        """The run of a plan, in whichever process: raises `BridgeError` when this one does not serve its route."""
        route = self._planned(plan)
        if route is None:
            raise BridgeError("The route of this run no longer exists.", code=ErrorCode.RUN_LOST)
        caller = RunCaller(
            key.owner,
            plan.request_id,
            plan.forwarded,
            capabilities=route.capabilities,
            lost=lost,
            run_id=plan.run_id,
            created_at=plan.created_at,
        )
        return await self.run(route, plan.request, caller=caller)

    def _planned(self, plan: RunPlan) -> Route | None:
        """The route of a plan, which another process may have made."""
        pair = (plan.route, plan.front)
        return next((r for r in self.routes if (r.path, r.dialect.name) == pair), None)

    def route(self, path: str | None = None) -> Route:
        """The route mounted at `path`; without a path the first one. Raises `ConfigError` for an unknown path."""
        if path is None:
            return self.routes[0]
        for route in self.routes:
            if route.path == (path.rstrip("/") or "/"):
                return route
        raise ConfigError(f"no route at {path!r}; there are: {', '.join(r.path for r in self.routes)}")

    async def stream(self, request: Request, *, route: str | None = None) -> AsyncIterator[Event]:
        """Yield the events of a run, from `RunStarted` to the terminal one. Leaving the loop early cancels the run."""
        run = await self.run(self.route(route), _checked(request))
        try:
            while not run.ended:
                for event in await run.read():
                    yield event
        finally:
            await run.close()

    async def complete(self, request: Request, *, route: str | None = None) -> Answer:
        """Return the complete answer. Raises the `BridgeError` of its failure if the run failed."""
        run = await self.run(self.route(route), _checked(request))
        folder = Folder()
        try:
            while not run.ended:
                folder.feed(await run.read())
        finally:
            await run.close()
        if folder.answer.failure is not None:
            raise BridgeError.of(folder.answer.failure)
        return folder.answer


def _checked(request: Request) -> Request:
    """Return the request of a program. Raises `TypeError` or `ValueError` if it is none."""
    if not isinstance(request, Request):
        raise TypeError(f"expected a bridge.Request, got {type(request).__name__}; for a text, write Request(text)")
    request.check()
    return request


def _is_counted(route: Route) -> bool:
    """Return whether a route has sessions, streams or calls that all processes have to know."""
    return isinstance(route.dialect, QueuedRunsDialect | ToolServerDialect) or (
        route.serves(Operation.STOP) and not route.durable
    )


def _is_http(backend: Backend) -> bool:
    from bridge.run.backends.http_backend import HttpBackend

    return isinstance(backend, HttpBackend)


def _in_order(group: BackendGroup, request: Request, caller: RunCaller) -> list[Backend]:
    """Return the backends to ask, first choice first; those that are left alone for a while come last."""
    if len(group.members) == 1:
        return group.members
    backends = _by_conversation(group, request, caller)
    return sorted(backends, key=lambda backend: backend.breaker is not None and backend.breaker.is_last_choice)


def _by_conversation(group: BackendGroup, request: Request, caller: RunCaller) -> list[Backend]:
    """A conversation stays with its backend; a request without one is a conversation of its own."""
    return group.order(f"{caller.owner}\0{request.thread_id or caller.run_id}")


def _call_info(route: Route, asked: Request, caller: RunCaller, backend: Backend, request: Request) -> CallInfo:
    """Return the call's facts about the caller; its raw body only where it must arrive unchanged.

    `asked`: the request as it came; `request`: with what its conversation adds to it.
    """
    return CallInfo(
        caller.run_id,
        request.thread_id,
        caller.created_at,
        caller.request_id,
        backend.forwards(caller.headers, route.dialect),
        caller.raw_body if route.passthrough else None,
        caller.owner,
        names_thread=asked.thread_id is not None,
        caches=not caller.capabilities.clients_cache,
    )


async def _leave(turn: Turn, error: BaseException) -> None:
    """Close the turn of a request that cannot be sent to its backend; one that is itself at fault is forgotten."""
    try:
        if isinstance(error, RequestError):
            await turn.forget()
    except BridgeError as failed:
        log.error("the messages of a refused request stay in their conversation: %s", failed.message)
    finally:
        await turn.close()


async def _counted(route: Route, asked: Request, caller: RunCaller, backend: Backend) -> tuple[int, bool]:
    request = without_redirects(asked, caller.lost)
    counted = await backend.count(request, _call_info(route, asked, caller, backend, request))
    return (estimate_tokens(asked), True) if counted is None else (counted, False)
