"""The server's side of the page: who may see it, what it tells of a run, and what it never tells."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
import pytest

from bridge import decode, fold
from bridge.cli.explain import Explanation
from bridge.contract import registry
from bridge.engine.bridge import Bridge
from bridge.engine.config import parse
from bridge.errors import BackendError, ConfigError, ErrorCode, Failure
from bridge.run.backend import Timeouts
from bridge.run.backends.grpc.grpc_backend import GrpcBackend
from bridge.run.backends.http_backend import HttpBackend
from bridge.run.backends.local_backend import LocalBackend
from bridge.server import running
from bridge.server.page.error_pages import page_of
from bridge.server.page.site import script_of
from tests.server.harness import Exchange, Reply, ask, fake_backend, free_port, post, serving

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
KEYS = {
    "keys": [
        {"name": "web", "key": "key-of-web", "routes": ["/v1"]},
        {"name": "job", "key": "key-of-job"},
    ]
}


def demo(**server: Any) -> dict[str, Any]:
    return over({"dialect": "demo"}, **server)


def over(backend: dict[str, Any], **server: Any) -> dict[str, Any]:
    return {
        "server": server,
        "backends": {"it": backend},
        "routes": [
            {"dialect": "openai-chat", "path": "/v1", "backend": "it"},
            {"dialect": "ag-ui", "path": "/ag-ui", "backend": "it"},
        ],
    }


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def get(url: str, **headers: str) -> Reply:
    return await ask("GET", url, headers={name.replace("_", "-"): value for name, value in headers.items()})


class Told:
    """What a trace says, line by line. `all` is what was read so far."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.all: list[dict[str, Any]] = []

    async def until(self, kind: str) -> list[dict[str, Any]]:
        async for line in self._response.content:
            if line.startswith(b"data: "):
                self.all.append(orjson.loads(line[6:]))
                if self.all[-1]["kind"] == kind:
                    break
        return self.all

    def texts(self, kind: str) -> str:
        return "\n".join(each["text"] for each in self.all if each["kind"] == kind)

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(each["kind"] for each in self.all))


@contextlib.asynccontextmanager
async def watching(base: str, token: str, **headers: str) -> AsyncIterator[Told]:
    url = f"{base}/_page/trace/{token}"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers=headers, read_bufsize=2**20) as response,
    ):
        assert response.status == 200
        told = Told(response)
        await told.until("ready")
        yield told


def made() -> str:
    return secrets.token_hex(16)


# ---------------------------------------------------------------------- whether there is one


@pytest.mark.parametrize(
    ("server", "there"),
    [
        ({}, True),
        ({"page": False}, False),
        ({"page": True}, True),
        ({"auth": "none"}, True),
        ({"auth": KEYS}, False),
        ({"auth": KEYS, "page": True}, True),
        ({"auth": KEYS, "page_key": "key-of-the-page"}, True),
        ({"page_key": "key-of-the-page"}, True),
    ],
    ids=str,
)
async def test_whether_the_page_is_there(server: dict[str, Any], there: bool) -> None:
    async with serving(demo(**server)) as base:
        for path in ("/", "/_page/page.js", "/_page/dialects/ag-ui.js"):
            assert (await get(base + path)).status == (200 if there else 404)
        if not there:
            assert (await get(f"{base}/_page/state", **bearer("key-of-job"))).status == 404
            refused = await get(f"{base}/_page/trace/{made()}", **bearer("key-of-job"))
            assert refused.status == 404


