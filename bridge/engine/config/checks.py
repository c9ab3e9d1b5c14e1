"""Checks that span sections: missing authentication, colliding endpoints, keys for unknown routes, invalid passthrough.

They run on a configuration whose sections are valid by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

from bridge.contract import (
    AgentDialect,
    ModesDialect,
    Operation,
    SessionDialect,
    SteppedRunDialect,
    ToolHostDialect,
    offers,
    served,
)
from bridge.engine.config.kinds import dialect_of, is_loopback
from bridge.engine.config.problems import Path, Problem, nearest, path_text
from bridge.engine.config.schema.routes import RouteSection
from bridge.engine.config.schema.server import AllowedSection, ApiKeySection
from bridge.engine.config.schema.whole import Config

Show = Callable[[Path, Any], str]

PAGE = "/"
PAGE_USER = "page"
"""The path of the page, and the user name of its key."""
_PAGE = "server.page"
_HEALTH = ("server.health.live", "server.health.ready")
_VARIABLE = re.compile(r"\{\w+")


def problems(config: Config, show: Show) -> list[Problem]:
    """Return all problems of this kind; `show` formats a value for a message."""
    return [
        *_no_auth(config),
        *_grpc(config, show),
        *_per_key(config),
        *_auth(config, show),
        *_health(config),
        *_collisions(config, show),
        *(
            problem
            for check in (_passthrough, _connections, _durable, _modes, _stored, _tools, _extras)
            for index, route in enumerate(config.routes)
            for problem in check(config, ("routes", index), route, show)
        ),
        *_single_process(config),
    ]


def _no_auth(config: Config) -> Iterator[Problem]:
    if config.server.auth is None and not is_loopback(config.server.host):
        yield Problem(
            ("server", "host"),
            "other machines can reach this address without a key; list keys under server.auth.keys, "
            "or write `auth: none` to serve anyone",
        )


def _per_key(config: Config) -> Iterator[Problem]:
    """Limits per key need users. Callers over gRPC have names."""
    server = config.server
    if server.limits.per_key is not None and server.is_open and any(r.path is not None for r in config.routes):
        yield Problem(
            ("server", "limits", "per_key"),
            "users are not identified, so all would share this limit; list keys under server.auth, "
            "or use concurrent and queue",
        )
    if server.limits.per_key is not None and server.limits.per_key.queue and server.limits.per_key.concurrent is None:
        yield Problem(("server", "limits", "per_key", "queue"), "needs concurrent: without it no request waits")


def _grpc(config: Config, show: Show) -> Iterator[Problem]:
    """Agents at gRPC addresses: authentication, distinct ids, one process."""
    seen: dict[tuple[str, str], int] = {}
    for index, route in enumerate(config.routes):
        if route.listen is None or route.agent_id is None:
            continue
        path: Path = ("routes", index)
        if not is_loopback(route.listen.rpartition(":")[0]) and config.server.auth is None:
            yield Problem(
                (*path, "listen"),
                "other machines can reach this address; listen on loopback, list keys under server.auth, "
                "or write `auth: none` to serve anyone",
            )
        other = seen.setdefault((route.listen, route.agent_id), index)
        if other != index:
            shown_id = show((*path, "agent_id"), route.agent_id)
            yield Problem((*path, "agent_id"), f"{shown_id} is already the agent of routes[{other}] at this address")
    if seen and config.server.workers > 1:
        yield Problem(("server", "workers"), "agents at an address run in one process; expected 1")


def _single_process(config: Config) -> Iterator[Problem]:
    """Sessions with backends that wait for a later request of their client, which must reach the same process."""
    workers = config.server.workers
    for name, backend in config.backends.items() if workers > 1 else ():
        dialect = dialect_of(backend.dialect)
        if isinstance(dialect, AgentDialect):
            yield Problem(
                ("server", "workers"),
                f"the agent of backends.{name} keeps its sessions in the process that began them, but a later request "
                f"may reach another one of the {workers} workers; expected 1",
            )
        elif isinstance(dialect, SessionDialect):
            for option in dialect.single_process_options(backend.options):
                yield Problem(
                    ("backends", name, "options", option),
                    "keeps a session in the process that opened it, but a later request may reach another one of the "
                    f"{workers} workers; set server.workers to 1, or remove this option",
                )


def _keys(config: Config) -> tuple[ApiKeySection, ...]:
    auth = config.server.auth
    return (auth.keys or ()) if auth else ()


def _key_problems(config: Config, show: Show) -> Iterator[Problem]:
    """Keys with the same name belong to one user, so that a key can be replaced by another."""
    digests: dict[str, str] = {}
    for index, key in enumerate(_keys(config)):
        path: Path = ("server", "auth", "keys", index)
        own = path_text(path)
        if (first := digests.setdefault(key.digest, own)) != own:
            yield Problem(path, f"the same key as {first}; its user would be ambiguous")
        yield from _routes(config, key, path, show)
        yield from _not_the_page(config, key, path)


def _routes(config: Config, allowed: AllowedSection, path: Path, show: Show) -> Iterator[Problem]:
    metrics = config.server.metrics
    mounts = list(dict.fromkeys([*(r.mount for r in config.routes), *([metrics.path] if metrics else [])]))
    for position, route in enumerate(allowed.routes):
        if route != "*" and route not in mounts:
            path_here: Path = (*path, "routes", position)
            yield Problem(path_here, f"no route is mounted at {show(path_here, route)}{nearest(route, mounts)}")


def _not_the_page(config: Config, key: ApiKeySection, path: Path) -> Iterator[Problem]:
    """The page's key has a user name of its own."""
    given = config.server.page_key
    if given is None:
        return
    if key.name == PAGE_USER:
        yield Problem((*path, "name"), f"{PAGE_USER} is the user of server.page_key")
    if key.digest == sha256(given.get_secret_value().encode()).hexdigest():
        yield Problem(path, "the same key as server.page_key; its user would be ambiguous")


