"""The section `server`: addresses, limits, authentication, observability."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    BeforeValidator,
    Field,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from bridge.contract import Scope
from bridge.engine.config.kinds import (
    PUBLIC_ALGORITHMS,
    Algorithm,
    BareHost,
    Digest,
    HeaderName,
    HostName,
    MountPath,
    OperationWord,
    OptionalSecret,
    OptionalText,
    OptionalUrl,
    Origin,
    Peer,
    Port,
    Positive,
    Secret,
    Text,
    TimeZone,
    Url,
    Whole,
    host_name,
    is_loopback,
)
from bridge.engine.config.problems import at, expected, wrong
from bridge.engine.config.schema.base import Concurrency, OrOff, Section, or_none_word, or_off_word
from bridge.engine.config.units import Duration, DurationOrOff, Moment, Size, is_off

HttpClient = Literal["aiohttp", "httptools"]


class Cors(Section):
    # Open by default: browsers are the usual clients of AgentScope, AG-Kit and AG-UI, whose own servers are open, too.
    # Stored data are only for listed origins.
    origins: tuple[Origin, ...] = Field(
        default=("*",),
        description='origins whose pages may send requests; with "*" any page may, but none may read stored data '
        "(histories, stored runs and responses, files, metrics)",
    )


def _off_is_empty(value: Any) -> Any:
    return {"origins": ()} if is_off(value) else value


class Quota(Section):
    """What one key may use. Counted over all processes if `stores.runs` is in PostgreSQL."""

    requests_per_minute: Positive | None = Field(
        default=None,
        description="requests of one key in a minute; counted over all processes if stores.runs is in PostgreSQL",
    )
    requests_per_day: Positive | None = Field(
        default=None, description="requests of one key in a day (UTC), counted likewise"
    )
    tokens_per_day: Positive | None = Field(
        default=None,
        description="input and output tokens of one key in a day (UTC), counted likewise when a run ends; the run that "
        "reaches the limit is not cut",
    )


class PerKey(Quota):
    concurrent: Positive | None = Field(
        default=None,
        description="concurrent requests and stored runs of one key, over all processes that share the database of "
        "stores.runs",
    )
    queue: Whole = Field(
        default=0,
        description="queued requests of one key in each process, and as many queued stored runs; further ones are "
        "refused",
    )


class Limits(Concurrency):
    concurrent: Positive = Field(
        default=1000, description="concurrent requests and stored runs, in all workers together"
    )
    answer: OrOff[Size] = Field(
        default=64 * 2**20,
        description="maximum size of one answer in bytes as the backend sends it; a longer one ends with an error",
    )
    bodies: OrOff[Size] = Field(
        default=256 * 2**20,
        description="total size of request bodies being read, of WebSocket messages that arrive or wait, and of what "
        "requests load (conversations, stored responses and runs, files, media from URLs; each counts twice until its "
        "request ends), in each worker; the first 64 KiB of each do not count; further ones are refused",
    )
    sockets: Positive = Field(
        default=100, description="open WebSocket connections, in each worker; further ones are refused"
    )
    socket_idle: Duration = Field(default=600.0, description="idle time after which a WebSocket connection is closed")
    per_key: OrOff[PerKey] = Field(default=None, description="limits of each key or user")


class Allowed(Section):
    """The permissions of a key, or of a scope of a token."""

    routes: tuple[str, ...] = Field(
        default=("*",), min_length=1, description='mount paths of the routes that the key opens; "*" = all'
    )
    operations: tuple[OperationWord, ...] = Field(
        default=("*",), min_length=1, description=f'what may be done there: {", ".join(Scope)}; "*" is all'
    )

    @field_validator("routes")
    @classmethod
    def _same_spelling(cls, routes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(route.removesuffix("/") or route for route in routes)

    @property
    def scopes(self) -> frozenset[Scope]:
        """The operations as scopes."""
        return frozenset(Scope if "*" in self.operations else map(Scope, self.operations))


class Client(Allowed):
    """A key's user, its permissions, and its validity."""

    name: Text = Field(description="user who owns the data created with this key")
    not_before: Moment | None = Field(default=None, description="date or time from which the key is valid")
    expires: Moment | None = Field(default=None, description="date or time at which the key expires")
    limits: Quota | None = Field(default=None, description="limits of this key, in place of those of per_key")
    models: tuple[Text, ...] | None = Field(
        default=None, min_length=1, description="names or patterns of the models that it may name; absent = all"
    )


