"""The dialect over real sockets, in front of a server that plays recorded streams: what is asked, and what of the
answers clients get.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
import pytest

from bridge.dialects.langgraph.wire import thread_id
from bridge.engine.bridge import Bridge
from bridge.errors import ErrorCode, Failure
from bridge.model import Answer, FinishReason, Request, Resume, fold, verify
from tests.dialects.langgraph.service import RUN, Server, event, events, recorded
from tests.pairs.people import leave
from tests.server.harness import Reply, fake_backend, post, serving

THREAD = "6f3f38a3-7b2e-4c39-bb9c-a4a7a5bd5b37"
STATUS, JOIN, STATE = f"GET /threads/T/runs/{RUN}", f"GET /threads/T/runs/{RUN}/stream", "GET /threads/T/state"
START, CANCEL = "POST /threads/T/runs/stream", f"POST /threads/T/runs/{RUN}/cancel?wait=1&action=interrupt"
INPUT: dict[str, Any] = {"messages": [{"type": "human", "id": "u", "content": "Hi"}]}


@asynccontextmanager
async def bridge(server: Server, folder: Path, **backend: Any) -> AsyncIterator[str]:
    config = {
        "backends": {"agent": {"dialect": "langgraph", "url": server.url, **backend}},
        "routes": [
            {"dialect": "openai-chat", "path": "/v1", "backend": "agent"},
            {"dialect": "ag-ui", "path": "/agui", "backend": "agent"},
            {"dialect": "agentscope", "path": "/a", "backend": "agent"},
        ],
        "stores": {"history": f"sqlite:///{folder}/history.db"},
    }
    async with serving(config) as base:
        yield base


def chat(*texts: str, **more: Any) -> dict[str, Any]:
    said = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    return {"model": "m", "messages": said, "stream": False, **more}


def agui(text: str, *, thread: str = THREAD, run: str = "r", **more: Any) -> dict[str, Any]:
    said = [{"id": "u1", "role": "user", "content": text}]
    whole = {"threadId": thread, "runId": run, "state": {}, "tools": [], "context": [], "forwardedProps": {}}
    return {**whole, "messages": said, "protocolVersion": "1.0", **more}


def told(reply: Reply) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in reply.body.decode().split("\n\n") if line.startswith("data: ")]


async def ask(base: str, text: str = "Hi", **more: Any) -> Reply:
    return await post(f"{base}/v1/chat/completions", chat(text, **more))


def said(reply: Reply) -> str:
    return str(reply.json["choices"][0]["message"]["content"])


def ai(text: str, *, message_id: str = "m", **more: Any) -> list[Any]:
    """A piece of a message with its metadata."""
    return [{"type": "AIMessageChunk", "id": message_id, "content": text, "tool_call_chunks": [], **more}, {}]


def final(text: str, **more: Any) -> dict[str, Any]:
    """The state with a message of the model."""
    return {"messages": [*INPUT["messages"], {"type": "ai", "id": "m", "content": text}], **more}


# ------------------------------------------------------------------ what is asked


@pytest.mark.usefixtures("each_http_client")
async def test_a_run_is_asked_for_and_then_its_status(tmp_path: Path) -> None:
    async with Server().listening() as server, bridge(server, tmp_path, api_key="key-1") as base:
        assert said(await ask(base)) == "Hello, world!"
    assert server.log == [START, STATUS]
    assert server.bodies == [
        {
            "assistant_id": "agent",
            "input": {"messages": [{"role": "user", "content": "Hi"}]},
            "stream_mode": ["messages-tuple", "values", "updates", "custom"],
            "stream_subgraphs": True,
            "stream_resumable": True,
            "on_disconnect": "continue",
            "if_not_exists": "create",
        }
    ]
    assert server.headers[0]["x-api-key"] == "key-1"
    assert "authorization" not in server.headers[0]


async def test_the_paths_of_a_run_are_below_the_base_url(tmp_path: Path) -> None:
    """`Location` and `Content-Location` are relative to the base of the API, which a client must not double."""
    server = Server(cuts=[4])
    async with server.listening():
        server.url += "/langgraph"
        async with bridge(server, tmp_path) as base:
            await ask(base)
    assert [line.partition(" ")[2].partition("/runs")[0] for line in server.log] == ["/langgraph/threads/T"] * 2


async def test_a_conversation_is_one_thread_that_gets_what_is_new(tmp_path: Path) -> None:
    async with Server().listening() as server, bridge(server, tmp_path) as base:
        await post(f"{base}/v1/chat/completions", chat("Hi"))
        await post(f"{base}/v1/chat/completions", chat("Hi", "Hello, world!", "And then?"))
    assert [body["input"]["messages"] for body in server.bodies] == [
        [{"role": "user", "content": "Hi"}],
        [{"role": "user", "content": "And then?"}],
    ]


def test_a_thread_that_is_a_uuid_keeps_its_id_and_any_other_has_one_of_its_own() -> None:
    assert thread_id(THREAD) == thread_id(THREAD.upper()) == THREAD
    assert thread_id("a") == thread_id("a") != thread_id("b")
    assert UUID(thread_id("../a b")).version == 5


async def test_a_failure_that_comes_first_is_an_error_of_the_right_kind() -> None:
    said = {}
    for status in (400, 401, 403, 404, 409, 422, 429, 500, 503):
        failure = await failure_of(Server(refuses=(status, {"detail": f"said {status}"})))
        said[status] = (str(failure.code), f"said {status}" in failure.message)
    assert said == {
        400: ("backend_error", True),
        401: ("backend_auth", False),
        403: ("backend_auth", False),
        404: ("backend_error", True),
        409: ("conflict", True),
        422: ("backend_error", True),
        429: ("rate_limited", True),
        500: ("backend_unavailable", True),
        503: ("backend_unavailable", True),
    }


async def test_the_words_of_a_refusal_in_plain_text_are_told() -> None:
    """langgraph.js has them; a page is none."""
    said = {}
    for body in (b"Invalid assistant: agent", b"<html>wrong</html>", b"x" * 400, b""):
        async with fake_backend() as backend:
            backend.answers(400, body, "text/plain;charset=UTF-8")
            server = Server()
            server.url = backend.url
            said[body] = (await run(server, Request("Hi"))).failure
    assert [each.message for each in said.values() if each] == [
        "Invalid assistant: agent", *["The backend answered with status 400."] * 3,
    ]  # fmt: skip


async def test_a_busy_thread_is_a_conflict_on_every_server() -> None:
    """langgraph.js has another status for it."""
    for status in (409, 422):
        failure = await failure_of(Server(refuses=(status, {"detail": "Thread is already running a task."})))
        assert failure.code is ErrorCode.CONFLICT


async def test_an_answer_that_is_no_event_stream_is_none(tmp_path: Path) -> None:
    server = Server(refuses=(200, {"messages": []}))
    async with server.listening(), bridge(server, tmp_path) as base:
        reply = await ask(base)
    assert reply.status == 502
    assert "event stream" in reply.json["error"]["message"]


# ------------------------------------------------------------------ how runs end


async def failure_of(server: Server) -> Failure:
    """The failure with which a run ends, after everything else has been closed."""
    async with server.listening():
        failure = (await run(server, Request("Hi", thread_id=THREAD))).failure
    assert failure is not None
    return failure


async def run(server: Server, request: Request, **options: Any) -> Answer:
    """The answer to a request of a program, of which the bridge stores nothing."""
    backend = {"dialect": "langgraph", "url": server.url, "retry": {"attempts": 1}, "options": options}
    config = {
        "backends": {"agent": backend},
        "routes": [{"dialect": "ag-ui", "path": "/agui", "backend": "agent"}],
        "stores": {"history": "off", "runs": "sqlite:///:memory:"},
    }
    async with Bridge.from_config(config) as made:
        return fold(verify([each async for each in made.stream(request)]))


async def test_a_run_that_was_canceled_elsewhere_is_no_complete_answer() -> None:
    failure = await failure_of(Server("cancelled", statuses=["interrupted"]))
    assert failure.code is ErrorCode.CANCELED


async def test_a_run_that_was_rolled_back_is_gone() -> None:
    failure = await failure_of(Server("cancelled", statuses=[404]))
    assert failure.code is ErrorCode.CANCELED


@pytest.mark.parametrize("status", ["error", "timeout"])
async def test_a_run_that_failed_says_why_in_its_thread(status: str) -> None:
    """The `error` event is not replayed to those who come back."""
    error = {"error": "RuntimeError", "message": "model broke: key sk-secret-123"}
    server = Server(recorded("text")[:5], statuses=[status], error=error)
    failure = await failure_of(server)
    assert failure.code is ErrorCode.BACKEND_ERROR
    assert "model broke" in failure.message
    assert "sk-secret" not in failure.message
    assert server.log == [START, STATUS, "GET /threads/T"]


async def test_a_run_that_failed_without_a_reason_is_a_failure() -> None:
    failure = await failure_of(Server(statuses=["error"]))
    assert failure.message == "The agent failed."


async def test_a_status_that_nobody_knows_is_no_success() -> None:
    assert (await failure_of(Server(statuses=["odd"]))).code is ErrorCode.BACKEND_PROTOCOL
    assert (await failure_of(Server(statuses=[None]))).code is ErrorCode.BACKEND_PROTOCOL


async def test_a_status_that_cannot_be_read_is_asked_for_again_and_then_no_success(tmp_path: Path) -> None:
    async with Server(statuses=[500, 500, "success"]).listening() as server, bridge(server, tmp_path) as base:
        assert said(await ask(base)) == "Hello, world!"
    assert server.log == [START, STATUS, STATUS, STATUS]
    assert (await failure_of(Server(statuses=[500]))).code is ErrorCode.TRUNCATED_STREAM


async def test_an_event_of_an_error_ends_the_run_without_further_questions() -> None:
    server = Server("error")
    failure = await failure_of(server)
    assert failure.message.startswith("the node broke")
    assert server.log == [START]


@pytest.mark.parametrize("mark", [{"status": "success"}, None])
async def test_an_end_mark_does_not_tell_how_a_run_ended(tmp_path: Path, mark: Any) -> None:
    """aegra marks the end of canceled runs and of joined runs that failed with `success`."""
    server = Server([*recorded("text"), event("end", mark)])
    async with server.listening(), bridge(server, tmp_path) as base:
        assert said(await ask(base)) == "Hello, world!"
    assert server.log == [START, STATUS]
    cut = [*recorded("text")[:5], event("end", mark)]
    assert (await failure_of(Server(cut, statuses=["interrupted"]))).code is ErrorCode.CANCELED
    failed = await failure_of(Server(cut, statuses=["error"], more={"error_message": "the node broke"}))
    assert (failed.code, failed.message) == (ErrorCode.BACKEND_ERROR, "the node broke")


async def test_an_end_mark_of_a_run_without_a_name_is_trusted(tmp_path: Path) -> None:
    play = [each for each in recorded("text") if b"event: metadata" not in each]
    server = Server([*play, event("end", None)], names_run=False)
    async with server.listening(), bridge(server, tmp_path) as base:
        assert said(await ask(base)) == "Hello, world!"
    assert server.log == [START]


async def test_a_run_that_another_caller_interrupted_at_aegra_is_canceled() -> None:
    error = {"error": "Error", "message": "Run was interrupted"}
    marked = [*recorded("text")[:5], event("error", error), event("end", {"status": "success"})]
    assert (await failure_of(Server(marked))).code is ErrorCode.CANCELED


async def test_an_end_mark_may_say_that_the_run_was_canceled(tmp_path: Path) -> None:
    ended = [*recorded("text")[:5], event("end", {"status": "interrupted"})]
    assert (await failure_of(Server(ended))).code is ErrorCode.CANCELED
    asked = Server([*recorded("ask"), event("end", {"status": "interrupted"})])
    async with asked.listening(), bridge(asked, tmp_path) as base:
        assert said(await ask(base)) == "What is your name?"


# ------------------------------------------------------------------ streams that break


@pytest.mark.usefixtures("each_http_client")
@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("after", [1, 2, 3, 5, 7])
async def test_a_stream_that_breaks_goes_on_after_its_last_event(tmp_path: Path, after: int, reset: bool) -> None:
    server = Server(cuts=[after], reset=reset, statuses=["running", "success"] if not reset else ["success"])
    async with server.listening(), bridge(server, tmp_path) as base:
        reply = await post(f"{base}/agui", agui("Hi"))
    whole = [e["delta"] for e in told(reply) if e["type"] == "TEXT_MESSAGE_CONTENT"]
    assert "".join(whole) == "Hello, world!"
    assert told(reply)[-1]["type"] == "RUN_FINISHED"
    assert server.log == ([START, JOIN, STATUS] if reset else [START, STATUS, JOIN, STATUS])
    assert server.cursors == [server_id(server.play[after - 1])]


def server_id(data: bytes) -> str:
    found = re.search(rb"^id: ?(\S+)", data, re.MULTILINE)
    assert found is not None
    return found[1].decode()


@pytest.mark.parametrize("where", ["in a name", "in a character", "in the data", "before the id", "in the id"])
async def test_a_stream_that_ends_within_an_event_goes_on_after_the_one_before(tmp_path: Path, where: str) -> None:
    """The end of the body is clean, as proxies end it: what it cuts is no event, and comes again."""
    play = events(("metadata", {"run_id": RUN}), ("values", INPUT), ("messages", ai("Gr\u00fc\u00df")), first=10)
    cut = event("messages", ai(" \u00fcber"), 13)
    at = {
        "in a name": 9, "in a character": cut.index(b"\xc3") + 1, "in the data": len(cut) // 2,
        "before the id": cut.index(b"id: "), "in the id": cut.index(b"id: ") + 5,
    }[where]  # fmt: skip
    rest = [cut, event("values", final("Gr\u00fc\u00df \u00fcber"), 14)]
    server = Server([*play, cut[:at]], joins=[rest], statuses=["running", "success"])
    async with server.listening(), bridge(server, tmp_path) as base:
        assert said(await ask(base)) == "Gr\u00fc\u00df \u00fcber"
    assert server.cursors == ["12"]


async def test_what_aegra_replays_twice_or_under_another_name_is_told_once(tmp_path: Path) -> None:
    """It replays events that then come from its queue as well, and updates as values."""
    play = [("metadata", {"run_id": RUN}), ("values", INPUT), ("messages", ai("a")), ("messages", ai("a"))]
    whole = [event(name, data, f"{RUN}_event_{n}") for n, (name, data) in enumerate(play, 1)]
    again = [
        event("messages", ai("b"), f"{RUN}_event_5"),
        event("values", {"agent": {"messages": [{"type": "ai", "id": "m", "content": "aab"}]}}, f"{RUN}_event_6"),
        event("messages", ai("b"), f"{RUN}_event_5"),
        event("updates", {"agent": {"messages": []}}, f"{RUN}_event_6"),
        event("values", final("aab", count=1), f"{RUN}_event_7"),
    ]
    server = Server(whole, joins=[again], cuts=[4], reset=True)
    async with server.listening(), bridge(server, tmp_path) as base:
        reply = await post(f"{base}/agui", agui("Hi"))
    assert "".join(e["delta"] for e in told(reply) if e["type"] == "TEXT_MESSAGE_CONTENT") == "aab"
    assert [e["snapshot"] for e in told(reply) if e["type"] == "STATE_SNAPSHOT"] == [{"count": 1}]
    assert told(reply)[-1]["type"] == "RUN_FINISHED"


async def test_events_at_the_seam_are_told_once(tmp_path: Path) -> None:
    """The event of the cursor may come again, and so may those before it; others of its id are new."""
    pairs = [("metadata", {"run_id": RUN}), ("values", INPUT), ("messages", ai("Hel")), ("messages", ai("lo"))]
    ids = ["5-0", "5-1", "7-0", "7-0"]
    first = [event(name, data, place) for (name, data), place in zip(pairs, ids, strict=True)]
    rest = [*first[1:], event("messages", ai("!"), "7-0"), event("values", final("Hello!"), "8-0")]
    server = Server(first, cuts=[4], reset=True, joins=[rest])
    async with server.listening(), bridge(server, tmp_path) as base:
        assert said(await ask(base)) == "Hello!"


async def test_an_id_does_not_tell_events_of_one_connection_apart(tmp_path: Path) -> None:
    play = [
        event(name, data, "5-0") for name, data in (("values", INPUT), ("messages", ai("ha")), ("messages", ai("ha")))
    ]
    server = Server([*play, event("values", final("haha"), "5-0")])
    async with server.listening(), bridge(server, tmp_path) as base:
        assert said(await ask(base)) == "haha"


async def test_what_a_join_did_not_bring_is_told_from_the_state(tmp_path: Path) -> None:
    first = events(("values", INPUT), ("messages", ai("Hel")))
    server = Server(first, cuts=[2], reset=True, joins=[[event("values", final("Hello!"), 9)]])
    async with server.listening(), bridge(server, tmp_path) as base:
        assert said(await ask(base)) == "Hello!"


async def test_a_text_that_is_not_that_of_the_thread_is_no_answer() -> None:
    """A stream that cannot be resumed: those who come back get only what is still to come."""
    first = events(("values", INPUT), ("messages", ai("Hel")))
    rest = [event("messages", ai("!"), 8), event("values", final("Hello!"), 9)]
    failure = await failure_of(Server(first, cuts=[2], reset=True, joins=[rest]))
    assert failure.code is ErrorCode.TRUNCATED_STREAM


async def test_a_text_that_the_graph_changes_in_its_state_stays_as_it_was_told(tmp_path: Path) -> None:
    async with Server("both").listening() as server, bridge(server, tmp_path) as base:
        assert said(await ask(base)) == "Hello, world!"


@pytest.mark.usefixtures("each_http_client")
async def test_a_stream_that_a_proxy_ends_is_read_to_its_end(tmp_path: Path) -> None:
    """The run is complete by the time that it is asked for; the rest is replayed, or stands in the thread."""
    server = Server(cuts=[4])
    async with server.listening(), bridge(server, tmp_path) as base:
        assert said(await ask(base)) == "Hello, world!"
    assert server.log == [START, STATUS, JOIN, STATUS]
    bare = [re.sub(rb"id: .*\r\n", b"", each) for each in recorded("text")]
    server = Server(bare, cuts=[4], state={"values": final("Hello, world!")})
    server.play[3] = event("messages", ai("Hello"))
    server.play[2] = event("messages", ai(""))
    async with server.listening(), bridge(server, tmp_path) as base:
        assert said(await ask(base, text="again")) == "Hello, world!"
    assert server.log == [START, STATUS, STATE]


async def test_a_stream_that_breaks_for_good_is_a_failure_and_the_run_is_canceled() -> None:
    server = Server(cuts=[4, 0, 0, 0], reset=True, statuses=["running"])
    failure = await failure_of(server)
    assert failure.code is ErrorCode.TRUNCATED_STREAM
    assert server.log == [START, JOIN, JOIN, JOIN, CANCEL]


async def test_a_run_that_is_on_but_brings_nothing_is_not_waited_for_for_ever() -> None:
    server = Server(cuts=[4], joins=[[], [], [], []], statuses=["running"])
    failure = await failure_of(server)
    assert failure.code is ErrorCode.TRUNCATED_STREAM
    assert server.log.count(JOIN) == 3


async def test_a_join_that_is_refused_asks_what_became_of_the_run(tmp_path: Path) -> None:
    server = Server(cuts=[9], reset=True, joins=[404], statuses=["success"])
    async with server.listening(), bridge(server, tmp_path) as base:
        assert said(await ask(base)) == "Hello, world!"
    assert server.log[:3] == [START, JOIN, STATUS]


# ------------------------------------------------------------------ leaving


@pytest.mark.usefixtures("each_http_client")
@pytest.mark.parametrize("names_run", [True, False])
async def test_a_run_is_canceled_when_its_client_leaves(tmp_path: Path, names_run: bool) -> None:
    """Its name is in the head of the stream, or in its first event."""
    server = Server("text", cuts=[4], stays=True, names_run=names_run)
    server.play[0] = event("metadata", {"run_id": RUN})
    async with server.listening(), bridge(server, tmp_path) as base:
        async with aiohttp.ClientSession() as session:
            response = await session.post(f"{base}/agui", json=agui("Hi"))
            await response.content.readuntil(b"Hello")
            response.close()
        for _ in range(200):
            if CANCEL in server.log:
                break
            await asyncio.sleep(0.02)
    assert server.log == [START, CANCEL]


@pytest.mark.usefixtures("each_http_client")
async def test_a_run_is_canceled_whose_client_leaves_before_the_server_answers(tmp_path: Path) -> None:
    """The server has the run by then, and goes on with it whoever is connected."""
    server = Server("text", cuts=[4], stays=True)
    server.go_on.clear()
    async with server.listening(), bridge(server, tmp_path) as base, asyncio.timeout(20):
        asking = asyncio.create_task(post(f"{base}/agui", agui("Hi")))
        await server.held.wait()
        await leave(asking)
        server.go_on.set()
        while CANCEL not in server.log:
            await asyncio.sleep(0.01)
    assert server.log == [START, CANCEL]


async def test_a_run_that_has_ended_is_not_canceled(tmp_path: Path) -> None:
    async with Server().listening() as server, bridge(server, tmp_path) as base:
        await ask(base)
    assert CANCEL not in server.log


# ------------------------------------------------------------------ questions


ASKED = "b9058f6af5012fb2c91c4e18a14dc926"
"""The id of the recorded question."""


async def test_a_text_answers_the_question_of_a_thread(tmp_path: Path) -> None:
    async with Server("ask").listening() as server, bridge(server, tmp_path) as base:
        assert said(await ask(base)) == "What is your name?"
        server.play = recorded("ask-resume")
        reply = await post(f"{base}/v1/chat/completions", chat("Hi", "What is your name?", "Bob"))
    assert said(reply) == "Hello, Bob!"
    assert server.bodies[1]["command"] == {"resume": {ASKED: "Bob"}}
    assert "input" not in server.bodies[1], "a command and an input: the server ignores the input"


async def test_an_approval_is_decided_for_each_action_whatever_the_client(tmp_path: Path) -> None:
    for answer, decision in (("yes", {"type": "approve"}), ("No way", {"type": "reject", "message": "No way"})):
        async with Server("mail").listening() as server, bridge(server, tmp_path) as base:
            first = await ask(base, text=f"Mail for {answer}")
            server.play = recorded("ask-resume")
            await post(f"{base}/v1/chat/completions", chat(f"Mail for {answer}", said(first), answer))
        assert [*server.bodies[1]["command"]["resume"].values()] == [{"decisions": [decision]}]


@pytest.mark.parametrize("form", ["named", "unnamed"])
async def test_the_thread_says_how_an_approval_is_answered(form: str) -> None:
    """A client that keeps its own threads: the bridge has stored nothing of its questions."""
    one, two = "1" * 32, "2" * 32
    tasks = [
        {"interrupts": [{"id": one, "value": "A?"}]},
        {"interrupts": [{"id": two, "value": {"action_requests": [{}, {}]}}]},
    ]
    async with Server("ask-resume", state={"next": ["a", "b"], "tasks": tasks}).listening() as server:
        names = [""] if form == "unnamed" else [one, two]
        answers = [Resume(name, "resolved", {"approved": True}) for name in names]
        answer = await run(server, Request([], thread_id=THREAD, resume=answers))
    assert answer.text == "Hello, Bob!"
    assert server.log == [STATE, START, STATUS]
    approved = {"decisions": [{"type": "approve"}] * 2}
    assert server.bodies[0]["command"] == {"resume": {one: {"approved": True}, two: approved}}


async def test_an_answer_with_a_name_and_a_value_needs_no_look_at_the_thread() -> None:
    async with Server("ask-resume").listening() as server:
        await run(server, Request([], thread_id=THREAD, resume=[Resume(ASKED, "resolved", "Bob")]))
    assert server.log == [START, STATUS]
    assert server.bodies[0]["command"] == {"resume": {ASKED: "Bob"}}


async def test_an_answer_to_a_thread_that_cannot_be_read_is_sent_as_it_is() -> None:
    async with Server("ask-resume").listening() as server:
        await run(server, Request([], thread_id=THREAD, resume=[Resume("", "resolved", "Bob")]))
    assert server.log == [STATE, START, STATUS]
    assert server.bodies[0]["command"] == {"resume": "Bob"}


async def test_an_answer_to_what_is_not_asked_any_more_is_refused() -> None:
    for state in ({"next": [], "tasks": []}, {"next": ["a"], "tasks": [{"interrupts": [{"id": "other", "value": 1}]}]}):
        async with Server("ask-resume", state=state).listening() as server:
            answer = await run(server, Request([], thread_id=THREAD, resume=[Resume(ASKED, "resolved", True)]))
        assert answer.failure is not None
        assert answer.failure.code is ErrorCode.CONFLICT
        assert server.log == [STATE]


@pytest.mark.parametrize("mark", [[], [event("end", {"status": "success"})]], ids=["no mark", "an end mark"])
async def test_what_is_said_beside_an_answer_is_said_after_it(mark: list[bytes]) -> None:
    """The server ignores the input of a request that has a command."""
    async with Server([*recorded("ask-resume"), *mark]).listening() as server:
        request = Request("And be quick.", thread_id=THREAD, resume=[Resume(ASKED, "resolved", "Bob")])
        answer = await run(server, request)
    assert [body.get("command") for body in server.bodies] == [{"resume": {ASKED: "Bob"}}, None]
    assert server.bodies[1]["input"] == {"messages": [{"role": "user", "content": "And be quick."}]}
    assert answer.text == "Hello, Bob!", "the second run is played with the messages of the first, which are known then"


async def test_nothing_is_said_where_an_answer_leads_to_another_question() -> None:
    """The server would drop the question."""
    async with Server("ask").listening() as server:
        answer = await run(server, Request("And.", thread_id=THREAD, resume=[Resume("i", "resolved", "Bob")]))
    assert len(server.bodies) == 1
    assert answer.reason is FinishReason.INTERRUPTED


async def test_a_breakpoint_is_a_question_and_a_run_without_input_goes_on() -> None:
    play = [*events(("metadata", {"run_id": RUN}), ("values", INPUT)), event("updates", {"__interrupt__": []}, 9)]
    async with Server(play).listening() as server:
        answer = await run(server, Request("Hi", thread_id=THREAD))
        (question,) = answer.interrupts
        assert answer.reason is FinishReason.INTERRUPTED
        server.play = recorded("text")
        await run(server, Request([], thread_id=THREAD, resume=[Resume(question.interrupt_id, "resolved")]))
        assert server.bodies[1]["input"] is None
        assert "command" not in server.bodies[1]
        refused = await run(server, Request([], thread_id=THREAD, resume=[Resume(question.interrupt_id, "cancelled")]))
    assert refused.reason is FinishReason.STOP
    assert len(server.bodies) == 2, "not to go on is not to run"


async def test_a_breakpoint_is_passed_at_a_server_that_refuses_runs_without_input() -> None:
    detail = [{"type": "value_error", "msg": "Value error, Must specify either 'input' or 'command'"}]
    play = [*events(("metadata", {"run_id": RUN}), ("values", INPUT)), event("values", {"__interrupt__": []}, 9)]
    async with Server(play).listening() as server:
        (question,) = (await run(server, Request("Hi", thread_id=THREAD))).interrupts
        server.play, server.needs_input = recorded("text"), (422, {"detail": detail})
        resume = [Resume(question.interrupt_id, "resolved")]
        answer = await run(server, Request([], thread_id=THREAD, resume=resume))
    assert answer.reason is FinishReason.STOP
    assert [(body.get("input", ""), body.get("command")) for body in server.bodies[1:]] == [
        (None, None),
        ("", {"resume": {}}),
    ]


async def test_an_answer_that_aegra_does_not_wait_for_is_a_conflict() -> None:
    said = {"error": "http_error", "message": "Cannot resume: thread is not in interrupted state"}
    async with Server(refuses=(400, said)).listening() as server:
        answer = await run(server, Request([], thread_id=THREAD, resume=[Resume("i", "resolved", "Bob")]))
    assert answer.failure is not None
    assert answer.failure.code is ErrorCode.CONFLICT


# ------------------------------------------------------------------ threads that are gone


BUSY = (422, b"Thread is already running a task. Wait for it to finish.")
"""What langgraph.js says of a thread that it does not have."""


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("js", [True, False], ids=["langgraph.js", "Python"])
async def test_a_conversation_that_the_server_lost_is_told_anew(
    tmp_path: Path, stream: bool, js: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A person expects the agent to know what was said: the client has sent it all. It is a loss all the same."""
    async with Server().listening() as server, bridge(server, tmp_path) as base:
        await post(f"{base}/v1/chat/completions", chat("Hi"))
        server.forgets = True
        server.missing = BUSY if js else server.missing
        later = chat("Hi", "Hello, world!", "And then?")
        reply = await post(f"{base}/v1/chat/completions", {**later, "stream": stream})
        server.forgets = False
        last = chat("Hi", "Hello, world!", "And then?", "Hello, world!", "Bye")
        after = await post(f"{base}/v1/chat/completions", last)
    assert b"Hello" in reply.body
    assert b"error" not in reply.body
    assert "thread_id" in reply.headers["x-bridge-lost"]
    assert "thread_id" not in after.headers["x-bridge-lost"]
    assert [text for text in caplog.messages if "had lost the conversation" in text]
    assert server.log == [START, STATUS, START, "GET /threads/T", START, STATUS, START, STATUS]
    assert [body["if_not_exists"] for body in server.bodies] == ["create", "reject", "create", "reject"]
    told = [[message["content"] for message in body["input"]["messages"]] for body in server.bodies]
    assert told == [["Hi"], ["And then?"], ["Hi", "Hello, world!", "And then?"], ["Bye"]]


