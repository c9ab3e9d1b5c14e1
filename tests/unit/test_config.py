"""The configuration as a whole: good ones, every kind of mistake with its exact words, secrets, the JSON Schema."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from inspect import isclass
from pathlib import Path
from textwrap import dedent
from typing import Any, ClassVar, Literal, get_args

import pytest
from pydantic import BaseModel, Field, SecretStr, field_validator

from bridge.contract import (
    ANSWER_FEATURES,
    REQUEST_FEATURES,
    Capabilities,
    Dialect,
    Endpoint,
    Operation,
    Options,
    Surface,
    entries,
    registry,
)
from bridge.engine import extras
from bridge.engine.config import (
    Config,
    RetrySection,
    TimeoutsSection,
    is_loopback,
    json_schema,
    kinds,
    load,
    parse,
)
from bridge.engine.config.schema.base import Section
from bridge.errors import ConfigError
from bridge.run.backend import Timeouts
from bridge.run.retries import RetryPolicy

CAPABILITIES = Capabilities(entries(ANSWER_FEATURES), entries(REQUEST_FEATURES))


class Tuning(Options):
    depth: int = 1


class ChatBack(Options):
    style: Literal["plain", "rich"] = "plain"
    tuning: Tuning = Tuning()


class ChatFront(Options):
    names: bool = False
    code: str = ""

    @field_validator("code")
    @classmethod
    def _short(cls, value: str) -> str:
        if len(value) > 4:
            raise ValueError(f"code {value} is too long")
        return value


class ToyChat(Dialect):
    name: ClassVar[str] = "toy-chat"
    capabilities: ClassVar[Capabilities] = CAPABILITIES
    surface: ClassVar[Surface] = (
        Endpoint("POST", "/chat/completions", Operation.RUN),
        Endpoint("GET", "/models", Operation.MODELS),
        Endpoint("GET", "/models/{id}", Operation.MODELS),
    )
    front_options: ClassVar[type[Options]] = ChatFront
    back_options: ClassVar[type[Options]] = ChatBack


class ToyMessages(Dialect):
    name: ClassVar[str] = "toy-messages"
    capabilities: ClassVar[Capabilities] = CAPABILITIES
    surface: ClassVar[Surface] = (
        Endpoint("POST", "/messages", Operation.RUN),
        Endpoint("GET", "/models", Operation.MODELS, header="anthropic-version"),
        Endpoint("GET", "/models/{name:.+}", Operation.MODELS, header="Anthropic-Version"),
    )


class AgentBack(Options):
    agent: str = Field(min_length=1)


class ToyAgent(Dialect):
    name: ClassVar[str] = "toy-agent"
    capabilities: ClassVar[Capabilities] = CAPABILITIES
    surface: ClassVar[Surface] = (Endpoint("POST", "", Operation.RUN), Endpoint("GET", "/{id}", Operation.STATUS))
    back_options: ClassVar[type[Options]] = AgentBack


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three dialects registered like a third party's; the installed ones are hidden, so that messages are exact."""
    monkeypatch.setattr(registry, "entry_points", lambda **_: ())
    monkeypatch.setattr(registry, "_installed", {})
    monkeypatch.setattr(kinds, "available_timezones", lambda: {"UTC", "Europe/Berlin"})
    dialects = (ToyChat(), ToyMessages(), ToyAgent())
    before = dict(registry._registered)
    for name in before:
        registry.unregister(name)
    for dialect in dialects:
        registry.register(dialect)
    yield
    for dialect in dialects:
        registry.unregister(dialect.name)
    for name, dialect in before.items():
        registry.register(dialect, name)


def written(tmp_path: Path, text: str, env: Mapping[str, str] | None = None, **more: Any) -> Config:
    """The configuration in `text`; a file of its own, so that lines are those of the text."""
    path = tmp_path / "config.yaml"
    path.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
    return load(path, env=env or {}, **more)


