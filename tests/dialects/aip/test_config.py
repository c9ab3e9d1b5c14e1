"""Routes and backends of this dialect in a configuration: what they need, and what is said when it is not there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from bridge import ConfigError
from bridge.contract import registry
from bridge.engine import extras
from bridge.engine.config import parse
from bridge.engine.extras import check_extras
from tests.docs.helpers import ROOT, run

ROUTE = {"dialect": "aip", "listen": "127.0.0.1:50051", "agent_id": "bridge", "backend": "demo"}


def parsed(*routes: dict[str, Any], **sections: Any) -> Any:
    backends = {"demo": {"dialect": "demo"}, **sections.pop("backends", {})}
    return parse({"backends": backends, "routes": list(routes) or [ROUTE], **sections})


def test_a_route_is_an_agent_at_an_address() -> None:
    config = parsed(ROUTE, {**ROUTE, "agent_id": "other"}, {"dialect": "openai-chat", "path": "/v1", "backend": "demo"})
    assert config.describe()[:2] == [
        "gRPC   127.0.0.1:50051 bridge  aip         -> demo (demo)",
        "gRPC   127.0.0.1:50051 other   aip         -> demo (demo)",
    ]
    assert config.routes[0].mount == "grpc://127.0.0.1:50051/bridge"


@pytest.mark.parametrize("address", ["localhost:1", "[::1]:50051", "127.0.0.1:0"])
def test_addresses(address: str) -> None:
    assert parsed({**ROUTE, "listen": address}).routes[0].listen == address
    backend = {"it": {"dialect": "aip", "url": address, "options": {"agent": "a", "cancel_grace": "500ms"}}}
    assert parsed(backends=backend).backends["it"].options.cancel_grace == 0.5


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"listen": None}, "routes[0].listen: missing"),
        ({"agent_id": None}, "routes[0].agent_id: missing"),
        ({"path": "/aip"}, "routes[0].path: a route of aip is reached by listen and agent_id instead"),
        ({"listen": "http://127.0.0.1:1"}, "routes[0].listen: expected an address such as"),
        ({"listen": "127.0.0.1"}, "routes[0].listen: expected an address such as"),
        ({"listen": "::1:50051"}, "routes[0].listen: expected an address such as"),
        ({"listen": "h:70000"}, "routes[0].listen: expected an address such as"),
        ({"listen": "0.0.0.0:50051"}, "routes[0].listen: other machines can reach this address"),
        ({"passthrough": True}, "routes[0].passthrough: a route of aip does not have this key"),
        ({"durable": True}, "routes[0].durable: a route of aip does not have this key"),
        ({"options": {"stream": "all"}}, "routes[0].options.stream"),
        ({"options": {"mode": "agent"}}, "expected gateway (host:port) with mode: agent"),
        ({"options": {"idle_timeout": "soon"}}, "routes[0].options.idle_timeout"),
    ],
)
def test_mistakes_in_a_route(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed({**ROUTE, **change})
    assert told in caught.value.message


def test_mistakes_between_routes() -> None:
    with pytest.raises(ConfigError, match=r'"bridge" is already the agent of routes\[0\]'):
        parsed(ROUTE, ROUTE)
    with pytest.raises(ConfigError, match=r"server.workers: .*expected 1"):
        parsed(server={"workers": 2})
    for auth in ("none", {"keys": [{"name": "a", "key": "k"}]}, {"jwt": {"secret": "s" * 32, "audience": "b"}}):
        assert parsed({**ROUTE, "listen": "0.0.0.0:1"}, server={"auth": auth}).routes


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"expose_client_tools": True}, ["expose_client_tools"]),
        ({"session": "keep"}, ["session"]),
        ({"expose_client_tools": True, "session": "keep"}, ["expose_client_tools", "session"]),
    ],
)
def test_sessions_that_wait_for_a_client_live_in_one_process(options: dict[str, Any], named: list[str]) -> None:
    """With several workers the request that brings a result, or goes on with a conversation, may reach another one."""
    chat = {"dialect": "openai-chat", "path": "/v1", "backend": "it"}

    def config(workers: int, **options: Any) -> Any:
        backends = {"it": {"dialect": "aip", "url": "h:1", "options": {"agent": "a", **options}}}
        return parsed(chat, backends=backends, server={"workers": workers})

    assert config(1, **options).backends["it"].options
    assert config(2).server.workers == 2
    with pytest.raises(ConfigError) as caught:
        config(2, **options)
    assert caught.value.message.splitlines() == [
        f"configuration: backends.it.options.{name}: keeps a session in the process that opened it, but a later "
        "request may reach another one of the 2 workers; set server.workers to 1, or remove this option"
        for name in named
    ]


@pytest.mark.parametrize("command", ["check", "serve"])
def test_the_commands_refuse_it(tmp_path: Path, command: str) -> None:
    file = tmp_path / "it.yaml"
    server = "server: {workers: 2}\n" if command == "check" else ""
    file.write_text(
        f"{server}backends:\n  it: {{dialect: aip, url: 'h:1', options: {{expose_client_tools: true}}}}\n"
        "routes:\n  - {dialect: openai-chat, path: /v1, backend: it}\n"
    )
    workers = ["--workers", "2"] if command == "serve" else []
    done = run(sys.executable, "-m", "bridge.cli", command, str(file), *workers, PYTHONPATH=str(ROOT))
    assert done.returncode == 2
    assert b"backends.it.options.expose_client_tools: keeps a session in the process that" in done.stderr


def test_a_route_may_offer_the_tools_at_a_backend() -> None:
    backends = {"gateway": {"dialect": "aip", "url": "127.0.0.1:1"}}
    chat = {"dialect": "openai-chat", "path": "/v1", "backend": "demo", "tools": "gateway", "max_tool_rounds": 3}
    route = parsed(chat, backends=backends).routes[0]
    assert (route.tools, route.max_tool_rounds) == ("gateway", 3)
    with pytest.raises(ConfigError, match=r'routes\[0\].tools: .*"demo", a backend of dialect demo'):
        parsed({**chat, "tools": "demo"}, backends=backends)
    with pytest.raises(ConfigError, match=r"routes\[0\].tools: "):
        parsed({**chat, "tools": "gatewy"}, backends=backends)
    with pytest.raises(ConfigError, match=r"routes\[0\].max_tool_rounds: "):
        parsed({**chat, "max_tool_rounds": 0}, backends=backends)
    same = {"llm": {"dialect": "openai-chat", "url": "http://127.0.0.1:1"}, **backends}
    with pytest.raises(ConfigError, match=r"routes\[0\].tools: cannot be combined with passthrough"):
        parsed({**chat, "backend": "llm", "passthrough": True}, backends=same)


@pytest.mark.parametrize("tools", ["off", False])
def test_tools_may_be_off_as_yaml_reads_it(tools: Any) -> None:
    assert parsed({**ROUTE, "options": {"tools": tools}}).routes[0].options.tools == "off"


def test_a_backend_is_at_an_address() -> None:
    with pytest.raises(ConfigError, match=r"backends.it.url: expected an address such as .* got .*http"):
        parsed(backends={"it": {"dialect": "aip", "url": "http://127.0.0.1:50050"}})
    with pytest.raises(ConfigError, match=r"backends.it.options.error_pattern: not a regular expression"):
        parsed(backends={"it": {"dialect": "aip", "url": "h:1", "options": {"error_pattern": "("}}})


def test_without_its_libraries_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (extras, registry):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    told = r"the dialect aip needs grpc, which is not installed; pip install 'dialect-bridge\[aip\]'"
    with pytest.raises(ConfigError, match=rf"routes\[0\].dialect: {told}"):
        check_extras(parsed())
    chat = {"dialect": "openai-chat", "path": "/v1", "backend": "it"}
    with pytest.raises(ConfigError, match=rf"backends.it.dialect: {told}"):
        check_extras(parsed(chat, backends={"it": {"dialect": "aip", "url": "h:1"}}))
    with pytest.raises(ConfigError, match=r"2 extras are not installed: pip install 'dialect-bridge\[postgres,aip\]'"):
        check_extras(parsed(stores={"runs": "postgresql://db.example/x"}))