async def test_a_client_that_sends_what_is_new_learns_that_its_conversation_is_gone(tmp_path: Path) -> None:
    """Nobody can tell the agent what was said. After that a conversation begins, which nobody takes for the old one."""
    body = {"session_id": "s", "input": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}
    async with Server().listening() as server, bridge(server, tmp_path) as base:
        first = await post(f"{base}/a/process", body)
        server.forgets = True
        second = await post(f"{base}/a/process", body)
        third = await post(f"{base}/a/process", body)
    assert b"no longer has this conversation" in second.body
    assert [b'"failed"' in each.body for each in (first, second, third)] == [False, True, False]
    assert server.log == [START, STATUS, START, "GET /threads/T", START, STATUS]


@pytest.mark.parametrize("payload", ["Bob", None])
async def test_an_answer_to_a_thread_that_is_gone_is_refused(payload: Any) -> None:
    async with Server(forgets=True).listening() as server:
        answer = await run(server, Request([], thread_id=THREAD, resume=[Resume(ASKED, "resolved", payload)]))
    assert answer.failure is not None
    assert (answer.failure.code, answer.failure.http_status) == (ErrorCode.NOT_FOUND, 404)
    assert "no longer has this conversation" in answer.failure.message
    assert server.log == ([STATE] if payload is None else [START, "GET /threads/T"])


