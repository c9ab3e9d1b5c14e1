"""Web pages against the server: the `Host` it is called by, origins that may not call, bodies without a preflight."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
from contextlib import closing
from typing import Any

import pytest

from bridge import asgi
from bridge.engine.bridge import Bridge
from bridge.engine.config import parse
from bridge.engine.config.schema.server import ServerSection
from bridge.errors import ConfigError
from bridge.server import make_app
from tests.server.harness import Reply, ask, fake_backend, post, serving
from tests.server.test_asgi import served

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
EVIL = "https://evil.example"
MINE = "https://mine.example"
FRONTS = {
    "openai-chat": ("/v1", "/v1/chat/completions"),
    "openai-responses": ("/responses/v1", "/responses/v1/responses"),
    "anthropic-messages": ("/claude/v1", "/claude/v1/messages"),
    "agentscope": ("/agentscope", "/agentscope/process"),
    "agentscope-java": ("/java", "/java/process"),
    "ag-kit": ("/ag-kit", "/ag-kit/send-message"),
    "ag-ui": ("/ag-ui", "/ag-ui"),
    "agent-runs": ("/agent", "/agent/runs"),
}
KEPT = [
    ("GET", "/agent/history"),
    ("GET", "/agent/runs/t/events?runId=r"),
    ("GET", "/responses/v1/responses/resp_1"),
    ("GET", "/responses/v1/responses/resp_1/input_items"),
    ("DELETE", "/responses/v1/responses/resp_1"),
    ("GET", "/metrics"),
]


STORES = {"history": "sqlite:///:memory:"}


def config(url: str | None = None, **server: Any) -> dict[str, Any]:
    backend = {"dialect": "openai-chat", "url": url} if url else {"dialect": "demo"}
    routes = [{"dialect": dialect, "path": path, "backend": "it"} for dialect, (path, _) in FRONTS.items()]
    return {
        "server": server,
        "backends": {"it": backend},
        "routes": routes,
        "stores": STORES,
    }


def shape(reply: Reply) -> set[str]:
    """The keys of an error body: how a dialect tells its errors from another's."""
    value = reply.json
    return (
        set(value) | {f"error.{key}" for key in value["error"]} if isinstance(value.get("error"), dict) else set(value)
    )


# ---------------------------------------------------------------------- Host


async def test_a_local_server_is_called_by_local_names_only() -> None:
    """A page whose name was changed to resolve to this machine (DNS rebinding) sends its own name."""
    async with fake_backend("openai-chat") as backend, serving(config(backend.url)) as base:
        backend.says("done")
        port = base.rpartition(":")[2]
        url = f"{base}/v1/chat/completions"
        for host in ("localhost", f"LocalHost:{port}", "127.0.0.1:1", "[::1]", f"[::1]:{port}", "localhost."):
            assert (await post(url, CHAT, host=host)).status == 200, host
        seen = len(backend.seen)
        odd = [
            "evil.example",
            f"evil.example:{port}",
            "127.0.0.1.evil.example",
            "localhost:80:80",
            "localhost:",
            "x@[::1]",
        ]
        for host in odd:
            refused = await post(url, CHAT, host=host)
            assert (refused.status, shape(refused)) == (421, shape(await post(url, {}))), host
        assert (await ask("GET", f"{base}/", headers={"host": "evil.example"})).status == 421
        assert (await ask("GET", f"{base}/metrics", headers={"host": "evil.example"})).status == 421
        assert (await ask("GET", f"{base}/nothing", headers={"host": "evil.example"})).status == 421
        assert (await ask("GET", f"{base}/healthz", headers={"host": "evil.example"})).status == 200
        assert len(backend.seen) == seen, "nothing of it reached the backend"


@pytest.mark.parametrize("dialect", FRONTS)
async def test_a_wrong_host_is_an_error_of_the_dialect(dialect: str) -> None:
    async with serving(config()) as base:
        url = base + FRONTS[dialect][1]
        refused = await post(url, {}, host="evil.example")
        assert refused.status == 421
        assert shape(await post(url, b"{")) - {"instance", "errors"} <= shape(refused)
        assert "x-request-id" in refused.headers


