"""What a backend over gRPC is sent beside the messages: configured and forwarded headers, keys, the trace."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import openai
import pytest

from bridge import Bridge, BridgeError, ConfigError
from bridge.engine.config import parse
from bridge.engine.route import RunCaller
from bridge.run.backends.grpc.duplex import Duplex
from bridge.testing import free_port
from tests.server.harness import serving
from tests.server.test_traces import CONTEXT, TRACE, receiver

from .peers import agent, reply
from .test_backend import ask, config

pytestmark = pytest.mark.interop

HEADERS = {"X-Team": "bridge", "x-signature": "s-1234567"}


def with_headers(address: str, **backend: Any) -> dict[str, Any]:
    options = backend.pop("options", {})
    configuration = config(address, **options)
    configuration["backends"]["it"] |= {"headers": HEADERS, **backend}
    return configuration


async def test_headers_are_metadata_of_every_call() -> None:
    async with agent() as node:
        sent = {"forward_headers": ["x-tenant", "x-name"], "api_key": "our-own-key"}
        async with Bridge.from_config(with_headers(node.address, **sent)) as bridge:
            theirs = {"x-tenant": "t1", "x-team": "another", "x-other": "no", "x-name": "J\u00f6rg"}
            run = await bridge.run(bridge.route(), ask("Hello"), caller=RunCaller(headers=theirs))
            while not run.ended:
                await run.read()
            await run.close()
    assert run.failure is None
    [shown] = node.shown
    del shown["user-agent"]
    # What gRPC cannot carry would end the call.
    assert shown == {
        "x-team": "bridge", "x-signature": "s-1234567", "x-tenant": "t1", "authorization": "Bearer our-own-key",
    }  # fmt: skip


async def test_a_session_that_is_kept_shows_what_its_first_turn_brought() -> None:
    kept = {"session": "keep", "turn_idle": "50ms"}
    async with agent() as node:
        configuration = with_headers(node.address, options=kept, forward_headers=["x-tenant"])
        async with Bridge.from_config(configuration) as bridge:
            for tenant in ("one", "two"):
                request, caller = ask(tenant, thread="t"), RunCaller(headers={"x-tenant": tenant})
                run = await bridge.run(bridge.route(), request, caller=caller)
                while not run.ended:
                    await run.read()
                await run.close()
        assert [shown["x-tenant"] for shown in node.shown] == ["one"]


async def test_a_call_that_cannot_be_begun_ends() -> None:
    """What the checks of the configuration let through that gRPC does not."""
    async with agent() as node, grpc.aio.insecure_channel(node.address) as channel:
        call = Duplex(channel.stream_stream("/a/b")(metadata=(("x", "J\u00f6rg"),)))
        async with asyncio.timeout(40):
            assert await call.batch(None) is None
        assert call.status is not None
        assert call.status[0] is grpc.StatusCode.INTERNAL
        call.cancel()


class Nosy(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Refuses every single question in the words of its metadata."""

    def service(self, details: Any) -> Any:
        async def refuse(body: bytes, context: Any) -> bytes:
            shown = dict(context.invocation_metadata())
            await context.abort(grpc.StatusCode.INTERNAL, f"{shown.get('x-team')} {shown.get('x-signature')}")
            return b""

        return grpc.unary_unary_rpc_method_handler(refuse)


async def test_single_questions_carry_them_and_no_error_repeats_a_secret() -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Nosy(),))
    address = f"127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{free_port()}')}"
    await server.start()
    configuration = with_headers(address, headers={"x-team": "bridge", "x-signature": "plain"}, api_key="plain")
    secret = with_headers(address, headers={"x-team": "bridge", "x-signature": "our-own-key"}, api_key="our-own-key")
    for each, told in ((configuration, "bridge plain"), (secret, "bridge ***")):
        async with Bridge.from_config(each) as bridge:
            with pytest.raises(BridgeError) as caught:
                await bridge.route().list_models()
            assert caught.value.message == told
    await server.stop(None)


async def test_an_agent_that_repeats_our_key_is_not_repeated() -> None:
    def script(asked: Any) -> list[Any]:
        return [reply(asked, "Error: the key our-own-key is no good", status="STOP_RESPONSE", task="BREAK")]

    async with (
        agent(script) as node,
        Bridge.from_config(with_headers(node.address, api_key="our-own-key")) as bridge,
    ):
        with pytest.raises(BridgeError, match=r"the key \*\*\* is no good"):
            await bridge.complete(ask("Hello"))


async def test_the_agent_is_told_whose_trace_it_is_of() -> None:
    async with receiver() as taken, agent() as node:
        configuration = with_headers(node.address)
        configuration["server"] = {"traces": {"endpoint": taken.url, "service": "it"}}
        async with (
            serving(configuration) as url,
            openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", default_headers=CONTEXT) as client,
        ):
            said: Any = [{"role": "user", "content": "Hello"}]
            await client.chat.completions.create(model="m", messages=said)
    call = taken.one("invoke_agent ")
    assert node.shown[0]["traceparent"] == f"00-{TRACE}-{call.span_id.hex()}-01"
    assert node.shown[0]["tracestate"] == "vendor=1"


async def test_without_traces_there_is_no_trace() -> None:
    async with agent() as node, Bridge.from_config(with_headers(node.address)) as bridge:
        await bridge.complete(ask("Hello"))
    assert "traceparent" not in node.shown[0]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"headers": {"grpc-timeout": "1S"}},
            "backends.it.headers.grpc-timeout: grpc-timeout is set by gRPC and cannot",
        ),
        ({"headers": {"User-Agent": "me"}}, "backends.it.headers.User-Agent: user-agent is set by gRPC"),
        ({"headers": {"x-data-bin": "AAA="}}, "backends.it.headers.x-data-bin: names that end in -bin hold bytes"),
        ({"headers": {"x!": "a"}}, 'backends.it.headers["x!"]: gRPC allows letters, digits, _, - and . in a name'),
        (
            {"headers": {"x-name": "J\u00f6rg"}},
            "backends.it.headers.x-name: gRPC allows printable ASCII characters only",
        ),
        ({"forward_headers": ["x-a", "grpc-status"]}, "backends.it.forward_headers[1]: grpc-status is set by gRPC"),
        ({"api_key": "schl\u00fcssel"}, "backends.it.api_key: gRPC allows printable ASCII characters only"),
    ],
)
def test_what_grpc_cannot_carry_is_a_mistake_in_the_configuration(change: dict[str, Any], told: str) -> None:
    configuration = config("127.0.0.1:1")
    configuration["backends"]["it"] |= change
    with pytest.raises(ConfigError) as caught:
        parse(configuration)
    assert told in caught.value.message
    assert "schl" not in caught.value.message
    # HTTP carries these: it is for gRPC alone.
    http = {"dialect": "openai-chat", "url": "http://127.0.0.1:1", **change}
    if "api_key" not in change:
        assert parse({**configuration, "backends": {"it": http}}).backends["it"].headers == change.get("headers", {})
