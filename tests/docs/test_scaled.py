"""The recipe for several processes, with a real PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.helpers import EXAMPLES, Server, serve
from tests.server.harness import post
from tests.stores.conftest import postgres

pytestmark = pytest.mark.slow

__all__ = ["postgres"]

ASKED = {
    "threadId": "t",
    "runId": "r",
    "messages": [{"id": "1", "role": "user", "content": "steps"}],
    "tools": [],
    "context": [],
    "state": {},
    "forwardedProps": {},
}
KEY = {"authorization": "Bearer key-of-web"}


async def test_what_one_process_began_another_goes_on_with(demo: Server, postgres: str, tmp_path: Path) -> None:
    variables = {
        "OPENAI_BASE_URL": f"{demo.url}/v1",
        "OPENAI_MODEL": "demo",
        "POSTGRES_URL": postgres,
        "WEB_KEY": "key-of-web",
    }
    recipe = EXAMPLES / "configs" / "scaled.yaml"
    with (
        serve(tmp_path, recipe, "--host", "127.0.0.1", **variables) as one,
        serve(tmp_path, recipe, "--host", "127.0.0.1", **variables) as other,
    ):
        whole = (await post(f"{one.url}/ag-ui", ASKED, **KEY)).body
        first, rest = whole.split(b"\n\n", 1)
        last = first.split(b"\n")[0].removeprefix(b"id: ").decode()
        assert b"RUN_FINISHED" in rest
        assert (await post(f"{other.url}/ag-ui", ASKED, last_event_id=last, **KEY)).body == rest

        said = (await post(f"{one.url}/v1/responses", {"model": "demo", "input": "Hello"}, **KEY)).json
        more = {"model": "demo", "input": "Again", "previous_response_id": said["id"]}
        reply = await post(f"{other.url}/v1/responses", more, **KEY)
        assert (reply.status, reply.json["previous_response_id"]) == (200, said["id"])
