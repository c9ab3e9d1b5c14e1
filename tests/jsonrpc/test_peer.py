"""One side of a conversation without I/O: ids of both sides, answers of its own, batches, limits, and any input."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.jsonrpc import Ignored, RpcError, RpcNotification, RpcPeer, RpcRequest, RpcResponse


def request(request_id: Any, method: str = "m", **params: Any) -> bytes:
    return RpcRequest.of(request_id, method, params or None).encode()


def result(request_id: Any, value: Any = None) -> bytes:
    return RpcResponse.of(request_id, value).encode()


def sent(peer: RpcPeer) -> list[Any]:
    return [json.loads(frame) for frame in peer.take()]


def errors(peer: RpcPeer) -> list[tuple[Any, int]]:
    """The errors that are sent: id and code."""
    return [(message["id"], message["error"]["code"]) for message in sent(peer)]


# ---------------------------------------------------------------------- ids


def test_both_sides_number_their_requests_by_themselves() -> None:
    peer = RpcPeer()
    assert [peer.request("a"), peer.request("b")] == [0, 1]
    [asked] = peer.receive(request(0, "c"))
    assert isinstance(asked, RpcRequest)
    assert (peer.pending, peer.open) == ({0: "a", 1: "b"}, {0})
    peer.take()
    assert peer.respond(0, "of c")
    [answer] = peer.receive(result(0, "of a"))
    assert isinstance(answer, RpcResponse)
    assert (answer.id, answer.result) == (0, "of a")
    assert sent(peer) == [{"jsonrpc": "2.0", "id": 0, "result": "of c"}]
    assert (peer.pending, peer.open) == ({1: "b"}, set())


def test_ids_are_strings_numbers_and_null() -> None:
    peer = RpcPeer()
    ids = ["1", 1, None, 2.5, ""]
    for each in ids:
        peer.receive(request(each))
    assert peer.open == set(ids)
    for each in reversed(ids):
        assert peer.respond(each, {})
    assert [message["id"] for message in sent(peer)] == ids[::-1]


def test_an_id_in_use_is_refused_and_may_be_used_again() -> None:
    peer = RpcPeer()
    peer.receive(request(7, "long"))
    [refused] = peer.receive(request(7, "other"))
    assert isinstance(refused, Ignored)
    assert refused.error is not None
    assert "id 7 is in use" in refused.error.message
    assert errors(peer) == [(7, -32600)]
    assert peer.respond(7, "of long")
    assert [type(event) for event in peer.receive(request(7, "other"))] == [RpcRequest]


def test_a_request_is_answered_once() -> None:
    peer = RpcPeer()
    peer.receive(request(1))
    assert [peer.respond(1, "a"), peer.respond(1, "b"), peer.respond(2, "c")] == [True, False, False]
    assert len(peer.take()) == 1


def test_a_withdrawn_request_has_no_answer() -> None:
    peer = RpcPeer()
    peer.receive(request(1))
    assert [peer.withdraw(1), peer.withdraw(1), peer.respond(1, {})] == [True, False, False]
    assert peer.take() == []


@pytest.mark.parametrize(
    ("frame", "is_wrong"),
    [
        (result(0), False),  # late
        (result(1), True),
        (result("0"), True),
        (result(-1), True),
        (result(None), True),
        (b'{"result":1}', True),
        (b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}', True),
    ],
)
def test_responses_to_nothing_are_ignored(frame: bytes, is_wrong: bool) -> None:
    peer = RpcPeer()
    number = peer.request("m")
    assert [peer.abandon(number), peer.abandon(number)] == [True, False]
    peer.take()
    [event] = peer.receive(frame)
    assert isinstance(event, Ignored)
    assert (event.error is not None) is is_wrong
    assert peer.take() == [], "a response is never answered: two peers would go on for ever"


def test_a_response_comes_once() -> None:
    peer = RpcPeer()
    peer.request("m")
    assert [type(e) for n in range(2) for e in peer.receive(result(0, n))] == [RpcResponse, Ignored]


# ---------------------------------------------------------------------- answers of its own


def test_unknown_calls() -> None:
    peer = RpcPeer({"known"}, {"news"})
    frames = [request("a", "craft/drainMidTurnQueue"), request("b", "known"), request("c", "news")]
    frames += [RpcNotification.of(method).encode() for method in ("news", "known", "$/progress")]
    events = [event for frame in frames for event in peer.receive(frame)]
    assert [type(event) for event in events] == [Ignored, RpcRequest, Ignored, RpcNotification, Ignored, Ignored]
    assert all(event.error is None for event in events if isinstance(event, Ignored))
    assert peer.take()[0] == (
        b'{"jsonrpc":"2.0","id":"a","error":{"code":-32601,"message":"Method not found",'
        b'"data":{"method":"craft/drainMidTurnQueue"}}}'
    )


def test_a_long_unknown_method_is_not_repeated_whole() -> None:
    peer = RpcPeer(())
    peer.receive(request(1, "x" * 600_000))
    assert peer.unsent < 1000


@pytest.mark.parametrize("answers", [True, False])
def test_what_is_no_message_is_answered_where_that_is_wanted(answers: bool) -> None:
    peer = RpcPeer(answers_invalid=answers)
    frames = [b"Loading plugins...", b"null", b"[]", b'{"id":4}', b'{"jsonrpc":"2.0","id":5,"method":1}']
    events = [event for frame in frames for event in peer.receive(frame)]
    assert all(isinstance(event, Ignored) and event.error is not None for event in events)
    assert peer.refusals == (len(frames) if answers else 0)
    expected = [(None, -32700), (None, -32600), (None, -32600), (4, -32600), (5, -32600)]
    assert errors(peer) == (expected if answers else [])
    assert (peer.refusals, peer.unsent) == (0, 0)


def test_no_reason_repeats_content() -> None:
    peer = RpcPeer({"m"})
    frames = [b"sk-secret", b'{"id":"sk-secret"}', b'{"id":"sk-secret","result":"sk-secret"}', b'["sk-secret"]']
    assert not any(
        "sk-secret" in event.reason for f in frames for event in peer.receive(f) if isinstance(event, Ignored)
    )


# ---------------------------------------------------------------------- batches


def batch(*frames: bytes) -> bytes:
    return b"[" + b",".join(frames) + b"]"


def test_a_batch_is_refused_where_the_protocol_has_none() -> None:
    peer = RpcPeer()
    assert [type(event) for event in peer.receive(batch(request(1), request(2)))] == [Ignored]
    assert errors(peer) == [(None, -32600)]
    assert peer.open == set()


def test_a_batch_is_answered_when_all_of_it_is() -> None:
    peer = RpcPeer({"m"})
    peer.batches = True
    number = peer.request("ours")
    peer.take()
    frames = [
        request(1),
        RpcNotification.of("m").encode(),
        b"7",
        request(2, "unknown"),
        request(3),
        result(number, "it"),
    ]
    events = peer.receive(batch(*frames))
    kinds = [RpcRequest, RpcNotification, Ignored, Ignored, RpcRequest, RpcResponse]
    assert [type(event) for event in events] == kinds
    assert peer.take() == []
    peer.receive(request("single"))
    peer.respond("single", "at once")
    assert sent(peer) == [{"jsonrpc": "2.0", "id": "single", "result": "at once"}]
    peer.respond(3, "c")
    assert peer.take() == []
    peer.respond(1, "a")
    [answers] = sent(peer)
    assert [answer["id"] for answer in answers] == [None, 2, 3, 1]


def test_a_batch_without_requests() -> None:
    peer = RpcPeer(batches=True)
    peer.receive(batch(RpcNotification.of("m").encode(), result(5)))
    assert peer.take() == []
    peer.receive(batch(b"1", b"2"))
    assert peer.refusals == 1
    [answers] = sent(peer)
    assert [answer["error"]["code"] for answer in answers] == [-32600, -32600]


def test_a_withdrawn_request_of_a_batch_has_no_answer() -> None:
    peer = RpcPeer(batches=True)
    peer.receive(batch(request(1), request(2)))
    peer.withdraw(1)
    peer.respond(2, {})
    assert [answer["id"] for answer in sent(peer)[0]] == [2]
    peer.receive(batch(request(1)))
    peer.withdraw(1)
    assert peer.take() == []


@pytest.mark.parametrize("count", [0, 1001, 200_000])
def test_a_batch_has_a_size(count: int) -> None:
    peer = RpcPeer(batches=True)
    assert len(peer.receive(batch(*[b"1"] * count))) == 1
    assert errors(peer) == [(None, -32600)]


# ---------------------------------------------------------------------- limits


def test_open_requests_have_a_limit() -> None:
    peer = RpcPeer(max_open=2)
    for each in (1, 2, 3):
        peer.receive(request(each))
    [error] = sent(peer)
    assert (error["id"], error["error"]) == (
        3,
        {"code": -32603, "message": "Too many requests are open: the limit is 2."},
    )
    peer.respond(1, {})
    assert [type(event) for event in peer.receive(request(3))] == [RpcRequest]


def test_pending_requests_have_a_limit() -> None:
    peer = RpcPeer(max_pending=2)
    peer.request("a")
    peer.request("b")
    with pytest.raises(RuntimeError, match="c: 2 requests are pending"):
        peer.request("c")
    peer.receive(result(0))
    assert peer.request("c") == 2


def test_messages_of_ours_have_a_size() -> None:
    peer = RpcPeer(max_frame=200)
    for send in (lambda: peer.request("m", ["x" * 200]), lambda: peer.notify("m", ["x" * 200])):
        with pytest.raises(ValueError, match="more than the limit of 200"):
            send()
    assert (peer.pending, peer.take()) == ({}, [])
    assert peer.request("m") == 0, "a refused request took no number"
    peer.take()
    peer.receive(request(1))
    assert peer.respond(1, "x" * 200)
    [error] = sent(peer)
    assert error["error"] == {"code": -32603, "message": "The answer has 236 bytes, more than the limit of 200."}


def test_a_result_that_is_no_json_leaves_the_request_open() -> None:
    peer = RpcPeer()
    peer.receive(request(1))
    with pytest.raises(TypeError):
        peer.respond(1, object())
    assert peer.respond(1, RpcError(-32603, "Internal error"))


# ---------------------------------------------------------------------- any input

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
objects = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | json_values,
        "id": st.integers(0, 3) | json_values,
        "method": st.sampled_from(["m", "n"]) | json_values,
        "params": json_values,
        "result": json_values,
        "error": json_values | st.fixed_dictionaries({"code": st.integers(), "message": st.text(max_size=5)}),
    },
)
frames = st.one_of(
    st.binary(max_size=20),
    (json_values | objects | st.lists(objects, max_size=4)).map(lambda value: json.dumps(value).encode()),
)


@given(frames=st.lists(frames, max_size=12), batches=st.booleans(), answers=st.lists(st.integers(0, 3), max_size=6))
def test_anything_may_come(frames: list[bytes], batches: bool, answers: list[int]) -> None:
    """Nothing raises, and everything is counted once: requests are answered once each, and ours end once each."""
    peer = RpcPeer({"m"}, {"m", "n"}, batches=batches, max_open=3)
    ours = {peer.request("m") for _ in range(3)}
    peer.take()
    opened: list[Any] = []
    for frame in frames:
        for event in peer.receive(frame):
            match event:
                case RpcRequest():
                    opened.append(event.id)
                case RpcResponse():
                    ours.remove(event.id)  # type: ignore[arg-type]
                    _ = event.result, event.error
                case RpcNotification():
                    assert event.method in ("m", "n")
                case Ignored():
                    assert event.reason
    assert set(peer.pending) == ours
    assert len(peer.open) == len(opened) <= 3
    for each in opened[:]:
        assert peer.respond(each, {"id": each})
        assert not peer.respond(each, {})
    assert not peer.open
    flat = [m for message in sent(peer) for m in (message if isinstance(message, list) else [message])]
    assert [m["id"] for m in flat if "result" in m] == opened or batches
    assert len([m for m in flat if "result" in m]) == len(opened)
    assert all(m["jsonrpc"] == "2.0" and ("result" in m) != ("error" in m) for m in flat)


@given(st.lists(st.tuples(st.sampled_from(["ask", "note", "answer", "fail", "abandon"]), json_values), max_size=30))
def test_two_peers_understand_each_other(steps: list[tuple[str, Any]]) -> None:
    """Whatever one sends, the other one receives as it was; in the end nothing is open or pending."""
    one, two = RpcPeer(), RpcPeer()
    asked: list[Any] = []
    for what, value in steps:
        match what:
            case "ask":
                asked.append(one.request("m", {"value": value}))
                [event] = deliver(one, two)
                assert isinstance(event, RpcRequest)
                assert event.params == {"value": value}
            case "note":
                one.notify("n", [value])
                [event] = deliver(one, two)
                assert isinstance(event, RpcNotification)
                assert event.params == [value]
            case "abandon" if asked:
                assert one.abandon(asked[-1])
                assert two.respond(asked.pop(), value)
                assert [type(event) for event in deliver(two, one)] == [Ignored]
            case "answer" | "fail" if asked:
                answer = value if what == "answer" else RpcError(-32001, "no", value)
                assert two.respond(asked[0], answer)
                [event] = deliver(two, one)
                assert isinstance(event, RpcResponse)
                assert event.id == asked.pop(0)
                if (error := event.error) is not None:
                    assert (error.code, error.message, error.data) == (-32001, "no", value)
                else:
                    assert event.result == value
    for each in asked:
        two.respond(each, {})
    deliver(two, one)
    assert not one.pending
    assert not two.open


def deliver(sender: RpcPeer, receiver: RpcPeer) -> list[Any]:
    return [event for frame in sender.take() for event in receiver.receive(frame)]


def test_the_cost_is_linear() -> None:
    """Of long frames and long conversations: no list or table is walked for each message."""
    import sys

    def cost(count: int) -> int:
        peer = RpcPeer(max_open=10**6, max_pending=10**6)
        frames = [request(n, "m", text="x" * 10) for n in range(count)]
        calls = 0

        def counted(frame: Any, event: str, arg: Any) -> None:
            nonlocal calls
            calls += 1

        sys.setprofile(counted)
        try:
            for n, frame in enumerate(frames):
                peer.receive(frame)
                peer.request("m")
                peer.receive(result(n))
            for n in range(count):
                peer.respond(n, {})
            peer.take()
        finally:
            sys.setprofile(None)
        return calls

    assert cost(400) < 2.2 * cost(200)
