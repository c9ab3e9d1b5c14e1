"""Routes and callers: the values that `Bridge` works on."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import TYPE_CHECKING, Literal

from bridge.contract import (
    ANSWER_FEATURES,
    REQUEST_FEATURES,
    Capabilities,
    Dialect,
    Losses,
    ModelInfo,
    ModelsDialect,
    ModesDialect,
    Operation,
    Options,
    ServedModel,
    SocketDialect,
    StoredAnswersDialect,
    Surface,
    ToolSite,
    ToolText,
    entries,
    require,
    served,
)
from bridge.contract.naming import is_pattern, pick
from bridge.contract.optional.contracts import check_surface
from bridge.errors import BackendError, ErrorCode, RequestError, shortened
from bridge.model import Request
from bridge.run.backend import Backend
from bridge.run.group import BackendGroup
from bridge.run.tools.tool_sources import Tools
from bridge.translation.policies.stages import StageFactory

if TYPE_CHECKING:
    from bridge.engine.config import ConcurrencySection
    from bridge.run.backends.http_backend import HttpBackend

_CHOICE = re.compile(r"\[(.)[^\]]{0,100}\]")
"""A pattern's set of characters, of which the first one is a guess."""

LIBRARY = Capabilities(answers=entries(ANSWER_FEATURES), requests=entries(REQUEST_FEATURES), client_runs_calls=False)
"""The capabilities of a caller that takes events as they are."""


@dataclass(slots=True)
class Route:
    """One mount path. `models` maps model names and globs to backends, `modes` the dialect's modes; if both are None,
    `group` serves all.

    A route over gRPC has an agent id at the address `listen` (`host:port`); its path then is only a name.
    """

    dialect: Dialect
    path: str
    options: Options
    group: BackendGroup | None = None
    models: dict[str, BackendGroup] | None = None
    stages: tuple[StageFactory, ...] = ()
    passthrough: bool = False
    durable: bool = False
    modes: dict[str, BackendGroup] | None = None
    offered: Mapping[str, ToolText] = field(default_factory=dict)
    """What people and models read of the tools that clients call; `modes` has the backends of each."""
    listen: str | None = None
    agent_id: str | None = None
    limits: ConcurrencySection | None = None
    tools: Tools | None = None
    """Tools that the backends' models may call beside the client's own."""
    tools_at: Backend | None = None
    """The backend where these are, when it is one; it is opened and closed with the others."""
    extras_at: HttpBackend | None = None
    """The backend that is passed what is not translated; it is opened and closed with the others."""
    max_tool_rounds: int = 8
    mid_stream_fallback: Literal["repeat", "continue"] | None = None
    surface: Surface = field(init=False)
    """The endpoints of the dialect that this route has."""
    keeps_answers: bool = field(init=False)
    """True if its clients may name earlier answers, where there is a store for them."""
    capabilities: Capabilities = field(init=False)
    """Those of the dialect, as the options change them."""
    default_model: str | None = field(init=False)
    """The model of a request that names none; None if no backend has one."""
    _operations: frozenset[Operation] = field(init=False)

    def __post_init__(self) -> None:
        check_surface(self.dialect)
        self.surface = served(self.dialect.surface, self.durable, self.passthrough, self.extras_at is not None)
        if not (isinstance(self.dialect, SocketDialect) and self.dialect.takes_sockets(self.options)):
            self.surface = tuple(e for e in self.surface if e.operation is not Operation.SOCKET)
        self.keeps_answers = (
            isinstance(self.dialect, StoredAnswersDialect)
            and not (self.passthrough or self.durable)
            and self.dialect.keeps_answers(self.options)
        )
        self.capabilities = self.dialect.card(self.options)
        self._operations = frozenset(endpoint.operation for endpoint in self.surface)
        unnamed = None if self.models is None else pick(self.models, "")
        backends = self.backends if self.models is None else unnamed.members if unnamed else ()
        self.default_model = _model_of(backends)

    def serves(self, operation: Operation) -> bool:
        """Return whether one of its endpoints is for this operation."""
        return operation in self._operations

    def group_for(self, request: Request) -> BackendGroup:
        """The backends for a request. Raises `RequestError` (not_found) for a model that the route does not list."""
        if self.modes is not None:
            dialect = require(self.dialect, ModesDialect)
            mode = dialect.mode_of(request)
            return self.modes[mode if mode in self.modes else next(iter(dialect.modes or self.modes))]
        if self.group is not None:
            return self.group
        models = self.models or {}
        found = pick(models, request.model or "") or self._same_model(models, request.model)
        if found is None:
            known = ", ".join(n for n in models if not is_pattern(n))
            hint = f" Known: {known}." if known else ""
            raise RequestError(
                f"The model {shortened(request.model or '')!r} does not exist on this route.{hint}",
                code=ErrorCode.NOT_FOUND,
                param="model",
                backend_code="model_not_found",
            )
        return found

    def usual_model(self, request: Request) -> str | None:
        """Return the model of a request that names none; None if the backends for it have none."""
        return self.default_model if self.modes is None else _model_of(self.group_for(request).members)

    def _same_model(self, models: Mapping[str, BackendGroup], asked: str | None) -> BackendGroup | None:
        """Return the backends of a model that a client of this dialect may also call by another name."""
        dialect = self.dialect
        if asked is None or not isinstance(dialect, ModelsDialect):
            return None
        return next((group for name, group in models.items() if dialect.is_same_model(asked, name)), None)

    @property
    def groups(self) -> list[BackendGroup]:
        """Return all backends that its requests may reach."""
        return [self.group] if self.group is not None else list((self.models or self.modes or {}).values())

    @property
    def backends(self) -> list[Backend]:
        """Its backends, each once."""
        return list({b.name: b for group in self.groups for b in group.members}.values())

    @property
    def opened(self) -> list[Backend]:
        """Everything of it that has to be opened and closed."""
        return [*self.backends, *(b for b in (self.tools_at, self.extras_at) if b is not None)]

    @property
    def site(self) -> ToolSite:
        """What the codec has to know of a route whose clients call tools, as far as the configuration says it."""
        return ToolSite(self.backends[0].name, self.path, self.offered)

    @property
    def in_background(self) -> bool:
        """True if stored responses may be made in the background."""
        return self.keeps_answers and self.serves(Operation.CANCEL)

    @property
    def some_model(self) -> str | None:
        """A model name that this route serves; None where only the backend knows, or a pattern cannot be guessed."""
        if self.models is not None:
            return self._known_model(self.models) or _guess(self.models, "YOUR_MODEL")
        backend = self.backends[0]
        known = next(iter(backend.names.listed), None) or _guess(backend.names.renames)
        return known or (None if _requires_model(backend) else backend.name)

    def _known_model(self, models: Mapping[str, BackendGroup]) -> str | None:
        """Return a name of `models` that is sure to be one of its backend, as far as the configuration says."""
        for name, group in models.items():
            backend = group.members[0]
            known = backend.names.listed if is_pattern(name) else [name]
            if (guess := _guess(backend.names.renames)) is not None:
                known = [*known, guess]
            if not _requires_model(backend) and (guess := _guess({name: group})) is not None:
                known = [*known, guess]
            if (found := next((each for each in known if pick(models, each) is group), None)) is not None:
                return found
        return None

    async def served_models(self) -> list[ServedModel]:
        """The models of `list_models`, each with the capabilities of the backends that may answer for it."""
        listed = await self.list_models()
        return [ServedModel(info, [b.capabilities for b in self._members(info.id)]) for info in listed]

    def _members(self, model: str) -> Sequence[Backend]:
        group = self.group if self.models is None else pick(self.models, model)
        return self.backends if group is None else group.members

    async def list_models(self) -> list[ModelInfo]:
        """The configured models, and the backend's own when one backend serves the route.

        A backend without such a list is a model of its name. Raises `BackendError` when the backend does not answer and
        nothing is configured.
        """
        names = [n for n in self.models or {} if not is_pattern(n)]
        names += [n for backend in (self.group.members if self.group else ()) for n in backend.names.listed]
        listed = {n: ModelInfo(n) for n in names}
        only = self.backends[0] if len(self.backends) == 1 else None
        has_list = False
        if only is not None:
            are_all = self.models is None or any(is_pattern(n) for n in self.models)
            try:
                found = await only.models()
                has_list = _requires_model(only)
                for info in found:
                    # A configured name is told what is known of the model that it stands for.
                    for name in [n for n in names if info.id in (n, only.model_for(n))]:
                        listed[name] = replace(info, id=name)
                    if are_all:
                        listed.setdefault(info.id, info)
            except BackendError as error:
                # Many backends have no such list; that is no fault of the client who asks.
                if not listed and not _has_no_list(error):
                    raise
        if not listed and only is not None and not has_list:
            listed[only.name] = ModelInfo(only.name)
        return list(listed.values())