def _auth(config: Config, show: Show) -> Iterator[Problem]:
    yield from _key_problems(config, show)
    jwt = config.server.auth.jwt if config.server.auth else None
    for word, allowed in (jwt.scopes or {} if jwt else {}).items():
        yield from _routes(config, allowed, ("server", "auth", "jwt", "scopes", word), show)
    if config.server.page_key is not None and config.server.page is False:
        yield Problem(("server", "page_key"), "page is false, so there is no page to open")


def _health(config: Config) -> Iterator[Problem]:
    if config.server.health.live == config.server.health.ready:
        yield Problem(("server", "health", "ready"), "the same path as live")
    if config.server.metrics and config.server.metrics.path in (config.server.health.live, config.server.health.ready):
        yield Problem(("server", "metrics", "path"), "the same path as one of server.health")


def _collisions(config: Config, show: Show) -> Iterator[Problem]:
    """One problem for each pair of routes that share an endpoint, naming the first one they share."""
    health = config.server.health
    owners: dict[tuple[str, str, str], tuple[str, bool]] = {
        ("GET", health.live, ""): (_HEALTH[0], False),
        ("GET", health.ready, ""): (_HEALTH[1], False),
    }
    if config.server.has_page:
        owners["GET", PAGE, ""] = (_PAGE, False)
    if config.server.metrics:
        owners["GET", config.server.metrics.path, ""] = ("server.metrics.path", False)
    for index, route in enumerate(config.routes):
        reported: set[str] = set()
        own = f"routes[{index}] ({route.dialect})"
        for path, endpoint in route.endpoints():
            key = (endpoint.method.upper(), _VARIABLE.sub("{", path), (endpoint.header or "").lower())
            owner, shared = owners.setdefault(key, (own, endpoint.shared))
            if owner in _HEALTH and endpoint.operation is Operation.HEALTH:
                continue  # both are liveness checks; the server answers
            if endpoint.operation in (Operation.DESCRIBE, Operation.HEALTH) and owner == _PAGE:
                continue  # at "/" is the page, but for programs that ask for a health check
            if owner != own and owner not in reported and not (shared and endpoint.shared):
                reported.add(owner)
                path_here: Path = ("routes", index, "path")
                yield Problem(path_here, f"{key[0]} {show(path_here, path)} is already served by {owner}")