async def test_a_token_means_nothing_where_there_is_no_page() -> None:
    config = parse(demo(page=False, port=free_port()))
    bridge = Bridge.of(config)
    async with running(bridge) as port:
        assert (await post(f"http://127.0.0.1:{port}/v1/chat/completions", CHAT, x_bridge_trace=made())).status == 200
        assert bridge._watches == {}


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ({"page": False, "page_key": "k"}, "server.page_key: page is false, so there is no page to open"),
        (
            {"auth": {"keys": [{"name": "page", "key": "other"}]}, "page_key": "k"},
            r"server.auth.keys\[0\].name: page is the user of server.page_key",
        ),
        ({"auth": KEYS, "page_key": "key-of-web"}, r"server.auth.keys\[0\]: the same key as server.page_key"),
    ],
)
def test_a_key_that_cannot_be_the_pages(server: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse(demo(**server))


async def test_every_answer_of_the_page_is_shut_to_other_sites() -> None:
    async with serving(demo()) as base:
        for path in ("/", "/_page/page.css", "/_page/icon.svg", "/_page/state", "/_page/health", "/_page/nothing"):
            headers = (await get(base + path, origin="https://elsewhere.example")).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert "access-control-allow-origin" not in headers
        async with watching(base, made(), origin="https://elsewhere.example") as told:
            assert "access-control-allow-origin" not in told._response.headers
        routes = await get(f"{base}/v1/models", origin="https://elsewhere.example")
        assert routes.headers["access-control-allow-origin"] == "https://elsewhere.example"


@pytest.mark.parametrize("path", ["state", "health", f"trace/{'x' * 32}"])
async def test_other_sites_cannot_even_ask(path: str) -> None:
    async with serving(demo()) as base:
        refused = await get(f"{base}/_page/{path}", sec_fetch_site="cross-site")
        assert (refused.status, refused.json["error"]["code"]) == (403, "forbidden")
        assert (await get(base, sec_fetch_site="cross-site")).status == 200


async def test_the_explanation_of_each_error_is_served() -> None:
    async with serving(demo()) as base:
        errors = (await get(f"{base}/_page/state")).json["errors"]
        for code in ErrorCode:
            page = await get(f"{base}{errors}{code}")
            assert (page.status, page.body.decode()) == (200, page_of(code))
            assert page.headers["content-type"] == "text/plain; charset=utf-8"
        assert (await get(f"{base}{errors}no_code")).status == 404
        assert (await get(f"{base}{errors}")).status == 404


@pytest.mark.parametrize("path", ["/_page/site.py", "/_page/..%2fsite.py", "/_page/dialects/nobody.js", "/_page/"])
async def test_nothing_else_is_served(path: str) -> None:
    async with serving(demo()) as base:
        reply = await get(base + path)
        assert (reply.status, reply.headers["content-type"]) == (404, "application/json; charset=utf-8")
        assert reply.json["error"]["code"] == "not_found"


@pytest.mark.parametrize("dialect", ["mcp", "acp"])
async def test_a_route_for_programs_has_lines_to_paste(dialect: str) -> None:
    config = {**demo(), "routes": [{"dialect": dialect, "path": "/agents", "backend": "it"}]}
    async with serving(config) as base:
        (route,) = (await get(f"{base}/_page/state")).json["routes"]
        (way,) = (await get(f"{base}/_page/connect")).json
    assert (route["speaks"], way["base"]) == (False, f"{base}/agents")
    assert way["programs"]
    for program in way["programs"]:
        texts = "".join(snippet["text"] for snippet in program["snippets"])
        assert f"{base}/agents" in texts or '"--route", "/agents"' in texts


@pytest.mark.parametrize("name", [name for name in registry.over_http() if registry.get(name).called and name != "acp"])
def test_the_page_speaks_every_dialect(name: str) -> None:
    assert b"export" in (script_of(registry.get(name)) or b"")


async def test_a_route_of_a_dialect_without_a_script_is_shown_and_not_spoken(toy: str) -> None:
    config = {**demo(), "routes": [{"dialect": toy, "path": "/toy", "backend": "it"}]}
    async with serving(config) as base:
        (route,) = (await get(f"{base}/_page/state")).json["routes"]
        assert (route["dialect"], route["speaks"]) == ("toy", False)
        assert (await get(f"{base}/_page/dialects/toy.js")).status == 404


# ---------------------------------------------------------------------- who may see what


async def test_without_keys_everybody_sees_all_routes() -> None:
    async with serving(demo()) as base:
        state = (await get(f"{base}/_page/state")).json
    assert [route["path"] for route in state["routes"]] == ["/v1", "/ag-ui"]
    assert (state["backends"], state["keyed"]) == ({"it": "demo"}, False)


async def test_a_key_shows_the_routes_that_it_opens() -> None:
    async with serving(demo(auth=KEYS, page=True)) as base:
        unknown = await get(f"{base}/_page/state")
        assert (unknown.status, unknown.headers["www-authenticate"]) == (401, "Bearer")
        assert (await get(f"{base}/_page/state", **bearer("wrong"))).status == 401
        for path in ("health", f"trace/{made()}"):
            assert (await get(f"{base}/_page/{path}")).status == 401
        web = (await get(f"{base}/_page/state", **bearer("key-of-web"))).json
        job = (await get(f"{base}/_page/state", **bearer("key-of-job"))).json
    assert [route["path"] for route in web["routes"]] == ["/v1"]
    assert [route["path"] for route in job["routes"]] == ["/v1", "/ag-ui"]
    assert web["keyed"]


async def test_the_key_of_the_page_opens_it_alone_and_all_routes_too() -> None:
    async with serving(demo(auth=KEYS, page_key="key-of-the-page")) as base:
        assert (await get(f"{base}/_page/state", **bearer("key-of-job"))).status == 401
        state = (await get(f"{base}/_page/state", **bearer("key-of-the-page"))).json
        assert len(state["routes"]) == 2
        reply = await post(f"{base}/v1/chat/completions", CHAT, **bearer("key-of-the-page"))
        assert reply.status == 200


async def test_the_health_of_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.server.page.health._FRESH", 600.0)
    async with fake_backend("openai-chat") as backend:
        backend.answers(401, b'{"error": {"message": "no such key"}}')
        config = {
            "backends": {
                "here": {"dialect": "demo"},
                "refuses": {"dialect": "openai-chat", "url": backend.url},
                "listens": {"dialect": "agentscope", "url": backend.url},
                "down": {"dialect": "ag-ui", "url": f"http://127.0.0.1:{free_port()}"},
            },
            "routes": [
                {"dialect": "ag-ui", "path": f"/{name}", "backend": name}
                for name in ("here", "refuses", "listens", "down")
            ],
        }
        async with serving(config) as base:
            found = (await get(f"{base}/_page/health")).json
            again = (await get(f"{base}/_page/health")).json
        # The second time is too soon to ask again.
        assert [seen.path for seen in backend.seen] == ["/models"]
    assert found == again
    assert {name: each["state"] for name, each in found.items()} == {
        "here": "ok", "refuses": "failing", "listens": "ok", "down": "failing"
    }  # fmt: skip
    assert found["refuses"]["code"] == ErrorCode.BACKEND_AUTH
    assert found["down"]["message"] == "The backend is not available: the connection was refused."


@pytest.mark.parametrize("status", [404, 400])
async def test_a_backend_without_a_list_of_models_is_no_failing_one(status: int) -> None:
    async with fake_backend() as backend:
        backend.answers(status, b"{}")
        made = HttpBackend("it", registry.get("openai-chat"), backend.url)
        await made.start()
        await made.check()
        await made.close()


async def test_an_agent_over_grpc_that_is_not_there() -> None:
    made = GrpcBackend("it", registry.get("aip"), f"127.0.0.1:{free_port()}", timeouts=Timeouts(connect=0.2))
    await made.start()
    with pytest.raises(BackendError) as caught:
        await made.check()
    assert caught.value.code is ErrorCode.BACKEND_TIMEOUT
    await made.close()


# ---------------------------------------------------------------------- what is told of a run


async def test_the_columns_of_a_run() -> None:
    async with fake_backend("agentscope") as backend:
        backend.says("Hello ", "world")
        async with (
            serving(over({"dialect": "agentscope", "url": backend.url})) as base,
            watching(base, t := made()) as told,
        ):
            reply = await post(f"{base}/v1/chat/completions", CHAT, x_bridge_trace=t)
            await told.until("end")
        sent = backend.seen[0]
    assert b"world" in reply.body
    assert told.kinds[:3] == ["ready", "asked", "sent"]
    asked, posted, end = told.all[1], told.all[2], told.all[-1]
    assert "messages[0] Message 'user'" in asked["text"]
    assert (posted["backend"], posted["dialect"], posted["head"]) == ("it", "agentscope", "POST /process")
    assert orjson.loads(posted["text"]) == sent.json
    assert "TextDelta" in told.texts("events")
    assert (end["status"], end["http"], end["backend"]) == ("stop", 200, "it")
    times = [each["t"] for each in told.all[1:]]
    assert times == sorted(times)


async def test_what_is_told_of_the_backend_can_be_explained() -> None:
    async with fake_backend("agentscope") as backend:
        backend.says("Hello")
        async with (
            serving(over({"dialect": "agentscope", "url": backend.url})) as base,
            watching(base, t := made()) as told,
        ):
            await post(f"{base}/v1/chat/completions", CHAT, x_bridge_trace=t)
            await told.until("end")
    frames = "".join(each["text"] for each in told.all if each["kind"] == "frame")
    explained = Explanation(f": a comment\n\n{frames}".encode(), "agentscope", "openai-chat", "stream").text(200)
    assert "TextDelta" in explained
    assert "RunFinished" in explained


async def test_nothing_secret_is_told() -> None:
    async with fake_backend("openai-chat") as backend:
        backend.fails(Failure(ErrorCode.RATE_LIMITED, "slow down"))
        config = over(
            {
                "dialect": "openai-chat",
                "url": f"{backend.url}?token=secret-in-the-query",
                "api_key": "secret-of-the-backend",
                "headers": {"x-team": "secret-header"},
            },
            auth=KEYS,
            page=True,
        )
        me = bearer("key-of-job")
        async with serving(config) as base, watching(base, t := made(), **me) as told:
            reply = await post(f"{base}/v1/chat/completions", CHAT, x_bridge_trace=t, **me)
            await told.until("end")
        assert "secret-of-the-backend" in backend.seen[0].headers["authorization"]
    assert reply.status == 429
    text = str(told.all)
    assert told.kinds == ["ready", "asked", "sent", "failed", "end"]
    assert "secret" not in text
    assert "key-of-job" not in text
    assert backend.url not in text


async def test_what_was_lost_is_told_with_its_details() -> None:
    async with serving(demo()) as base, watching(base, t := made()) as told:
        body = {**CHAT, "messages": [{"role": "user", "content": "server tool"}]}
        await post(f"{base}/v1/chat/completions", body, x_bridge_trace=t)
        await told.until("end")
    lost = {name: detail for each in told.all if each["kind"] == "lost" for name, detail in each["lost"].items()}
    assert lost["tool_result"] == "tools run by the backend are not shown as calls"


async def test_every_try_is_told() -> None:
    async with fake_backend("openai-chat") as backend:
        backend.turns(Failure(ErrorCode.OVERLOADED, "busy"), ["Hello"])
        config = over(
            {"dialect": "openai-chat", "url": backend.url, "retry": {"attempts": 2, "backoff": "1ms"}},
        )
        async with serving(config) as base, watching(base, t := made()) as told:
            await post(f"{base}/v1/chat/completions", CHAT, x_bridge_trace=t)
            await told.until("end")
    kinds = [each["kind"] for each in told.all]
    assert kinds.count("sent") == 2
    assert kinds.index("failed") < len(kinds) - 1 - kinds[::-1].index("sent")


async def test_each_frame_is_told_once_and_when_it_comes() -> None:
    go_on = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(b'data: {"choices":[{"index":0,"delta":{"content":"one"}}]}\n\n')
        await go_on.wait()
        await exchange.send(b'data: {"choices":[{"index":0,"delta":{"content":"two"}}]}\n\ndata: [DONE]\n\n')
        await exchange.end()

    async with fake_backend() as backend:
        backend.plays(script)
        config = over({"dialect": "openai-chat", "url": backend.url})
        async with serving(config) as base, watching(base, t := made()) as told, asyncio.TaskGroup() as tasks:
            tasks.create_task(post(f"{base}/v1/chat/completions", CHAT, x_bridge_trace=t))
            await told.until("frame")
            go_on.set()
            await told.until("end")
    frames = told.texts("frame")
    assert [frames.count(word) for word in ("one", "two", "[DONE]")] == [1, 1, 1]


async def test_each_backend_that_is_asked_is_told() -> None:
    async with fake_backend("openai-chat") as broken, fake_backend("agentscope") as other:
        broken.fails(Failure(ErrorCode.OVERLOADED, "busy"))
        other.says("Hello")
        config = {
            "backends": {
                "one": {"dialect": "openai-chat", "url": broken.url},
                "two": {"dialect": "agentscope", "url": other.url},
            },
            "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": ["one", "two"]}],
        }
        async with serving(config) as base, watching(base, t := made()) as told:
            await post(f"{base}/v1/chat/completions", CHAT, x_bridge_trace=t)
            await told.until("end")
    assert [each["backend"] for each in told.all if each["kind"] == "sent"] == ["one", "two"]
    assert told.all[-1]["backend"] == "two"