async def test_configured_hosts() -> None:
    async with serving(config(hosts=["Bridge.example", "fe80::1"])) as base:
        url = f"{base}/v1/chat/completions"
        assert (await post(url, CHAT, host="bridge.example:8443")).status == 200
        assert (await post(url, CHAT, host="[fe80::1]")).status == 200
        assert (await post(url, CHAT)).status == 421
    async with serving(config(hosts=["*"])) as base:
        assert (await post(f"{base}/v1/chat/completions", CHAT, host="any.example")).status == 200
    async with serving(config(auth={"keys": [{"name": "a", "key": "k"}]})) as base:
        answer = await post(f"{base}/v1/chat/completions", CHAT, host="any.example", x_api_key="k")
        assert answer.status == 200


def test_hosts_that_are_known_by_default() -> None:
    local = {"localhost", "127.0.0.1", "[::1]"}
    assert ServerSection().known_hosts == local
    assert ServerSection(host="127.0.0.2").known_hosts == local | {"127.0.0.2"}
    assert ServerSection(auth="none", public_url="https://Bridge.example/x").known_hosts == local | {"bridge.example"}
    assert ServerSection(host="0.0.0.0", auth="none").known_hosts == local | {"0.0.0.0"}
    assert ServerSection(auth={"keys": [{"name": "a", "key": "k"}]}).known_hosts is None
    assert ServerSection(hosts=["a", "*"]).known_hosts is None