def mistakes(tmp_path: Path, text: str, env: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        written(tmp_path, text, env)
    return [line.removeprefix(f"{tmp_path}/") for line in str(caught.value).splitlines()]


def mapping(**sections: Any) -> dict[str, Any]:
    """A small sound configuration with these sections in place of its own."""
    small = {
        "backends": {"demo": {"dialect": "demo"}},
        "routes": [{"dialect": "toy-chat", "path": "/v1", "backend": "demo"}],
    }
    return {**small, **sections}


GOOD = """
    server:
      host: 127.0.0.1
      port: 8080
      workers: 1
      max_body: 8MiB
      drain: 30s
      cors: {origins: ["*"]}
      keepalive: 15s
      limits: {concurrent: 1000, queue: 100}
      auth:
        keys:
          - {name: web, key: "${WEB_KEY}", routes: ["*"]}
          - {name: job, key_sha256: 2BB80D537B1DA3E38BD30361AA855686BDE0EACD7162FEF6A25FE97BF527A25B, routes: [/v1/]}
      public_url: https://bridge.example
      secret: "${BRIDGE_SECRET:-}"
      time_zone: UTC
      page: true
      metrics: {path: /metrics}
      health: {live: /healthz, ready: /readyz}
    backends:
      llm:
        dialect: toy-chat
        url: "${OPENAI_BASE_URL:-https://api.openai.com/v1}"
        api_key: "${OPENAI_API_KEY:-}"
        model: qwen3-max
        model_map: {"gpt-*": qwen3-max}
        headers: {X-Team: bridge}
        forward_headers: [X-Trace]
        timeouts: {connect: 5s, first_event: 60s, idle: off, total: 10m}
        retry: {attempts: 2, backoff: 500ms, max_backoff: 8s}
        options: {style: rich, tuning: {depth: "${DEPTH:-3}"}}
      agent:
        dialect: toy-agent
        url: http://127.0.0.1:8090
        options: {agent: friday}
      demo:
        dialect: demo
      mine:
        dialect: python
        target: "mypkg.agent:run"
    routes:
      - dialect: toy-chat
        path: /v1
        backend: llm
        passthrough: true
        options: {names: true}
      - dialect: toy-messages
        path: /v1
        backend: agent
      - dialect: toy-chat
        path: /agents/v1/
        models: {friday: agent, "gpt-*": llm, "*": demo}
        stages: [my.module:stage]
      - dialect: toy-agent
        path: /agent
        backend: ${BRIDGE_BACKEND:-mine}
        durable: false
    stores:
      history: sqlite:///data/bridge.db
      runs: postgresql://127.0.0.1/d
      attachments: s3://bucket?endpoint=x
      retention: {events: 24h, history: 90d}
    speech: {url: "https://speech.example/v1", api_key: k, model: whisper-1}
"""


# ------------------------------------------------------------------------------ good ones


def test_the_example_of_the_interface(tmp_path: Path) -> None:
    config = written(tmp_path, GOOD, {"WEB_KEY": "foo", "OPENAI_BASE_URL": ""})
    server, llm = config.server, config.backends["llm"]
    assert (server.host, server.port, server.workers, server.max_body, server.drain) == (
        "127.0.0.1",
        8080,
        1,
        2**23,
        30,
    )
    assert (server.cors.origins, server.keepalive, server.secret) == (("*",), 15.0, None)
    assert server.auth is not None
    assert server.auth.keys is not None
    assert [key.name for key in server.auth.keys] == ["web", "job"]
    assert server.auth.keys[1].routes == ("/v1",)
    assert (llm.url, llm.api_key, llm.forward_headers) == ("https://api.openai.com/v1", None, ("x-trace",))
    assert llm.timeouts.model_dump() == {"connect": 5.0, "first_event": 60.0, "idle": None, "total": 600.0}
    assert llm.retry.model_dump() == {"attempts": 2, "backoff": 0.5, "max_backoff": 8.0, "budget": 0.2}
    assert llm.options == ChatBack(style="rich", tuning=Tuning(depth=3))
    assert config.routes[0].options == ChatFront(names=True)
    assert [route.path for route in config.routes] == ["/v1", "/v1", "/agents/v1", "/agent"]
    assert config.routes[3].backend == "mine"
    assert config.routes[2].backends == ("agent", "llm", "demo")
    assert config.routes[2].stages == ("my.module:stage",)


def test_the_defaults() -> None:
    config = parse(mapping(backends={"llm": {"dialect": "toy-chat", "url": "http://h"}, "demo": {"dialect": "demo"}}))
    assert config.server.model_dump() == {
        "host": "127.0.0.1",
        "port": 8080,
        "workers": 1,
        "hosts": None,
        "max_body": 33554432,
        "http_client": None,
        "drain": 30.0,
        "body_time": 30.0,
        "slow_reader": 60.0,
        "cors": {"origins": ("*",)},
        "keepalive": 15.0,
        "limits": {
            "concurrent": 1000,
            "queue": 100,
            "answer": 67108864,
            "bodies": 268435456,
            "sockets": 100,
            "socket_idle": 600.0,
            "per_key": None,
        },
        "auth": None,
        "public_url": None,
        "secret": None,
        "time_zone": "UTC",
        "page": None,
        "page_key": None,
        "metrics": {"path": "/metrics", "public": False, "users": 0},
        "traces": None,
        "health": {"live": "/healthz", "ready": "/readyz"},
    }
    llm = config.backends["llm"]
    assert llm.timeouts.model_dump() == {"connect": 5.0, "first_event": 300.0, "idle": 300.0, "total": 1800.0}
    assert llm.retry.model_dump() == {"attempts": 1, "backoff": 0.5, "max_backoff": 8.0, "budget": 0.2}
    assert llm.options == ChatBack()
    assert config.server.is_open


def test_backends_have_the_defaults_of_the_configuration() -> None:
    """Backends that programs make are called like configured ones."""
    assert Timeouts(**TimeoutsSection().model_dump()) == Timeouts()
    assert RetryPolicy(**RetrySection().model_dump()) == RetryPolicy()


@pytest.mark.parametrize(
    ("yaml", "keepalive"), [("off", None), ("0", None), ('"off"', None), ("${K}", None), ("2s", 2.0), ("", 15.0)]
)
def test_keepalive_may_be_off_however_yaml_reads_it(tmp_path: Path, yaml: str, keepalive: float | None) -> None:
    text = f"""
        server: {{keepalive: {yaml if "$" not in yaml else f'"{yaml}"'}}}
        backends: {{demo: {{dialect: demo}}}}
        routes: [{{dialect: toy-chat, path: /, backend: demo}}]
    """
    assert written(tmp_path, text, {"K": "off"}).server.keepalive == keepalive


def test_an_empty_value_is_an_absent_key(tmp_path: Path) -> None:
    text = """
        server:
          auth:
          limits:
        backends: {demo: {dialect: demo, retry: }}
        routes: [{dialect: toy-chat, path: /v1, backend: demo, models: , options: }]
        stores:
    """
    assert written(tmp_path, text) == parse(mapping())


@pytest.mark.parametrize(
    ("path", "endpoint"),
    [("/", "/chat/completions"), ("/v1/", "/v1/chat/completions"), ("/a/b", "/a/b/chat/completions")],
)
def test_endpoints_lie_below_the_path(path: str, endpoint: str) -> None:
    config = parse(mapping(routes=[{"dialect": "toy-chat", "path": path, "backend": "demo"}]))
    assert config.routes[0].endpoints()[0] == (endpoint, ToyChat.surface[0])


def test_an_endpoint_may_be_the_path_itself() -> None:
    config = parse(mapping(routes=[{"dialect": "toy-agent", "path": p, "backend": "demo"} for p in ("/", "/a/b")]))
    assert [[path for path, _ in route.endpoints()] for route in config.routes] == [
        ["/", "/{id}"],
        ["/a/b", "/a/b/{id}"],
    ]


def test_the_route_table() -> None:
    models = {"a": "demo", "*": "mine"}
    backends = {"demo": {"dialect": "demo"}, "mine": {"dialect": "python", "target": "a:b"}}
    config = parse(mapping(backends=backends, routes=[{"dialect": "toy-agent", "path": "/a", "models": models}]))
    assert config.describe() == [
        "POST   /a       toy-agent -> demo (demo), mine (python)",
        "GET    /a/{id}  toy-agent -> demo (demo), mine (python)",
    ]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_loopback_needs_no_auth(host: str) -> None:
    assert is_loopback(host)
    assert parse(mapping(server={"host": host})).server.is_open


def test_every_method_of_auth_closes_the_door() -> None:
    for auth in (
        {"keys": [{"name": "a", "key": "b"}]},
        {"jwt": {"secret": "s"}},
        {"trusted_header": "X-User", "trusted_proxies": ["::1"]},
    ):
        assert not parse(mapping(server={"host": "0.0.0.0", "auth": auth})).server.is_open


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.2", "bridge.example", "localhost.example", "127.0.0.1.x"])
def test_what_is_not_loopback_must_say_that_it_is_open(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(ConfigError, match="auth: none"):
        parse(mapping(server={"host": host}))
    config = parse(mapping(server={"host": host, "auth": "none"}))
    assert config.server.is_open
    assert config.server.auth is not None
    assert config.server.auth.keys is None


def test_a_key_opens_its_routes() -> None:
    keys = [{"name": "a", "key": "ka", "routes": ["/v1"]}, {"name": "b", "key": "kb"}]
    config = parse(mapping(server={"host": "0.0.0.0", "auth": {"keys": keys}}))
    assert not config.server.is_open
    assert config.server.auth is not None
    a, b = config.server.auth.keys or ()
    assert [key.routes for key in (a, b)] == [("/v1",), ("*",)]
    assert a.digest == hashlib.sha256(b"ka").hexdigest()


def test_the_command_line_goes_before_the_file(tmp_path: Path) -> None:
    config = written(tmp_path, GOOD, {"WEB_KEY": "k"}, server={"port": 9000, "host": None, "workers": 2})
    assert (config.server.port, config.server.host, config.server.workers) == (9000, "127.0.0.1", 2)
    with pytest.raises(ConfigError, match="auth: none"):
        parse(mapping(), server={"host": "0.0.0.0"})
    with pytest.raises(ConfigError, match=r"^--port: server\.port: expected 65535 or less, got 99999$"):
        parse(mapping(server={"port": "${PORT}"}), server={"port": 99999}, env={"PORT": "1"})


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIDGE_TEST_PORT", "1234")
    assert parse(mapping(server={"port": "${BRIDGE_TEST_PORT}"})).server.port == 1234


def test_a_configuration_cannot_be_changed() -> None:
    config = parse(mapping())
    with pytest.raises(ValueError, match="frozen"):
        config.server.port = 1  # type: ignore[misc]


# ------------------------------------------------------------------------------ mistakes

KEYS = (
    "dialect, path, backend, models, stages, estimate_usage, durable, passthrough, tools, extras, max_tool_rounds, "
    "listen, agent_id, limits, mid_stream_fallback, options"
)
BACKEND_KEYS = (
    "dialect, url, command, args, cwd, env, api_key, auth, model, model_map, proxy, headers, forward_headers, "
    "fetch_urls, max_event, timeouts, "
    "retry, breaker, "
    "target, options"
)
DIALECTS = "toy-agent, toy-chat, toy-messages"
URL = "expected a URL such as https://host/v1 (http or https, with a host)"
DURATION = "expected a duration such as 500ms, 5s, 10m, 24h, 90d or a number of seconds"


@pytest.mark.parametrize(
    ("more", "meant"),
    [
        ({"api_keys": []}, 'api_keys: unknown key; did you mean "server.auth.keys"?'),
        ({"routes": [{"auth": {}}]}, 'routes[0].auth: unknown key; did you mean "server.auth"?'),
        ({"server": {"master_key": "k"}}, 'server.master_key: unknown key; did you mean "auth.keys"?'),
        (
            {"server": {"logLevel": "k"}},
            'server.logLevel: unknown key; did you mean "dialect-bridge serve --log-level"?',
        ),
        ({"backends": {"a": {"baseURL": ""}}}, 'backends.a.baseURL: unknown key; did you mean "url"?'),
        ({"backends": {"a": {"model_name": ""}}}, 'backends.a.model_name: unknown key; did you mean "model"?'),
        (
            {"backends": {"a": {"num_retries": 2}}},
            'backends.a.num_retries: unknown key; did you mean "retry.attempts"?',
        ),
        ({"backends": {"a": {"retry": 3}}}, "backends.a.retry: expected a mapping, got 3; for example {attempts: 3}"),
        ({"backends": {"a": {"timeouts": 9}}}, "timeouts: expected a mapping, got 9; for example {total: 60s}"),
        ({"model_list": []}, 'model_list: unknown key; did you mean "backends"?'),
        ({"server": {"host": "http://0.0.0.0:80"}}, "server.host: expected an address or a host name, without scheme"),
        ({"stores": {"history": "sqlite://x.db"}}, "stores.history: expected sqlite:/// and the path of a file"),
        ({"server": {"api_keys": []}}, 'server.api_keys: unknown key; did you mean "auth.keys"?'),
        ({"server": {"auth": {"api_keys": []}}}, 'server.auth.api_keys: unknown key; did you mean "keys"?'),
    ],
)
def test_where_keys_of_callers_belong(more: dict[str, Any], meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"backends": {"it": {"dialect": "demo"}}, "routes": [], **more})
    assert meant in str(caught.value)


@pytest.mark.parametrize(
    ("server", "lines"),
    [
        ("5", ["server: expected a mapping, got 5"]),
        ("{port: abc}", ['server.port: expected a whole number, got "abc"']),
        ("{port: 1.5}", ["server.port: expected a whole number, got 1.5"]),
        ("{port: 65536}", ["server.port: expected 65535 or less, got 65536"]),
        ("{workers: 0}", ["server.workers: expected 1 or more, got 0"]),
        ("{workers: yes}", ["server.workers: expected a whole number, got true"]),
        ("{page: maybe}", ['server.page: expected true or false, got "maybe"']),
        ("{host: 127}", ["server.host: expected text, got 127; put it in quotes"]),
        ("{host: ''}", ["server.host: must not be empty"]),
        ("{max_body: 8 apples}", [
            "server.max_body: expected a size such as 64KiB, 10MiB, 1GiB, 5MB or a number of bytes, got \"8 apples\""]),
        ("{drain: soon}", [f'server.drain: {DURATION}, got "soon"']),
        ("{keepalive: on}", [f"server.keepalive: {DURATION}, or off, got true"]),
        ("{cors: {origins: '*'}}", ['server.cors.origins: expected a list, got "*"']),
        ("{cors: {origins: [https://a/]}}", [
            'server.cors.origins[0]: expected "*" or an origin such as https://app.example '
            '(no path, no "/" at the end), got "https://a/"']),
        ("{limits: {queues: 1}}", [
            'server.limits.queues: unknown key; did you mean "queue"? '
            "Known keys: concurrent, queue, answer, bodies, sockets, socket_idle, per_key"]),
        ("{time_zone: Europe/Berlni}", [
            'server.time_zone: unknown time zone "Europe/Berlni"; did you mean "Europe/Berlin"? '
            "Known time zones: Europe/Berlin, UTC"]),
        ("{public_url: bridge.example}", [f'server.public_url: {URL}, got "bridge.example"']),
        ("{metrics: {path: metrics}}", ['server.metrics.path: expected a path that begins with "/", got "metrics"']),
        ("{health: {live: /x, ready: /x}}", ["server.health.ready: the same path as live"]),
        ("{health: {live: /v1/models}}", ['routes[0].path: GET "/v1/models" is already served by server.health.live']),
        ("{host: 0.0.0.0}", [
            "server.host: other machines can reach this address without a key; "
            "list keys under server.auth.keys, or write `auth: none` to serve anyone"]),
        ("{auth: open}", ["server.auth: expected a mapping with keys, or the word none, got text"]),
        ("{auth: off}", ["server.auth: expected a mapping with keys, or the word none, got false"]),
        ("{auth: {}}", [
            "server.auth: names no keys; list them under keys, or write `auth: none` to serve anyone"]),
        ("{auth: {keys: []}}", [
            "server.auth: names no keys; list them under keys, or write `auth: none` to serve anyone"]),
        ("{auth: {keys: [abc]}}", [
            'server.auth.keys[0]: expected a mapping, got text; for example {name: web, key: "${WEB_KEY}"}'
        ]),
        ("{auth: {keys: [{key: abc}]}}", ["server.auth.keys[0].name: missing; this key is required"]),
        ("{auth: {keys: [{name: a, key: ''}]}}", ["server.auth.keys[0].key: must not be empty"]),
        ("{auth: {keys: [{name: a, key: 5}]}}", [
            "server.auth.keys[0].key: expected text, got a number; put it in quotes"]),
        ("{auth: {keys: [{name: a}]}}", [
            "server.auth.keys[0]: expected exactly one of key and key_sha256, got neither"]),
        (f"{{auth: {{keys: [{{name: a, key: b, key_sha256: {'ab' * 32}}}]}}}}", [
            "server.auth.keys[0]: expected exactly one of key and key_sha256, got both"]),
        (f"{{auth: {{keys: [{{name: a, key_sha256: {'0' * 64}}}]}}}}", [
            "server.auth.keys[0].key_sha256: expected text, got a number; put it in quotes"]),
        ("{auth: {keys: [{name: a, key_sha256: abc}]}}", [
            "server.auth.keys[0].key_sha256: expected a SHA-256 digest: 64 hexadecimal digits"]),
        ("{auth: {keys: [{name: a, key: b, routes: []}]}}", ["server.auth.keys[0].routes: must not be empty"]),
        ("{auth: {keys: [{name: a, key: b, routes: [/v2]}]}}", [
            'server.auth.keys[0].routes[0]: no route is mounted at "/v2"; did you mean "/v1"?']),
        ("{auth: {keys: [{name: a, key: b}, {name: c, key: b}]}}", [
            "server.auth.keys[1]: the same key as server.auth.keys[0]; its user would be ambiguous"]),
        ("{auth: {jwt: {}}}", [
            "server.auth.jwt: expected exactly one of jwks_url and secret, got neither"]),
        ("{auth: {jwt: {secret: x, jwks_url: 'https://h/keys'}}}", [
            "server.auth.jwt: expected exactly one of jwks_url and secret, got both"]),
        ("{auth: {jwt: {secret: x, algorithms: [HS256, RS256]}}}", [
            "server.auth.jwt.algorithms: a secret checks HS256, HS384 and HS512 only, not RS256"]),
        ("{auth: {jwt: {jwks_url: 'https://h/keys', algorithms: [HS256, RS256]}}}", [
            "server.auth.jwt.algorithms: public keys cannot check these, not HS256"]),
        ("{auth: {jwt: {jwks_url: 'https://h/keys', algorithms: [none]}}}", [
            'server.auth.jwt.algorithms[0]: unknown algorithm (text). Known algorithms: '
            "HS256, HS384, HS512, RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA"]),
        ("{auth: {jwt: {jwks_url: keys}}}", [f"server.auth.jwt.jwks_url: {URL}, got text"]),
        ("{auth: {trusted_header: X-User}}", [
            "server.auth.trusted_proxies: missing; without it any client could set trusted_header"]),
        ("{auth: {trusted_proxies: [10.0.0.1], keys: [{name: a, key: b}]}}", [
            "server.auth.trusted_header: missing; trusted_proxies needs it"]),
        ("{auth: {trusted_header: X-User, trusted_proxies: [10.0.0.1/8]}}", [
            "server.auth.trusted_proxies[0]: expected an IP address, or a network such as 10.0.0.0/8 "
            '(no bits set beyond its length), got text']),
        ("{limits: {per_key: {concurrent: 5}}}", [
            "server.limits.per_key: users are not identified, so all would share this limit; list keys under "
            "server.auth, or use concurrent and queue"]),
    ],
)  # fmt: skip
def test_mistakes_in_server(tmp_path: Path, server: str, lines: list[str]) -> None:
    text = f"""
        backends: {{demo: {{dialect: demo}}}}
        routes:
          - {{dialect: toy-chat, path: /v1, backend: demo}}
        server: {server}
    """
    found = mistakes(tmp_path, text)
    assert found == [f"config.yaml:{3 if line.startswith('routes') else 4}: {line}" for line in lines]


@pytest.mark.parametrize(
    ("backend", "lines"),
    [
        ("5", ["backends.it: expected a mapping, got 5"]),
        ("", ["backends.it: expected a mapping, got nothing"]),
        ("{}", ["backends.it.dialect: missing; this key is required"]),
        ("{dialect: toy-chta, url: 'http://h'}", [
            'backends.it.dialect: unknown dialect "toy-chta"; did you mean "toy-chat"? '
            "Known dialects: demo, python, toy-agent, toy-chat, toy-messages"]),
        ("{dialect: toy-chta, url: 'h:1'}", [
            'backends.it.dialect: unknown dialect "toy-chta"; did you mean "toy-chat"? '
            "Known dialects: demo, python, toy-agent, toy-chat, toy-messages"]),
        ("{dialect: demo, ulr: x}", [f'backends.it.ulr: unknown key; did you mean "url"? Known keys: {BACKEND_KEYS}']),
        ("{dialect: demo, base_url: x}", [
            f'backends.it.base_url: unknown key; did you mean "url"? Known keys: {BACKEND_KEYS}']),
        ("{dialect: demo, api_keys: x}", [
            f'backends.it.api_keys: unknown key; did you mean "api_key"? Known keys: {BACKEND_KEYS}']),
        ("{dialect: demo, zzz: x}", [f"backends.it.zzz: unknown key. Known keys: {BACKEND_KEYS}"]),
        ("{dialect: demo, url: 'http://h'}", ["backends.it.url: dialect demo runs inside the bridge and takes no url"]),
        ("{dialect: toy-chat}", ["backends.it.url: missing or empty; every dialect but demo and python needs one"]),
        (
            "{dialect: toy-chat, url: ''}",
            ["backends.it.url: missing or empty; every dialect but demo and python needs one"],
        ),
        ("{dialect: toy-chat, url: 'localhost:8090'}", [f'backends.it.url: {URL}, got "localhost:8090"']),
        ("{dialect: toy-chat, url: 'ftp://h'}", [f'backends.it.url: {URL}, got "ftp://h"']),
        ("{dialect: toy-chat, url: 'ftp://u:p@h'}", [f"backends.it.url: {URL}, got text"]),
        ("{dialect: toy-chat, url: 'http://'}", [f'backends.it.url: {URL}, got "http://"']),
        ("{dialect: toy-chat, url: 'http://h:x'}", [f'backends.it.url: {URL}, got "http://h:x"']),
        ("{dialect: toy-chat, url: 'http://h/a b'}", [f'backends.it.url: {URL}, got "http://h/a b"']),
        ("{dialect: toy-chat, url: 'https://u:p@h/v1'}", [
            "backends.it.url: expected a URL without a user name or password; write the key as api_key"]),
        ("{dialect: python}", ['backends.it.target: missing; dialect python needs "module:function"']),
        ("{dialect: python, target: a.b}", [
            'backends.it.target: expected "module:function", as in "mypkg.agent:run", got "a.b"']),
        ("{dialect: demo, target: 'a:b'}", ["backends.it.target: only dialect python takes a target"]),
        ("{dialect: demo, options: {a: 1}}", ["backends.it.options.a: unknown key. Known keys: none"]),
        ("{dialect: demo, api_key: \"a\\nb\"}", ["backends.it.api_key: must be one line of printable characters"]),
        ("{dialect: demo, headers: {A b: c}}", ['backends.it.headers["A b"]: not a header name']),
        ("{dialect: demo, headers: {A: \"b\\r\"}}", [
            "backends.it.headers.A: must be one line of printable characters"]),
        ("{dialect: demo, headers: {A: 5}}", ["backends.it.headers.A: expected text, got a number; put it in quotes"]),
        ("{dialect: demo, forward_headers: ['a b']}", [
            'backends.it.forward_headers[0]: expected a header name, got "a b"']),
        ("{dialect: demo, timeouts: {idel: 1}}", [
            'backends.it.timeouts.idel: unknown key; did you mean "idle"? '
            "Known keys: connect, first_event, idle, total"]),
        ("{dialect: demo, retry: {attempts: 0}}", ["backends.it.retry.attempts: expected 1 or more, got 0"]),
        ("{dialect: toy-chat, url: 'http://h', options: {stile: rich}}", [
            'backends.it.options.stile: unknown key; did you mean "style"? Known keys: style, tuning']),
        ("{dialect: toy-chat, url: 'http://h', options: {style: poor}}", [
            "backends.it.options.style: expected 'plain' or 'rich', got \"poor\""]),
        ("{dialect: toy-chat, url: 'http://h', options: {tuning: {deep: 1}}}", [
            'backends.it.options.tuning.deep: unknown key; did you mean "depth"? Known keys: depth']),
        ("{dialect: toy-chat, url: 'http://h', options: 5}", ["backends.it.options: expected a mapping, got 5"]),
        ("{dialect: toy-agent, url: 'http://h'}", ["backends.it.options.agent: missing; this key is required"]),
        ("{dialect: toy-agent, url: 'http://h', options: {agent: ''}}", [
            'backends.it.options.agent: expected 1 or more characters, got ""']),
        ("{dialect: demo, breaker: {failures: 0}}", ["backends.it.breaker.failures: expected 1 or more, got 0"]),
        ("{dialect: demo, retry: {budget: 2}}", ["backends.it.retry.budget: expected 1.0 or less, got 2"]),
        ("{dialect: demo, fetch_urls: [a.example]}", [
            "backends.it.fetch_urls: dialect demo takes media by URL"]),
    ],
)  # fmt: skip
def test_mistakes_in_a_backend(tmp_path: Path, backend: str, lines: list[str]) -> None:
    text = f"""
        backends:
          demo: {{dialect: demo}}
          it: {backend}
        routes: [{{dialect: toy-chat, path: /v1, backend: demo}}]
    """
    assert mistakes(tmp_path, text) == [f"config.yaml:3: {line}" for line in lines]


@pytest.mark.parametrize(
    ("route", "lines"),
    [
        ("5", ["routes[1]: expected a mapping, got 5"]),
        ("{dialect: toy-agent, path: /a}", ["routes[1]: expected exactly one of backend and models, got neither"]),
        ("{dialect: toy-agent, path: /a, backend: demo, models: {a: demo}}", [
            "routes[1]: expected exactly one of backend and models, got backend and models"]),
        ("{dialect: toy-agent, path: /a, models: {}}", ["routes[1].models: must not be empty"]),
        ("{dialect: demo, path: /a, backend: demo}", [
            f'routes[1].dialect: unknown dialect "demo". Known dialects: {DIALECTS}']),
        ("{dialect: toy-agent, path: /a, pth: /a, backend: demo}", [
            f'routes[1].pth: unknown key; did you mean "path"? Known keys: {KEYS}']),
        ("{dialect: toy-agent, path: /a, prefix: /a, backend: demo}", [
            f'routes[1].prefix: unknown key; did you mean "path"? Known keys: {KEYS}']),
        ("{dialect: toy-agent, backend: demo}", ["routes[1].path: missing; this key is required"]),
        ("{dialect: toy-agent, path: a, backend: demo}", [
            'routes[1].path: expected a path that begins with "/", got "a"']),
        ("{dialect: toy-agent, path: '/a?b', backend: demo}", [
            'routes[1].path: expected a path without white space, ?, #, { and }, got "/a?b"']),
        ("{dialect: toy-agent, path: '/a b', backend: demo}", [
            'routes[1].path: expected a path without white space, ?, #, { and }, got "/a b"']),
        ("{dialect: toy-agent, path: /a//, backend: demo}", [
            'routes[1].path: expected a path without empty segments, got "/a//"']),
        ("{dialect: toy-agent, path: /a, backend: dmeo}", [
            'routes[1].backend: unknown backend "dmeo"; did you mean "demo"? Known backends: demo, llm']),
        ("{dialect: toy-agent, path: /a, models: {\"gpt-*\": lm}}", [
            'routes[1].models["gpt-*"]: unknown backend "lm"; did you mean "llm"? Known backends: demo, llm']),
        ("{dialect: toy-agent, path: /a, backend: demo, stages: [x]}", [
            'routes[1].stages[0]: expected "module:function", as in "mypkg.agent:run", got "x"']),
        ("{dialect: toy-chat, path: /a, backend: demo, options: {name: true}}", [
            'routes[1].options.name: unknown key; did you mean "names"? Known keys: names, code']),
        ("{dialect: toy-chat, path: /a, backend: demo, options: {code: abcdef}}", [
            "routes[1].options.code: code abcdef is too long"]),
        ("{dialect: toy-agent, path: /a, backend: demo, options: {a: 1}}", [
            "routes[1].options.a: unknown key. Known keys: none"]),
        ("{dialect: toy-agent, path: /a, backend: demo, durable: 3}", [
            "routes[1].durable: expected true or false, got 3"]),
        ("{dialect: toy-agent, path: /a, backend: demo, listen: 'h:1', agent_id: b}", [
            "routes[1].listen: a route of toy-agent is reached by path instead"]),
        ("{dialect: toy-agent, path: /a, backend: []}", ["routes[1].backend: must not be empty"]),
        ("{dialect: toy-agent, path: /a, backend: 5}", [
            "routes[1].backend: expected the name of a backend, a list of names, or a mapping of modes to names, "
            "got 5"]),
        ("{dialect: toy-agent, path: /a, backend: [demo, dmo]}", [
            'routes[1].backend[1]: unknown backend "dmo"; did you mean "demo"? Known backends: demo, llm']),
        ("{dialect: toy-agent, path: /a, backend: [demo, demo]}", [
            "routes[1].backend[1]: this backend is already in the list"]),
        ("{dialect: toy-agent, path: /a, backend: [demo, {name: demo}]}", [
            "routes[1].backend[1]: either all entries have a weight or none has"]),
        ("{dialect: toy-agent, path: /a, backend: [{name: demo, weight: 0}]}", [
            "routes[1].backend[0].weight: expected a whole number, 1 or more, got 0"]),
        ("{dialect: toy-agent, path: /a, backend: [{name: demo, wait: 3}]}", [
            "routes[1].backend[0].wait: unknown key. Known keys: name, weight"]),
        ("{dialect: toy-agent, path: /a, backend: [{weight: 3}]}", [
            "routes[1].backend[0].name: expected the name of a backend, got nothing"]),
        ("{dialect: toy-agent, path: /a, models: {m: [demo, dmo]}}", [
            'routes[1].models.m[1]: unknown backend "dmo"; did you mean "demo"? Known backends: demo, llm']),
        ("{dialect: toy-agent, path: /a, backend: {chat: demo}}", [
            "routes[1].backend: requests of dialect toy-agent have no modes; name one backend, or use models"]),
        ("{dialect: toy-chat, path: /v1/, backend: demo}", [
            'routes[1].path: POST "/v1/chat/completions" is already served by routes[0] (toy-chat)']),
        ("{dialect: toy-agent, path: /v1/models, backend: demo}", [
            'routes[1].path: GET "/v1/models/{id}" is already served by routes[0] (toy-chat)']),
        ("{dialect: toy-chat, path: /a, backend: demo, passthrough: true}", [
            'routes[1].passthrough: needs the same dialect on both sides; '
            'the route speaks "toy-chat", its backend "demo"']),
    ],
)  # fmt: skip
def test_mistakes_in_a_route(tmp_path: Path, route: str, lines: list[str]) -> None:
    text = f"""
        backends: {{demo: {{dialect: demo}}, llm: {{dialect: toy-chat, url: "http://h"}}}}
        routes:
          - {{dialect: toy-chat, path: /v1, backend: llm, passthrough: true}}
          - {route}
    """
    assert mistakes(tmp_path, text) == [f"config.yaml:4: {line}" for line in lines]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", ["config.yaml: the configuration is empty; it needs backends and routes"]),
        ("- 1\n", ["config.yaml:1: the configuration is not a mapping; it needs the keys backends and routes"]),
        ("server: {}\n", [
            "config.yaml:1: backends: missing; this key is required",
            "config.yaml:1: routes: missing; this key is required"]),
        ("backends: {d: {dialect: demo}}\nroutes: []\n", ["config.yaml:2: routes: must not be empty"]),
        ("backends: {}\nroutes: [{dialect: toy-chat, path: /, backend: d}]\n", [
            'config.yaml:2: routes[0].backend: unknown backend "d". Known backends: none']),
        ("backends: {d: {dialect: demo}}\nroutes: {}\n", [
            "config.yaml:2: routes: expected a list, got a mapping; for example "
            "[{dialect: ..., path: /v1, backend: llm}]"
        ]),
        ("backends: []\nroutes: [5]\nstors: 1\n", [
            "config.yaml:1: backends: expected a mapping, got a list; for example "
            "{llm: {dialect: ..., url: https://llm.example/v1}}",
            "config.yaml:2: routes[0]: expected a mapping, got 5",
            'config.yaml:3: stors: unknown key; did you mean "stores"? '
            "Known keys: server, backends, routes, stores, speech"]),
    ],
)  # fmt: skip
def test_mistakes_at_the_top(tmp_path: Path, text: str, lines: list[str]) -> None:
    assert mistakes(tmp_path, text) == lines