async def test_a_backend_that_queues_its_runs(tmp_path: Any) -> None:
    port = free_port()
    config = {
        "server": {"port": port},
        "backends": {
            "demo": {"dialect": "demo"},
            "queue": {"dialect": "agent-runs", "url": f"http://127.0.0.1:{port}/queue"},
        },
        "routes": [
            {"dialect": "agent-runs", "path": "/queue", "backend": "demo"},
            {"dialect": "openai-chat", "path": "/v1", "backend": "queue"},
        ],
        "stores": {"history": f"sqlite:///{tmp_path}/h.db", "runs": f"sqlite:///{tmp_path}/r.db"},
    }
    async with serving(config) as base, watching(base, t := made()) as told:
        await post(f"{base}/v1/chat/completions", CHAT, x_bridge_trace=t)
        await told.until("end")
    sent = [each["head"] for each in told.all if each["kind"] == "sent" and "head" in each]
    assert sent == ["POST /runs"]
    assert "RUN_FINISHED" in told.texts("frame")


async def test_an_answer_in_one_piece() -> None:
    async with fake_backend("openai-chat") as backend:
        backend.says("Hello")
        config = over({"dialect": "openai-chat", "url": backend.url})
        async with serving(config) as base, watching(base, t := made()) as told:
            await post(f"{base}/v1/chat/completions", {**CHAT, "stream": False}, x_bridge_trace=t)
            await told.until("end")
    (whole,) = (each["text"] for each in told.all if each["kind"] == "whole")
    assert orjson.loads(whole)["choices"][0]["message"]["content"] == "Hello"