@dataclass(slots=True)
class RunCaller:
    """The caller of a run, and the facts of the run besides its request.

    Attributes:
        owner: The owner of the conversations that may be continued.
        request_id: The id of the request that started the run.
        headers: The headers beside the body.
        raw_body: The body as it came.
        capabilities: What the caller's dialect can carry.
        lost: Takes what cannot be carried.
        run_id: The id of the run.
        created_at: When the run was asked for, in Unix seconds.
    """

    owner: str = ""
    request_id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    raw_body: bytes | None = None
    capabilities: Capabilities = LIBRARY
    lost: Losses = field(default_factory=Losses)
    run_id: str = field(default_factory=lambda: token_hex(16))
    created_at: float = field(default_factory=time.time)


def _model_of(backends: Sequence[Backend]) -> str | None:
    return next((name for each in backends if (name := each.model_for(None))), None)


def _has_no_list(error: BackendError) -> bool:
    """Return whether a backend has refused to list its models because it has no such list."""
    refusals = (ErrorCode.NOT_FOUND, ErrorCode.INVALID_REQUEST)
    return error.code in refusals or error.failure.details.get("backend_status") in (404, 405, 501)


def _requires_model(backend: Backend) -> bool:
    dialect: Dialect | None = getattr(backend, "dialect", None)  # an agent inside the process has none
    return dialect is not None and dialect.requires_model


def _guess(models: Mapping[str, object], filling: str = "x") -> str | None:
    """Return a name that one of these names and globs takes, with `filling` for `*`; None if there is none."""
    guesses = (_CHOICE.sub(r"\1", name).replace("*", filling).replace("?", "x") for name in models)
    return next((guess for guess in sorted(guesses, key=len) if pick(models, guess) is not None), None)
