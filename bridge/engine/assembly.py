"""From a checked configuration to routes with live backends: the one place where names become objects."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from bridge.contract import (
    AgentDialect,
    AgentTasksDialect,
    Dialect,
    ModesDialect,
    Operation,
    QueuedRunsDialect,
    SessionDialect,
    SteppedRunDialect,
    ToolServerDialect,
    ToolText,
    registry,
)
from bridge.contract.naming import ModelNames
from bridge.engine import config as cfg
from bridge.engine.route import Route
from bridge.errors import ConfigError
from bridge.run.backend import Backend, Timeouts
from bridge.run.backends.speech import Speech
from bridge.run.breaker import CircuitBreaker
from bridge.run.conversation.turns import ConversationTurns, needs_turns
from bridge.run.group import BackendGroup
from bridge.run.retries import RetryPolicy
from bridge.stores import Attachments, Bounds, open_attachments
from bridge.stores.memory_budget import base64_size, charging
from bridge.translation.policies.stages import EstimateUsage, StageFactory, load_object
from bridge.translation.policies.stages import load as load_stage

if TYPE_CHECKING:
    from yarl import URL

    from bridge.engine.telemetry.tracing import Tracing
    from bridge.run.backends.credentials import Credentials
    from bridge.run.backends.fetch import Fetcher
    from bridge.run.backends.http_backend import HttpBackend
    from bridge.run.durable.push import Pusher
    from bridge.stores import RunStore


def assemble(
    config: cfg.Config, tracing: Tracing | None = None, http_client: cfg.HttpClient = "aiohttp"
) -> list[Route]:
    """The routes of a configuration. Raises `ConfigError` for a target or stage that cannot be imported, and for an
    HTTP client that is not installed.
    """
    if http_client == "httptools" and find_spec("httptools") is None:
        raise ConfigError(
            "httptools is not installed; pip install 'dialect-bridge[httptools]'", key="server.http_client"
        )
    backends = {name: _backend(name, section, http_client, config.folder) for name, section in config.backends.items()}
    if tracing is not None:
        from bridge.engine.telemetry.traced import TracedBackend

        for name, section in config.backends.items():
            provider = _provider(section)
            backends[name] = cast("Backend", TracedBackend(backends[name], tracing, provider, section.url))
    return [_route(index, section, backends, config.folder) for index, section in enumerate(config.routes)]


def tracing_for(config: cfg.Config) -> Tracing | None:
    """The spans of `server.traces`. Raises `ConfigError` when their packages are not installed."""
    section = config.server.traces
    if section is None:
        return None
    try:
        from bridge.engine.telemetry.tracing import Tracing
    except ImportError as error:
        missing = "OpenTelemetry is not installed; pip install 'dialect-bridge[otel]'"
        raise ConfigError(f"{missing} ({error.name} is missing).", key="server.traces") from None
    return Tracing(section.endpoint, service=section.service, sample=section.sample, version=version("dialect-bridge"))


def _provider(section: cfg.BackendSection) -> str:
    """Return the vendor of a backend's protocol."""
    if section.is_demo or section.target is not None:
        return section.dialect
    return registry.get(section.dialect).provider or section.dialect


def _backend(name: str, section: cfg.BackendSection, http_client: cfg.HttpClient, folder: str | None) -> Backend:
    names = ModelNames(section.model, dict(section.model_map))
    breaker = CircuitBreaker(name, section.breaker.failures, section.breaker.open_for) if section.breaker else None
    timeouts = Timeouts(**section.timeouts.model_dump())
    if section.is_demo or section.target is not None:
        from bridge.run.backends.local_backend import LocalBackend

        if section.target is None:
            from bridge.run.backends.demo_backend import run

            return LocalBackend(name, run, names=names, timeouts=timeouts, breaker=breaker)
        try:
            agent = load_object(section.target, "an agent", folder)
        except ConfigError as error:
            raise ConfigError(error.reason, key=f"backends.{name}.target") from error
        return LocalBackend(name, agent, names=names, timeouts=timeouts, breaker=breaker)
    dialect = registry.get(section.dialect)
    url = section.url or ""
    settings: dict[str, Any] = {
        "api_key": section.api_key.get_secret_value() if section.api_key else None,
        "names": names,
        "headers": dict(section.headers),
        "forward_headers": section.forward_headers,
        "timeouts": timeouts,
        "retry": RetryPolicy(**section.retry.model_dump()),
        "breaker": breaker,
        "options": section.options,
    }
    if isinstance(dialect, AgentDialect):
        return _agent(name, section, dialect, settings, folder)
    if not isinstance(dialect, SessionDialect):
        proxy = section.proxy.get_secret_value() if section.proxy is not None else None
        settings |= {"max_event": section.max_event, "httptools": http_client == "httptools", "proxy": proxy}
        if section.auth is not None:
            settings["credentials"] = partial(_credentials, f"backends.{name}.auth", section.auth)
    return backend_class(dialect)(name, dialect, url, **settings)