@pytest.mark.parametrize(
    ("stores", "line"),
    [
        ("history: mysql://u:p@h", "stores.history: expected a URL that begins with sqlite: or postgresql:, got text"),
        ("runs: 'sqlite:'", "stores.runs: expected a URL that begins with sqlite: or postgresql:, got text"),
        (
            "attachments: /data",
            "stores.attachments: expected a URL that begins with file: or s3: or gs: or az:, got text",
        ),
        ("retention: {events: -1}", f"stores.retention.events: {DURATION}, got a number"),
        ("lease: 900ms", "stores.lease: expected at least 1s, got text"),
    ],
)
def test_unused_keys_are_checked(tmp_path: Path, stores: str, line: str) -> None:
    text = f"""
        backends: {{demo: {{dialect: demo}}}}
        routes: [{{dialect: toy-chat, path: /v1, backend: demo}}]
        stores:
          {stores}
    """
    assert mistakes(tmp_path, text) == [f"config.yaml:4: {line}"]


def test_all_mistakes_are_told_together_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """
        server:
          prot: 80
          port: 80
          port: 81
        backends:
          llm:
            dialect: toy-chat
            url: ${NOPE}
            options: {style: poor}
        routes:
          - dialect: toy-chat
            path: v1
            backend: lm
    """
    known = (
        "host, port, workers, hosts, max_body, http_client, drain, cors, keepalive, body_time, slow_reader, limits, "
        "auth, public_url, secret, time_zone, page, page_key, "
        "metrics, traces, health"
    )
    assert mistakes(tmp_path, text) == [
        f'config.yaml:2: server.prot: unknown key; did you mean "port"? Known keys: {known}',
        "config.yaml:3: server.port: written twice, on line 3 and on line 4",
        "config.yaml:8: backends.llm.url: the environment variable NOPE is not set; set it, or write ${NOPE:-default}",
        "config.yaml:9: backends.llm.options.style: expected 'plain' or 'rich', got \"poor\"",
        'config.yaml:12: routes[0].path: expected a path that begins with "/", got "v1"',
        'config.yaml:13: routes[0].backend: unknown backend "lm"; did you mean "llm"? Known backends: llm',
    ]