class ApiKey(Client):
    """One client. Exactly one of `key` and `key_sha256` is set."""

    key: Secret | None = Field(default=None, description="the key as clients send it")
    key_sha256: Digest | None = Field(
        default=None, description="in place of key: its SHA-256, in hexadecimal", repr=False
    )

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


class Jwt(Section):
    """Signed tokens. Exactly one of `jwks_url` and `secret` is set."""

    jwks_url: OptionalUrl = Field(default=None, description="URL of the issuer's public keys (JWKS)")
    secret: OptionalSecret = Field(default=None, description="in place of jwks_url: the shared secret of HS256")
    algorithms: tuple[Algorithm, ...] | None = Field(
        default=None,
        min_length=1,
        description="accepted algorithms; absent = HS256 with a secret, else RS, PS, ES of any size and EdDSA",
    )
    audience: OptionalText = Field(
        default=None, description="required audience of a token; absent = the token must have none"
    )
    issuer: OptionalText = Field(default=None, description="required issuer of a token; absent = any")
    user_claim: Text = Field(default="sub", description="the claim that names the user")
    leeway: Duration = Field(default=30.0, description="tolerated clock difference")
    require_exp: bool = Field(default=True, description="reject tokens without `exp`, which would never expire")
    scope_claim: OptionalText = Field(
        default=None,
        description="claim with the scopes of a token, a list or words separated by spaces; absent = tokens allow"
        " everything",
    )
    scopes: dict[str, Allowed] | None = Field(
        default=None,
        description="what each scope of scope_claim allows; absent = scopes are names of operations, on all routes",
    )

    @model_validator(mode="after")
    def _one_kind_of_key(self) -> Self:
        if (self.jwks_url is None) == (self.secret is None):
            came = "neither" if self.secret is None else "both"
            raise wrong(f"expected exactly one of jwks_url and secret, got {came}")
        # If a public key were used as a shared secret, anyone could sign tokens.
        shared = self.secret is not None
        if misfits := [name for name in self.accepted if name.startswith("HS") != shared]:
            what = "a secret checks HS256, HS384 and HS512 only" if shared else "public keys cannot check these"
            raise at(("algorithms",), wrong(f"{what}, not {', '.join(misfits)}"))
        return self

    @model_validator(mode="after")
    def _scopes_of_a_claim(self) -> Self:
        if self.scopes is not None and self.scope_claim is None:
            raise at(("scope_claim",), wrong("missing; scopes needs the claim that names them"))
        for word, allowed in (self.scopes or {}).items():
            if Scope.METRICS in allowed.operations:
                raise at(("scopes", word, "operations"), wrong("tokens cannot give access to the metrics"))
        return self

    @property
    def accepted(self) -> tuple[str, ...]:
        """The accepted algorithms."""
        if self.algorithms is not None:
            return self.algorithms
        return ("HS256",) if self.secret is not None else PUBLIC_ALGORITHMS


class Auth(Section):
    """Authentication. Without any method anyone may call, which only `auth: none` can express."""

    keys: tuple[ApiKey, ...] | None = Field(default=None, description="API keys of clients")
    jwt: OrOff[Jwt] = Field(default=None, description="signed tokens")
    trusted_header: HeaderName | None = Field(default=None, description="header with the user's name, set by a proxy")
    trusted_proxies: tuple[Peer, ...] = Field(
        default=(),
        description="addresses or networks of the proxies that may set trusted_header; `unix` = connections without "
        "an address, as over a unix socket",
    )

    @model_validator(mode="after")
    def _some_method(self) -> Self:
        if self.is_none:
            # An empty list would lock everybody out or let everybody in; nobody can tell which was meant.
            raise wrong("names no keys; list them under keys, or write `auth: none` to serve anyone")
        if self.trusted_header is not None and not self.trusted_proxies:
            raise at(("trusted_proxies",), wrong("missing; without it any client could set trusted_header"))
        if self.trusted_proxies and self.trusted_header is None:
            raise at(("trusted_header",), wrong("missing; trusted_proxies needs it"))
        return self

    @property
    def is_none(self) -> bool:
        """True for `auth: none`."""
        return not self.keys and self.jwt is None and self.trusted_header is None


def _none_is_open(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    if value == "none":
        return Auth.model_construct()
    if value is not None and not isinstance(value, dict | Auth):
        raise expected("a mapping with keys, or the word none")
    return handler(value)


class Metrics(Section):
    path: MountPath = Field(default="/metrics", description="path of the metrics for Prometheus")
    public: bool = Field(default=False, description="true: no key is needed to read the metrics, even with auth")
    users: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="count runs and tokens by user and model, for at most so many pairs; all others count as 'other'",
    )


