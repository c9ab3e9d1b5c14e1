"""Who a request comes from, by every way there is: keys, signed tokens, a proxy in front."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import logging
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import jwt
import pytest
from multidict import CIMultiDict
from pydantic import SecretStr

from bridge.contract import Endpoint, Operation, Options, Scope, registry
from bridge.engine.bridge import Bridge
from bridge.engine.config import AuthSection, JwtSection
from bridge.engine.route import RunCaller
from bridge.errors import BridgeError, ErrorCode
from bridge.server import running
from bridge.server.auth.api_keys import Key, Keys
from bridge.server.auth.identity import Identity, Proxy, Visit, checked_user
from bridge.server.auth.jwks import LIFE, PATIENCE, PAUSE, RETRY, KeySet
from bridge.server.auth.tokens import JwtVerifier
from bridge.stores.conversation_store import stored_id
from tests.server.harness import ask, fake_backend, free_port, post, serving
from tests.server.issuer import Issuer, SigningKey

pytestmark = pytest.mark.usefixtures("toy")

LATER = 1 << 40
SECRET = "a-shared-secret-of-at-least-32-bytes!"
KEY = SigningKey()


def setup(auth: Any, dialect: str = "toy", **route: Any) -> dict[str, Any]:
    return {
        "server": {"auth": auth},
        "backends": {"it": {"dialect": "demo"}},
        "routes": [{"dialect": dialect, "path": "/toy", "backend": "it", **route}],
    }


def visit(address: str | None = "127.0.0.1", *, query: str = "", **headers: str) -> Visit:
    return Visit(CIMultiDict({k.replace("_", "-"): v for k, v in headers.items()}), address, query)


def signed(**claims: Any) -> str:
    """A token of alice's, signed with the shared secret."""
    body = {"sub": "alice", "exp": int(time.time()) + 60, **claims}
    return jwt.encode({k: v for k, v in body.items() if v is not None}, SECRET)


async def refusal(identity: Identity, seen: Visit, mount: str = "/toy") -> BridgeError:
    with pytest.raises(BridgeError) as caught:
        await identity.user(seen, mount)
    if caught.value.code is ErrorCode.UNAUTHORIZED:
        assert caught.value.failure.headers == {"www-authenticate": "Bearer"}
    return caught.value


def auth(**section: Any) -> Identity:
    return Identity.of(AuthSection.model_validate(section))


# ---------------------------------------------------------------------- keys


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer k1"},
        {"authorization": "bearer k1"},
        {"authorization": "BEARER   k1 "},
        {"x_api_key": "k1"},
        {"api_key": "k1"},
        {"authorization": "Basic abc", "x_api_key": "k1"},
        {"authorization": "Bearer ", "x_api_key": "k1"},
        {"authorization": "Bearer k1", "x_api_key": "other"},
    ],
)
async def test_every_spelling_of_a_key_is_known(headers: dict[str, str]) -> None:
    identity = auth(keys=[{"name": "web", "key_sha256": hashlib.sha256(b"k1").hexdigest()}])
    assert await identity.user(visit(**headers), "/toy") == "web"


@pytest.mark.parametrize("sent", ["", "k", "k1 k2", "K1", "k1\0", "\udcff", "ü"])
async def test_other_keys_are_refused(sent: str) -> None:
    identity = auth(keys=[{"name": "web", "key": "k1"}])
    assert (await refusal(identity, visit(authorization=f"Bearer {sent}"))).code is ErrorCode.UNAUTHORIZED


async def test_a_key_of_another_route_is_forbidden() -> None:
    identity = auth(keys=[{"name": "web", "key": "k1", "routes": ["/other"]}])
    assert (await refusal(identity, visit(x_api_key="k1"))).code is ErrorCode.FORBIDDEN
    assert await identity.user(visit(x_api_key="k1"), "/other") == "web"


@pytest.mark.parametrize("section", [None, "none"])
async def test_where_everybody_may_call_all_are_one_user(section: str | None) -> None:
    identity = Identity.of(None if section is None else AuthSection.model_construct())
    assert await identity.user(visit("203.0.113.9", authorization="Bearer whatever"), "/toy") == ""


