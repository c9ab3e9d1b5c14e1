"""The section `backends`: models and agents, and how they are called."""

from __future__ import annotations

import shlex
from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, ValidatorFunctionWrapHandler, field_validator, model_validator

from bridge.contract import AgentDialect, Options
from bridge.engine.config.kinds import (
    BUILT_IN,
    DEMO,
    PYTHON,
    BackDialect,
    EnvironmentName,
    HeaderName,
    Headers,
    OptionalBackendUrl,
    OptionalProxy,
    OptionalSecret,
    OptionalText,
    Positive,
    Reference,
    Text,
    back_options,
    dialect_of,
    not_in_metadata,
)
from bridge.engine.config.problems import at, wrong
from bridge.engine.config.schema.base import FreeOptions, OrOff, Section, dialect_options, or_cloud_word
from bridge.engine.config.units import Duration, DurationOrOff, Size


class TimeoutsSection(Section):
    """Timeouts in seconds; None = no limit."""

    connect: DurationOrOff = Field(
        default=5.0,
        description="to establish a connection; off = no limit"
        ". For: backends far away, or a fallback that must come quickly",
    )
    first_event: DurationOrOff = Field(
        default=300.0,
        description="silence before the first content of a stream, from the last bytes that arrived; off = no limit"
        ". For: models that are loaded first, or a fallback that must come quickly",
    )
    idle: DurationOrOff = Field(
        default=300.0,
        description="silence after the first content of a stream, in the same way; off = no limit"
        ". For: agents that are silent for long",
    )
    total: DurationOrOff = Field(
        default=1800.0,
        description="for the whole answer; the only limit of one that is not streamed; off = no limit"
        ". For: long runs, or whole answers of slow models",
    )


class RetrySection(Section):
    # One attempt by default: clients such as the OpenAI SDK retry themselves, and the numbers would multiply.
    attempts: Positive = Field(
        default=1,
        description="maximum number of attempts; none after content was passed on"
        ". For: clients that do not retry by themselves",
    )
    backoff: Duration = Field(
        default=0.5,
        description="delay before the second attempt; doubled for each further one"
        ". For: backends that need longer to recover",
    )
    max_backoff: Duration = Field(
        default=8.0,
        description="maximum delay between attempts, including delays that the backend requests"
        ". For: backends whose Retry-After is longer",
    )
    budget: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.2,
        description="share of requests that may be retried in the long run; 1 = all"
        ". For: few requests, of which each must succeed",
    )


class BreakerSection(Section):
    failures: Positive = Field(
        default=5,
        description="consecutive failures after which the breaker opens. For: backends that fail for a moment only",
    )
    open_for: Duration = Field(
        default=30.0, description="time for which it stays open. For: backends that need longer to start"
    )


class GcpAuthSection(Section):
    scope: Text = Field(
        default="https://www.googleapis.com/auth/cloud-platform",
        description="scope of the tokens. For: service accounts that get a narrower one",
    )


class AzureAuthSection(Section):
    scope: Text = Field(
        default="https://cognitiveservices.azure.com/.default",
        description="scope of the tokens. For: Azure Government and other national clouds",
    )


class AwsAuthSection(Section):
    service: OptionalText = Field(
        default=None,
        description="name of the service in signatures; absent = bedrock-mantle where the host of the url begins so, "
        "else bedrock"
        ". For: a proxy in front of Bedrock",
    )
    region: OptionalText = Field(
        default=None,
        description="region in signatures; absent = that of the url, or of the environment"
        ". For: an address that does not name it",
    )