def _passthrough(config: Config, path: Path, route: RouteSection, show: Show) -> Iterator[Problem]:
    if route.passthrough and isinstance(dialect_of(route.dialect), SteppedRunDialect):
        what = f"cannot be used with dialect {route.dialect}, whose backends take several requests for one run"
        yield Problem((*path, "passthrough"), what)
    for name in route.backends if route.passthrough else ():
        if config.backends[name].dialect != route.dialect:
            front = show((*path, "dialect"), route.dialect)
            back = show(("backends", name, "dialect"), config.backends[name].dialect)
            what = f"needs the same dialect on both sides; the route speaks {front}, its backend {back}"
            yield Problem((*path, "passthrough"), what)
            continue
        dialect = dialect_of(route.dialect)
        if dialect is not None and not dialect.takes_bytes(config.backends[name].options):
            what = f"cannot be used with {show(path, name)}: its options change the body of requests"
            yield Problem((*path, "passthrough"), what)


def _connections(config: Config, path: Path, route: RouteSection, show: Show) -> Iterator[Problem]:
    """Clients that keep a connection open are asked things in the middle of a run."""
    dialect = dialect_of(route.dialect)
    for key in ("passthrough", "durable") if dialect is not None and offers(dialect.surface, Operation.CONNECT) else ():
        if getattr(route, key):
            yield Problem((*path, key), f"cannot be used with dialect {route.dialect}, whose clients keep a connection")


def _durable(config: Config, path: Path, route: RouteSection, show: Show) -> Iterator[Problem]:
    if route.durable and route.passthrough:
        what = "cannot be combined with passthrough: a durable run stores events, not the backend's bytes"
        yield Problem((*path, "durable"), what)


def _modes(config: Config, path: Path, route: RouteSection, show: Show) -> Iterator[Problem]:
    if not isinstance(route.backend, dict):
        return
    dialect = dialect_of(route.dialect)
    modes = dialect.modes if isinstance(dialect, ModesDialect) else ()
    if not modes:
        what = f"requests of dialect {route.dialect} have no modes; name one backend, or use models"
        yield Problem((*path, "backend"), what)
    for mode in route.backend if modes else ():
        if mode not in modes:
            text = f"unknown mode; expected {', '.join(modes)}{nearest(mode, modes)}"
            yield Problem((*path, "backend", mode), text)


def _stored(config: Config, path: Path, route: RouteSection, show: Show) -> Iterator[Problem]:
    dialect = dialect_of(route.dialect)
    if dialect is None:
        return
    if config.stores.history is None and offers(dialect.surface, Operation.HISTORY):
        yield Problem(("stores", "history"), f"off, but the clients of {path_text(path)} read their conversations")
    if config.stores.history is None and route.options.sent_history is not None:
        known = [dialect_of(config.backends[name].dialect) for name in route.backends]
        if not all(d is not None and d.capabilities.takes_news for d in known):
            yield Problem(("stores", "history"), f"off, but the clients of {path_text(path)} send only new messages")
    kept = served(dialect.surface, route.durable)
    if route.passthrough and (offers(kept, Operation.START) or offers(kept, Operation.TASKS)):
        yield Problem((*path, "passthrough"), "cannot be combined with a dialect that stores its runs")


def _extras(config: Config, path: Path, route: RouteSection, show: Show) -> Iterator[Problem]:
    if route.extras is None:
        return
    path = (*path, "extras")
    name = route.extras
    known = config.backends[name].dialect
    for dialect, what in ((route.dialect, "a route"), (known, f"{show(path, name)}, a backend")):
        found = dialect_of(dialect)
        if found is None or not offers(found.surface, Operation.FORWARD):
            yield Problem(path, f"{what} of dialect {dialect} offers no embeddings, audio, images and so on")


def _tools(config: Config, path: Path, route: RouteSection, show: Show) -> Iterator[Problem]:
    if route.tool_host is None:
        return
    path = (*path, "tools")
    dialect = dialect_of(config.backends[route.tool_host].dialect)
    if not isinstance(dialect, ToolHostDialect):
        known = config.backends[route.tool_host].dialect
        yield Problem(path, f"no tools are registered at {show(path, route.tool_host)}, a backend of dialect {known}")
    if route.passthrough:
        yield Problem(path, "cannot be combined with passthrough: running tools changes the answer")