# ---------------------------------------------------------------------- a proxy in front


PROXIES = ["10.0.0.0/8", "192.0.2.7", "fd00::/8"]


@pytest.mark.parametrize("address", ["10.1.2.3", "192.0.2.7", "fd00::1", "::ffff:10.1.2.3"])
async def test_a_trusted_proxy_names_the_user(address: str) -> None:
    identity = auth(trusted_header="X-User", trusted_proxies=PROXIES)
    assert await identity.user(visit(address, x_user=" alice "), "/toy") == "alice"


@pytest.mark.parametrize("address", ["11.0.0.1", "192.0.2.8", "fe80::1%eth0", "::ffff:11.0.0.1", "", None, "nonsense"])
async def test_from_any_other_address_the_header_is_refused(address: str | None) -> None:
    """Even beside a good key: who writes it there tries something."""
    identity = auth(trusted_header="X-User", trusted_proxies=PROXIES, keys=[{"name": "web", "key": "k1"}])
    error = await refusal(identity, visit(address, x_user="alice", x_api_key="k1"))
    assert (error.code, error.message) == (
        ErrorCode.UNAUTHORIZED,
        "The header x-user is not accepted from this address (server.auth.trusted_proxies).",
    )
    assert await identity.user(visit(address, x_api_key="k1"), "/toy") == "web"


async def test_a_connection_without_an_address_is_trusted_by_its_word_only() -> None:
    """A unix socket has none, and neither have connections of which an ASGI server says nothing."""
    for address in (None, ""):
        identity = auth(trusted_header="X-User", trusted_proxies=["unix"])
        assert await identity.user(visit(address, x_user="alice"), "/toy") == "alice"
        assert (await refusal(identity, visit("127.0.0.1", x_user="alice"))).code is ErrorCode.UNAUTHORIZED
        local = auth(trusted_header="X-User", trusted_proxies=["127.0.0.1", "::1"])
        assert (await refusal(local, visit(address, x_user="alice"))).code is ErrorCode.UNAUTHORIZED


async def test_a_token_is_verified_once_for_a_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    identity = auth(jwt={"secret": SECRET})
    verified = 0
    bearer = JwtVerifier.bearer

    async def noted(self: JwtVerifier, sent: str) -> Any:
        nonlocal verified
        verified += 1
        return await bearer(self, sent)

    monkeypatch.setattr(JwtVerifier, "bearer", noted)
    caller = await identity.caller(visit(authorization=f"Bearer {signed()}"))
    for mount in ("/one", "/two"):
        caller.check([mount], Scope.PAGE)
    assert (caller.user, verified) == ("alice", 1)


async def test_a_header_that_came_twice_names_nobody() -> None:
    seen = Visit(CIMultiDict([("X-User", "mallory"), ("x-user", "alice")]), "10.0.0.1")
    identity = auth(trusted_header="X-User", trusted_proxies=PROXIES)
    assert "more than once" in (await refusal(identity, seen)).message


@pytest.mark.parametrize("name", ["a\tb", "x" * 513, "工" * 171, "%" * 103, "\udcff"])
async def test_what_can_be_no_name_is_refused(name: str) -> None:
    with pytest.raises(BridgeError, match="is not a valid user name"):
        Proxy("x-user", PROXIES).user(visit("10.0.0.1", x_user=name))


async def test_without_the_header_a_key_is_asked_for() -> None:
    identity = auth(trusted_header="X-User", trusted_proxies=PROXIES, keys=[{"name": "web", "key": "k1"}])
    assert await identity.user(visit("10.0.0.1", x_user="", x_api_key="k1"), "/toy") == "web"
    assert "API key is needed" in (await refusal(identity, visit("10.0.0.1"))).message
    alone = auth(trusted_header="X-User", trusted_proxies=PROXIES)
    assert "through the proxy" in (await refusal(alone, visit("10.0.0.1"))).message


# ---------------------------------------------------------------------- tokens with a shared secret


async def test_a_token_names_the_user() -> None:
    identity = auth(jwt={"secret": SECRET})
    assert await identity.user(visit(authorization=f"Bearer {signed()}"), "/toy") == "alice"
    assert await identity.user(visit(x_api_key=signed(sub="工" * 170)), "/toy") == "工" * 170


