"""`Bridge`: routes and backends, with or without a server in front.

The server is one caller of this, not its home: `stream` and `complete` run a request through a route's backend and
its stages and give our events.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from bridge.codec import (
    ANSWER_FEATURES,
    REQUEST_FEATURES,
    Card,
    Dialect,
    KeptOptions,
    Losses,
    ModelInfo,
    Operation,
    Options,
    Surface,
    entries,
    offers,
    served,
)
from bridge.codec.naming import is_pattern, pick
from bridge.errors import BackendError, BridgeError, ConfigError, ErrorCode, RequestError
from bridge.model import Answer, Event, Folder, Request, estimate_tokens
from bridge.pipeline import Backend, CallInfo, Run, StageFactory, kept
from bridge.pipeline.answers import Answers
from bridge.pipeline.attached import Attached
from bridge.pipeline.memory import Memory, Turn

if TYPE_CHECKING:
    from bridge.config import Config
    from bridge.runs import RunKey, RunPlan, Runs
    from bridge.speech import Speech
    from bridge.stores import Attachments, RunStore

LIBRARY = Card(answers=entries(ANSWER_FEATURES), requests=entries(REQUEST_FEATURES), client_runs_calls=False)
"""The card of a caller who takes our events as they are."""


@dataclass(slots=True)
class Route:
    """What one mount path serves. `models` maps model names and globs to backends, `modes` the dialect's modes; where
    both are None, `backend` serves all.

    A route over gRPC has an agent id at the address `listen` (`host:port`); its path then only names it.
    """

    dialect: Dialect
    path: str
    options: Options
    backend: Backend | None = None
    models: dict[str, Backend] | None = None
    stages: tuple[StageFactory, ...] = ()
    passthrough: bool = False
    durable: bool = False
    modes: dict[str, Backend] | None = None
    listen: str | None = None
    agent_id: str | None = None

    @property
    def surface(self) -> Surface:
        """The endpoints of the dialect that this route has."""
        return served(self.dialect.surface, self.durable)

    def serves(self, operation: Operation) -> bool:
        """Whether one of its endpoints is for this."""
        return offers(self.surface, operation)

    def backend_for(self, request: Request) -> Backend:
        """The backend of a request. Raises `RequestError` (not_found) for a model that the route does not list."""
        if self.modes is not None:
            return self.modes[self.dialect.mode_of(request) or self.dialect.modes[0]]
        return self.pick(request.model)

    def pick(self, model: str | None) -> Backend:
        """The backend for a model. Raises `RequestError` (not_found) for a model that the route does not list."""
        if self.backend is not None:
            return self.backend
        models = self.models or {}
        found = pick(models, model or "")
        if found is None:
            known = ", ".join(n for n in models if not is_pattern(n))
            hint = f" Known: {known}." if known else ""
            raise RequestError(
                f"The model {(model or '')[:80]!r} does not exist on this route.{hint}",
                code=ErrorCode.NOT_FOUND,
                param="model",
                backend_code="model_not_found",
            )
        return found

    @property
    def backends(self) -> list[Backend]:
        """Its backends, each once."""
        every = [self.backend] if self.backend is not None else list((self.models or self.modes or {}).values())
        return list({b.name: b for b in every}.values())

    @property
    def keeps_answers(self) -> bool:
        """Whether its clients may name earlier answers, where there is a store for them."""
        return not (self.passthrough or self.durable) and self.dialect.keeps_answers(self.options)

    @property
    def in_background(self) -> bool:
        """Whether kept answers may be made while their clients are away."""
        return self.keeps_answers and self.serves(Operation.CANCEL)

    async def list_models(self) -> list[ModelInfo]:
        """The configured models, and the backend's own when one backend serves the route.

        Raises `BackendError` when the backend does not answer and nothing is configured.
        """
        names = [n for n in self.models or {} if not is_pattern(n)]
        names += self.backend.names.listed if self.backend is not None else []
        listed = {n: ModelInfo(n) for n in names}
        only = self.backends[0] if len(self.backends) == 1 else None
        if only is not None and (self.models is None or any(is_pattern(n) for n in self.models)):
            try:
                for info in await only.models():
                    listed.setdefault(info.id, info)
            except BackendError as error:
                # Many backends have no such list; that is no fault of the client who asks.
                if not listed and error.code not in (ErrorCode.NOT_FOUND, ErrorCode.INVALID_REQUEST):
                    raise
        if not listed and only is not None:
            listed[only.name] = ModelInfo(only.name)
        return list(listed.values())


@dataclass(slots=True)
class Caller:
    """Who asks, and what of his request travels on beside its body. `owner` is whose conversations he may continue."""

    owner: str = ""
    request_id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    raw_body: bytes | None = None


class Bridge:
    """Routes, backends and stores. Use it as an async context manager, or `start` and `close` it."""

    def __init__(
        self,
        routes: Sequence[Route],
        config: Config,
        memory: Memory | None = None,
        store: RunStore | None = None,
        attachments: Attachments | None = None,
        speech: Speech | None = None,
    ) -> None:
        self.routes = list(routes)
        self.config = config
        self._memory = memory
        self._store = store
        self._attachments = attachments
        self.speech = speech
        self._runs: Runs | None = None
        self._open: AsyncExitStack | None = None

    @classmethod
    def from_config(cls, source: str | os.PathLike[str] | Mapping[str, Any]) -> Bridge:
        """A bridge from a YAML file or an equal mapping. Raises `ConfigError` that names the place and the mistake."""
        from bridge.config import load, parse

        return cls.of(parse(dict(source)) if isinstance(source, Mapping) else load(source))

    @classmethod
    def of(cls, config: Config) -> Bridge:
        """A bridge from a checked configuration. Raises `ConfigError` for a target that cannot be imported."""
        from bridge.assembly import assemble, attachments_for, memory_for, speech_for, store_for

        routes = assemble(config)
        files = attachments_for(config) if any(r.serves(Operation.ATTACH) for r in routes) else None
        speech = speech_for(config) if any(r.serves(Operation.TRANSCRIBE) for r in routes) else None
        return cls(routes, config, memory_for(routes, config), store_for(routes, config), files, speech)

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Opens the connection pools. Repeating it is harmless."""
        if self._open is not None:
            return
        async with AsyncExitStack() as stack:
            for backend in {b.name: b for route in self.routes for b in route.backends}.values():
                stack.push_async_callback(backend.close)
                await backend.start()
            if self._memory is not None:
                stack.push_async_callback(self._memory.close)
                self._memory.start(self.config.stores.retention.history)
            if self._store is not None:
                self._runs = self._make_runs(self._store)
                stack.push_async_callback(self._runs.close)
            if self._attachments is not None:
                stack.push_async_callback(self._attachments.close)
                await self._attachments.open()
            if self.speech is not None:
                stack.push_async_callback(self.speech.close)
                self.speech.open()
            self._open = stack.pop_all()
        if self._runs is not None:
            await self._runs.open()

    @property
    def is_open(self) -> bool:
        return self._open is not None

    @property
    def runs(self) -> Runs:
        """The asynchronous runs, of an open bridge that has a durable route. Raises `RuntimeError` without."""
        if self._runs is None:
            raise RuntimeError("this bridge is not open, or none of its routes is durable")
        return self._runs

    @property
    def has_runs(self) -> bool:
        return self._runs is not None

    @property
    def talks(self) -> kept.Talks:
        """The talks that clients read back. Raises `RuntimeError` when no route keeps any."""
        if self._memory is None:
            raise RuntimeError("no route of this bridge keeps talks")
        return kept.Talks(self._memory.history)

    @property
    def attachments(self) -> Attachments:
        """Uploaded images. Raises `RuntimeError` when no route takes any."""
        if self._attachments is None:
            raise RuntimeError("no route of this bridge takes attachments")
        return self._attachments

    def _make_runs(self, store: RunStore) -> Runs:
        from bridge.runs import Runs

        kept = self.config.stores
        return Runs(
            store,
            self._drive,
            concurrent=self.config.server.limits.concurrent,
            lease=kept.lease,
            events=kept.retention.events,
            threads=kept.retention.history,
            ended=self._settle,
        )

    async def close(self) -> None:
        """Closes connection pools and stores. Repeating it is harmless."""
        stack, self._open = self._open, None
        if stack is not None:
            await stack.aclose()
        self._runs = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # ------------------------------------------------------------------ runs

    async def run(
        self,
        route: Route,
        request: Request,
        *,
        card: Card | None = None,
        caller: Caller | None = None,
        lost: Losses | None = None,
        run_id: str | None = None,
        created_at: float | None = None,
    ) -> Run:
        """A prepared run: the backend is chosen, the conversation loaded, the request encoded; nothing is sent yet.

        Raises `RequestError` for an unknown model and `Unsupported` for what the backend's dialect cannot say.
        """
        if self._open is None:
            raise RuntimeError("this bridge is not open: use it as `async with bridge:`, or call start()")
        backend = route.backend_for(request)
        caller = caller or Caller()
        run_id = run_id or uuid.uuid4().hex
        turn = await self._turn(route, request, card or LIBRARY, backend.card, caller.owner, run_id)
        request = turn.request if turn is not None else request
        info = _call_info(route, backend, request, caller, run_id, created_at or time.time())
        try:
            if self._attachments is not None and route.serves(Operation.ATTACH):
                files = Attached(self._attachments, caller.owner, self._files_base(route))
                request = await files.request(request)
            return Run(
                request,
                backend,
                card or LIBRARY,
                info,
                options=route.options,
                stages=route.stages,
                lost=lost,
                untouched=route.passthrough,
                turn=turn,
            )
        except BaseException:
            if turn is not None:
                await turn.close()
            raise

    async def _turn(
        self, route: Route, request: Request, front: Card, back: Card, owner: str, run_id: str
    ) -> Turn | None:
        """The request's turn in its conversation, begun; None when nothing has to be kept."""
        if self._memory is None or route.passthrough:
            return None
        if route.serves(Operation.HISTORY):
            alone = isinstance(route.options, KeptOptions) and route.options.one_run_per_thread
            return await kept.begin(self._memory.history, owner, route.path, request, front, back, run_id, alone=alone)
        return await self._memory.begin(owner, route.path, request, front, back, run_id)

    def _files_base(self, route: Route) -> str | None:
        """The public URL of the route where backends can fetch its images there; None = they get the bytes."""
        public = self.config.server.public_url
        chosen = route.options.inline_attachments if isinstance(route.options, KeptOptions) else None
        if public is None or chosen or (chosen is None and self.config.server.is_local):
            return None
        return public.rstrip("/") + route.path.rstrip("/")

    def answers(self, route: Route, owner: str) -> Answers | None:
        """The answers that this owner's clients may name by id on a route; None where none are kept."""
        if self._memory is None or not route.keeps_answers:
            return None

        from bridge.runs import look

        seen = partial(look, self.runs, owner, route.path, route.dialect, route.options) if self.has_runs else None
        return self._memory.answers(owner, route.path, seen)

    async def _settle(self, key: RunKey, plan: RunPlan, events: Sequence[Event]) -> None:
        from bridge.runs import settle

        route = self._planned(plan) if plan.background else None
        answers = self.answers(route, key.owner) if route is not None else None
        if route is not None and answers is not None:
            await settle(self.runs, key, answers, route.dialect, route.options, events)

    async def count(self, route: Route, request: Request, caller: Caller | None = None) -> tuple[int, bool]:
        """The input tokens of a request, and whether that is our own estimate because the backend cannot say.

        Raises `RequestError` for an unknown model, `BackendError` when the backend refuses.
        """
        if self._open is None:
            raise RuntimeError("this bridge is not open: use it as `async with bridge:`, or call start()")
        backend = route.backend_for(request)
        info = _call_info(route, backend, request, caller or Caller(), uuid.uuid4().hex, time.time())
        counted = await backend.count(request, info)
        return (estimate_tokens(request), True) if counted is None else (counted, False)

    def plan(
        self, route: Route, request: Request, caller: Caller, *, run_id: str, created_at: float
    ) -> tuple[RunKey, RunPlan]:
        """What `runs.start` wants for this request. `run_id` names the run where the client did not.

        Raises `RequestError` for an unknown model.
        """
        from bridge.runs import RunKey, RunPlan

        backend = route.backend_for(request)
        run = request.run_id or run_id
        plan = RunPlan(
            route.path,
            route.dialect.name,
            run_id,
            created_at,
            request,
            request.model or backend.model_for(request.model),
            route.dialect.card.eager_start,
            caller.request_id,
            backend.forwards(caller.headers, route.dialect),
        )
        return RunKey(caller.owner, route.path, request.thread_id or run, run), plan

    async def _drive(self, key: RunKey, plan: RunPlan, lost: Losses) -> Run:
        """The run of a plan, in whichever process: raises `BridgeError` when this one does not serve its route."""
        route = self._planned(plan)
        if route is None:
            raise BridgeError("The route of this run is not served any more.", code=ErrorCode.RUN_LOST)
        return await self.run(
            route,
            plan.request,
            card=route.dialect.card,
            caller=Caller(key.owner, plan.request_id, plan.forwarded),
            lost=lost,
            run_id=plan.run_id,
            created_at=plan.created_at,
        )

    def _planned(self, plan: RunPlan) -> Route | None:
        """The route of a plan, which another process may have made."""
        asked = (plan.route, plan.front)
        return next((r for r in self.routes if (r.path, r.dialect.name) == asked), None)

    def route(self, path: str | None = None) -> Route:
        """The route mounted at `path`; without a path the first one. Raises `ConfigError` for an unknown path."""
        if path is None:
            return self.routes[0]
        for route in self.routes:
            if route.path == (path.rstrip("/") or "/"):
                return route
        raise ConfigError(f"no route at {path!r}; there are: {', '.join(r.path for r in self.routes)}")

    async def stream(self, request: Request, *, route: str | None = None) -> AsyncIterator[Event]:
        """Our events, from `RunStarted` to the terminal one. Leaving the loop early cancels the backend's work."""
        run = await self.run(self.route(route), request)
        try:
            while not run.done:
                for event in await run.read():
                    yield event
        finally:
            await run.close()

    async def complete(self, request: Request, *, route: str | None = None) -> Answer:
        """The finished answer. Raises the fitting `BridgeError` when the run failed."""
        run = await self.run(self.route(route), request)
        folder = Folder()
        try:
            while not run.done:
                folder.feed(await run.read())
        finally:
            await run.close()
        if folder.answer.failure is not None:
            raise BridgeError.of(folder.answer.failure)
        return folder.answer


def _call_info(
    route: Route, backend: Backend, request: Request, caller: Caller, run_id: str, created_at: float
) -> CallInfo:
    """What a call to this backend may know of the one who asks; his own body only where it must arrive unchanged."""
    raw_body = caller.raw_body if route.passthrough else None
    forwarded = backend.forwards(caller.headers, route.dialect)
    return CallInfo(run_id, request.thread_id, created_at, caller.request_id, forwarded, raw_body, caller.owner)
