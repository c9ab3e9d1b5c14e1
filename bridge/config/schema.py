"""The configuration as models: every key with its type, its default and a line that says what it is.

The models check what one section can know of itself; what spans sections is in `bridge.config.checks`. They are
frozen, and made by `bridge.config.load` and `parse`, whose errors name file, line and key; pydantic's own do not.
An empty value (`auth:`) is the same as an absent key.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SerializeAsAny,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    field_validator,
    model_validator,
)

from bridge.codec import Endpoint, Options, registry, served
from bridge.config.kinds import (
    BUILT_IN,
    DEMO,
    PUBLIC_ALGORITHMS,
    PYTHON,
    Address,
    Algorithm,
    AttachmentsUrl,
    BackDialect,
    BackendChoice,
    BackendName,
    Digest,
    FrontDialect,
    HeaderName,
    Headers,
    HistoryUrl,
    MountPath,
    Network,
    OptionalBackendUrl,
    OptionalSecret,
    OptionalText,
    OptionalUrl,
    Origin,
    Port,
    Positive,
    Reference,
    RunsUrl,
    Secret,
    Text,
    TimeZone,
    Url,
    Whole,
    back_options,
    dialect_of,
    front_options,
    is_loopback,
)
from bridge.config.problems import at, expected, wrong
from bridge.config.units import Duration, DurationOrOff, Size, is_off, off_is_none

_DAY = 86400.0

_OrOff = BeforeValidator(off_is_none)
_FreeOptions = Annotated[SerializeAsAny[Options], WithJsonSchema({"type": "object"})]


def _or_off_word(schema: dict[str, Any]) -> None:
    _or_word(schema, {"enum": [False, "off"]})


def _or_none_word(schema: dict[str, Any]) -> None:
    _or_word(schema, {"const": "none"})


def _or_word(schema: dict[str, Any], word: dict[str, Any]) -> None:
    """Lets the JSON Schema of a section also take a word."""
    choices = schema.pop("anyOf", None) or [{"$ref": schema.pop("$ref")}]
    schema["anyOf"] = [*choices, word]


class Section(BaseModel):
    """A mapping of the configuration; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _empty_is_absent(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data


# ------------------------------------------------------------------------------ server


class Cors(Section):
    # Open unless said otherwise: browsers are the normal clients of AgentScope, AG-Kit and AG-UI, whose own servers are
    # open too, and what may be done is a matter of keys, which a foreign page does not have.
    origins: tuple[Origin, ...] = Field(default=("*",), description='origins that browsers may call from; "*" is any')


def _off_is_empty(value: Any) -> Any:
    return {"origins": ()} if is_off(value) else value


class PerKey(Section):
    concurrent: Positive | None = Field(default=None, description="requests of one key at the same time")
    requests_per_minute: Positive | None = Field(default=None, description="requests of one key in a minute")


class Limits(Section):
    concurrent: Positive = Field(default=1000, description="requests served at the same time by one process")
    queue: Whole = Field(default=100, description="requests that wait for their turn; more are refused")
    per_key: Annotated[PerKey | None, _OrOff] = Field(
        default=None, description="limits for each key of auth", json_schema_extra=_or_off_word
    )


class ApiKey(Section):
    """One client. Exactly one of `key` and `key_sha256` is set."""

    name: Text = Field(description="the user who owns what is made with this key")
    key: Secret | None = Field(default=None, description="the key as clients send it")
    key_sha256: Digest | None = Field(default=None, description="or the SHA-256 of the key, in hexadecimal", repr=False)
    routes: tuple[str, ...] = Field(
        default=("*",), min_length=1, description='mount paths that this key opens; "*" is all'
    )

    @field_validator("routes")
    @classmethod
    def _same_spelling(cls, routes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(route.removesuffix("/") or route for route in routes)

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if (self.key is None) == (self.key_sha256 is None):
            came = "neither" if self.key is None else "both"
            raise wrong(f"expected exactly one of key and key_sha256, got {came}")
        return self

    @property
    def digest(self) -> str:
        """The SHA-256 of the key as 64 lower-case hexadecimal digits."""
        if self.key is None:
            return self.key_sha256 or ""
        return hashlib.sha256(self.key.get_secret_value().encode()).hexdigest()

    def opens(self, mount: str) -> bool:
        """Whether this key may use the route mounted at `mount`."""
        return "*" in self.routes or mount in self.routes


class Jwt(Section):
    """Signed tokens. Exactly one of `jwks_url` and `secret` is set."""

    jwks_url: OptionalUrl = Field(default=None, description="where the issuer's public keys are")
    secret: OptionalSecret = Field(default=None, description="or the shared secret of HS256")
    algorithms: tuple[Algorithm, ...] | None = Field(
        default=None,
        min_length=1,
        description="signatures that are taken; absent = HS256 with a secret, else RS, PS, ES of any size and EdDSA",
    )
    audience: OptionalText = Field(
        default=None, description="the audience a token must name; absent = none may be named"
    )
    issuer: OptionalText = Field(default=None, description="the issuer a token must name; absent = any")
    user_claim: Text = Field(default="sub", description="the claim that names the user")
    leeway: Duration = Field(default=30.0, description="how wrong clocks may be")

    @model_validator(mode="after")
    def _one_kind_of_key(self) -> Self:
        if (self.jwks_url is None) == (self.secret is None):
            came = "neither" if self.secret is None else "both"
            raise wrong(f"expected exactly one of jwks_url and secret, got {came}")
        # A public key taken for a shared secret would let everybody sign.
        shared = self.secret is not None
        if misfits := [name for name in self.accepted if name.startswith("HS") != shared]:
            what = "a secret checks HS256, HS384 and HS512 only" if shared else "public keys cannot check these"
            raise at(("algorithms",), wrong(f"{what}, not {', '.join(misfits)}"))
        return self

    @property
    def accepted(self) -> tuple[str, ...]:
        """The algorithms that are taken."""
        if self.algorithms is not None:
            return self.algorithms
        return ("HS256",) if self.secret is not None else PUBLIC_ALGORITHMS


class Auth(Section):
    """Who may call. With no method at all everybody may, which only `auth: none` says."""

    keys: tuple[ApiKey, ...] | None = Field(default=None, description="clients and their keys")
    jwt: Annotated[Jwt | None, _OrOff] = Field(
        default=None, description="signed tokens", json_schema_extra=_or_off_word
    )
    trusted_header: HeaderName | None = Field(default=None, description="header in which a proxy names the user")
    trusted_proxies: tuple[Network, ...] = Field(
        default=(), description="addresses or networks of the proxies whose trusted_header counts"
    )

    @model_validator(mode="after")
    def _some_method(self) -> Self:
        if self.is_none:
            # An empty list would lock everybody out or let everybody in; nobody can tell which was meant.
            raise wrong("names no keys; list them under keys, or write `auth: none` to serve everybody")
        if self.trusted_header is not None and not self.trusted_proxies:
            raise at(("trusted_proxies",), wrong("missing; whoever reaches the bridge could write trusted_header"))
        if self.trusted_proxies and self.trusted_header is None:
            raise at(("trusted_header",), wrong("missing; trusted_proxies belongs to it"))
        return self

    @property
    def is_none(self) -> bool:
        """Whether no method is configured: `auth: none`."""
        return not self.keys and self.jwt is None and self.trusted_header is None


def _none_is_open(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    if value == "none":
        return Auth.model_construct()
    if value is not None and not isinstance(value, dict | Auth):
        raise expected("a mapping with keys, or the word none")
    return handler(value)


class Metrics(Section):
    path: MountPath = Field(default="/metrics", description="where metrics are read")


class Health(Section):
    live: MountPath = Field(default="/healthz", description="answers while the process lives")
    ready: MountPath = Field(default="/readyz", description="answers while new requests are welcome")


class Server(Section):
    host: Text = Field(default="127.0.0.1", description="address to listen on")
    port: Port = Field(default=8080, description="port to listen on; 0 takes a free one")
    workers: Positive = Field(default=1, description="processes sharing the port")
    max_body: Size = Field(default=8 * 2**20, description="largest request body")
    drain: Duration = Field(default=30.0, description="time for open streams to finish after SIGTERM")
    cors: Annotated[Cors, BeforeValidator(_off_is_empty)] = Field(
        default_factory=Cors, description="browsers of other origins; off = none", json_schema_extra=_or_off_word
    )
    keepalive: DurationOrOff = Field(
        default=15.0, description="silence after which a comment frame is sent, where clients accept it; off = never"
    )
    body_time: Duration = Field(default=30.0, description="time for a request body to arrive")
    slow_reader: DurationOrOff = Field(
        default=60.0, description="time a client may leave a write waiting before it is cut; off = for ever"
    )
    limits: Limits = Field(default_factory=Limits, description="how much is served at the same time")
    auth: Annotated[Auth | None, WrapValidator(_none_is_open)] = Field(
        default=None,
        description="who may call; absent = everybody, on loopback only; none = everybody",
        json_schema_extra=_or_none_word,
    )
    public_url: OptionalUrl = Field(default=None, description="how clients reach us, for signed URLs")
    secret: OptionalSecret = Field(default=None, description="signs URLs; made and kept beside the data when empty")
    time_zone: TimeZone = Field(default="UTC", description="time zone of times that people read")
    page: bool = Field(default=True, description="the page at /")
    metrics: Annotated[Metrics | None, _OrOff] = Field(
        default_factory=Metrics, description="metrics; off = none", json_schema_extra=_or_off_word
    )
    health: Health = Field(default_factory=Health, description="paths that say how the process is")

    @property
    def is_local(self) -> bool:
        """Whether nothing says that other machines can reach us."""
        host = urlsplit(self.public_url or "").hostname
        return host is None or is_loopback(host)

    @property
    def is_open(self) -> bool:
        """Whether everybody may call: by `auth: none`, or on loopback with nothing said."""
        return self.auth is None or self.auth.is_none


# ------------------------------------------------------------------------------ backends


class Timeouts(Section):
    """Each in seconds, None = no limit."""

    connect: DurationOrOff = Field(default=5.0, description="to connect; off = no limit")
    first_event: DurationOrOff = Field(default=60.0, description="from the request to the first event; off = no limit")
    idle: DurationOrOff = Field(default=60.0, description="between two events; off = no limit")
    total: DurationOrOff = Field(default=600.0, description="of the whole answer; off = no limit")


class Retry(Section):
    # One try unless it is asked for: clients (the OpenAI SDK among them) retry by themselves, and counts multiply.
    attempts: Positive = Field(default=1, description="tries in all, until backend content was passed on")
    backoff: Duration = Field(default=0.5, description="wait before the second try; doubled for each further one")
    max_backoff: Duration = Field(default=8.0, description="longest wait between two tries")


class Breaker(Section):
    failures: Positive = Field(default=5, description="failures in a row after which the backend is left alone")
    open_for: Duration = Field(default=30.0, description="for how long")


class Backend(Section):
    """Something that answers: a model, an agent, or the demo."""

    dialect: BackDialect = Field(
        description="what the backend speaks; also demo (embedded) and python (your generator)"
    )
    url: OptionalBackendUrl = Field(
        default=None, description="base URL; the dialect adds its own endpoint; host:port of a gRPC dialect"
    )
    api_key: OptionalSecret = Field(default=None, description="sent the way the dialect sends keys; empty = none")
    model: OptionalText = Field(default=None, description="model used when the client names none")
    model_map: dict[str, Text] = Field(
        default_factory=dict, description="the client's model name or glob -> the backend's; others go through"
    )
    headers: Headers = Field(default_factory=dict, description="headers sent always", repr=False)
    forward_headers: tuple[HeaderName, ...] = Field(default=(), description="client headers let through")
    fetch_urls: tuple[str, ...] = Field(default=(), description="hosts from which parts may be fetched as bytes")
    max_event: Size = Field(default=64 * 2**20, description="largest event of a stream, or answer in one piece")
    timeouts: Timeouts = Field(default_factory=Timeouts, description="how long to wait")
    retry: Retry = Field(default_factory=Retry, description="when and how often to try again")
    breaker: Annotated[Breaker | None, _OrOff] = Field(
        default=None, description="leave a failing backend alone", json_schema_extra=_or_off_word
    )
    target: Reference | None = Field(default=None, description='dialect python: "module:function" of the generator')
    options: _FreeOptions = Field(
        default_factory=Options, validate_default=True, description="what only this dialect knows"
    )

    @field_validator("options", mode="wrap")
    @classmethod
    def _of_the_dialect(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Options:
        return _options(value, back_options(info.data["dialect"]) if "dialect" in info.data else None)

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.dialect in BUILT_IN and self.url is not None:
            raise at(("url",), wrong(f"dialect {self.dialect} runs inside the bridge and takes no url"))
        if self.dialect not in BUILT_IN and self.url is None:
            raise at(("url",), wrong("missing; every dialect but demo and python needs one"))
        if self.dialect == PYTHON and self.target is None:
            raise at(("target",), wrong('missing; dialect python needs "module:function"'))
        if self.dialect != PYTHON and self.target is not None:
            raise at(("target",), wrong("only dialect python takes a target"))
        return self

    @property
    def is_demo(self) -> bool:
        return self.dialect == DEMO


def _options(value: Any, model: type[Options] | None) -> Options:
    """Options as the dialect's own model; its errors keep their places below `options`."""
    if model is None:
        return Options()  # The dialect is unknown, which is an error already.
    given = value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value
    return model.model_validate(given)


# ------------------------------------------------------------------------------ routes


class Route(Section):
    """What one frontend finds at one path. Exactly one of `backend` and `models` is set."""

    dialect: FrontDialect = Field(description="what the frontend speaks")
    path: MountPath | None = Field(default=None, description="where the dialect is mounted; its endpoints lie below")
    backend: BackendChoice | None = Field(
        default=None, description="name of the backend that answers; or one for each mode of the dialect"
    )
    models: dict[str, BackendName] | None = Field(
        default=None, min_length=1, description="or the request's model, a name or a glob -> backend"
    )
    stages: tuple[Reference, ...] = Field(default=(), description='own stages, "module:function", after the built-in')
    durable: bool = Field(default=False, description="events go to the run store first: resumable, cancellable")
    passthrough: bool = Field(default=False, description="same dialect on both sides: payloads byte-equal")
    listen: Address | None = Field(default=None, description="address of a gRPC dialect, host:port, instead of path")
    agent_id: Text | None = Field(default=None, description="id of the agent on a gRPC route")
    options: _FreeOptions = Field(
        default_factory=Options, validate_default=True, description="what only this dialect knows"
    )

    @field_validator("options", mode="wrap")
    @classmethod
    def _of_the_dialect(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Options:
        return _options(value, front_options(info.data["dialect"]) if "dialect" in info.data else None)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.backend is None) == (self.models is None):
            came = "neither" if self.backend is None else "both"
            raise wrong(f"expected exactly one of backend and models, got {came}")
        return self

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        found = dialect_of(self.dialect)
        grpc = found is not None and found.over_grpc
        needed, foreign = (("listen", "agent_id"), ("path",)) if grpc else (("path",), ("listen", "agent_id"))
        for key in needed:
            if getattr(self, key) is None:
                raise at((key,), wrong("missing; this key is required"))
        for key in foreign:
            if getattr(self, key) is not None:
                raise at((key,), wrong(f"a route of {self.dialect} is reached by {' and '.join(needed)} instead"))
        for key in ("passthrough", "durable"):
            if grpc and getattr(self, key):
                raise at((key,), wrong(f"a route of {self.dialect} has none; its sessions are its own"))
        return self

    @property
    def mount(self) -> str:
        """What names the route: its path, or its agent at its address."""
        return self.path or f"grpc://{self.listen}/{self.agent_id}"

    @property
    def backends(self) -> tuple[str, ...]:
        """The names of all backends that this route may use, in order of writing, each once."""
        if isinstance(self.backend, str):
            return (self.backend,)
        return tuple(dict.fromkeys((self.backend or self.models or {}).values()))

    def by_mode(self, modes: tuple[str, ...]) -> dict[str, str]:
        """Mode -> backend, empty where one serves all. A mode that is not written has the backend of the first."""
        if not isinstance(self.backend, dict):
            return {}
        first = next(name for mode in modes if (name := self.backend.get(mode)))
        return {mode: self.backend.get(mode, first) for mode in modes}

    def endpoints(self) -> list[tuple[str, Endpoint]]:
        """The HTTP endpoints of the dialect, each with its full path; none of one over gRPC."""
        if self.path is None:
            return []
        mount = "" if self.path == "/" else self.path
        surface = served(registry.get(self.dialect).surface, self.durable)
        return [(mount + endpoint.path or "/", endpoint) for endpoint in surface]


# ------------------------------------------------------------------------------ the rest


class Retention(Section):
    events: Duration = Field(default=_DAY, description="how long the events of runs are kept")
    history: Duration = Field(default=90 * _DAY, description="how long threads and messages are kept")


def _a_second(value: float) -> float:
    """Shorter ones would take a busy process for a dead one."""
    if value < 1:
        raise expected("at least 1s")
    return value


class Stores(Section):
    history: Annotated[HistoryUrl | None, BeforeValidator(off_is_none)] = Field(
        default="sqlite:///data/bridge.db",
        description="conversations that the two sides need kept, and stored answers: sqlite or postgresql; off = none",
        json_schema_extra=_or_off_word,
        repr=False,
    )
    runs: RunsUrl = Field(
        default="sqlite:///data/bridge.db", description="events, queue, cancels, leases: sqlite or redis", repr=False
    )
    attachments: AttachmentsUrl = Field(
        default="file:///data/attachments", description="uploaded files: file or s3", repr=False
    )
    lease: Annotated[Duration, AfterValidator(_a_second)] = Field(
        default=10.0,
        description="silence after which a process counts as dead: its runs end, its turns go to others; at least 1s",
    )
    retention: Retention = Field(default_factory=Retention, description="how long things are kept")


class Speech(Section):
    url: Url = Field(description="base URL of an OpenAI-compatible service with /audio/transcriptions")
    api_key: OptionalSecret = Field(default=None, description="its key; empty = none")
    model: Text = Field(default="whisper-1", description="model that transcribes")


class Config(Section):
    """The whole configuration of one bridge."""

    server: Server = Field(default_factory=Server, description="how and for whom to serve")
    backends: dict[str, Backend] = Field(description="name -> something that answers")
    routes: tuple[Route, ...] = Field(min_length=1, description="what frontends find, and where")
    stores: Stores = Field(default_factory=Stores, description="where state is kept")
    speech: Speech | None = Field(default=None, description="speech to text; absent = not offered")

    _notices: tuple[str, ...] = PrivateAttr(default=())

    @property
    def notices(self) -> list[str]:
        """A sentence for each key that was given, is well formed, and is not used by this version."""
        return list(self._notices)

    def describe(self) -> list[str]:
        """The route table, a line for each endpoint: method, path, dialect, and the backends behind it."""
        rows = []
        for route in self.routes:
            ways = ", ".join(f"{name} ({self.backends[name].dialect})" for name in route.backends)
            for path, endpoint in route.endpoints():
                rows.append(f"{endpoint.method:<6} {path}  {route.dialect} -> {ways}")
            if route.path is None:
                rows.append(f"{'gRPC':<6} {route.listen} {route.agent_id}  {route.dialect} -> {ways}")
        return rows
