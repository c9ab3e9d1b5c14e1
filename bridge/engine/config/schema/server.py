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
from bridge.engine.config.schema.base import ConcurrencySection, OrOff, Section, or_none_word, or_off_word
from bridge.engine.config.units import Duration, DurationOrOff, Moment, Size, is_off

HttpClient = Literal["aiohttp", "httptools"]


class CorsSection(Section):
    # Open by default: browsers are the usual clients of AgentScope, AG-Kit and AG-UI, whose own servers are open, too.
    # Stored data are only for listed origins.
    origins: tuple[Origin, ...] = Field(
        default=("*",),
        description='origins whose pages may send requests; with "*" any page may, but none may read stored data '
        "(histories, stored runs and responses, files, metrics)"
        ". For: web pages of your own at another address, and everyone with stored data",
    )


def _off_is_empty(value: Any) -> Any:
    return {"origins": ()} if is_off(value) else value


class QuotaSection(Section):
    """What one key may use. Counted over all processes if `stores.runs` is in PostgreSQL."""

    requests_per_minute: Positive | None = Field(
        default=None,
        description="requests of one key in a minute; counted over all processes if stores.runs is in PostgreSQL"
        ". For: clients that run wild",
    )
    requests_per_day: Positive | None = Field(
        default=None, description="requests of one key in a day (UTC), counted likewise. For: trial keys"
    )
    tokens_per_day: Positive | None = Field(
        default=None,
        description="input and output tokens of one key in a day (UTC), counted likewise when a run ends; the run that "
        "reaches the limit is not cut"
        ". For: budgets of teams",
    )


class PerKeySection(QuotaSection):
    concurrent: Positive | None = Field(
        default=None,
        description="concurrent requests and stored runs of one key, over all processes that share the database of "
        "stores.runs"
        ". For: one client that would take all places of a shared server",
    )
    queue: Whole = Field(
        default=0,
        description="queued requests of one key in each process, and as many queued stored runs; further ones are "
        "refused"
        ". For: batch clients that rather wait than repeat",
    )


class LimitsSection(ConcurrencySection):
    concurrent: Positive = Field(
        default=1000,
        description="concurrent requests and stored runs, in all workers together"
        ". For: small machines and backends, or large ones",
    )
    answer: OrOff[Size] = Field(
        default=64 * 2**20,
        description="maximum size of one answer in bytes as the backend sends it; a longer one ends with an error"
        ". For: backends that answer with large files",
    )
    bodies: OrOff[Size] = Field(
        default=256 * 2**20,
        description="total size of request bodies being read, of WebSocket messages that arrive or wait, and of what "
        "requests load (conversations, stored responses and runs, files, media from URLs; each counts twice until its "
        "request ends), in each worker; the first 64 KiB of each do not count; further ones are refused"
        ". For: small containers, or many large uploads at a time",
    )
    sockets: Positive = Field(
        default=100,
        description="open WebSocket connections, in each worker; further ones are refused"
        ". For: many Codex clients over WebSocket",
    )
    socket_idle: Duration = Field(
        default=600.0,
        description="idle time after which a WebSocket connection is closed"
        ". For: proxies that close idle connections sooner, or clients that pause for longer",
    )
    per_key: OrOff[PerKeySection] = Field(
        default=None, description="limits of each key or user. For: servers that several teams share"
    )