class BackendAuthSection(Section):
    """Credentials that expire. Exactly one of `command`, `gcp`, `azure` and `aws` is set; `auth: gcp` is short for
    `auth: {gcp: {}}`.
    """

    command: tuple[Text, ...] = Field(
        default=(),
        description="program with arguments that prints a token, alone or as JSON with its expiry"
        ". For: vaults and identity providers with a command of their own",
        repr=False,
    )
    timeout: Duration = Field(
        default=30.0, description="maximum duration of the command. For: commands that ask over a slow network"
    )
    lifetime: Duration = Field(
        default=600.0,
        description="use of a token that does not say when it expires. For: tokens whose expiry is not printed",
    )
    header: HeaderName = Field(
        default="authorization",
        description="header of the token; in authorization it follows the word Bearer"
        ". For: gateways that want it elsewhere, such as x-api-key",
    )
    gcp: GcpAuthSection | None = Field(
        default=None, description="tokens of Google's default credentials (extra gcp). For: Vertex AI"
    )
    azure: AzureAuthSection | None = Field(
        default=None, description="tokens of Azure's default credentials (extra azure). For: Azure OpenAI with Entra ID"
    )
    aws: AwsAuthSection | None = Field(
        default=None, description="signatures with AWS's default credentials (extra aws). For: Amazon Bedrock"
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: Any) -> Any:
        if isinstance(data, str) and data in ("gcp", "azure", "aws"):
            return {data: {}}
        if isinstance(data, dict) and isinstance(data.get("command"), str):
            return {**data, "command": shlex.split(data["command"])}
        return data

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(map(bool, (self.command, self.gcp is not None, self.azure is not None, self.aws is not None))) != 1:
            raise wrong("expected exactly one of command, gcp, azure and aws")
        return self