def _credentials(key: str, auth: cfg.BackendAuthSection, url: URL, learn: Callable[[str], None]) -> Credentials:
    """Return what authenticates the requests of a backend. Raises `ConfigError`."""
    from bridge.run.backends import credentials as made

    try:
        if auth.aws is not None:
            return made.AwsSigner(auth.aws.service, auth.aws.region, url, learn)
        fetch: made.Fetch = made.TokenCommand(auth.command, auth.timeout, auth.lifetime)
        if auth.gcp is not None:
            fetch = made.google_tokens(auth.gcp.scope)
        elif auth.azure is not None:
            fetch = made.azure_tokens(auth.azure.scope)
        return made.TokenCredentials(fetch, auth.header, learn)
    except ConfigError as error:
        raise ConfigError(error.reason, key=key) from error


def _agent(
    name: str, section: cfg.BackendSection, dialect: AgentDialect, settings: dict[str, Any], folder: str | None
) -> Backend:
    from bridge.run.backends.agents.agent_backend import AgentBackend
    from bridge.run.backends.agents.program import Program, absolute

    try:
        cwd = absolute(section.cwd or "", folder)
    except ConfigError as error:
        raise ConfigError(error.reason, key=f"backends.{name}.cwd") from error
    headers = settings.pop("headers")
    if settings["api_key"]:
        headers = {**dialect.auth_headers(settings["api_key"]), **headers}
    del settings["forward_headers"]
    program = Program(cwd, section.command, section.args, section.env, section.url, headers, section.max_event)
    return AgentBackend(name, dialect, program, **settings)


def backend_class(dialect: Dialect) -> Callable[..., Backend]:
    """Return the class of backends of this dialect. Its arguments are a name, the dialect and a URL."""
    if isinstance(dialect, SessionDialect):
        from bridge.run.backends.grpc.grpc_backend import GrpcBackend

        return GrpcBackend
    if isinstance(dialect, AgentDialect):
        from bridge.run.backends.agents.agent_backend import AgentBackend

        return AgentBackend.at
    if isinstance(dialect, QueuedRunsDialect):
        from bridge.run.backends.queued_backend import QueuedRunsBackend

        return QueuedRunsBackend
    if isinstance(dialect, SteppedRunDialect):
        from bridge.run.backends.stepped_backend import SteppedBackend

        return SteppedBackend
    from bridge.run.backends.http_backend import HttpBackend

    return HttpBackend


def _route(index: int, section: cfg.RouteSection, backends: dict[str, Backend], folder: str | None) -> Route:
    def group(names: cfg.Names) -> BackendGroup:
        return BackendGroup([backends[name] for name in cfg.names_in(names)], cfg.weights_in(names))

    models = None if section.models is None else {model: group(names) for model, names in section.models.items()}
    dialect = registry.get(section.dialect)
    known = dialect.modes if isinstance(dialect, ModesDialect) else ()
    modes = {mode: group(names) for mode, names in section.by_mode(known).items()}
    tools_at = backends[section.tool_host] if section.tool_host is not None else None
    route = Route(
        dialect,
        section.mount,
        section.options,
        group=group(section.backend) if section.backend is not None and not isinstance(section.backend, dict) else None,
        models=models,
        stages=(
            *(_stage(index, target, folder) for target in section.stages),
            *((EstimateUsage,) if section.estimate_usage else ()),
        ),
        passthrough=section.passthrough,
        durable=section.durable,
        modes=modes or None,
        offered={name: ToolText(tool.title, tool.description) for name, tool in section.offered.items()},
        listen=section.listen,
        agent_id=section.agent_id,
        limits=section.limits,
        # The configuration's checks let through only a backend whose dialect offers tools.
        tools=getattr(tools_at, "tools", None),
        tools_at=tools_at,
        extras_at=cast("HttpBackend | None", backends[section.extras] if section.extras is not None else None),
        max_tool_rounds=section.max_tool_rounds,
        mid_stream_fallback=section.mid_stream_fallback,
    )
    if isinstance(dialect, ToolServerDialect):
        _check_tools(index, route, dialect)
    return route