async def test_a_token_that_never_expires_needs_an_option() -> None:
    token = signed(exp=None)
    assert "lacks a claim" in (await refusal(auth(jwt={"secret": SECRET}), visit(x_api_key=token))).message
    lenient = auth(jwt={"secret": SECRET, "require_exp": False})
    assert await lenient.user(visit(x_api_key=token), "/toy") == "alice"
    assert "has expired" in (await refusal(lenient, visit(x_api_key=signed(exp=1)))).message


async def test_every_name_that_is_taken_can_own_a_conversation() -> None:
    for name in ("x" * 512, "工" * 170, "%" * 102):
        assert checked_user(name, "It") == name
        assert stored_id(name, "owner")


async def test_only_its_key_makes_anybody_the_user_of_the_page() -> None:
    """His conversations are those of the page: a token or a header with the same name must not open them."""
    config = {"jwt": {"secret": SECRET}, "trusted_header": "x-user", "trusted_proxies": PROXIES}
    page = Key("page", Keys.digest("the page's key"), frozenset("*"))
    identity = Identity.of(AuthSection.model_validate(config), page)
    assert await identity.user(visit(x_api_key="the page's key"), "/toy") == "page"
    for seen in (visit(x_api_key=signed(sub="page")), visit("10.0.0.1", x_user="page")):
        assert "user of the page" in (await refusal(identity, seen)).message
    without = Identity.of(AuthSection.model_validate(config))
    assert await without.user(visit(x_api_key=signed(sub="page")), "/toy") == "page"


async def test_keys_and_tokens_live_side_by_side() -> None:
    identity = auth(jwt={"secret": SECRET}, keys=[{"name": "web", "key": "k1"}])
    assert await identity.user(visit(x_api_key="k1"), "/toy") == "web"
    assert await identity.user(visit(x_api_key=signed()), "/toy") == "alice"
    assert "neither a known API key nor" in (await refusal(identity, visit(x_api_key="k2"))).message


def unsigned(**claims: Any) -> str:
    return jwt.encode({"sub": "alice", **claims}, None, algorithm="none")