async def test_a_watched_run_of_a_passthrough_route_keeps_every_byte() -> None:
    piece = b'data: {"choices":[{"index":0,"delta":{"content":"Hello"},"odd":  1}]}\n\n'
    end = b"data: [DONE]\n\n"
    async with fake_backend() as backend:
        backend.streams(piece, end)
        config = over({"dialect": "openai-chat", "url": backend.url})
        config["routes"] = [{"dialect": "openai-chat", "path": "/v1", "backend": "it", "passthrough": True}]
        async with serving(config) as base, watching(base, t := made()) as told:
            reply = await post(f"{base}/v1/chat/completions", CHAT, x_bridge_trace=t)
            await told.until("end")
    assert reply.body == piece + end
    assert "".join(each["text"] for each in told.all if each["kind"] == "frame").encode() == piece + end


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/ag-ui"])
async def test_the_demo_answers_over_a_wire_of_another_dialect(path: str) -> None:
    """Only for the page: there is a backend's wire to see."""
    body = CHAT if path != "/ag-ui" else {
        "threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "hi"}], "tools": [],
        "context": [], "state": {}, "forwardedProps": {},
    }  # fmt: skip
    async with serving(demo()) as base, watching(base, t := made()) as told:
        assert b" hi" in (await post(f"{base}{path}", body, x_bridge_trace=t)).body
        await told.until("end")
    posted = told.all[2]
    assert posted["dialect"] not in (None, "openai-chat" if "chat" in path else "ag-ui")
    assert posted["head"].startswith("POST /")
    frames = told.texts("frame")
    assert fold(decode(frames.encode(), posted["dialect"])).text.startswith("You said: hi")