class AllowedSection(Section):
    """The permissions of a key, or of a scope of a token."""

    routes: tuple[str, ...] = Field(
        default=("*",),
        min_length=1,
        description='mount paths of the routes that the key opens; "*" = all. For: keys for one application',
    )
    operations: tuple[OperationWord, ...] = Field(
        default=("*",),
        min_length=1,
        description=f'what may be done there: {", ".join(Scope)}; "*" is all'
        ". For: keys for monitoring, or for clients that may run but not read",
    )

    @field_validator("routes")
    @classmethod
    def _same_spelling(cls, routes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(route.removesuffix("/") or route for route in routes)

    @property
    def scopes(self) -> frozenset[Scope]:
        """The operations as scopes."""
        return frozenset(Scope if "*" in self.operations else map(Scope, self.operations))


class ClientSection(AllowedSection):
    """A key's user, its permissions, and its validity."""

    name: Text = Field(description="user who owns the data created with this key. For: every key")
    not_before: Moment | None = Field(
        default=None,
        description="date or time from which the key is valid"
        ". For: keys that are handed out before the day of a rotation",
    )
    expires: Moment | None = Field(
        default=None,
        description="date or time at which the key expires. For: trials, contractors, and the old key of a rotation",
    )
    limits: QuotaSection | None = Field(
        default=None,
        description="limits of this key, in place of those of per_key. For: a client with a contract of its own",
    )
    models: tuple[Text, ...] | None = Field(
        default=None,
        min_length=1,
        description="names or patterns of the models that it may name; absent = all. For: keys for cheap models only",
    )


class ApiKeySection(ClientSection):
    """One client. Exactly one of `key` and `key_sha256` is set."""

    key: Secret | None = Field(
        default=None, description="the key as clients send it. For: keys from a variable or a secret file"
    )
    key_sha256: Digest | None = Field(
        default=None,
        description="in place of key: its SHA-256, in hexadecimal. For: files that are in version control",
        repr=False,
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


class JwtSection(Section):
    """Signed tokens. Exactly one of `jwks_url` and `secret` is set."""

    jwks_url: OptionalUrl = Field(
        default=None,
        description="URL of the issuer's public keys (JWKS)"
        ". For: identity providers such as Keycloak, Entra ID and Auth0",
    )
    secret: OptionalSecret = Field(
        default=None,
        description="in place of jwks_url: the shared secret of HS256. For: an application that issues its own tokens",
    )
    algorithms: tuple[Algorithm, ...] | None = Field(
        default=None,
        min_length=1,
        description="accepted algorithms; absent = HS256 with a secret, else RS, PS, ES of any size and EdDSA"
        ". For: policies that allow only some",
    )
    audience: OptionalText = Field(
        default=None,
        description="required audience of a token; absent = the token must have none"
        ". For: providers that issue tokens for several services",
    )
    issuer: OptionalText = Field(
        default=None, description="required issuer of a token; absent = any. For: several realms with one set of keys"
    )
    user_claim: Text = Field(
        default="sub",
        description="the claim that names the user. For: providers that name users by another claim, such as email",
    )
    leeway: Duration = Field(default=30.0, description="tolerated clock difference. For: clocks that differ")
    require_exp: bool = Field(
        default=True,
        description="reject tokens without `exp`, which would never expire"
        ". For: issuers of service tokens without an expiry",
    )
    scope_claim: OptionalText = Field(
        default=None,
        description="claim with the scopes of a token, a list or words separated by spaces; absent = tokens allow"
        " everything"
        ". For: providers that grant scopes (scope, scp, roles)",
    )
    scopes: dict[str, AllowedSection] | None = Field(
        default=None,
        description="what each scope of scope_claim allows; absent = scopes are names of operations, on all routes"
        ". For: scopes with names of their own",
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


class AuthSection(Section):
    """Authentication. Without any method anyone may call, which only `auth: none` can express."""

    keys: tuple[ApiKeySection, ...] | None = Field(
        default=None, description="API keys of clients. For: applications and people with a key each"
    )
    jwt: OrOff[JwtSection] = Field(default=None, description="signed tokens. For: users of an identity provider")
    trusted_header: HeaderName | None = Field(
        default=None,
        description="header with the user's name, set by a proxy"
        ". For: a proxy that logs people in (oauth2-proxy, Authelia)",
    )
    trusted_proxies: tuple[Peer, ...] = Field(
        default=(),
        description="addresses or networks of the proxies that may set trusted_header; `unix` = connections without "
        "an address, as over a unix socket"
        ". For: every configuration with trusted_header",
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
        return AuthSection.model_construct()
    if value is not None and not isinstance(value, dict | AuthSection):
        raise expected("a mapping with keys, or the word none")
    return handler(value)


class MetricsSection(Section):
    path: MountPath = Field(
        default="/metrics", description="path of the metrics for Prometheus. For: platforms that scrape another path"
    )
    public: bool = Field(
        default=False,
        description="true: no key is needed to read the metrics, even with auth"
        ". For: a scraper without a key, in a closed network",
    )
    users: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="count runs and tokens by user and model, for at most so many pairs; all others count as 'other'"
        ". For: costs by team",
    )


class TracesSection(Section):
    endpoint: Url = Field(
        description="base URL of an OTLP receiver over HTTP; /v1/traces is added. For: OpenTelemetry collectors"
    )
    service: Text = Field(
        default="dialect-bridge",
        description="name of this service in traces. For: several bridges in one tracing system",
    )
    sample: Annotated[float, Field(ge=0, le=1)] = Field(
        default=1.0, description="share of requests without a trace context that are traced. For: many requests"
    )


class HealthSection(Section):
    live: MountPath = Field(
        default="/healthz", description="liveness: 200 while the process runs. For: platforms with fixed paths"
    )
    ready: MountPath = Field(
        default="/readyz", description="readiness: 200 while new requests are accepted. For: platforms with fixed paths"
    )


class ServerSection(Section):
    host: BareHost = Field(
        default="127.0.0.1",
        description="address to listen on; :: = all of IPv4 and IPv6, 0.0.0.0 = all of IPv4, localhost = both families"
        ". For: everyone who serves other machines",
    )
    port: Port = Field(
        default=8080, description="port to listen on; 0 = any free port. For: machines on which 8080 is taken"
    )
    workers: Positive = Field(default=1, description="processes sharing the port. For: more than one CPU core")
    hosts: tuple[HostName, ...] | None = Field(
        default=None,
        min_length=1,
        description='host names that requests may use, without port; "*" = any; absent = any with auth; without it '
        "localhost, 127.0.0.1, [::1], host and the host of public_url, and if host is not loopback also IP addresses "
        "and names without a dot or below local, internal or localhost"
        ". For: names in a local network, or a proxy that passes other ones on",
    )
    max_body: Size = Field(
        default=32 * 2**20,
        description="maximum size of a request body. For: clients that send videos, or public servers",
    )
    http_client: HttpClient | None = Field(
        default=None,
        description="HTTP client that reads the answers of backends: httptools needs about two thirds of the CPU "
        "time for a token; absent = httptools in `dialect-bridge serve` if it is installed, else aiohttp"
        ". For: comparisons, and programs that embed the bridge and have httptools",
    )
    drain: Duration = Field(
        default=30.0,
        description="time for open streams to finish after SIGTERM"
        ". For: answers that take minutes, and platforms that kill sooner",
    )
    cors: Annotated[CorsSection, BeforeValidator(_off_is_empty)] = Field(
        default_factory=CorsSection,
        description="rules for browsers of other origins (CORS); off = no cross-origin requests"
        ". For: servers that no page may call",
        json_schema_extra=or_off_word,
    )
    keepalive: DurationOrOff = Field(
        default=15.0,
        description="silence of a stream after which its client is sent a comment, or what else its dialect ignores "
        "(over gRPC a ping), also before the first content; off = never"
        ". For: proxies that close silent connections sooner",
    )
    body_time: Duration = Field(
        default=30.0,
        description="time for a request body or WebSocket message to arrive, and for the first request of a connection"
        ". For: uploads over slow connections, or stricter public servers",
    )
    slow_reader: DurationOrOff = Field(
        default=60.0,
        description="time that a write to a client may block before its connection is closed; off = no limit"
        ". For: clients on mobile networks that pause, or stricter public servers",
    )
    limits: LimitsSection = Field(
        default_factory=LimitsSection,
        description="concurrency limits of the server. For: small machines, and servers that several teams share",
    )
    auth: Annotated[AuthSection | None, WrapValidator(_none_is_open)] = Field(
        default=None,
        description="authentication of callers; absent = anyone may call, on loopback only; none = anyone may call"
        ". For: everyone who serves other machines",
        json_schema_extra=or_none_word,
    )
    public_url: OptionalUrl = Field(
        default=None,
        description="URL at which clients reach the bridge, for signed URLs"
        ". For: clients that fetch files, A2A clients and everything behind a proxy",
    )
    secret: OptionalSecret = Field(
        default=None,
        description="secret that signs URLs; empty = generated and stored beside the data"
        ". For: several machines, where one signs and another one checks",
    )
    time_zone: TimeZone = Field(
        default="UTC",
        description="time zone of the days and times in histories for people. For: people whose day is not that of UTC",
    )
    page: bool | None = Field(
        default=None,
        description="serve the web page at /; absent = if anyone may call, or page_key is set"
        ". For: servers with auth that show the page, or open ones without it",
    )
    page_key: OptionalSecret = Field(
        default=None,
        description="key that opens the page, and from it all routes, as the user `page`; absent = every caller "
        "may use the page"
        ". For: a page for people, beside keys for programs",
    )
    metrics: OrOff[MetricsSection] = Field(
        default_factory=MetricsSection,
        description="metrics for Prometheus; off = none. For: servers without a Prometheus",
    )
    traces: OrOff[TracesSection] = Field(
        default=None, description="traces for OpenTelemetry; absent = none. For: OpenTelemetry collectors"
    )
    health: HealthSection = Field(
        default_factory=HealthSection, description="paths of the health checks. For: platforms with fixed paths"
    )

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