class Traces(Section):
    endpoint: Url = Field(description="base URL of an OTLP receiver over HTTP; /v1/traces is added")
    service: Text = Field(default="dialect-bridge", description="name of this service in traces")
    sample: Annotated[float, Field(ge=0, le=1)] = Field(
        default=1.0, description="share of requests without a trace context that are traced"
    )


class Health(Section):
    live: MountPath = Field(default="/healthz", description="liveness: 200 while the process runs")
    ready: MountPath = Field(default="/readyz", description="readiness: 200 while new requests are accepted")


class Server(Section):
    host: BareHost = Field(
        default="127.0.0.1",
        description="address to listen on; :: = all of IPv4 and IPv6, 0.0.0.0 = all of IPv4, localhost = both families",
    )
    port: Port = Field(default=8080, description="port to listen on; 0 = any free port")
    workers: Positive = Field(default=1, description="processes sharing the port")
    hosts: tuple[HostName, ...] | None = Field(
        default=None,
        min_length=1,
        description='host names that requests may use, without port; "*" = any; absent = any with auth; without it '
        "localhost, 127.0.0.1, [::1], host and the host of public_url, and if host is not loopback also IP addresses "
        "and names without a dot or below local, internal or localhost",
    )
    max_body: Size = Field(default=32 * 2**20, description="maximum size of a request body")
    http_client: HttpClient | None = Field(
        default=None,
        description="HTTP client that reads the answers of backends: httptools needs about two thirds of the CPU "
        "time for a token; absent = httptools in `dialect-bridge serve` if it is installed, else aiohttp",
    )
    drain: Duration = Field(default=30.0, description="time for open streams to finish after SIGTERM")
    cors: Annotated[Cors, BeforeValidator(_off_is_empty)] = Field(
        default_factory=Cors,
        description="rules for browsers of other origins (CORS); off = no cross-origin requests",
        json_schema_extra=or_off_word,
    )
    keepalive: DurationOrOff = Field(
        default=15.0,
        description="silence of a stream after which its client is sent a comment, or what else its dialect ignores "
        "(over gRPC a ping), also before the first content; off = never",
    )
    body_time: Duration = Field(
        default=30.0,
        description="time for a request body or WebSocket message to arrive, and for the first request of a connection",
    )
    slow_reader: DurationOrOff = Field(
        default=60.0,
        description="time that a write to a client may block before its connection is closed; off = no limit",
    )
    limits: Limits = Field(default_factory=Limits, description="concurrency limits of the server")
    auth: Annotated[Auth | None, WrapValidator(_none_is_open)] = Field(
        default=None,
        description="authentication of callers; absent = anyone may call, on loopback only; none = anyone may call",
        json_schema_extra=or_none_word,
    )
    public_url: OptionalUrl = Field(default=None, description="URL at which clients reach the bridge, for signed URLs")
    secret: OptionalSecret = Field(
        default=None, description="secret that signs URLs; empty = generated and stored beside the data"
    )
    time_zone: TimeZone = Field(default="UTC", description="time zone of the days and times in histories for people")
    page: bool | None = Field(
        default=None, description="serve the web page at /; absent = if anyone may call, or page_key is set"
    )
    page_key: OptionalSecret = Field(
        default=None,
        description="key that opens the page, and from it all routes, as the user `page`; absent = every caller "
        "may use the page",
    )
    metrics: OrOff[Metrics] = Field(default_factory=Metrics, description="metrics for Prometheus; off = none")
    traces: OrOff[Traces] = Field(default=None, description="traces for OpenTelemetry; absent = none")
    health: Health = Field(default_factory=Health, description="paths of the health checks")

    @property
    def is_local(self) -> bool:
        """True if no setting exposes the server to other machines."""
        host = urlsplit(self.public_url or "").hostname
        return host is None or is_loopback(host)

    @property
    def is_open(self) -> bool:
        """True if anyone may call: by `auth: none`, or on loopback without `auth`."""
        return self.auth is None or self.auth.is_none

    @property
    def known_hosts(self) -> frozenset[str] | None:
        """The host names that requests may use; None for any. Where anyone may call, addresses are known, too."""
        if self.hosts is not None:
            return None if "*" in self.hosts else frozenset(self.hosts)
        if not self.is_open:
            return None
        public = urlsplit(self.public_url or "").hostname
        names = ("localhost", "127.0.0.1", "[::1]", host_name(self.host), host_name(public or "localhost"))
        return frozenset(names)

    @property
    def has_page(self) -> bool:
        """True if the page is served."""
        return self.page if self.page is not None else self.is_open or self.page_key is not None