async def test_a_refused_request_is_told_too() -> None:
    async with serving(demo()) as base, watching(base, t := made()) as told:
        assert (await post(f"{base}/v1/chat/completions", {"model": 5}, x_bridge_trace=t)).status == 400
        (_, end) = await told.until("end")
    assert (end["status"], end["http"]) == ("invalid_request", 400)


@pytest.mark.parametrize("route", [{"dialect": "ag-ui", "durable": True}, {"dialect": "agent-runs"}], ids=str)
async def test_runs_that_are_kept(route: dict[str, Any], tmp_path: Any) -> None:
    config = {
        "backends": {"it": {"dialect": "demo"}},
        "routes": [{**route, "path": "/it", "backend": "it"}],
        "stores": {"history": f"sqlite:///{tmp_path}/h.db", "runs": f"sqlite:///{tmp_path}/r.db"},
    }
    wire = registry.get(route["dialect"]).example_request("server tool")
    async with serving(config) as base, watching(base, t := made()) as told:
        reply = await post(f"{base}/it{wire.path}", wire.body, x_bridge_trace=t)
        await told.until("end")
        if reply.status == 202:
            events = await get(f"{base}/it/runs/example/events?runId=example-1", x_bridge_trace=t)
            assert b"RUN_FINISHED" in events.body
            await told.until("end")
    assert "RunFinished" in told.texts("events")
    assert {"asked", "sent", "events", "end", "lost"} <= set(told.kinds)