def test_mistakes_are_also_data(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        written(tmp_path, "backends: {d: {dialect: demo}}\nroutes:\n  - {dialect: toy-chat, path: x, backend: d}\n")
    assert caught.value.failure.details["problems"] == [
        {
            "path": "routes[0].path",
            "message": 'expected a path that begins with "/", got "x"',
            "file": str(tmp_path / "config.yaml"),
            "line": 3,
            "column": 25,
        }
    ]


def test_a_mapping_has_no_lines() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(mapping(server={"prt": 1}), source="settings")
    assert str(caught.value).startswith('settings: server.prt: unknown key; did you mean "port"? Known keys: host, ')


def test_each_pair_of_colliding_routes_is_told_once() -> None:
    route = {"dialect": "toy-chat", "path": "/v1", "backend": "demo"}
    with pytest.raises(ConfigError) as caught:
        parse(mapping(routes=[route, route, route]))
    assert str(caught.value).splitlines() == [
        f'configuration: routes[{n}].path: POST "/v1/chat/completions" is already served by routes[0] (toy-chat)'
        for n in (1, 2)
    ]


@pytest.mark.parametrize("header", ["anthropic-version", None])
def test_headers_keep_endpoints_apart(monkeypatch: pytest.MonkeyPatch, header: str | None) -> None:
    monkeypatch.setattr(ToyMessages, "surface", (Endpoint("GET", "/models", Operation.MODELS, header=header),))
    routes = [{"dialect": name, "path": "/v1", "backend": "demo"} for name in ("toy-chat", "toy-messages")]
    if header:
        assert len(parse(mapping(routes=routes)).routes) == 2
    else:
        with pytest.raises(ConfigError, match=r'GET "/v1/models" is already served by routes\[0\] \(toy-chat\)'):
            parse(mapping(routes=routes))


def test_the_name_of_a_variable_piece_does_not_keep_endpoints_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToyMessages, "surface", (Endpoint("get", "/models/{name}", Operation.MODELS),))
    routes = [{"dialect": name, "path": "/v1", "backend": "demo"} for name in ("toy-chat", "toy-messages")]
    with pytest.raises(ConfigError) as caught:
        parse(mapping(routes=routes))
    assert str(caught.value) == (
        'configuration: routes[1].path: GET "/v1/models/{name}" is already served by routes[0] (toy-chat)'
    )


