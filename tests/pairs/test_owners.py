"""Two users behind one backend key who choose the same id for their threads have two threads at the backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest

from bridge import Message, Request, Text
from bridge.contract import Context, Dialect, Feature, Support, registry
from bridge.run.conversation.threads import name_at_backend
from bridge.testing import FakeBackend
from tests.docs.tables import dialects
from tests.server.harness import Reply, ask, fake_backend, serving

TALK = "talk-1"
USERS = ("ann", "bob")
BOTH = [d for d in map(registry.get, dialects()) if d.served and d.called]
SPEAKING = [d.name for d in BOTH if d.framing == "sse"]
# Agents that name their conversations themselves are told no name of ours: what is kept by owner is theirs.
NAMING = [name for name in SPEAKING if registry.get(name).capabilities.names_threads]
REMEMBERING = [
    name
    for name in SPEAKING
    if registry.get(name).capabilities.request(Feature.THREAD_ID) is Support.EXACT and name not in NAMING
]


def setup(back: str, url: str, folder: Path, *, users: bool = True, **more: Any) -> dict[str, Any]:
    keys = [{"name": user, "key": f"key-of-{user}"} for user in USERS]
    store = f"sqlite:///{folder}/bridge.db"
    return {
        "server": {"auth": {"keys": keys}, **more} if users else more,
        "backends": {"it": {"dialect": back, "url": url}},
        "routes": [{"dialect": name, "path": f"/{name}", "backend": "it"} for name in SPEAKING],
        "stores": {"history": store, "runs": store, "attachments": f"file:///{folder}/images"},
    }


async def says(base: str, front: Dialect, user: str, text: str) -> Reply:
    """One request of a client in the thread `TALK`, to the end of its answer."""
    asked = Request([Message("user", [Text(text)], id=f"m-{text}")], model="m", thread_id=TALK, stream=True)
    asked.extras = {"ag-ui": {"forwardedProps": {"runtime_mode": "chat"}}}
    context = Context(f"run-{user}-{text}", TALK, 0.0, front.back_options(), "m", asked)
    wire = front.encode_request(asked, context)
    headers = {**wire.headers, "x-session-id": TALK, "x-api-key": f"key-of-{user}"}
    url = f"{base}/{front.name}"
    reply = await ask(wire.method, url + front.example_request(text).target, wire.body, headers)
    if reply.status != 202:
        return reply
    named = reply.json
    return await ask("GET", f"{url}/runs/{named['threadId']}/events?runId={named['runId']}", headers=headers)


def threads(backend: FakeBackend) -> list[str]:
    """The thread of each request that the backend was asked, as its own dialect reads it."""
    return [asked.thread_id or "" for asked in backend.requests]


@pytest.mark.parametrize("back", REMEMBERING)
@pytest.mark.parametrize("front", [name for name in SPEAKING if name != "agent-runs"])
async def test_each_user_has_threads_of_the_own(front: str, back: str, tmp_path: Path) -> None:
    dialect = registry.get(front)
    async with fake_backend(back) as backend:
        backend.says("Hello")
        async with serving(setup(back, backend.url, tmp_path)) as base:
            replies = [await says(base, dialect, user, "one") for user in USERS]
        ann, bob = threads(backend)
        assert ann != bob
        assert TALK not in (ann, bob)
        assert (str(UUID(ann)), str(UUID(bob))) == (ann, bob)
        for reply in replies:
            assert b"Hello" in reply.body
            assert ann.encode() not in reply.body
            assert bob.encode() not in reply.body


@pytest.mark.parametrize("back", REMEMBERING)
async def test_where_a_thread_has_one_owner_the_other_is_refused(back: str, tmp_path: Path) -> None:
    """Threads of `agent-runs` belong to who made them (agent-runs protocol page, section 1)."""
    front = registry.get("agent-runs")
    async with fake_backend(back) as backend:
        backend.says("Hello")
        async with serving(setup(back, backend.url, tmp_path)) as base:
            mine, others = [await says(base, front, user, "one") for user in USERS]
        (thread,) = threads(backend)
        assert b"Hello" in mine.body
        assert TALK.encode() in mine.body
        assert thread.encode() not in mine.body
        assert (thread != TALK, others.status) == (True, 403)


@pytest.mark.parametrize("back", REMEMBERING)
async def test_a_thread_stays_the_same_over_a_restart_and_is_shown_by_its_own_name(back: str, tmp_path: Path) -> None:
    async with fake_backend(back) as backend:
        backend.says("Hello")
        for text in ("one", "two"):
            async with serving(setup(back, backend.url, tmp_path)) as base:
                reply = await says(base, registry.get("agentscope"), "ann", text)
                assert orjson.loads(reply.body.split(b"\n\n")[0][6:])["session_id"] == TALK
        first, second = threads(backend)
        assert first == second


async def test_a_client_that_names_no_thread_goes_on_with_the_one_it_is_told(tmp_path: Path) -> None:
    async with fake_backend("agentscope") as backend:
        backend.says("Hello")
        body: dict[str, Any] = {"input": [{"role": "user", "content": [{"type": "text", "text": "one"}]}]}
        headers = {"content-type": "application/json", "x-api-key": "key-of-ann"}
        async with serving(setup("agentscope", backend.url, tmp_path)) as base:
            for _ in range(2):
                reply = await ask("POST", f"{base}/agentscope/process", orjson.dumps(body), headers)
                body["session_id"] = orjson.loads(reply.body.split(b"\n\n")[0][6:])["session_id"]
        first, second = threads(backend)
        assert first == second != body["session_id"]


@pytest.mark.parametrize("back", REMEMBERING)
async def test_where_nobody_is_known_the_thread_is_the_clients(back: str, tmp_path: Path) -> None:
    async with fake_backend(back) as backend:
        backend.says("Hello")
        async with serving(setup(back, backend.url, tmp_path, users=False)) as base:
            await says(base, registry.get("agentscope"), "ann", "one")
        assert threads(backend) == [TALK]


async def test_the_servers_secret_is_part_of_the_name(tmp_path: Path) -> None:
    seen = []
    async with fake_backend("agentscope") as backend:
        backend.says("Hello")
        for secret in ("a secret of the server's own, 1", "a secret of the server's own, 2"):
            async with serving(setup("agentscope", backend.url, tmp_path, secret=secret)) as base:
                await says(base, registry.get("agentscope"), "ann", "one")
        seen = threads(backend)
    assert len(set(seen)) == 2


def test_no_two_users_can_meet_by_how_they_are_written() -> None:
    pairs = [("a", "b"), ("a\0b", ""), ("", "ab"), ("ab", ""), ('a","b', "c"), ("a", 'b","c')]
    assert len({name_at_backend("", *pair) for pair in pairs}) == len(pairs)
