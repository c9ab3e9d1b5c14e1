"""What keys and tokens may do: scopes, on every endpoint of every dialect, for the metrics and for the page."""

from __future__ import annotations

import time
from typing import Any

import jwt
import pytest

from bridge.contract import SCOPES, Operation, Scope, registry
from bridge.contract.surface import shown_path
from bridge.engine.config import parse
from bridge.errors import ConfigError
from tests.server.harness import ask, post, serving

pytestmark = pytest.mark.usefixtures("toy")

SECRET = "a-shared-secret-of-at-least-32-bytes!"


def setup(auth: Any, dialect: str = "toy", **server: Any) -> dict[str, Any]:
    return {
        "server": {"auth": auth, **server},
        "backends": {"it": {"dialect": "demo"}},
        "routes": [{"dialect": dialect, "path": "/toy", "backend": "it"}],
    }


def keys(**operations: list[str]) -> dict[str, Any]:
    """A key for each name, which is the key as well."""
    return {"keys": [{"name": name, "key": name, "operations": words} for name, words in operations.items()]}


def signed(**claims: Any) -> str:
    return jwt.encode({"sub": "alice", "exp": int(time.time()) + 60, **claims}, SECRET)


async def refused(base: str, key: str, method: str = "POST", path: str = "/toy/ask") -> tuple[int, str, str]:
    """Status, `www-authenticate` and body of a request."""
    reply = await ask(method, f"{base}{path}", b"{}", {"x-api-key": key, "content-type": "application/json"})
    return reply.status, reply.headers.get("www-authenticate", ""), reply.body.decode()


def test_every_operation_has_its_scope() -> None:
    assert set(SCOPES) == set(Operation)
    assert {scope for scope in SCOPES.values() if scope} == set(Scope) - {Scope.METRICS, Scope.PAGE}


@pytest.mark.parametrize("name", [name for name in registry.over_http() if name != "toy"])
async def test_every_endpoint_needs_its_scope(name: str) -> None:
    """In the dialect's own shape; a key with all other scopes does not pass."""
    dialect = registry.get(name)
    narrow = {f"no-{scope}": [other for other in Scope if other is not scope] for scope in Scope}
    config = setup(keys(**narrow), name)
    config["routes"][0]["durable"] = any(e.durable for e in dialect.surface)
    if any(e.operation is Operation.FORWARD for e in dialect.surface):
        config["backends"]["extras"] = {"dialect": name, "url": "http://127.0.0.1:9"}
        config["routes"][0]["extras"] = "extras"
    config["stores"] = {"history": "sqlite:///:memory:"}
    async with serving(config) as base:
        for endpoint in dialect.surface:
            scope = SCOPES[endpoint.operation]
            if endpoint.public or scope is None:
                continue
            path = "/toy" + shown_path(endpoint.path)
            headers = {"authorization": f"Bearer no-{scope}", **({endpoint.header: "x"} if endpoint.header else {})}
            reply = await ask(endpoint.method, base + path.format_map(_Anything()), b"", headers)
            assert reply.status == 403, endpoint
            told = f"This API key does not allow the operation '{scope}'." in reply.body.decode()
            assert told is (endpoint.method != "HEAD"), endpoint
            assert reply.headers["www-authenticate"] == f'Bearer error="insufficient_scope", scope="{scope}"'
            assert reply.headers["content-type"].partition(";")[0] in ("application/json", "application/problem+json")