def by_hand(header: dict[str, Any], claims: Any, secret: str = SECRET) -> str:
    """A token that no library would write."""
    text = b".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims))
    mac = hmac.digest(secret.encode(), text, "sha256")
    return (text + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()


REFUSED = {
    "expired": (lambda: signed(exp=int(time.time()) - 100), "has expired"),
    "not yet": (lambda: signed(nbf=int(time.time()) + 100), "not valid yet"),
    "another audience": (lambda: signed(aud="other"), "another audience"),
    "another secret": (lambda: jwt.encode({"sub": "alice"}, SECRET + "x"), "signature is wrong"),
    "no signature": (unsigned, "algorithm"),
    "another algorithm": (lambda: jwt.encode({"sub": "alice"}, SECRET * 2, "HS512"), "algorithm"),
    "a public key's": (lambda: KEY.sign(), "algorithm"),
    "no user": (lambda: signed(sub=None), "claim sub is not a valid user name"),
    "an empty user": (lambda: signed(sub=""), "claim sub is not a valid user name"),
    "a true user": (
        lambda: by_hand({"alg": "HS256"}, {"sub": True, "exp": LATER}),
        "claim sub is not a valid user name",
    ),
    "a user as object": (
        lambda: by_hand({"alg": "HS256"}, {"sub": {"id": 1}, "exp": LATER}),
        "claim sub is not a valid user name",
    ),
    "a long user": (lambda: signed(sub="x" * 513), "claim sub is not a valid user name"),
    "claims as list": (lambda: by_hand({"alg": "HS256"}, ["sub"]), "well-formed"),
    "a date as text": (lambda: by_hand({"alg": "HS256"}, {"sub": "a", "exp": "soon"}), "well-formed"),
    "an unknown must": (lambda: by_hand({"alg": "HS256", "crit": ["x"], "x": 1}, {"sub": "a"}), "well-formed"),
    "a header as list": (lambda: by_hand([], {"sub": "a"}), "well-formed"),  # type: ignore[arg-type]
    "an algorithm as list": (lambda: by_hand({"alg": ["HS256"]}, {"sub": "a"}), ""),
    "an endless date": (lambda: by_hand({"alg": "HS256"}, {"sub": "a", "exp": float("inf")}), "well-formed"),
    "a date as list": (lambda: by_hand({"alg": "HS256"}, {"sub": "a", "exp": LATER, "nbf": [1]}), "well-formed"),
    "a deep header": (lambda: base64.urlsafe_b64encode(b"[" * 3000).decode() + ".e30.e30", "well-formed"),
    "two pieces": (lambda: "abc.def", "well-formed"),
    "dots": (lambda: "..", "well-formed"),
    "bad text": (lambda: "\udcff.\udcff.\udcff", "well-formed"),
}


@pytest.mark.parametrize("case", list(REFUSED))
async def test_tokens_that_are_not_taken(case: str) -> None:
    make, why = REFUSED[case]
    token = make()
    error = await refusal(auth(jwt={"secret": SECRET}), visit(x_api_key=token))
    assert error.code is ErrorCode.UNAUTHORIZED
    assert why in error.message
    assert token not in error.message


async def test_one_that_was_changed_is_refused() -> None:
    head, body, mac = signed().split(".")
    other = base64.urlsafe_b64encode(b'{"sub":"bob"}').decode().rstrip("=")
    assert body != other
    error = await refusal(auth(jwt={"secret": SECRET}), visit(x_api_key=f"{head}.{other}.{mac}"))
    assert "signature is wrong" in error.message


async def test_clocks_may_differ_by_the_leeway() -> None:
    late = signed(exp=int(time.time()) - 20)
    assert await auth(jwt={"secret": SECRET}).user(visit(x_api_key=late), "/toy") == "alice"
    strict = auth(jwt={"secret": SECRET, "leeway": 0})
    assert "expired" in (await refusal(strict, visit(x_api_key=late))).message


async def test_audience_issuer_and_the_claim_of_the_user() -> None:
    section = {"secret": SECRET, "audience": "bridge", "issuer": "https://issuer", "user_claim": "uid"}
    identity = auth(jwt=section)
    good = {"aud": ["bridge", "x"], "iss": "https://issuer", "uid": 42, "sub": None}
    assert await identity.user(visit(x_api_key=signed(**good)), "/toy") == "42"
    for change, why in (
        ({"aud": "x"}, "another audience"),
        ({"aud": None}, "lacks a claim"),
        ({"iss": "https://other"}, "another issuer"),
        ({"iss": None}, "lacks a claim"),
        ({"uid": None, "sub": "alice"}, "claim uid"),
    ):
        assert why in (await refusal(identity, visit(x_api_key=signed(**{**good, **change})))).message, change


async def test_a_short_secret_works_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    identity = auth(jwt={"secret": "tiny"})
    assert "server.auth.jwt.secret can be guessed" in caplog.text
    assert "tiny" not in caplog.text
    token = by_hand({"alg": "HS256"}, {"sub": "alice", "exp": LATER}, "tiny")
    assert await identity.user(visit(x_api_key=token), "/toy") == "alice"


async def test_larger_hashes_are_taken_when_they_are_named() -> None:
    identity = auth(jwt={"secret": SECRET, "algorithms": ["HS256", "HS512"]})
    with pytest.warns(UserWarning, match="below the minimum"):
        token = jwt.encode({"sub": "alice", "exp": int(time.time()) + 60}, SECRET, "HS512")
    assert await identity.user(visit(x_api_key=token), "/toy") == "alice"


# ---------------------------------------------------------------------- tokens with public keys


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextlib.asynccontextmanager
async def issued(
    *keys: SigningKey, algorithms: list[str] | None = None
) -> AsyncIterator[tuple[Issuer, JwtVerifier, Clock]]:
    clock = Clock()
    async with fake_backend() as backend:
        issuer = Issuer(backend, *keys)
        section = JwtSection.model_validate({"jwks_url": issuer.url, "algorithms": algorithms})
        tokens = JwtVerifier(section, KeySet(issuer.url, clock=clock))
        try:
            yield issuer, tokens, clock
        finally:
            await tokens.close()


async def user_of(tokens: JwtVerifier, token: str) -> str:
    return (await tokens.bearer(token)).user


async def refused(tokens: JwtVerifier, token: str) -> BridgeError:
    with pytest.raises(BridgeError) as caught:
        await user_of(tokens, token)
    assert token not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
async def test_signatures_of_public_keys(algorithm: str) -> None:
    key, stranger = SigningKey("k1", algorithm), SigningKey("k1", algorithm)
    async with issued(key, SigningKey("k2")) as (issuer, tokens, _):
        assert await user_of(tokens, key.sign()) == "alice"
        assert "signature is wrong" in (await refused(tokens, stranger.sign())).message
        assert issuer.asked == 1


async def test_the_set_is_fetched_once_for_many_requests() -> None:
    async with issued(KEY) as (issuer, tokens, clock):
        assert set(await asyncio.gather(*(user_of(tokens, KEY.sign()) for _ in range(20)))) == {"alice"}
        clock.now += LIFE - 1
        await user_of(tokens, KEY.sign())
        assert issuer.asked == 1
        clock.now += 2
        await user_of(tokens, KEY.sign())
        assert issuer.asked == 2


async def test_a_new_key_is_found_at_once_by_all_who_wait_for_it() -> None:
    old, new = SigningKey("old"), SigningKey("new")
    async with issued(old) as (issuer, tokens, clock):
        await user_of(tokens, old.sign())
        issuer.keys = [new]
        assert set(await asyncio.gather(*(user_of(tokens, new.sign()) for _ in range(10)))) == {"alice"}
        assert issuer.asked == 2
        clock.now += PAUSE
        assert "issuer does not have" in (await refused(tokens, old.sign())).message


async def test_unknown_keys_do_not_press_the_issuer() -> None:
    stranger = SigningKey("never")
    async with issued(KEY) as (issuer, tokens, clock):
        for _ in range(50):
            assert (await refused(tokens, stranger.sign())).code is ErrorCode.UNAUTHORIZED
        assert issuer.asked == 2
        clock.now += PAUSE
        await refused(tokens, stranger.sign())
        assert issuer.asked == 3
        assert await user_of(tokens, KEY.sign()) == "alice"


async def test_an_issuer_that_fails_is_waited_for_while_its_keys_are_young(caplog: pytest.LogCaptureFixture) -> None:
    async with issued(KEY) as (issuer, tokens, clock):
        issuer.status = 500
        error = await refused(tokens, KEY.sign())
        assert (error.code, error.failure.http_status) == (ErrorCode.BACKEND_UNAVAILABLE, 503)
        await refused(tokens, KEY.sign())
        assert issuer.asked == 1
        issuer.status, clock.now = 200, clock.now + PAUSE
        assert await user_of(tokens, KEY.sign()) == "alice"
        issuer.status, clock.now = 500, clock.now + LIFE
        assert await user_of(tokens, KEY.sign()) == "alice"
        assert await user_of(tokens, KEY.sign()) == "alice"
        assert issuer.asked == 3
        clock.now += RETRY
        assert await user_of(tokens, KEY.sign()) == "alice"
        assert issuer.asked == 4
        clock.now += PATIENCE
        assert (await refused(tokens, KEY.sign())).code is ErrorCode.BACKEND_UNAVAILABLE
    assert caplog.text.count("server.auth.jwt.jwks_url cannot be read") == 4


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"keys": {}}', b'{"no": 1}', b"\xff", b'{"keys": [' + b" " * 2**20 + b"]}"]
)
async def test_what_is_no_key_set_counts_as_no_answer(body: bytes) -> None:
    async with issued(KEY) as (issuer, tokens, _):
        issuer.backend.answers(200, body)
        assert (await refused(tokens, KEY.sign())).code is ErrorCode.BACKEND_UNAVAILABLE


async def test_keys_for_other_uses_and_broken_ones_are_left_alone() -> None:
    secretive, plain = SigningKey("enc", use="enc"), SigningKey("plain", alg=None, use=None)
    broken = SigningKey("broken", x="!", y=None)
    async with issued(secretive, plain, broken) as (_, tokens, _):
        assert await user_of(tokens, plain.sign()) == "alice"
        for key in (secretive, broken):
            assert (await refused(tokens, key.sign())).code is ErrorCode.UNAUTHORIZED


async def test_the_algorithm_of_a_key_binds() -> None:
    key = SigningKey("k1", "RS256")
    async with issued(key) as (_, tokens, _):
        assert (await refused(tokens, key.sign(algorithm="PS256"))).code is ErrorCode.UNAUTHORIZED
    async with issued(SigningKey("e"), key, algorithms=["ES256"]) as (_, tokens, _):
        assert "algorithm" in (await refused(tokens, key.sign())).message


async def test_a_token_without_a_key_id_needs_a_set_of_one() -> None:
    nameless = SigningKey(None)
    async with issued(nameless) as (_, tokens, _):
        assert await user_of(tokens, nameless.sign()) == "alice"
    async with issued(nameless, KEY) as (_, tokens, _):
        assert "issuer does not have" in (await refused(tokens, nameless.sign())).message


async def test_a_public_key_is_no_shared_secret() -> None:
    """The oldest trick: HS256 with the issuer's public key, which everybody has, as the secret."""
    async with issued(KEY) as (_, tokens, _):
        forged = by_hand({"alg": "HS256", "kid": "k1"}, {"sub": "alice"}, json.dumps(KEY.public))
        assert "algorithm" in (await refused(tokens, forged)).message


# ---------------------------------------------------------------------- through the server


class Watched(Bridge):
    """Notes whose runs it is asked for."""

    owners: list[str]

    async def run(self, *args: Any, caller: RunCaller | None = None, **more: Any) -> Any:
        assert caller is not None
        self.owners.append(caller.owner)
        return await super().run(*args, caller=caller, **more)


async def test_the_user_owns_the_run() -> None:
    async with fake_backend() as backend:
        issuer = Issuer(backend, KEY)
        ways = {
            "keys": [{"name": "web", "key": "k1"}],
            "jwt": {"jwks_url": issuer.url},
            "trusted_header": "X-User",
            "trusted_proxies": ["127.0.0.0/8"],
        }
        config = setup(ways)
        config["server"]["port"] = free_port()
        bridge = Watched.from_config({**config, "stores": {"history": "off"}})
        bridge.owners = []
        async with running(bridge) as port:
            url = f"http://127.0.0.1:{port}/toy/ask"
            for headers in ({"x_api_key": "k1"}, {"authorization": f"Bearer {KEY.sign()}"}, {"x_user": "bob"}):
                assert (await post(url, {"ask": "text"}, **headers)).status == 200
            refused = await post(url, {"ask": "text"})
    assert bridge.owners == ["web", "alice", "bob"]
    assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert "API key is needed" in refused.json["wrong"]


async def test_a_header_from_a_stranger_is_refused_before_anything_is_done() -> None:
    async with serving(setup({"trusted_header": "X-User", "trusted_proxies": ["192.0.2.1"]})) as base:
        answer = await post(f"{base}/toy/ask", {"ask": "text"}, x_user="alice")
        none = await post(f"{base}/toy/ask", {"ask": "text"})
    assert (answer.status, none.status) == (401, 401)
    assert "not accepted from this address" in answer.json["wrong"]


# Those over WebSockets alone are asked at their handshake.
@pytest.mark.parametrize("name", [name for name in registry.over_http() if name not in ("toy", "acp")])
async def test_every_dialect_says_how_to_come_in(name: str) -> None:
    dialect = registry.get(name)
    config = {**setup({"keys": [{"name": "web", "key": "k1"}]}, name), "stores": {"history": "sqlite:///:memory:"}}
    async with serving(config) as base:
        answer = await ask("POST", f"{base}/toy{dialect.example_request('Hi').target}")
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert answer.headers["content-type"].partition(";")[0] in ("application/json", "application/problem+json")
    assert b"API key is needed" in answer.body


class Choice(Options):
    key_in_query: bool = False


@pytest.fixture
def asking(toy: str) -> Iterator[None]:
    """The toy with an endpoint that may take a key from the query, and one that asks nobody who he is."""

    class Asking(type(registry.get(toy))):  # type: ignore[misc]
        name = "asking"
        front_options = Choice
        surface = (
            Endpoint("POST", "/ask", Operation.RUN),
            Endpoint("GET", "/alive", Operation.HEALTH, query_token="key_in_query"),
            Endpoint("GET", "/open", Operation.HEALTH, public=True),
        )

    registry.register(Asking())
    yield
    registry.unregister("asking")


@pytest.mark.usefixtures("asking")
async def test_a_key_in_the_query_is_taken_where_route_and_endpoint_let_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    keys = {"keys": [{"name": "web", "key": "s3cret-k1"}]}
    async with serving(setup(keys, "asking")) as base:
        assert (await ask("GET", f"{base}/toy/alive?access_token=s3cret-k1")).status == 401
        assert (await ask("GET", f"{base}/toy/open")).status == 200
    async with serving(setup(keys, "asking", options={"key_in_query": True})) as base:
        assert (await ask("GET", f"{base}/toy/alive?access_token=s3cret-k1")).status == 200
        assert (await ask("GET", f"{base}/toy/alive?access_token=other")).status == 401
        assert (await ask("GET", f"{base}/toy/alive")).status == 401
        other = await post(f"{base}/toy/ask?access_token=s3cret-k1", {"ask": "text"})
        nothing = await ask("GET", f"{base}/toy/nothing?access_token=s3cret-k1")
    assert (other.status, nothing.status) == (401, 404)
    assert "s3cret" not in nothing.body.decode() + other.body.decode()
    assert "s3cret" not in caplog.text


async def test_no_secret_is_ever_told(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever is sent, and however it fails: nothing of it stands in an answer, a log line or a value's repr."""
    caplog.set_level(logging.DEBUG)
    secret = "s3cret-" + "x" * 40
    section = {"keys": [{"name": "web", "key": secret}], "jwt": {"secret": secret + "y"}}
    config = setup(section)
    parsed = AuthSection.model_validate(section)
    told = [repr(parsed), str(parsed), repr(Identity.of(parsed)), repr(vars(Identity.of(parsed)))]
    tokens = [secret, secret[:-1], by_hand({"alg": "HS256"}, {"sub": 1, "exp": "x"}, secret + "y"), f"{secret}.a.b"]
    async with serving(config) as base:
        for token in tokens:
            for headers in ({"authorization": f"Bearer {token}"}, {"x-api-key": token}):
                answer = await ask("POST", f"{base}/toy/ask?access_token={token}", b"{", headers)
                assert answer.status in (400, 401)
                told += [answer.body.decode(), str(answer.headers)]
    written = capfd.readouterr()
    everything = "\n".join([*told, caplog.text, written.out, written.err])
    digest = hashlib.sha256(secret.encode())
    for hidden in ("s3cret", digest.hexdigest(), repr(digest.digest()), tokens[2], tokens[2].split(".")[2]):
        assert hidden not in everything


async def test_a_browser_learns_of_a_refusal() -> None:
    async with (
        serving(setup({"keys": [{"name": "web", "key": "k1"}]})) as base,
        aiohttp.ClientSession() as session,
        session.post(f"{base}/toy/ask", json={"ask": "text"}, headers={"origin": "https://app.example"}) as answer,
    ):
        assert answer.status == 401
        assert answer.headers["access-control-allow-origin"] == "https://app.example"


def test_a_server_without_tokens_does_not_load_them() -> None:
    code = "import sys, bridge.server; print(sorted({'jwt', 'cryptography', 'openai', 'obstore'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_keys_without_their_package_are_a_clear_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.server.auth.tokens.has_crypto", False)
    with pytest.raises(BridgeError, match=r"pip install 'dialect-bridge\[jwt\]'"):
        auth(jwt={"jwks_url": "http://127.0.0.1:1/keys"})
    assert JwtVerifier(JwtSection(secret=SecretStr(SECRET)))