def test_a_dialect_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Dialect:
        raise ModuleNotFoundError("No module named 'grpc'")

    monkeypatch.setattr(registry, "get", broken)
    with pytest.raises(ConfigError) as caught:
        parse(mapping())
    assert str(caught.value) == (
        "configuration: routes[0].dialect: this dialect cannot be loaded: ModuleNotFoundError: No module named 'grpc'"
    )


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "config.yaml")
    assert (
        str(caught.value)
        == f"{tmp_path}/config.yaml: cannot be read: No such file or directory; `dialect-bridge init` writes a file"
    )
    (tmp_path / "config.yaml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "config.yaml")
    assert str(caught.value) == f"{tmp_path}/config.yaml: not UTF-8 text"


# ------------------------------------------------------------------------------ secrets


def test_secrets_are_in_no_repr() -> None:
    keys = [{"name": "web", "key": "hush-1"}, {"name": "job", "key_sha256": "ab" * 32}]
    backend = {"dialect": "toy-chat", "url": "http://h", "api_key": "hush-2", "headers": {"Authorization": "hush-3"}}
    config = parse(
        mapping(
            server={"auth": {"keys": keys}, "secret": "hush-4"},
            backends={"demo": backend},
            speech={"url": "http://h", "api_key": "hush-5"},
            stores={"history": "postgresql://u:hush-6@h/d", "runs": "postgresql://u:hush-7@h/d"},
        )
    )
    assert config.backends["demo"].api_key == SecretStr("hush-2")
    for told in (repr(config), str(config), "\n".join([*config.describe()])):
        assert "hush" not in told
        assert "abab" not in told


HUSH = "hush-hush"


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (("server", "port"), "expected a whole number, got the value of ${HUSH}"),
        (("server", "page"), "expected true or false, got the value of ${HUSH}"),
        (("server", "drain"), f"{DURATION}, got the value of ${{HUSH}}"),
        (("server", "auth"), "expected a mapping with keys, or the word none, got the value of ${HUSH}"),
        (("server", "time_zone"), "unknown time zone (the value of ${HUSH})"),
        (("server", "host"), "other machines can reach this address"),
        (("backends", "demo"), "expected a mapping, got the value of ${HUSH}"),
        (("backends", "demo", "url"), f"{URL}, got the value of ${{HUSH}}"),
        (("backends", "demo", "dialect"), "unknown dialect (the value of ${HUSH}). Known dialects: demo, python"),
        (("backends", "demo", "options", "style"), "expected 'plain' or 'rich', got the value of ${HUSH}"),
        (("backends", "demo", "options", "tuning"), "expected a mapping, got the value of ${HUSH}"),
        (("routes", 0, "backend"), "unknown backend (the value of ${HUSH}). Known backends: demo"),
        (("routes", 0, "path"), 'expected a path that begins with "/", got the value of ${HUSH}'),
        (("routes", 0, "options", "code"), "not a valid value, got the value of ${HUSH}"),
        (("routes", 0, "stages"), "expected a list, got the value of ${HUSH}"),
    ],
)
def test_the_value_of_a_variable_is_in_no_message(path: tuple[str | int, ...], told: str) -> None:
    data = json.loads(
        json.dumps(
            mapping(
                server={},
                backends={"demo": {"dialect": "toy-chat", "url": "http://h", "options": {}}},
                routes=[{"dialect": "toy-chat", "path": "/v1", "backend": "demo", "options": {}}],
            )
        )
    )
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = "${HUSH}"
    with pytest.raises(ConfigError) as caught:
        parse(data, env={"HUSH": HUSH})
    assert told in str(caught.value)
    assert HUSH not in str(caught.value)
    assert HUSH not in repr(caught.value.failure)