class BackendSection(Section):
    """A model, an agent, or the demo."""

    dialect: BackDialect = Field(
        description="dialect of the backend; also demo (built in) and python (your generator). For: every backend"
    )
    url: OptionalBackendUrl = Field(
        default=None,
        description="base URL; the dialect adds its own endpoint; host:port of a gRPC dialect"
        ". For: every backend that is another server",
    )
    command: OptionalText = Field(
        default=None,
        description="program of an agent that the bridge starts, in place of a url"
        ". For: ACP agents such as Claude Code, Gemini CLI and Codex",
    )
    args: tuple[str, ...] = Field(
        default=(), description="arguments of the program. For: ACP agents whose command needs some", repr=False
    )
    cwd: OptionalText = Field(
        default=None,
        description="folder in which an agent works; relative to this file, {owner} = a folder for each owner"
        ". For: every ACP agent",
    )
    env: dict[EnvironmentName, str] = Field(
        default_factory=dict,
        description="environment of the program, beside PATH, HOME, LANG, TERM and USER"
        ". For: keys and settings of an ACP agent",
        repr=False,
    )
    api_key: OptionalSecret = Field(
        default=None, description="key of the backend, sent as its dialect requires; empty = none. For: most models"
    )
    auth: BackendAuthSection | None = Field(
        default=None,
        description="credentials that expire, in place of api_key"
        ". For: Vertex AI, Azure, Bedrock, and tokens from a vault",
        json_schema_extra=or_cloud_word,
    )
    model: OptionalText = Field(
        default=None,
        description="model used when the client names none"
        ". For: clients that name no model, or whose names are no model's",
    )
    model_map: dict[str, Text] = Field(
        default_factory=dict,
        description="client's model name or glob -> backend's model name; other names are unchanged"
        ". For: clients with fixed names of models, such as Claude Code",
    )
    proxy: OptionalProxy = Field(
        default=None,
        description="URL of the HTTP proxy through which the backend is called, with user name and password if needed, "
        "or none; absent = HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY of the environment"
        ". For: networks that reach this backend through a proxy only",
    )
    headers: Headers = Field(
        default_factory=dict,
        description="headers of every request; over gRPC as metadata"
        ". For: gateways that want a team, a project or a version",
        repr=False,
    )
    forward_headers: tuple[HeaderName, ...] = Field(
        default=(),
        description="client headers that are forwarded. For: backends that know the client's own key or tenant",
    )
    fetch_urls: tuple[Text, ...] = Field(
        default=(),
        description="hosts (name, *.name, name:port) from which media are fetched if the backend accepts inline "
        "data only"
        ". For: clients that send URLs, towards models that take bytes only",
    )
    max_event: Size = Field(
        default=64 * 2**20,
        description="maximum size of an event of a stream, or of an answer that is not streamed"
        ". For: backends that send large pictures in one event, or small containers",
    )
    timeouts: TimeoutsSection = Field(
        default_factory=TimeoutsSection,
        description="timeouts of a call. For: models and agents that are slower, or must be faster",
    )
    retry: RetrySection = Field(
        default_factory=RetrySection,
        description="retries of a failed call. For: clients that do not retry by themselves",
    )
    breaker: OrOff[BreakerSection] = Field(
        default=None,
        description="circuit breaker for a failing backend"
        ". For: fallbacks, so that a dead backend is not asked each time",
    )
    target: Reference | None = Field(
        default=None, description='dialect python: "module:function" of the generator. For: every Python agent'
    )
    options: FreeOptions = Field(
        default_factory=Options,
        validate_default=True,
        description="options of the dialect. For: servers that need another form; each option names them",
    )

    @field_validator("options", mode="wrap")
    @classmethod
    def _of_the_dialect(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Options:
        return dialect_options(value, back_options(info.data["dialect"]) if "dialect" in info.data else None)

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.dialect in BUILT_IN and self.url is not None:
            raise at(("url",), wrong(f"dialect {self.dialect} runs inside the bridge and takes no url"))
        if self.dialect in BUILT_IN and self.fetch_urls:
            raise at(("fetch_urls",), wrong(f"dialect {self.dialect} takes media by URL"))
        dialect = dialect_of(self.dialect)
        if self.proxy is not None and (self.dialect in BUILT_IN or (dialect is not None and dialect.over_grpc)):
            raise at(("proxy",), wrong(f"dialect {self.dialect} is not called over HTTP and takes no proxy"))
        if self.auth is not None and (self.dialect in BUILT_IN or (dialect is not None and dialect.over_grpc)):
            raise at(("auth",), wrong(f"dialect {self.dialect} is not called over HTTP and takes none"))
        if self.auth is not None and self.api_key is not None:
            raise at(("auth",), wrong("expected either auth or api_key"))
        if isinstance(dialect, AgentDialect):
            self._check_agent()
            return self
        for key in ("command", "args", "cwd", "env"):
            if getattr(self, key):
                raise at((key,), wrong(f"dialect {self.dialect} starts no program"))
        if self.dialect not in BUILT_IN and self.url is None:
            raise at(("url",), wrong("missing or empty; every dialect but demo and python needs one"))
        if self.dialect == PYTHON and self.target is None:
            raise at(("target",), wrong('missing; dialect python needs "module:function"'))
        if self.dialect != PYTHON and self.target is not None:
            raise at(("target",), wrong("only dialect python takes a target"))
        return self

    def _check_agent(self) -> None:
        if (self.command is None) == (self.url is None):
            raise at(("command",), wrong("expected either the command of a program, or the url of a WebSocket"))
        if self.cwd is None:
            raise at(("cwd",), wrong("missing; an agent needs the folder in which it works"))
        unused = ("args", "env") if self.command is None else ("api_key", "headers", "proxy")
        for key in (*unused, "auth", "target", "forward_headers"):
            if getattr(self, key):
                has = "env" if key == "api_key" else ""
                advice = f"; write its key under {has}" if has else ""
                raise at((key,), wrong(f"{'a program' if self.command else 'an agent at a url'} takes none{advice}"))

    @model_validator(mode="after")
    def _metadata(self) -> Self:
        found = dialect_of(self.dialect)
        if found is None or not found.over_grpc:
            return self
        for name, text in self.headers.items():
            if (reason := not_in_metadata(name, text)) is not None:
                raise at(("headers", name), wrong(reason), text)
        for index, name in enumerate(self.forward_headers):
            if (reason := not_in_metadata(name)) is not None:
                raise at(("forward_headers", index), wrong(reason), name)
        if self.api_key is not None and not_in_metadata("authorization", self.api_key.get_secret_value()):
            raise at(("api_key",), wrong("gRPC allows printable ASCII characters only"))
        return self

    @property
    def is_demo(self) -> bool:
        return self.dialect == DEMO