@pytest.mark.parametrize("host", ["", "http://a", "a:80", "a/b", "::g"])
def test_hosts_that_are_none(host: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.hosts"):
        parse(config(hosts=[host]))


def test_an_application_in_another_server_knows_no_address_of_its_own() -> None:
    from bridge.server.requests.state import STATE

    def origins(**server: Any) -> Any:
        return make_app(Bridge.from_config(config(**server)))[STATE].origins

    assert origins().may_have_address
    assert not origins(hosts=["a.example"]).may_have_address
    assert origins(auth={"keys": [{"name": "a", "key": "k"}]}).hosts is None


OPEN_HOSTS = {
    "localhost": 200, "127.0.0.1:8080": 200, "192.168.1.5": 200, "[fe80::1]:80": 200, "bridge": 200, "bridge:8080": 200,
    "ours.example": 200, "bridge.default.svc.cluster.local": 200, "api.internal": 200,
    "evil.example": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "192.168.1": 421, "": 421,
    "local.example:80": 421, "a:b": 421, "fe80::1": 421,
}  # fmt: skip


@pytest.mark.parametrize("way", ["on every address", "over ASGI"])
async def test_where_anyone_may_call_no_name_that_others_can_register_leads_here(way: str) -> None:
    """Addresses do, and names for private use: a container calls another one by its name."""
    section: dict[str, Any] = {"auth": "none", "public_url": "https://ours.example"}
    async with fake_backend("openai-chat") as backend, contextlib.AsyncExitStack() as stack:
        backend.says("done")
        if way == "over ASGI":
            sections = {**config(backend.url, **section), "stores": {**STORES, "runs": "sqlite:///:memory:"}}
            base = await stack.enter_async_context(served(asgi.app(Bridge.from_config(sections))))
        else:
            base = await stack.enter_async_context(serving(config(backend.url, host="0.0.0.0", **section)))
        seen = {
            host: (await post(f"{base}/v1/chat/completions", CHAT, host=host, origin=f"http://{host}")).status
            for host in OPEN_HOSTS
            if host
        }
        assert (await ask("GET", f"{base}/healthz", headers={"host": "evil.example"})).status == 200
    assert seen == {host: status for host, status in OPEN_HOSTS.items() if host}


async def test_a_server_with_keys_is_called_by_any_name() -> None:
    auth = {"keys": [{"name": "a", "key": "k"}]}
    made = asgi.app(Bridge.from_config({**config(auth=auth), "stores": {**STORES, "runs": "sqlite:///:memory:"}}))
    async with served(made) as base:
        assert (await post(f"{base}/v1/chat/completions", CHAT, host="any.example", x_api_key="k")).status == 200


# ---------------------------------------------------------------------- origins


async def test_with_cors_off_no_page_of_another_site_reaches_anything() -> None:
    async with fake_backend("openai-chat") as backend, serving(config(backend.url, cors="off")) as base:
        backend.says("done")
        url = f"{base}/v1/chat/completions"
        foreign: list[dict[str, str]] = [
            {"origin": EVIL},
            {"origin": "null"},
            {"origin": f"{base}.evil.example"},
            {"origin": "https://" + base.removeprefix("http://") + "0"},
            {"origin": EVIL, "sec_fetch_site": "cross-site"},
            {"origin": "http://localhost:1", "sec_fetch_site": "same-site"},
            {"sec_fetch_site": "cross-site"},
            {"sec_fetch_site": "same-site"},
        ]
        for headers in foreign:
            refused = await post(url, CHAT, **headers)
            assert (refused.status, shape(refused)) == (403, shape(await post(url, {}))), headers
            assert "access-control-allow-origin" not in refused.headers
        listed = await ask("GET", f"{base}/v1/models", headers={"sec-fetch-site": "cross-site"})
        assert listed.status == 403
        asks = {"origin": EVIL, "access-control-request-method": "POST"}
        preflight = await ask("OPTIONS", url, headers=asks)
        assert preflight.status == 403
        assert not [name for name in preflight.headers if name.startswith("access-control")]
        assert backend.seen == []
        own: list[dict[str, str]] = [
            {},
            {"origin": base},
            {"origin": base, "sec_fetch_site": "same-origin"},
            {"sec_fetch_site": "none"},
        ]
        for headers in own:
            assert (await post(url, CHAT, **headers)).status == 200, headers
        # Following a link to the page is no attack; its files are nobody's secret.
        assert (await ask("GET", f"{base}/", headers={"sec-fetch-site": "cross-site"})).status == 200


async def test_the_public_address_is_the_servers_own() -> None:
    async with serving(config(cors="off", public_url="https://bridge.example/base", auth="none")) as base:
        url = f"{base}/v1/chat/completions"
        assert (await post(url, CHAT, origin="https://bridge.example")).status == 200
        assert (await post(url, CHAT, origin="https://bridge.example:444")).status == 403
        assert (await post(url, CHAT, origin="https://bridge.example", host="bridge.example")).status == 200


async def test_any_page_may_talk_and_none_reads_what_is_kept() -> None:
    async with serving(config()) as base:
        answer = await post(f"{base}/v1/chat/completions", CHAT, origin=EVIL)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, EVIL)
        made = await post(f"{base}/responses/v1/responses", {"model": "m", "input": "Hello"}, origin=EVIL)
        assert made.status == 200
        answer_id = made.json["id"]
        kept = [*KEPT, ("GET", f"/responses/v1/responses/{answer_id}")]
        pages: list[dict[str, str]] = [{"origin": EVIL}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}]
        for method, path in kept:
            for headers in pages:
                refused = await ask(method, base + path, headers=headers)
                assert refused.status == 403, (method, path, headers)
                assert "access-control-allow-origin" not in refused.headers
                assert answer_id.encode() not in refused.body
        for path in ("/agent/runs/t/cancel", "/agent/attachments"):
            assert (await post(base + path, {}, origin=EVIL)).status == 403
        assert (await ask("GET", f"{base}/responses/v1/responses/{answer_id}")).status == 200


async def test_named_origins_read_what_is_kept() -> None:
    async with serving(config(cors={"origins": ["*", "null", MINE]})) as base:
        url = f"{base}/responses/v1/responses"
        made = (await post(url, {"model": "m", "input": "Hello"}, origin=MINE)).json["id"]
        read = await ask("GET", f"{url}/{made}", headers={"origin": MINE, "sec-fetch-site": "cross-site"})
        assert (read.status, read.headers["access-control-allow-origin"]) == (200, MINE)
        assert (await ask("GET", f"{url}/{made}", headers={"origin": EVIL})).status == 403
        # Any page can make a frame whose origin is null.
        assert (await ask("GET", f"{url}/{made}", headers={"origin": "null"})).status == 403


async def test_a_page_does_not_resume_a_durable_run_of_another_site() -> None:
    setup = config()
    setup["routes"] = [{"dialect": "ag-ui", "path": "/ag-ui", "backend": "it", "durable": True}]
    body = {
        "threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [], "forwardedProps": {},
        "messages": [{"id": "1", "role": "user", "content": "Hello"}],
    }  # fmt: skip
    async with serving(setup) as base:
        assert (await post(f"{base}/ag-ui", body, origin=EVIL)).status == 200
        assert (await post(f"{base}/ag-ui", body, origin=EVIL, last_event_id="0-0")).status == 403
        assert (await post(f"{base}/ag-ui", body, last_event_id="0-0")).status == 200


