"""The requests of a run: the card, the message, the state of a task; and what a broken answer becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.codec import Context
from bridge.dialects.a2a import dialect
from bridge.dialects.a2a.options import BackOptions
from bridge.errors import BackendError, ErrorCode, Failure
from bridge.model import FinishReason, Resume, RunFinished, fold

from .back import CARD, OLD_CARD, Broken, Run, artifact, asking, error, rpc, status, task, whole

DONE = {"state": "TASK_STATE_COMPLETED"}
SAID = [rpc(task("SUBMITTED")), rpc(artifact("Hello")), rpc(status("COMPLETED"))]


# ------------------------------------------------------------------ the card


def test_the_card_says_where_the_agent_is_called() -> None:
    run = Run(whole(CARD), SAID)
    card, send = run.asked
    assert (card.method, card.path, card.rooted) == ("GET", "/.well-known/agent-card.json", False)
    # Its host is another name of the one that the operator configured.
    assert (send.method, send.path, send.rooted) == ("POST", "/rpc", True)
    assert send.headers["a2a-version"] == "1.0"
    assert send.headers["accept"] == "text/event-stream"
    assert run.body()["method"] == "SendStreamingMessage"
    assert fold(run.events).text == "Hello"


def test_the_card_is_kept_and_asked_for_again_by_its_tag() -> None:
    memo: dict[str, Any] = {}
    Run(whole(CARD, etag='"1"', cache_control="public, max-age=30"), SAID, memo=memo, now=1000.0)
    assert [w.method for w in Run(SAID, memo=memo, now=1029.0).asked] == ["POST"]
    again = Run(whole(b"", 304, cache_control="max-age=30"), SAID, memo=memo, now=1031.0)
    assert again.asked[0].headers["if-none-match"] == '"1"'
    assert fold(again.events).text == "Hello"
    assert [w.method for w in Run(SAID, memo=memo, now=1060.0).asked] == ["POST"]
    moved = {**CARD, "supportedInterfaces": [{**CARD["supportedInterfaces"][0], "url": "http://inside:9/new?k=v"}]}
    third = Run(whole(moved), SAID, memo=memo, now=1062.0)
    assert (third.asked[1].path, third.asked[1].query) == ("/new", {"k": "v"})
    odd = {**CARD, "supportedInterfaces": [{**CARD["supportedInterfaces"][0], "url": "http://inside:9/a b%20c\u00e9"}]}
    assert Run(whole(odd), SAID).asked[1].path == "/a%20b%20c%C3%A9"


def test_an_agent_without_a_card_is_called_at_its_url() -> None:
    run = Run(SAID, card="none")
    assert (run.asked[0].path, run.asked[0].rooted) == ("", False)
    run = Run(SAID, card="none", binding="http+json")
    assert (run.asked[0].method, run.asked[0].path) == ("POST", "/message:stream")
    memo: dict[str, Any] = {}
    run = Run(whole(b"no such page", 404), SAID, memo=memo)
    assert [w.path for w in run.asked] == ["/.well-known/agent-card.json", ""]
    assert len(Run(SAID, memo=memo).asked) == 1


def test_a_card_that_cannot_be_had_ends_the_run() -> None:
    for answer, code in ((whole(b"{}", 401), "backend_auth"), (whole(b"oh", 503), "overloaded")):
        run = Run(answer)
        assert run.failure is not None
        assert run.failure.code == code


@pytest.mark.parametrize(
    ("card", "word"),
    [
        (b"<html>", "not a JSON object"),
        ({"name": "x"}, "offers no interface"),
        ({"supportedInterfaces": [{"url": "grpc:9", "protocolBinding": "GRPC"}]}, "offers GRPC; expected"),
        ({"supportedInterfaces": [{"url": "http://[", "protocolBinding": "JSONRPC"}]}, "expected an http or https URL"),
        ({"supportedInterfaces": 7, "url": 7}, "offers no interface"),
        ({"url": "javascript:alert(1)"}, "offers JSONRPC 0.3; expected an http or https URL"),
        ({"url": "http://h/", "protocolVersion": "2.0"}, "offers JSONRPC 2.0; expected"),
        ({"url": "h", "preferredTransport": "GRPC"}, "offers GRPC 0.3; expected"),
        (
            {"supportedInterfaces": [{"url": 1}] * 64 + [{"url": "/", "protocolBinding": "JSONRPC"}]},
            "offers no interface",
        ),
    ],
)
def test_a_card_that_names_no_way_to_call_says_so(card: Any, word: str) -> None:
    run = Run(whole(card))
    assert run.failure is not None
    assert run.failure.code == "backend_protocol"
    assert word in run.failure.message


@pytest.mark.parametrize(
    ("body", "kind"), [(b"", "text/event-stream"), (b"<html>", "text/html; charset=utf-8"), (b"oh", "application/json")]
)
def test_a_page_or_a_stream_in_place_of_the_card_is_named(body: bytes, kind: str) -> None:
    failure = Run(whole(body, content_type=kind)).failure
    assert failure is not None
    said = "" if "json" in kind else f", got {kind.partition(';')[0]}"
    assert failure.message.startswith(f"The agent card (/.well-known/agent-card.json) is not a JSON object{said}. ")


def test_a_signed_card_is_read_like_any_other() -> None:
    signed = {
        **CARD,
        "signatures": [{"protected": "eyJhbGciOiJFUzI1NiJ9", "signature": "c2ln", "header": {"kid": "k"}}],
    }
    assert fold(Run(whole(signed), SAID).events).text == "Hello"


def test_options_choose_among_the_interfaces() -> None:
    assert Run(whole(CARD), SAID, version="0.3").body()["method"] == "message/stream"
    rest = Run(whole(CARD), [json.dumps(task("COMPLETED", "Hi")).encode()], binding="http+json")
    assert rest.asked[1].path == "/rest/message:stream"
    assert fold(rest.events).text == "Hi"
    assert Run(whole(OLD_CARD), SAID).body()["method"] == "message/stream"
    refused = Run(whole(OLD_CARD), binding="http+json").failure
    assert refused is not None
    assert "JSONRPC 0.3" in refused.message


def test_a_tenant_of_the_card_goes_into_every_request() -> None:
    interfaces = [{**each, "tenant": "acme"} for each in CARD["supportedInterfaces"]]
    card = {**CARD, "supportedInterfaces": interfaces}
    done = whole(json.loads(rpc(task("COMPLETED")["task"])))
    run = Run(whole(card), [rpc(task("WORKING"))], done)
    assert run.body(1)["params"]["tenant"] == run.body(2)["params"]["tenant"] == "acme"
    run = Run(
        whole(card), [json.dumps(task("WORKING")).encode()], whole(task("COMPLETED")["task"]), binding="http+json"
    )
    assert [w.path for w in run.asked[1:]] == ["/rest/acme/message:stream", "/rest/acme/tasks/t1"]


@pytest.mark.parametrize("name", ["..", "../../admin", "a//b", "a\\b", "a\r\nb", "%2e%2e"])
def test_a_name_that_would_change_the_address_fails_the_run(name: str) -> None:
    """A task's id and a tenant are the agent's words; over JSON-RPC they are not in the address."""
    working = json.loads(json.dumps(task("WORKING")).replace('"t1"', json.dumps(name)))
    with pytest.raises(BackendError, match=r"^The backend's task id: expected a name without "):
        Run(whole(CARD), [json.dumps(working).encode()], binding="http+json")
    run = Run(whole(CARD), [rpc(working)], whole(json.loads(rpc({**working["task"], "status": DONE}))))
    assert run.body(2)["params"]["id"] == name
    tenants = [{**each, "tenant": name} for each in CARD["supportedInterfaces"]]
    with pytest.raises(BackendError, match=r"^The backend's tenant: expected a name without "):
        Run(whole({**CARD, "supportedInterfaces": tenants}), binding="http+json")


def test_a_task_whose_id_no_address_holds_is_not_cancelled() -> None:
    working = json.loads(json.dumps(task("WORKING")).replace('"t1"', '"../x"'))
    call = dialect.stepped(asking("hello"), Context("run", None, 1.0, BackOptions(binding="http+json")), {})
    assert call.next() is not None
    call.whole(whole(CARD))
    assert call.next() is not None
    call.feed([json.dumps(working).encode()])
    assert call.working
    assert call.cancel() is None


@pytest.mark.parametrize("path", ["/rpc/../admin", "/rpc/%2e%2e/admin", "/..%2fadmin"])
def test_an_interface_with_dot_segments_is_none(path: str) -> None:
    assert _failed_with({**CARD, "supportedInterfaces": [{**CARD["supportedInterfaces"][0], "url": f"http://h{path}"}]})


def _failed_with(card: dict[str, Any]) -> bool:
    failure = Run(whole(card)).failure
    return failure is not None and failure.code == "backend_protocol"


# ------------------------------------------------------------------ other versions


def test_an_agent_that_refuses_the_version_is_asked_in_the_old_one() -> None:
    run = Run(whole(CARD), whole(error(-32009, "version")), SAID)
    assert [run.body(n)["method"] for n in (1, 2)] == ["SendStreamingMessage", "message/stream"]
    assert "a2a-version" not in run.asked[2].headers
    assert run.message(1)["messageId"] == run.message(2)["messageId"]
    assert run.message(2)["parts"] == [{"kind": "text", "text": "hello"}]
    assert fold(run.events).text == "Hello"
    alone = {**CARD, "supportedInterfaces": CARD["supportedInterfaces"][:2]}
    failed = Run(whole(alone), whole(error(-32009, "version")))
    assert failed.failure is not None
    assert failed.failure.backend_code == "-32009"


# ------------------------------------------------------------------ the state of a task


def test_an_agent_that_does_not_stream_is_asked_for_the_state_of_its_task() -> None:
    card = {**CARD, "capabilities": {}}
    states = [whole(rpc(task("SUBMITTED"))), *[whole(rpc(task("WORKING", "Hel")["task"])) for _ in range(7)]]
    run = Run(whole(card), *states, whole(rpc(task("COMPLETED", "Hello")["task"])))
    assert [run.body(n)["method"] for n in (1, 2)] == ["SendMessage", "GetTask"]
    assert run.body(2)["params"] == {"id": "t1"}
    assert [round(p, 2) for p in run.pauses] == [0, 0, 0.5, 0.8, 1.28, 2.05, 3.28, 5.0, 5.0, 5.0]
    assert fold(run.events).text == "Hello"


def test_what_a_task_says_while_it_is_asked_for_is_said_once() -> None:
    card = {**CARD, "capabilities": {}}
    working = {**task("WORKING")["task"], "status": status("WORKING", "Looking.")["statusUpdate"]["status"]}
    run = Run(whole(card), *[whole(rpc(working if n else {"task": working})) for n in range(4)],
              whole(rpc(task("COMPLETED", "Hello")["task"])))  # fmt: skip
    answer = fold(run.events)
    assert (answer.reasoning, answer.text) == ("Looking.", "Hello")


@pytest.mark.parametrize("kind", [list, Broken])
def test_a_stream_that_ends_early_is_decided_by_the_state_of_the_task(kind: type[list[bytes]]) -> None:
    begun = kind([rpc(task("SUBMITTED")), rpc(artifact("Hel", "a0"))])
    run = Run(whole(CARD), begun, whole(rpc(task("COMPLETED", "Hello")["task"])))
    assert (run.body()["method"], run.pauses[-1]) == ("GetTask", 0.0)
    assert (fold(run.events).text, fold(run.events).failure) == ("Hello", None)
    failed = {**task("FAILED")["task"], "status": status("FAILED", "Out of luck.")["statusUpdate"]["status"]}
    answer = fold(Run(whole(CARD), begun, whole(rpc(failed))).events)
    assert answer.failure is not None
    assert (answer.failure.code, answer.failure.message) == ("backend_error", "Out of luck.")
    waits = {**task("INPUT_REQUIRED")["task"], "status": status("INPUT_REQUIRED", "Where?")["statusUpdate"]["status"]}
    assert fold(Run(whole(CARD), begun, whole(rpc(waits))).events).interrupts[0].payload == "Where?"


def test_nobody_knows_what_became_of_the_task() -> None:
    begun = [rpc(task("SUBMITTED")), rpc(artifact("Hel"))]
    gone = fold(Run(whole(CARD), begun, whole(error(-32001))).events)
    assert gone.failure is not None
    assert gone.failure.code == "truncated_stream"
    run = Run(whole(CARD), begun, *[whole(b"oh", 500)] * 3)
    assert len(run.asked) == 5
    lost = fold(run.events).failure
    assert lost is not None
    assert lost.code == "truncated_stream"
    # A server that fails once is asked again.
    run = Run(whole(CARD), begun, whole(b"oh", 500), whole(rpc(task("COMPLETED", "Hello")["task"])))
    assert fold(run.events).failure is None


def test_a_stream_without_a_task_has_nothing_to_ask_for() -> None:
    run = Run(whole(CARD), [])
    failure = fold(run.events).failure
    assert (len(run.asked), failure is not None and failure.code) == (2, "truncated_stream")


# ------------------------------------------------------------------ refusals


def test_a_refusal_in_one_piece_keeps_its_number() -> None:
    run = Run(whole(CARD), whole(error(-32005, "No pictures, please.")))
    assert run.failure is not None
    assert (run.failure.code, run.failure.backend_code) == ("backend_error", "-32005")
    assert run.failure.message == "No pictures, please."


def test_a_task_that_is_gone_is_left_for_a_new_one() -> None:
    for code in (-32001, -32004):
        request = asking(thread="c1", resume=[Resume("t0", "resolved", "Oslo")])
        run = Run(whole(CARD), whole(error(code, "no task t0")), SAID, request=request)
        first, second = run.message(1), run.message(2)
        assert (first["taskId"], first["contextId"], first["parts"]) == ("t0", "c1", [{"text": "Oslo"}])
        assert "taskId" not in second
        assert (second["contextId"], second["parts"]) == ("c1", [{"text": "Oslo"}])
        assert fold(run.events).text == "Hello"


def test_a_context_that_is_gone_is_marked_for_the_memory() -> None:
    run = Run(whole(CARD), whole(error(-32602, "Unknown context c1")), request=asking("hi", thread="c1"))
    assert run.failure is not None
    assert run.failure.details["unknown_thread"] is True
    run = Run(whole(CARD), whole(error(-32602, "Unknown context c1")), request=asking("hi"))
    assert run.failure is not None
    assert "unknown_thread" not in run.failure.details


# ------------------------------------------------------------------ the end


def test_a_run_is_cancelled_as_soon_as_its_task_has_a_name() -> None:
    run = Run(whole(CARD), [rpc(task("SUBMITTED"))], whole(error(-32001)))
    wire = run.call.cancel()
    assert wire is not None
    assert json.loads(wire.body)["method"] == "CancelTask"
    assert json.loads(wire.body)["params"] == {"id": "t1"}
    over = Run(whole(CARD), SAID)
    assert (over.call.working, over.call.cancel()) == (False, None)
    waits = Run(whole(CARD), [rpc(task("SUBMITTED")), rpc(status("INPUT_REQUIRED", "Where?"))])
    assert (waits.call.working, waits.call.cancel()) == (False, None)


def test_a_run_that_was_given_up_before_its_task_had_a_name_learns_it() -> None:
    run = Run(whole(CARD), [])
    call = dialect.stepped(asking("hello"), run.context, {})
    call.next()
    call.whole(whole(CARD))
    call.next()
    call.close(Failure(ErrorCode.BACKEND_TIMEOUT, "late"))
    assert (call.working, call.cancel()) == (True, None)
    call.feed([rpc(task("SUBMITTED"))])
    assert call.cancel() is not None


def test_http_json_cancels_and_asks_at_addresses() -> None:
    bare = [json.dumps(task("WORKING")).encode()]
    run = Run(whole(CARD), bare, whole(task("CANCELED")["task"]), binding="http+json")
    assert (run.asked[2].method, run.asked[2].path) == ("GET", "/rest/tasks/t1")
    end = run.events[-1]
    assert isinstance(end, RunFinished)
    assert end.reason is FinishReason.CANCELED
    unknown = {"error": {"code": 404, "message": "no", "details": [{"reason": "TASK_NOT_FOUND"}]}}
    again = Run(whole(CARD), bare, whole(unknown, 404), binding="http+json")
    wire = again.call.cancel()
    assert wire is not None
    assert (wire.method, wire.path) == ("POST", "/rest/tasks/t1:cancel")