class _Anything(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return {"version": "v1beta"}.get(key, "x")


async def test_a_key_does_what_it_may() -> None:
    async with serving(setup(keys(runner=["run"], all=["*"], reader=["read", "models"]))) as base:
        for key, status in (("runner", 200), ("all", 200), ("reader", 403)):
            assert (await post(f"{base}/toy/ask", {"ask": "text"}, x_api_key=key)).status == status


async def test_the_metrics_and_the_page_have_scopes() -> None:
    section = keys(runner=["run"], counter=["metrics"], viewer=["page"])
    async with serving(setup(section, page=True)) as base:
        for key, metrics, page in (("runner", 403, 403), ("counter", 200, 403), ("viewer", 403, 200)):
            assert (await refused(base, key, "GET", "/metrics"))[0] == metrics, key
            assert (await refused(base, key, "GET", "/_page/state"))[0] == page, key
            assert (await refused(base, key, "GET", "/_page/health"))[0] == page, key
        assert "'metrics'" in (await refused(base, "viewer", "GET", "/metrics"))[2]
        assert "'page'" in (await refused(base, "runner", "GET", "/_page/state"))[2]


@pytest.mark.parametrize(
    ("claims", "status"),
    [
        ({"scope": "openid run"}, 200),
        ({"scope": ["run"]}, 200),
        ({"scope": "read models"}, 403),
        ({"scope": "*"}, 403),
        ({"scope": ""}, 403),
        ({"scope": 5}, 403),
        ({"scope": [["run"], {"run": 1}]}, 403),
        ({"scope": {"run": True}}, 403),
        ({}, 403),
    ],
)
async def test_a_claim_limits_a_token(claims: dict[str, Any], status: int) -> None:
    async with serving(setup({"jwt": {"secret": SECRET, "scope_claim": "scope"}})) as base:
        reply = await post(f"{base}/toy/ask", {"ask": "text"}, x_api_key=signed(**claims))
    assert reply.status == status
    assert (status == 200) != ("This token does not allow the operation 'run'." in reply.body.decode())


async def test_without_a_claim_tokens_may_do_everything() -> None:
    async with serving(setup({"jwt": {"secret": SECRET}})) as base:
        assert (await post(f"{base}/toy/ask", {"ask": "text"}, x_api_key=signed(scope="read"))).status == 200


async def test_words_of_a_claim_stand_for_routes_and_operations() -> None:
    """What two words allow on two routes is not allowed crosswise."""
    scopes = {
        "chat": {"operations": ["run"], "routes": ["/toy"]},
        "look": {"operations": ["read"], "routes": ["/other"]},
    }
    config = setup({"jwt": {"secret": SECRET, "scope_claim": "permissions", "scopes": scopes}})
    config["routes"].append({"dialect": "toy", "path": "/other", "backend": "it"})
    async with serving(config) as base:

        async def asked(path: str, *permissions: str) -> tuple[int, str]:
            reply = await post(f"{base}{path}/ask", {"ask": "text"}, x_api_key=signed(permissions=list(permissions)))
            return reply.status, reply.body.decode()

        assert (await asked("/toy", "chat", "look"))[0] == 200
        status, told = await asked("/other", "chat", "look")
        assert (status, "'run'" in told) == (403, True)
        status, told = await asked("/other", "chat")
        assert (status, "does not open this route" in told) == (403, True)
        assert (await asked("/toy", "run"))[0] == 403


@pytest.mark.parametrize(
    ("auth", "told"),
    [
        (
            {"keys": [{"name": "a", "key": "b", "operations": ["cancle"]}]},
            'server.auth.keys[0].operations[0]: unknown operation "cancle"; did you mean "cancel"? '
            "Known operations: run, read, cancel, delete, models, register, metrics, page, *",
        ),
        (
            {"keys": [{"name": "a", "key": "b", "operations": []}]},
            "server.auth.keys[0].operations: must not be empty",
        ),
        (
            {"jwt": {"secret": SECRET, "scopes": {"x": {"operations": ["run"]}}}},
            "server.auth.jwt.scope_claim: missing; scopes needs the claim that names them",
        ),
        (
            {"jwt": {"secret": SECRET, "scope_claim": "scope", "scopes": {"x": {"operations": ["raed"]}}}},
            'server.auth.jwt.scopes.x.operations[0]: unknown operation "raed"; did you mean "read"? '
            "Known operations: run, read, cancel, delete, models, register, metrics, page, *",
        ),
        (
            {"jwt": {"secret": SECRET, "scope_claim": "scope", "scopes": {"x": {"operations": ["metrics"]}}}},
            "server.auth.jwt.scopes.x.operations: tokens cannot give access to the metrics",
        ),
        (
            {"jwt": {"secret": SECRET, "scope_claim": "scope", "scopes": {"x": {"routes": ["/toi"]}}}},
            'server.auth.jwt.scopes.x.routes[0]: no route is mounted at "/toi"; did you mean "/toy"?',
        ),
    ],
)
def test_mistakes(auth: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(setup(auth))
    assert caught.value.message == f"configuration: {told}"
