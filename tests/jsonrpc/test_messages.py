"""What a frame is: a request, a notification, a response, or an error that says what was expected."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.jsonrpc import INTERNAL_ERROR, RpcError, RpcNotification, RpcPeer, RpcRequest, RpcResponse
from bridge.jsonrpc.rpc_messages import InvalidMessage, may_be_deep, message_of, parse

from .helpers import conversations


def read(frame: bytes) -> RpcRequest | RpcNotification | RpcResponse:
    return message_of(parse(frame), deep=may_be_deep(frame))


def test_a_request() -> None:
    message = read(b'{"jsonrpc":"2.0","id":"a","method":"m","params":{"x":[1,null]}}')
    assert message == RpcRequest.of("a", "m", {"x": [1, None]})
    assert isinstance(message, RpcRequest)
    assert (message.id, message.method, message.params) == ("a", "m", {"x": [1, None]})


@pytest.mark.parametrize("request_id", [0, -1, 2**53, 1.5, "", "x" * 1000, None])
def test_every_id_comes_back_as_it_came(request_id: Any) -> None:
    message = read(RpcRequest.of(request_id, "m").encode())
    assert isinstance(message, RpcRequest)
    answer = read(RpcResponse.of(message.id, {}).encode())
    assert isinstance(answer, RpcResponse)
    assert (answer.id, type(answer.id)) == (request_id, type(request_id))


def test_params_may_be_null_missing_or_a_list() -> None:
    assert RpcNotification.of("m").encode() == b'{"jsonrpc":"2.0","method":"m"}'
    for params in (b"", b',"params":null', b',"params":[1]'):
        message = read(b'{"jsonrpc":"2.0","method":"m"%b}' % params)
        assert isinstance(message, RpcNotification)
        assert message.params == ([1] if b"[" in params else None)


def test_a_response_is_a_result_or_an_error() -> None:
    result = read(b'{"jsonrpc":"2.0","id":0,"result":null}')
    assert isinstance(result, RpcResponse)
    assert (result.result, result.error) == (None, None)
    failed = read(RpcResponse.of(0, RpcError(-32000, "Log in first", {"methods": []})).encode())
    assert isinstance(failed, RpcResponse)
    assert failed.error is not None
    assert (failed.error.code, failed.error.message, failed.error.data) == (-32000, "Log in first", {"methods": []})
    assert str(failed.error) == "Log in first"


@pytest.mark.parametrize(
    ("rest", "code", "message", "result"),
    [
        (b'"error":null,"result":1', None, None, 1),
        (b'"error":{"code":-1,"message":"no"},"result":null', -1, "no", None),
        (b'"error":{"code":"x","message":7}', INTERNAL_ERROR, "", None),
        (b'"error":{"code":true}', INTERNAL_ERROR, "", None),
        (b'"error":"broken"', INTERNAL_ERROR, "", None),
        (b'"error":null', INTERNAL_ERROR, "The response has neither a result nor an error.", None),
    ],
)
def test_odd_responses_end_their_request(rest: bytes, code: int | None, message: str | None, result: Any) -> None:
    """A response of ours that is no good has still come: nothing else will."""
    response = read(b'{"id":0,%b}' % rest)
    assert isinstance(response, RpcResponse)
    error = response.error
    assert (error and error.code, error and error.message, response.result) == (code, message, result)


@pytest.mark.parametrize(
    ("frame", "code", "reason", "found"),
    [
        (b"Loading plugins...", -32700, "Parse error: ", None),
        (b"{not json}", -32700, "at character ", None),
        (b"", -32700, "Parse error", None),
        (b'{"id":NaN}', -32700, "Parse error", None),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}', -32700, "Parse error: byte 34 is not UTF-8.", None),
        ('{"id":1}'.encode("utf-16"), -32700, "Parse error: byte 0 is not UTF-8.", None),
        (b"[" * 5000 + b"]" * 5000, -32700, "Parse error", None),
        (b"null", -32600, "expected an object, got null", None),
        (b"7", -32600, "expected an object, got a number", None),
        (b'"m"', -32600, "expected an object, got a string", None),
        (b"{}", -32600, "method: expected a string, got nothing", None),
        (b'{"jsonrpc":"2.0","id":3}', -32600, "method: expected a string, got nothing", 3),
        (b'{"jsonrpc":"2.0","id":"a","method":7}', -32600, "method: expected a string, got a number", "a"),
        (b'{"id":1,"method":"m"}', -32600, 'jsonrpc: expected "2.0"', 1),
        (b'{"jsonrpc":2.0,"id":1,"method":"m"}', -32600, 'jsonrpc: expected "2.0"', 1),
        (b'{"jsonrpc":"2.0","id":true,"method":"m"}', -32600, "id: expected a string, a number or null, got", None),
        (b'{"jsonrpc":"2.0","id":{},"method":"m"}', -32600, "id: expected a string, a number or null, got", None),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":7}', -32600, "params: expected an object or a list, got", 1),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b"[" * 201 + b"]" * 201 + b"}",
            -32600,
            "nested deeper than 200 levels",
            1,
        ),
    ],
)
def test_what_is_not_a_message(frame: bytes, code: int, reason: str, found: Any) -> None:
    with pytest.raises(InvalidMessage) as caught:
        read(frame)
    assert (caught.value.error.code, caught.value.id) == (code, found)
    assert reason in caught.value.error.message


def test_a_response_that_is_nested_too_deep_is_an_error() -> None:
    response = read(b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 300 + b"]" * 300 + b"}")
    assert isinstance(response, RpcResponse)
    assert response.error is not None
    assert "deeper than 200" in response.error.message


def test_half_a_character_is_read() -> None:
    message = read(rb'{"jsonrpc":"2.0","method":"m","params":{"text":"\ud83d"}}')
    assert isinstance(message, RpcNotification)
    assert message.params == {"text": "\ufffd"}


def test_no_repr_shows_content() -> None:
    secret = {"key": "sk-secret"}
    messages = (RpcRequest.of(1, "m", secret), RpcNotification.of("m", secret), RpcResponse.of(1, secret))
    assert [repr(m) for m in messages] == [
        "RpcRequest(id=1, method='m')",
        "RpcNotification(method='m')",
        "RpcResponse(id=1)",
    ]
    assert "sk-secret" not in repr(RpcError(-1, "No.", secret))


# ---------------------------------------------------------------------- recordings


@pytest.mark.parametrize("name", conversations())
def test_every_recorded_message_is_read_and_written_unchanged(name: str) -> None:
    for line in conversations()[name]:
        message = lenient(line.frame)
        if message is None:
            assert name.startswith("server-scenes"), "only these have lines that are no messages"
        else:
            assert message.encode() == line.frame


@pytest.mark.parametrize("name", conversations())
@pytest.mark.parametrize("side", ["client", "agent"])
def test_every_recorded_conversation_is_held_again(name: str, side: str) -> None:
    """One side is ours: it reads the other one's lines, and sends the same messages."""
    lines = conversations()[name]
    methods = {m.method for line in lines if isinstance(m := lenient(line.frame), RpcRequest)}
    peer = RpcPeer(methods - {"craft/drainMidTurnQueue", "_vendor/ask", "session/unheard_of"}, answers_invalid=False)
    numbers: dict[Any, int] = {}
    """The other numbers under which codex's requests were sent."""
    for line in lines:
        message = lenient(line.frame)
        if line.sender != side:
            if isinstance(message, RpcResponse) and message.id in numbers:
                message = RpcResponse(message.members | {"id": numbers[message.id]})
            for event in peer.receive(message.encode() if message is not None else line.frame):
                if isinstance(event, RpcRequest | RpcNotification | RpcResponse):
                    assert event == message
            continue
        match message:
            case RpcRequest():
                number = numbers[message.id] = peer.request(message.method, message.params)
                expected = RpcRequest(message.members | {"id": number})
            case RpcNotification():
                peer.notify(message.method, message.params)
                expected = message
            case RpcResponse():
                if (error := message.error) is None or error.code != -32601:
                    assert peer.respond(message.id, message.result if error is None else error)
                expected = message
            case None:
                continue
        [frame] = peer.take()
        if list(message.members)[-1] != "id":  # one agent writes the id last
            assert frame == expected.encode()
        assert read(frame) == expected
    assert peer.take() == []


def lenient(frame: bytes) -> RpcRequest | RpcNotification | RpcResponse | None:
    try:
        return read(frame)
    except InvalidMessage:
        return None