def test_the_value_of_a_variable_is_in_no_message_across_sections() -> None:
    route = {"dialect": "toy-chat", "path": "/${HUSH}", "backend": "demo", "passthrough": True}
    keys = [{"name": "${HUSH}", "key": k, "routes": ["/${HUSH}", "/x${HUSH}"]} for k in ("a", "b")]
    with pytest.raises(ConfigError) as caught:
        parse(mapping(routes=[route, route], server={"auth": {"keys": keys}}), env={"HUSH": HUSH})
    lines = [line.removeprefix("configuration: ") for line in str(caught.value).splitlines()]
    assert "routes[1].path: POST the value of ${HUSH} is already served by routes[0] (toy-chat)" in lines
    assert len(lines) == 5


@pytest.mark.parametrize(
    "data",
    [
        mapping(server={"auth": {"keys": [{"name": "a", "key": ["hush-hush"]}]}}),
        mapping(server={"auth": {"keys": ["hush-hush"]}}),
        mapping(server={"auth": "hush-hush"}),
        mapping(server={"auth": {"keys": [{"name": "a", "key_sha256": "hush-hush"}]}}),
        mapping(backends={"demo": {"dialect": "demo", "headers": "hush-hush"}}),
        mapping(backends={"demo": {"dialect": "toy-chat", "url": "http://u:hush-hush@h"}}),
        mapping(backends={"demo": {"dialect": "toy-chat", "url": "ftp://h?key=hush-hush"}}),
        mapping(backends={"demo": {"dialect": "demo", "api_key": {"value": "hush-hush"}}}),
        mapping(stores={"history": "pg://u:hush-hush@h"}),
        mapping(server={"port": "${X:-hush-hush}"}),
        mapping(server={"port": "${X:hush-hush}"}),
    ],
)
def test_a_secret_that_was_written_down_is_in_no_message(data: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(data, env={})
    assert HUSH not in str(caught.value)
    assert HUSH not in repr(caught.value.failure)


# ------------------------------------------------------------------------------ the schema


def models() -> list[type[BaseModel]]:
    """All models of the configuration, found by walking from the top."""
    found: list[type[BaseModel]] = []

    def walk(annotation: Any) -> None:
        if isclass(annotation) and issubclass(annotation, Section) and annotation not in found:
            found.append(annotation)
            for field in annotation.model_fields.values():
                walk(field.annotation)
        for argument in get_args(annotation):
            walk(argument)

    walk(Config)
    return found


def test_every_key_has_a_line_that_says_what_it_is() -> None:
    assert len(models()) == 27
    for model in models():
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"
            assert "\n" not in field.description


def test_the_json_schema_is_well_formed() -> None:
    schema = json.loads(json.dumps(json_schema()))
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$ref"] == "#/$defs/Config"
    check_schema(schema, schema["$defs"])


@pytest.mark.parametrize(
    "broken", [{"type": "mapping"}, {"$ref": "#/$defs/None"}, {"pattern": "("}, {"minimun": 1}, {"anyOf": []}]
)
def test_the_check_of_the_schema_can_fail(broken: dict[str, Any]) -> None:
    with pytest.raises((AssertionError, re.error)):
        check_schema(broken, {})


def test_the_json_schema_knows_the_dialects() -> None:
    definitions = json_schema()["$defs"]
    assert definitions["RouteSection"]["properties"]["dialect"]["anyOf"][0] == {
        "enum": ["toy-agent", "toy-chat", "toy-messages"]
    }
    assert definitions["BackendSection"]["properties"]["dialect"]["anyOf"][0]["enum"][-2:] == ["demo", "python"]
    assert definitions["back:toy-chat"] == {"$ref": "#/$defs/ChatBack"}
    assert definitions["front:toy-chat"] == {"$ref": "#/$defs/ChatFront"}
    assert definitions["BackendSection"]["properties"]["options"]["type"] == "object"
    assert "additionalProperties" not in definitions["BackendSection"]["properties"]["options"]
    assert {
        "if": {"properties": {"dialect": {"const": "toy-agent"}}, "required": ["dialect"]},
        "then": {"properties": {"options": {"$ref": "#/$defs/back:toy-agent"}}},
    } in definitions["BackendSection"]["allOf"]


def test_the_json_schema_has_words_and_variables() -> None:
    server = json_schema()["$defs"]["ServerSection"]["properties"]
    assert server["auth"]["anyOf"][-1] == {"const": "none"}
    assert server["cors"]["anyOf"] == [{"$ref": "#/$defs/CorsSection"}, {"enum": [False, "off"]}]
    assert server["port"]["anyOf"][0] == {"type": "integer", "minimum": 0, "maximum": 65535}
    assert re.search(server["port"]["anyOf"][1]["pattern"], "${PORT:-8080}")
    for text in ("15s", "off", "${K:-5s}", "0"):
        assert re.search(server["keepalive"]["pattern"], text), text
    assert not re.search(server["keepalive"]["pattern"], "5 parsecs")


TYPES = {"null", "boolean", "object", "array", "number", "string", "integer"}
# Every keyword of draft 2020-12 that the schema may use, with what its value must be.
KEYWORDS: dict[str, type | tuple[type, ...]] = {
    "$schema": str,
    "$ref": str,
    "$defs": dict,
    "title": str,
    "description": str,
    "type": (str, list),
    "enum": list,
    "const": object,
    "default": object,
    "format": str,
    "writeOnly": bool,
    "properties": dict,
    "required": list,
    "additionalProperties": (bool, dict),
    "minProperties": int,
    "items": dict,
    "minItems": int,
    "minLength": int,
    "pattern": str,
    "minimum": (int, float),
    "maximum": (int, float),
    "anyOf": list,
    "allOf": list,
    "if": dict,
    "then": dict,
}


def check_schema(schema: Any, definitions: dict[str, Any]) -> None:
    """A small meta-schema: keywords known and well typed, references met, patterns sound."""
    assert isinstance(schema, bool | dict)
    if isinstance(schema, bool):
        return
    for keyword, value in schema.items():
        assert keyword in KEYWORDS, keyword
        assert isinstance(value, KEYWORDS[keyword]), keyword
    types = schema.get("type", [])
    assert set([types] if isinstance(types, str) else types) <= TYPES
    assert all(isinstance(key, str) for key in schema.get("required", []))
    re.compile(schema.get("pattern", ""))
    if "$ref" in schema:
        assert schema["$ref"].removeprefix("#/$defs/") in definitions
    for below in ("properties", "$defs"):
        for each in schema.get(below, {}).values():
            check_schema(each, definitions)
    for below in ("anyOf", "allOf"):
        assert schema.get(below, [True])
        for each in schema.get(below, []):
            check_schema(each, definitions)
    for below in ("items", "if", "then", "additionalProperties"):
        check_schema(schema.get(below, True), definitions)


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "connection"])
def test_headers_of_the_connection_are_nobodys_to_give(name: str) -> None:
    for section in ({"forward_headers": [name]}, {"headers": {name: "1"}}):
        backends = {"demo": {"dialect": "demo"}, "b": {"dialect": "toy-chat", "url": "http://h", **section}}
        with pytest.raises(ConfigError, match="set by the bridge"):
            parse(mapping(backends=backends))


def test_all_missing_extras_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = {"history": "sqlite:///h.db", "runs": "postgresql://db.example/x", "attachments": "s3://bucket"}
    config = parse({**mapping(), "stores": stores, "server": {"traces": {"endpoint": "http://otel.example"}}})
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name in ("asyncpg", "opentelemetry") else object())
    with pytest.raises(ConfigError) as caught:
        extras.check_extras(config)
    assert str(caught.value) == (
        "server.traces: 2 extras are not installed: pip install 'dialect-bridge[otel,postgres]'; "
        "needed by server.traces (otel), stores.runs (postgres)"
    )
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "asyncpg" else object())
    extras.check_extras(config)