def _check_tools(index: int, route: Route, dialect: ToolServerDialect) -> None:
    try:
        dialect.tool_names(route.options, route.site)
    except ConfigError as error:
        raise ConfigError(error.reason, key=f"routes[{index}]") from error


def _stage(index: int, target: str, folder: str | None) -> StageFactory:
    try:
        return load_stage(target, folder)
    except ConfigError as error:
        raise ConfigError(error.reason, key=f"routes[{index}].stages") from error


def turns_for(routes: list[Route], config: cfg.Config) -> ConversationTurns | None:
    """What stores the conversations, where some route needs it; it opens at first use.

    With `stores.history: off` nothing is kept: each side gets what the other one sent.
    """
    if config.stores.history is None or not any(
        route.keeps_answers
        or route.serves(Operation.HISTORY)
        or route.serves(Operation.CONNECT)
        or (route.durable and (route.serves(Operation.TASKS) or route.serves(Operation.TOOLS)))
        or any(needs_turns(route.capabilities, backend.capabilities) for backend in route.backends)
        or any(group.shares_conversations for group in route.groups)
        for route in routes
    ):
        return None
    from bridge.stores import open_conversations

    return ConversationTurns(
        open_conversations(
            config.stores.history,
            bounds=Bounds(config.stores.max_messages, config.stores.max_conversation, config.stores.max_conversations),
            lease=config.stores.lease,
        )
    )


def fetchers_for(config: cfg.Config) -> dict[str, Fetcher]:
    """Return the fetchers of media, by the names of the backends that list hosts for them."""
    wanted = {name: section.fetch_urls for name, section in config.backends.items() if section.fetch_urls}
    if not wanted:
        return {}
    from bridge.run.backends.fetch import Fetcher

    return {name: Fetcher(hosts, charge=_charge_medium) for name, hosts in wanted.items()}


def _charge_medium(url: str, size: int) -> None:
    """Charge the request that is served with a medium from a URL, which its backend gets in base64."""
    charging()(("medium", url), base64_size(size))


def pushers_for(routes: list[Route]) -> dict[str, Pusher]:
    """Return what sends push notifications, by the paths of the routes that send some."""
    hosts = {
        route.path: route.dialect.push_hosts(route.options)
        for route in routes
        if route.durable and isinstance(route.dialect, AgentTasksDialect)
    }
    if not any(hosts.values()):
        return {}
    from bridge.run.durable.push import Pusher

    return {path: Pusher(names) for path, names in hosts.items() if names}


def store_for(routes: list[Route], config: cfg.Config) -> RunStore | None:
    """The store of asynchronous runs, where a route is durable, queues runs, or has some go on in the background.

    It opens at first use. Raises `ConfigError` when its engine is not installed.
    """
    history_on = config.stores.history is not None
    if not any(
        route.durable or route.serves(Operation.START) or (history_on and route.in_background) for route in routes
    ):
        return None
    from bridge.stores import open_runs

    return open_runs(config.stores.runs)


def attachments_for(config: cfg.Config) -> Attachments:
    """The store of uploaded images. Raises `ConfigError` when its URL or its package is wrong."""
    secret = config.server.secret
    return open_attachments(config.stores.attachments, secret=secret.get_secret_value() if secret else None)


def speech_for(config: cfg.Config) -> Speech | None:
    """The service that transcribes; None when none is configured."""
    if config.speech is None:
        return None
    key = config.speech.api_key
    from bridge.run.backends.proxies import proxy_for

    return Speech(
        config.speech.url,
        api_key=key.get_secret_value() if key else None,
        model=config.speech.model,
        proxy=proxy_for(config.speech.url),
    )