async def test_where_the_thread_is_there_it_is_the_assistant_that_is_missing(tmp_path: Path) -> None:
    async with Server(error={"message": "x"}).listening() as server, bridge(server, tmp_path) as base:
        await post(f"{base}/v1/chat/completions", chat("Hi"))
        server.refuses = (404, {"detail": "Thread or assistant not found."})
        reply = await post(f"{base}/v1/chat/completions", chat("Hi", "Hello, world!", "And then?"))
    assert reply.status == 502
    assert "assistant not found" in reply.json["error"]["message"]
    assert server.log == [START, STATUS, START, "GET /threads/T"]


# ------------------------------------------------------------------ runs without a thread


async def test_a_request_without_a_thread_is_a_run_without_one() -> None:
    server = Server("stateless")
    async with server.listening():
        assert (await run(server, Request("Hi"))).text == "Hello, world!"
        assert server.log == ["POST /runs/stream"]
        assert server.bodies[0]["on_disconnect"] == "cancel"
        server.cuts = [5]
        failure = (await run(server, Request("Hi"))).failure
        assert failure is not None, "a clean end within a step"
        assert failure.code is ErrorCode.TRUNCATED_STREAM
        server.log.clear()
        await run(server, Request("Hi"), threads="always")
    assert server.log == [START, STATUS]
