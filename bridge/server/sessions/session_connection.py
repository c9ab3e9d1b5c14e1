"""One client: its calls, its sessions, and its prompts."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from bridge.contract import Operation
from bridge.contract.naming import is_pattern
from bridge.contract.optional.rpc import (
    CancelCall,
    CancelPrompt,
    ChooseModel,
    EndSession,
    Greet,
    ListSessions,
    NewSession,
    OpenSession,
    Params,
    Prompt,
    RpcCall,
    RpcSession,
)
from bridge.errors import BridgeError, ErrorCode, RequestError, shortened
from bridge.jsonrpc import Carrier, CarrierEnded, RpcConnection, RpcError, RpcId, RpcNotification, RpcRequest
from bridge.model import Message, Text
from bridge.server.sessions.finishing import to_the_end
from bridge.server.sessions.host import RpcHost
from bridge.server.sessions.prompts import PromptRun
from bridge.server.sessions.session_store import SessionStore, Stored, Waiting, waiting_in

if TYPE_CHECKING:
    from bridge.engine.route import Route

log = logging.getLogger("bridge.rpc")

_MOST_SESSIONS = 200
"""Open sessions of one connection."""
_LONGEST_TITLE = 80


@dataclass(slots=True)
class _Open:
    """An open session: what is stored of it, its waiting questions, its prompt."""

    session: RpcSession
    stored: Stored | None = None
    waiting: Waiting = field(default_factory=Waiting)
    prompt: PromptRun | None = None
    call_id: RpcId = None


class SessionConnection:
    """Serves one client over a carrier. Sessions belong to the connection that opened them."""

    def __init__(self, host: RpcHost) -> None:
        self._host = host
        self._dialect = host.dialect
        self._client: Any = None
        self._sessions: dict[str, _Open] = {}
        self._connection: RpcConnection | None = None
        self._idle_since = time.monotonic()

    async def serve(self, carrier: Carrier, **settings: Any) -> CarrierEnded:
        """Answer calls until the carrier ends, and return why it ended. All prompts are canceled then."""
        dialect = self._dialect
        async with RpcConnection(
            carrier,
            requests=dict.fromkeys(dialect.rpc_requests, self._request),
            notifications=dict.fromkeys(dialect.rpc_notifications, self._notification),
            cancel_notice=dialect.rpc_cancel,
            **settings,
        ) as self._connection:
            return await self._connection.wait()

    @property
    def idle_since(self) -> float | None:
        """Since when no session has a prompt, by the monotonic clock; None while one has."""
        return self._idle_since if all(each.prompt is None for each in self._sessions.values()) else None

    async def finish(self) -> None:
        """End the connection when its prompts have ended."""
        while prompts := [each.prompt for each in self._sessions.values() if each.prompt is not None]:
            await prompts[0].ended.wait()
        await self.close()

    async def close(self) -> None:
        """End the connection, and all prompts with it."""
        if self._connection is not None:
            await self._connection.close()

    # ------------------------------------------------------------------ calls

    async def _request(self, request: RpcRequest) -> Any:
        try:
            call = self._dialect.decode_rpc(request.method, request.params, self._host.service)
            handle: Callable[[Any, RpcCall, RpcRequest], Awaitable[Params]] = _HANDLERS[type(call)]
            with self._host.counting():
                return await handle(self, call, request)
        except BridgeError as error:
            raise RpcError(*self._dialect.rpc_error(error.failure)) from None

    async def _notification(self, notification: RpcNotification) -> None:
        try:
            call = self._dialect.decode_rpc(notification.method, notification.params, self._host.service)
        except RequestError as error:
            log.warning("a notification of the client is ignored: %s", error.message)
            return
        if isinstance(call, CancelPrompt):
            known = self._sessions.get(call.session_id)
            if known is not None and known.prompt is not None:
                known.prompt.cancel()
        elif isinstance(call, CancelCall):
            self._cancel_call(call.call_id)

    def _cancel_call(self, call_id: Any) -> None:
        for each in self._sessions.values():
            if each.prompt is not None and _is_same(each.call_id, call_id):
                each.prompt.cancel()
                return
        if self._connection is not None and isinstance(call_id, (str, int, float)) and not isinstance(call_id, bool):
            self._connection.cancel(call_id)

    async def _greet(self, call: Greet, request: RpcRequest) -> Params:
        self._client = call.client
        self._host.greeted()
        return self._dialect.encode_greeting(self._host.service)

    # ------------------------------------------------------------------ sessions

    async def _new(self, call: NewSession, request: RpcRequest) -> Params:
        await self._host.admit(None)
        self._check_room()
        self._note_ignored(call)
        _, route = await self._host.opened()
        models = self._models(route)
        session = RpcSession(token_hex(16), call.about, models, _first_model(route, models))
        store = await self._store()
        stored = await store.add(session) if store is not None else None
        self._sessions[session.id] = _Open(session, stored)
        return self._dialect.encode_opened(session, call)

    async def _open(self, call: OpenSession, request: RpcRequest) -> Params:
        self._note_ignored(call)
        await self._host.admit(Operation.HISTORY)
        known = self._sessions.get(call.session_id)
        if known is not None and known.prompt is not None:
            raise _busy()
        if known is None:
            self._check_room()
        _, route = await self._host.opened()
        store = await self._store()
        stored = await store.load(call.session_id) if store is not None else None
        if stored is None:
            raise _unknown(call.session_id)
        session = stored.session
        session.about, session.models = call.about, self._models(route)
        if session.model not in session.models:
            session.model = _first_model(route, session.models)
        self._sessions[session.id] = _Open(session, stored, waiting_in(stored))
        messages = stored.take_messages()
        if call.replays:
            assert self._connection is not None
            for method, params in self._dialect.encode_replay(session.id, messages):
                await self._connection.notify(method, params)
        return self._dialect.encode_opened(session, call)

    async def _list(self, call: ListSessions, request: RpcRequest) -> Params:
        await self._host.admit(Operation.HISTORY)
        store = await self._store()
        found, following = await store.page(call.about, call.start) if store is not None else ([], None)
        return self._dialect.encode_list(found, following)

    async def _end(self, call: EndSession, request: RpcRequest) -> Params:
        await self._host.admit(Operation.DELETE if call.deletes else None)
        known = self._sessions.get(call.session_id)
        if known is None and not call.deletes:
            raise _unknown(call.session_id)
        while known is not None and known.prompt is not None:
            known.prompt.cancel()
            await known.prompt.ended.wait()
        self._sessions.pop(call.session_id, None)
        if call.deletes and (store := await self._store()) is not None:
            await store.delete(call.session_id)
        return {}

    async def _choose(self, call: ChooseModel, request: RpcRequest) -> Params:
        session = self._known(call.session_id).session
        if call.model not in session.models:
            known = ", ".join(session.models) or "none"
            text = f"{call.place}: expected one of {known}, got {shortened(call.model)!r}."
            raise RequestError(text, param=call.place)
        session.model = call.model
        return self._dialect.encode_chosen(session)

    # ------------------------------------------------------------------ prompts

    async def _prompt(self, call: Prompt, request: RpcRequest) -> Params:
        known = self._known(call.session_id)
        while known.prompt is not None:
            if not known.prompt.is_canceled:
                raise _busy()
            await known.prompt.ended.wait()
        key = (self._host.owner, call.session_id)
        if key in self._host.busy:
            raise _busy()
        assert self._connection is not None
        session = known.session
        turn = self._dialect.turn(session.id, self._client)
        prompt = PromptRun(self._host, self._connection, session, turn, call, known.waiting)
        known.prompt, known.call_id = prompt, request.id
        self._host.busy.add(key)
        session.title = session.title or _title(call.request.messages)
        try:
            return await prompt.run()
        finally:
            # A client that leaves cancels this call, perhaps here; what it saw is stored all the same.
            await to_the_end(self._finish(known, prompt, key))

    async def _finish(self, known: _Open, prompt: PromptRun, key: tuple[str, str]) -> None:
        try:
            await self._keep(known, prompt)
        finally:
            known.prompt, known.call_id = None, None
            self._idle_since = time.monotonic()
            self._host.busy.discard(key)
            prompt.ended.set()

    async def _keep(self, known: _Open, prompt: PromptRun) -> None:
        """Store what the client saw; a store that fails now is logged, since the client has its answer already."""
        known.waiting = prompt.outcome.waiting
        if known.stored is None:
            return
        try:
            if (store := await self._store()) is not None:
                await store.append(known.stored, prompt.outcome.messages, known.waiting)
        except BridgeError as error:
            log.error("the session was not stored: %s", error.message)

    # ------------------------------------------------------------------ helpers

    def _known(self, session_id: str) -> _Open:
        found = self._sessions.get(session_id)
        if found is None:
            raise _unknown(session_id)
        return found

    def _models(self, route: Route) -> tuple[str, ...]:
        """Return the names of the models that the client may choose; those that only a backend knows are none."""
        names = [name for name in route.models or {} if not is_pattern(name)]
        names += [name for backend in (route.group.members if route.group else ()) for name in backend.names.listed]
        return tuple(filter(self._host.allows, dict.fromkeys(names)))

    async def _store(self) -> SessionStore | None:
        bridge, route = await self._host.opened()
        if not self._host.service.stores:
            return None
        return SessionStore(bridge.history, self._host.owner, route.path)

    def _check_room(self) -> None:
        if len(self._sessions) >= _MOST_SESSIONS:
            text = f"This connection has {_MOST_SESSIONS} open sessions; close some."
            raise RequestError(text, code=ErrorCode.CONFLICT)

    def _note_ignored(self, call: NewSession | OpenSession) -> None:
        if call.ignored:
            names = ", ".join(map(shortened, call.ignored[:20]))
            log.warning("the client's MCP servers are not started and not used: %s", names)


_HANDLERS: dict[type, Callable[..., Awaitable[Params]]] = {
    Greet: SessionConnection._greet,
    NewSession: SessionConnection._new,
    OpenSession: SessionConnection._open,
    ListSessions: SessionConnection._list,
    EndSession: SessionConnection._end,
    ChooseModel: SessionConnection._choose,
    Prompt: SessionConnection._prompt,
}


def _first_model(route: Route, models: tuple[str, ...]) -> str | None:
    """Return the model of a session whose client has chosen none."""
    return next(iter(models), None) if route.models is not None else None


def _title(messages: list[Message]) -> str:
    """Return the first words of a prompt."""
    texts = (part.text for message in messages for part in message.parts if isinstance(part, Text))
    line = " ".join(next((text for text in texts if text.strip()), "").split())[: 2 * _LONGEST_TITLE]
    return line if len(line) <= _LONGEST_TITLE else f"{line[: _LONGEST_TITLE - 3]}..."


def _is_same(one: RpcId, other: object) -> bool:
    return type(one) is type(other) and one == other


def _busy() -> RequestError:
    text = "The session is busy: its prompt is not answered yet. Cancel it, or wait."
    return RequestError(text, code=ErrorCode.CONFLICT)


def _unknown(session_id: str) -> RequestError:
    return RequestError(
        "sessionId: no such session is open here.",
        code=ErrorCode.NOT_FOUND,
        param="sessionId",
        details={"session_id": shortened(session_id)},
    )
