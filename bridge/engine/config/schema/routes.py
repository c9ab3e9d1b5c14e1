"""The section `routes`: the frontends, and the paths at which they are served."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, ValidationInfo, ValidatorFunctionWrapHandler, field_validator, model_validator

from bridge.contract import Endpoint, Framing, Options, ToolServerDialect, registry, served
from bridge.engine.config.kinds import (
    Address,
    BackendChoice,
    BackendGroup,
    BackendName,
    FrontDialect,
    MountPath,
    Names,
    Positive,
    Reference,
    Text,
    front_options,
    names_in,
)
from bridge.engine.config.problems import at, expected, wrong
from bridge.engine.config.schema.base import ConcurrencySection, FreeOptions, OrOff, Section, dialect_options


class RouteToolSection(Section):
    """A tool that the clients of a route may call."""

    backend: BackendGroup = Field(
        description="backend that answers, or a list of backends. For: each tool of an MCP route with several"
    )
    title: str = Field(default="", description="title of the tool for people. For: clients that show titles of tools")
    description: str = Field(
        default="", description="what the tool is for; a model chooses by it. For: every tool, as models choose by it"
    )


_host: TypeAdapter[str] = TypeAdapter(BackendName)
_offered: TypeAdapter[dict[str, RouteToolSection]] = TypeAdapter(
    Annotated[dict[str, RouteToolSection], Field(min_length=1)]
)


class RouteSection(Section):
    """One frontend at one path. Exactly one of `backend`, `models`, and `tools` as a mapping is set."""

    dialect: FrontDialect = Field(description="dialect of the frontend. For: every route")
    path: MountPath | None = Field(
        default=None, description="mount path; the dialect's endpoints are below it. For: every route over HTTP"
    )
    backend: BackendChoice | None = Field(
        default=None,
        description="name of the backend that answers; a list in order, each the fallback of the one before; "
        "`[{name, weight}, ...]` to share the load; or one of these for each mode of the dialect"
        ". For: most routes",
    )
    models: dict[str, BackendGroup] | None = Field(
        default=None,
        min_length=1,
        description="in place of backend: model name or glob of the request -> backend, or a list of backends"
        ". For: clients that choose among several models",
    )
    stages: tuple[Reference, ...] = Field(
        default=(),
        description='your own stages, "module:function"; they run after the built-in ones'
        ". For: checks, filters and logs of your own",
    )
    estimate_usage: bool = Field(
        default=False,
        description="estimate the tokens of runs whose backend reported none; the estimate is marked"
        ". For: bills and limits where a backend counts no tokens",
    )
    durable: bool = Field(
        default=False,
        description="store events before they are sent: clients can resume and cancel runs"
        ". For: clients that lose their connection, and long runs",
    )
    passthrough: bool = Field(
        default=False,
        description="same dialect on both sides: send payloads byte for byte"
        ". For: fields and bytes that no translation may change",
    )
    tools: BackendName | dict[str, RouteToolSection] | None = Field(
        default=None,
        description="backend whose registered tools the bridge offers to the model and runs; or, in place of backend, "
        "where the clients of the dialect call tools: name of each tool -> `{backend, title, description}`"
        ". For: agents whose tools are registered at an AIP gateway; MCP clients",
    )
    extras: BackendName | None = Field(
        default=None,
        description="OpenAI-compatible backend to which requests for embeddings, audio, images, completions, "
        "moderations and reranking are forwarded unchanged"
        ". For: applications that use embeddings, audio or images at the same address",
    )
    max_tool_rounds: Positive = Field(
        default=8,
        description="maximum number of tool rounds in one run. For: tasks with many steps, or a limit of costs",
    )
    listen: Address | None = Field(
        default=None, description="address of a gRPC dialect, host:port, instead of path. For: every gRPC route"
    )
    agent_id: Text | None = Field(default=None, description="id of the agent on a gRPC route. For: every gRPC route")
    limits: OrOff[ConcurrencySection] = Field(
        default=None,
        description="concurrency limits of this route. For: a backend that bears fewer requests than the server",
    )
    mid_stream_fallback: OrOff[Literal["repeat", "continue"]] = Field(
        default=None,
        description="if a backend fails in the middle of its text: repeat = send the request to the next backend,"
        " whose text must begin with what the client has; continue = ask the next backend to continue"
        " that text; off = the failure is an error"
        ". For: long answers of backends that break off",
    )
    options: FreeOptions = Field(
        default_factory=Options,
        validate_default=True,
        description="options of the dialect. For: clients that need another form; each option names them",
    )

    @field_validator("options", mode="wrap")
    @classmethod
    def _of_the_dialect(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Options:
        return dialect_options(value, front_options(info.data["dialect"]) if "dialect" in info.data else None)

    @field_validator("extras", mode="before")
    @classmethod
    def _name_of_extras(cls, value: Any) -> Any:
        """`{backend: NAME}` is another way to write the name."""
        return value["backend"] if isinstance(value, dict) and value.keys() == {"backend"} else value

    @field_validator("tools", mode="wrap")
    @classmethod
    def _host_or_offered(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        """One of the two only, so that an error is about what was meant."""
        if isinstance(value, dict):
            return _offered.validate_python(value, context=info.context)
        if isinstance(value, str):
            return _host.validate_python(value, context=info.context)
        raise expected("the name of a backend, or a mapping of names of tools to {backend, title, description}")

    @model_validator(mode="after")
    def _backend_or_models(self) -> Self:
        calls_tools = isinstance(registry.get(self.dialect), ToolServerDialect)
        if self.offered and not calls_tools:
            raise at(("tools",), wrong(f"expected the name of a backend: clients of {self.dialect} call no tools"))
        if calls_tools and isinstance(self.backend, dict):
            text = "expected the name of a backend, or a list; several tools are tools: {NAME: {backend: ...}, ...}"
            raise at(("backend",), wrong(text))
        choices = {"backend": self.backend, "models": self.models, "tools": self.offered}
        came = [key for key, value in choices.items() if value]
        if len(came) != 1:
            known = "backend, models and tools" if calls_tools else "backend and models"
            raise wrong(f"expected exactly one of {known}, got {' and '.join(came) or 'neither'}")
        return self

    @model_validator(mode="after")
    def _path_or_address(self) -> Self:
        dialect = registry.get(self.dialect)
        grpc = dialect.over_grpc
        needed, foreign = (("listen", "agent_id"), ("path",)) if grpc else (("path",), ("listen", "agent_id"))
        for key in needed:
            if getattr(self, key) is None:
                raise at((key,), wrong("missing; this key is required"))
        for key in foreign:
            if getattr(self, key) is not None:
                raise at((key,), wrong(f"a route of {self.dialect} is reached by {' and '.join(needed)} instead"))
        for key in ("passthrough", "durable"):
            if grpc and getattr(self, key):
                raise at(
                    (key,),
                    wrong(f"a route of {self.dialect} does not have this key: the dialect manages its own sessions"),
                )
        if self.durable and dialect.framing is Framing.JSON_LINES:
            raise at(("durable",), wrong(f"a route of {self.dialect} streams JSON lines, which cannot be resumed"))
        return self

    @model_validator(mode="after")
    def _mid_stream(self) -> Self:
        if self.mid_stream_fallback is None:
            return self
        key = ("mid_stream_fallback",)
        if all(len(names_in(group)) == 1 for group in self.groups):
            raise at(key, wrong("there is no other backend to try; list several"))
        if self.passthrough or self.tool_host is not None:
            other = "passthrough" if self.passthrough else "tools"
            raise at(key, wrong(f"cannot be combined with {other}: only translated text can be continued"))
        return self

    @property
    def mount(self) -> str:
        """The name of the route: its path, or its address and agent."""
        return self.path or f"grpc://{self.listen}/{self.agent_id}"

    @property
    def tool_host(self) -> str | None:
        """The backend whose registered tools the model may call."""
        return self.tools if isinstance(self.tools, str) else None

    @property
    def offered(self) -> dict[str, RouteToolSection]:
        """The tools that clients call, by name; none if the route has one for its `backend`, or no such clients."""
        return self.tools if isinstance(self.tools, dict) else {}

    @property
    def backends(self) -> tuple[str, ...]:
        """The names of all backends of this route, in order and without duplicates."""
        return tuple(dict.fromkeys(name for group in self.groups for name in names_in(group)))

    @property
    def groups(self) -> tuple[Names, ...]:
        """All groups of backends of this route, in the order of the file."""
        if self.backend is not None and not isinstance(self.backend, dict):
            return (self.backend,)
        if self.offered:
            return tuple(tool.backend for tool in self.offered.values())
        return tuple((self.backend or self.models or {}).values())

    def by_mode(self, modes: tuple[str, ...]) -> dict[str, Names]:
        """Return the backends by mode, empty if there are no modes. Missing modes have the backend of the first one.

        Tools that clients call are modes which the route names.
        """
        if self.offered:
            return {name: tool.backend for name, tool in self.offered.items()}
        if not isinstance(self.backend, dict) or not modes:
            return {}
        first = next(name for mode in modes if (name := self.backend.get(mode)))
        return {mode: self.backend.get(mode, first) for mode in modes}

    def endpoints(self) -> list[tuple[str, Endpoint]]:
        """Return the HTTP endpoints of the dialect, each with its full path; none over gRPC."""
        if self.path is None:
            return []
        mount = "" if self.path == "/" else self.path
        surface = served(registry.get(self.dialect).surface, self.durable, forwards=self.extras is not None)
        return [(mount + endpoint.path or "/", endpoint) for endpoint in surface]