# ---------------------------------------------------------------------- its bounds


async def test_a_run_of_somebody_else_is_not_told() -> None:
    async with serving(demo(auth=KEYS, page=True)) as base, watching(base, t := made(), **bearer("key-of-job")) as told:
        other = await post(f"{base}/v1/chat/completions", CHAT, x_bridge_trace=t, **bearer("key-of-web"))
        mine = await post(f"{base}/v1/chat/completions", CHAT, x_bridge_trace=t, **bearer("key-of-job"))
        await told.until("end")
    assert (other.status, mine.status) == (200, 200)
    ends = [each["run_id"] for each in told.all if each["kind"] == "end"]
    assert len([each for each in told.all if each["kind"] == "asked"]) == len(ends) == 1
    assert ends[0].encode() in mine.body
    assert ends[0].encode() not in other.body


@pytest.mark.parametrize("token", ["short", "x" * 65, "spaces%20are%20no%20characters%20of%20it"])
async def test_an_ill_formed_token(token: str) -> None:
    async with serving(demo()) as base:
        reply = await get(f"{base}/_page/trace/{token}")
    assert (reply.status, reply.json["error"]["code"]) == (400, "invalid_request")


async def test_a_trace_has_one_reader_and_there_are_few() -> None:
    async with serving(demo()) as base, contextlib.AsyncExitStack() as stack:
        tokens = [made() for _ in range(16)]
        for token in tokens:
            await stack.enter_async_context(watching(base, token))
        again, more = await get(f"{base}/_page/trace/{tokens[0]}"), await get(f"{base}/_page/trace/{made()}")
        assert (again.status, again.json["error"]["message"]) == (409, "This trace already has a reader.")
        assert (more.status, more.json["error"]["code"]) == (503, "overloaded")


