"""Real agents of AG2 and Mastra behind AG-UI adapters of their own: what they ask reaches people at every frontend."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.docs.helpers import Server, server
from tests.interop.conftest import node_client
from tests.pairs.people import PEOPLE, AguiPerson, KitPerson, routes
from tests.server.harness import serving

pytestmark = pytest.mark.interop_all

HERE = Path(__file__).parent
PYTHON = Path(sys.prefix) / "ag2" / "bin" / "python"
KINDS = ("ag2", "ag2 proof", "mastra", "mastra event")


@pytest.fixture(scope="module", params=KINDS)
def agent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Server]]:
    kind, *options = request.param.split()
    if kind == "mastra":
        node_client(HERE / "mastra", "Mastra")
        command = ["node", str(HERE / "mastra" / "server.mjs"), "{port}", *options]
    else:
        assert PYTHON.exists(), "AG2 is not installed: make interop-all"
        command = [str(PYTHON), str(HERE / "ag2" / "server.py"), "{port}", *options]
    with server(tmp_path_factory.mktemp("agent"), *command, ready="/health") as running:
        yield request.param, running


@pytest.mark.parametrize("front", list(PEOPLE))
async def test_what_agents_ask(agent: tuple[str, Server], front: str, tmp_path: Path) -> None:
    """A yes, a no and a free question, in one conversation."""
    kind, running = agent
    is_mastra, kind_of = kind.startswith("mastra"), PEOPLE[front]
    forms = issubclass(kind_of, AguiPerson) and kind_of.dialect == "ag-ui"  # they answer in the form that was asked for
    if kind == "ag2 proof" and forms:
        return  # such clients send the proof themselves
    scene, result, call = ("pay", ("paid", "refused"), 'pay({"amount":250})') if is_mastra else (
        "wipe", ("wiped /tmp/x", "User denied the tool call request"), 'wipe({"path": "/tmp/x"})'
    )  # fmt: skip
    backend = SimpleNamespace(dialect="ag-ui", url=f"{running.url}/agent", options={})
    async with serving(routes(backend, history=f"sqlite:///{tmp_path}/talks.db")) as base:
        person = kind_of(base, uuid.uuid4().hex)
        if is_mastra and isinstance(person, KitPerson):
            # Mastra tells no call that waits, only its result.
            person.told = {f"call_{number}" for number in range(100)}
        for said, answered in (("yes", result[0]), ("no", result[1])):
            seen = await person.say(scene)
            if person.knows_interrupts:
                assert len(person.asked) == 1
            else:
                assert (seen.calls, seen.error) == ([], None)
                assert call in seen.text
                assert "Pay 250?" in seen.text or "approve or deny" in seen.text
            seen = await person.resume({"approved": said == "yes"} if forms and is_mastra else said)
            assert seen.error is None
            assert answered in seen.text
        await person.say("book")
        if forms:
            seen = await person.resume({"city": "Rome"} if is_mastra else "Rome")
        else:
            seen = await person.say("Rome")
        assert (seen.error, seen.text) == (None, "It says: booked Rome.")
        seen = await person.say("hello")
        assert (seen.error, seen.text) == (None, "You said: hello")


@pytest.mark.parametrize("front", [front for front, kind in PEOPLE.items() if not kind.knows_interrupts])
async def test_an_approval_that_is_not_reported(agent: tuple[str, Server], front: str, tmp_path: Path) -> None:
    """Mastra's `requireApproval`: a call, then the end of the run."""
    kind, running = agent
    if not kind.startswith("mastra"):
        return
    backend = SimpleNamespace(dialect="ag-ui", url=f"{running.url}/agent", options={})
    async with serving(routes(backend, history=f"sqlite:///{tmp_path}/talks.db")) as base:
        person = PEOPLE[front](base, uuid.uuid4().hex)
        seen = await person.say("wipe")
        assert (seen.calls, "its own tool call wipe({})" in (seen.error or "")) == ([], True)
        seen = await person.say("hello")
        assert (seen.error, seen.text) == (None, "You said: hello")


async def test_the_error_of_a_model(agent: tuple[str, Server]) -> None:
    kind, running = agent
    if kind != "ag2":
        return
    async with serving(routes(SimpleNamespace(dialect="ag-ui", url=f"{running.url}/agent", options={}))) as base:
        seen = await PEOPLE["openai-chat"](base, "t").say("full")
    assert seen.status == 429
    assert "The model is full." in (seen.error or "")
    assert "RateLimitError" not in json.dumps(seen.error)
