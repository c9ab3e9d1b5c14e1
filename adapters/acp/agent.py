"""A connection to an agent, and its prompts: see `bridge.contract.optional.agents.AgentConnection`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.contract import Context
from bridge.contract.optional.agents import Ask
from bridge.dialects.acp.permissions import CANCELLED, FORM, PERMISSION
from bridge.dialects.acp.read_answer import UPDATE, Decoder, failure_of
from bridge.dialects.acp.wire import AUTH_REQUIRED, INTERNAL_ERROR, INVALID_PARAMS, NOT_FOUND, VERSION, Wire
from bridge.dialects.acp.write_request import prompt_blocks
from bridge.errors import BackendError, ErrorCode, Failure, shortened
from bridge.model import Request
from bridge.model.jsontext import dict_of, text_of, whole

_LOAD = "session/load"
_METHOD_NOT_FOUND = -32601
_FORGOTTEN = frozenset({NOT_FOUND, INTERNAL_ERROR, INVALID_PARAMS, _METHOD_NOT_FOUND, -32001})
"""What agents answer for a session that they do not have."""
CLIENT = "dialect-bridge"


class Connection:
    """What one agent said of itself, and the requests that fit it."""

    notifications: Sequence[str] = (UPDATE,)
    questions: Sequence[str] = (PERMISSION, FORM)
    withdrawal = "$/cancel_request"

    def __init__(self, *, auth_method: str = "", mode: str = "", asks: bool = True) -> None:
        self._auth_method = auth_method
        self._asks = asks
        self._can: Wire = {}
        self._methods: list[Wire] = []
        self._mode = mode
        self._models: dict[str, tuple[str, list[str]]] = {}
        """The option of each session that chooses its model, and its values; agents from before options have none."""
        self._modes: dict[str, list[Ask]] = {}
        """What sets the mode of sessions whose mode is another one."""

    # ------------------------------------------------------------------ the beginning

    def hello(self) -> list[Ask]:
        able: Wire = {"elicitation": {"form": {}}} if self._asks else {}
        info = {"name": CLIENT, "title": "dialect-bridge", "version": "1"}
        first = Ask("initialize", {"protocolVersion": VERSION, "clientCapabilities": able, "clientInfo": info})
        login = [Ask("authenticate", {"methodId": self._auth_method})] if self._auth_method else []
        return [first, *login]

    def greeted(self, method: str, result: Any) -> None:
        if method != "initialize":
            return
        wire = dict_of(result)
        version = whole(wire.get("protocolVersion"))
        if version != VERSION:
            told = "no version" if version is None else f"version {version}"
            text = f"The agent speaks {told} of the protocol; the bridge speaks version {VERSION}."
            raise BackendError(text, code=ErrorCode.BACKEND_PROTOCOL)
        self._can = dict_of(wire.get("agentCapabilities"))
        methods = wire.get("authMethods")
        self._methods = [dict_of(each) for each in methods] if isinstance(methods, list) else []

    # ------------------------------------------------------------------ sessions

    def begin(self, cwd: str) -> Ask:
        return Ask("session/new", {"cwd": cwd, "mcpServers": []})

    def restore(self, session: str, cwd: str) -> list[Ask]:
        params = {"sessionId": session, "cwd": cwd, "mcpServers": []}
        ways = [Ask("session/resume", params)] if self._session_can("resume") else []
        return [*ways, Ask(_LOAD, params)] if self._can.get("loadSession") is True else ways

    def replays(self, ask: Ask) -> bool:
        return ask.method == _LOAD

    def unknown(self, error: Wire) -> bool:
        return error.get("code") == _METHOD_NOT_FOUND

    def session_opened(self, result: Any, session: str | None = None) -> str:
        wire = dict_of(result)
        named = session or text_of(wire.get("sessionId"))
        if not named:
            raise BackendError("The agent began a session without an id.", code=ErrorCode.BACKEND_PROTOCOL)
        models = dict_of(wire.get("models")).get("availableModels")
        if isinstance(models, list):
            self._models[named] = "", [text_of(dict_of(each).get("modelId")) for each in models]
        self._learn_options(named, wire.get("configOptions"))
        if self._mode:
            self._modes[named] = self._choose_mode(named, wire, restored=session is not None)
        return named

    def end(self, session: str) -> Ask | None:
        self._models.pop(session, None)
        self._modes.pop(session, None)
        return Ask("session/close", {"sessionId": session}) if self._session_can("close") else None

    def note(self, message: Wire) -> None:
        update = dict_of(dict_of(message.get("params")).get("update"))
        session = self.session_of(message)
        if session is not None and update.get("sessionUpdate") == "config_option_update":
            self._learn_options(session, update.get("configOptions"))

    def session_of(self, message: Wire) -> str | None:
        return text_of(dict_of(message.get("params")).get("sessionId")) or None

    def dismiss(self, question: Wire) -> Wire:
        return {"action": "cancel"} if question.get("method") == FORM else CANCELLED

    def withdrawn(self, message: Wire) -> Any:
        return dict_of(message.get("params")).get("requestId")

    def _session_can(self, name: str) -> bool:
        return isinstance(dict_of(self._can.get("sessionCapabilities")).get(name), dict)

    # ------------------------------------------------------------------ options

    def _learn_options(self, session: str, options: object) -> None:
        """Note the option of a session that chooses its model, and the values that it takes."""
        for each in options if isinstance(options, list) else ():
            option = dict_of(each)
            if option.get("category") == "model" and isinstance(option.get("id"), str):
                self._models[session] = option["id"], _values(option)

    def settings(self, session: str, context: Context) -> list[Ask]:
        """Choose the mode, once, and the model, if the agent has one of this name; else its own is used."""
        mode = self._modes.pop(session, [])
        option, values = self._models.get(session, ("", []))
        if not context.model or context.model not in values:
            return mode
        if not option:
            return [*mode, Ask("session/set_model", {"sessionId": session, "modelId": context.model})]
        params = {"sessionId": session, "configId": option, "value": context.model}
        return [*mode, Ask("session/set_config_option", params)]

    def _choose_mode(self, session: str, opened: Wire, *, restored: bool) -> list[Ask]:
        """Return the request for the mode of a session. Raises `BackendError` if the agent does not have it: it
        might do without asking what it should ask for.
        """
        modes = dict_of(opened.get("modes")).get("availableModes")
        known = [text_of(dict_of(each).get("id")) for each in modes] if isinstance(modes, list) else []
        if self._mode in known:
            return [Ask("session/set_mode", {"sessionId": session, "modeId": self._mode})]
        options = opened.get("configOptions")
        for each in options if isinstance(options, list) else ():
            option = dict_of(each)
            if option.get("category") == "mode" and isinstance(option.get("id"), str):
                known += _values(option)
                if self._mode in known:
                    params = {"sessionId": session, "configId": option["id"], "value": self._mode}
                    return [Ask("session/set_config_option", params)]
        if restored and not known:
            return []  # it keeps the mode, and need not say so
        names = ", ".join(map(shortened, known[:20])) or "none"
        raise BackendError(f"The agent has no mode {self._mode!r} (options.mode); it has: {names}.")

    # ------------------------------------------------------------------ prompts

    def prompt(self, session: str, request: Request, context: Context, *, fresh: bool) -> Ask:
        takes = dict_of(self._can.get("promptCapabilities"))
        blocks = prompt_blocks(request, context, fresh=fresh, takes=takes)
        return Ask("session/prompt", {"sessionId": session, "prompt": blocks})

    def reading(self, context: Context) -> Decoder:
        return Decoder(context, live=True)

    def cancel(self, session: str) -> Ask:
        return Ask("session/cancel", {"sessionId": session})

    # ------------------------------------------------------------------ errors

    def forgot(self, error: Wire) -> bool:
        return error.get("code") in _FORGOTTEN

    def failure(self, error: Wire) -> Failure:
        failure = failure_of(error)
        if error.get("code") == AUTH_REQUIRED:
            data = dict_of(error.get("data")).get("authMethods")
            methods = [dict_of(each) for each in data] if isinstance(data, list) else self._methods
            told = [shown for each in methods[:8] if (shown := _method(each))]
            if told:
                failure.cause = f"{failure.cause} The agent names these ways: {'; '.join(told)}.".strip()
        return failure


def _values(option: Wire) -> list[str]:
    """Return the values that an option takes, also those in groups."""
    found: list[str] = []
    for name in ("options", "groups"):
        choices = option.get(name)
        for each in choices if isinstance(choices, list) else ():
            wire = dict_of(each)
            if isinstance(wire.get("value"), str):
                found.append(wire["value"])
            found += _values(wire)
    return found


def _method(method: Wire) -> str:
    """Return a way to authenticate as a person reads it."""
    name, told = text_of(method.get("name")), text_of(method.get("description"))
    words = ": ".join(word for word in (name, told) if word) or text_of(method.get("id"))
    return f"{shortened(words)} (auth_method: {shortened(text_of(method.get('id')))})" if words else ""