async def test_one_user_cannot_take_all_traces() -> None:
    async with serving(demo(auth=KEYS, page=True)) as base, contextlib.AsyncExitStack() as stack:
        job = bearer("key-of-job")
        for _ in range(2):
            await stack.enter_async_context(watching(base, made(), **job))
        more = await get(f"{base}/_page/trace/{made()}", **job)
        assert (more.status, more.json["error"]["code"]) == (429, "rate_limited")
        await stack.enter_async_context(watching(base, made(), **bearer("key-of-web")))


async def test_what_is_told_of_a_run_is_bounded() -> None:
    async with fake_backend("openai-chat") as backend:
        backend.says(*["x" * 2**18 for _ in range(16)])
        config = over({"dialect": "openai-chat", "url": backend.url})
        async with serving(config) as base, watching(base, t := made()) as told:
            reply = await post(f"{base}/v1/chat/completions", CHAT, x_bridge_trace=t)
            await told.until("end")
    assert [each["kind"] for each in told.all].count("cut") == 1
    assert len(reply.body) > 2**22
    assert len(str(told.all)) < 2**21 + 2**16


async def test_nothing_is_left_of_a_trace_that_nobody_reads() -> None:
    bridge = Bridge.from_config({**demo(port=free_port(), drain="1s"), "stores": {"history": "off"}})
    async with running(bridge) as port:
        base = f"http://127.0.0.1:{port}"
        async with watching(base, t := made()) as told:
            await post(f"{base}/v1/chat/completions", {"model": 5}, x_bridge_trace=t)
            await post(f"{base}/v1/chat/completions", CHAT, x_bridge_trace=t)
            await told.until("end")
            await told.until("end")
            assert len(bridge._watches) == 2
        async with watching(base, t) as told:
            # The first reader is gone: his name can be used again, and his runs are forgotten.
            assert bridge._watches == {}


async def test_a_run_that_nobody_watches_gets_its_backend_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[LocalBackend] = []
    own = LocalBackend.call

    def call(self: LocalBackend, *args: Any) -> Any:
        calls.append(self)
        return own(self, *args)

    monkeypatch.setattr(LocalBackend, "call", call)
    bridge = Bridge.from_config({**demo(), "stores": {"history": "off"}})
    async with bridge:
        assert [type(backend) for route in bridge.routes for backend in route.backends] == [LocalBackend] * 2
        async for _ in bridge.stream(_hello()):
            pass
    assert calls == bridge.routes[0].backends


def _hello() -> Any:
    from bridge import Message, Request, Text

    return Request([Message("user", [Text("hi")])])


async def test_a_server_that_stops_lets_go_of_readers() -> None:
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        async with serving(demo()) as base:
            response = await session.get(f"{base}/_page/trace/{made()}")
            assert b"ready" in await response.content.readline()
        rest = await response.content.read()
    assert rest.strip() == b""


async def test_what_connects_a_program() -> None:
    keys = {"keys": [{"name": "web", "key": "key-of-web", "routes": ["/v1"]}]}
    async with serving(demo()) as base:
        chat, agui = (await get(f"{base}/_page/connect")).json
        assert (chat["base"], agui["base"]) == (f"{base}/v1", f"{base}/ag-ui")
        programs = {each["name"]: each for each in chat["programs"]}
        assert f"OPENAI_API_BASE_URLS={base}/v1 OPENAI_API_KEYS=unused" in programs["open-webui"]["snippets"][0]["text"]
        assert "claude-code" not in programs
        assert "opencode" not in programs, "it speaks this dialect, too, but its lines are for another one"
        assert "tanstack-ai" in [each["name"] for each in agui["programs"]]
    async with serving(demo(auth=keys, page=True, public_url="https://bridge.example/here/")) as base:
        assert (await get(f"{base}/_page/connect")).status == 401
        (chat,) = (await get(f"{base}/_page/connect", **bearer("key-of-web"))).json
        assert chat["base"] == "https://bridge.example/here/v1"
        assert "YOUR_KEY" in chat["programs"][0]["snippets"][0]["text"]
        assert "key-of-web" not in str(chat)