async def test_preflights_and_caches() -> None:
    asks = {"access-control-request-method": "POST", "access-control-request-private-network": "true"}
    setup = config(cors={"origins": ["*", MINE]})
    async with serving(setup) as base:
        url = f"{base}/v1/chat/completions"
        mine = await ask("OPTIONS", url, headers={**asks, "origin": MINE})
        other = await ask("OPTIONS", url, headers={**asks, "origin": EVIL})
        assert (mine.status, other.status) == (200, 200)
        # From the public network into this one only pages of named origins.
        assert mine.headers["access-control-allow-private-network"] == "true"
        assert "access-control-allow-private-network" not in other.headers
        assert "origin" in mine.headers["vary"].lower()
        assert "access-control-request-headers" in mine.headers["vary"].lower()
        assert (await post(url, CHAT)).headers["vary"] == "Origin"
        assert (await post(url, CHAT, origin=MINE)).headers["vary"] == "Origin"


@pytest.mark.parametrize("auth", [None, {"trusted_header": "X-User", "trusted_proxies": ["127.0.0.1"]}])
async def test_pages_of_unnamed_origins_get_no_credentials(auth: Any) -> None:
    """Cookies, certificates and passwords of a proxy in front are the visitor's."""
    async with serving(config(**({"auth": auth} if auth else {}), cors={"origins": ["*", MINE]})) as base:
        url = f"{base}/v1/chat/completions"
        mine, other = [await post(url, CHAT, origin=origin, x_user="ann") for origin in (MINE, EVIL)]
        assert mine.headers["access-control-allow-credentials"] == "true"
        assert "access-control-allow-credentials" not in other.headers
        assert other.headers["access-control-allow-origin"] == EVIL
        null = await post(url, CHAT, origin="null", x_user="ann")
        assert "access-control-allow-credentials" not in null.headers


async def test_one_origin_only() -> None:
    async with serving(config(cors={"origins": [MINE]})) as base:
        port = int(base.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        origins = f"Origin: {MINE}\r\nOrigin: {EVIL}\r\n"
        writer.write(f"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n{origins}Connection: close\r\n\r\n".encode())
        assert (await reader.readline()).split()[1] == b"403"
        writer.close()


# ---------------------------------------------------------------------- content types


def send(base: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    """A POST with these headers and none that a library adds."""
    with closing(http.client.HTTPConnection(base.removeprefix("http://"), timeout=40)) as connection:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        return response.status, response.read().decode()


@pytest.mark.parametrize("dialect", FRONTS)
async def test_a_page_has_to_declare_json(dialect: str) -> None:
    """Bodies without a type, and of the types of forms, are sent without a preflight."""
    async with fake_backend("openai-chat") as backend, serving(config(backend.url)) as base:
        body = b'{"model": "m", "messages": [{"role": "user", "content": "Hello"}], "input": "Hello"}'
        kinds = [
            "text/plain",
            "text/plain; x=application/json",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
        ]
        for kind in ({}, *({"content-type": kind} for kind in kinds)):
            for page in ({"origin": EVIL}, {"sec-fetch-mode": "no-cors"}, {"origin": base}):
                status, said = await asyncio.to_thread(send, base, FRONTS[dialect][1], body, {**kind, **page})
                # What is wrong with a request of this API is always 422.
                assert status == (422 if dialect == "agent-runs" else 415), (kind, page)
                assert "content-type" in said
        assert backend.seen == []


async def test_json_by_any_of_its_names() -> None:
    async with serving(config()) as base:
        path, body = "/v1/chat/completions", b'{"model": "m", "messages": [{"role": "user", "content": "x"}]}'
        for kind in ("application/json", "Application/JSON; charset=utf-8", "application/vnd.api+json"):
            assert (await asyncio.to_thread(send, base, path, body, {"content-type": kind, "origin": EVIL}))[0] == 200
        # Clients that are no pages may say nothing.
        assert (await asyncio.to_thread(send, base, path, body, {}))[0] == 200
