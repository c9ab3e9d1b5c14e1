"""Failures before a stream, in both directions; endpoints, health, the card."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from bridge.contract import Feature, Operation, Support, WireResponse
from bridge.dialects.ag_kit import AGKit, dialect
from bridge.errors import ErrorCode, Failure, Wrong
from bridge.model import HistoryMode, fold, verify
from bridge.translation import AnswerDecoder

from .helpers import context

REFUSED = "The backend refused the bridge's credentials."


def told(failure: Failure) -> tuple[int, Any]:
    wire = dialect.encode_error(failure)
    assert wire.content_type == "application/json"
    return wire.status, json.loads(wire.body)


@pytest.mark.parametrize(
    ("failure", "status", "item"),
    [
        (
            Failure(
                ErrorCode.INVALID_REQUEST,
                "messages[0].role: required, expected a string.",
                "messages[0].role",
                wrong=Wrong.MISSING,
            ),
            422,
            {"type": "missing", "loc": ["body", "messages", 0, "role"]},
        ),
        (Failure(ErrorCode.UNSUPPORTED, "no", "n"), 422, {"type": "unsupported", "loc": ["body", "n"]}),
        (
            Failure(ErrorCode.INVALID_REQUEST, "The request body is not valid JSON: x.", wrong=Wrong.JSON),
            422,
            {"type": "json_invalid", "loc": ["body"]},
        ),
        (Failure(ErrorCode.INVALID_REQUEST, "POST only", status=405), 405, {"type": "value_error", "loc": ["body"]}),
        (Failure(ErrorCode.UNAUTHORIZED, "who?"), 401, {"type": "unauthorized", "loc": ["body"]}),
        (Failure(ErrorCode.CONFLICT, "no such interrupt"), 409, {"type": "conflict", "loc": ["body"]}),
        (Failure(ErrorCode.BACKEND_UNAVAILABLE, "down"), 502, {"type": "backend_unavailable", "loc": ["body"]}),
        (Failure(ErrorCode.INTERNAL, "oh"), 500, {"type": "internal", "loc": ["body"]}),
    ],
)
def test_a_failure_before_the_stream(failure: Failure, status: int, item: dict[str, Any]) -> None:
    assert told(failure) == (status, {"detail": [{**item, "msg": failure.message}]})


def test_a_rate_limit_keeps_its_header_and_long_texts_are_cut() -> None:
    wire = dialect.encode_error(Failure(ErrorCode.RATE_LIMITED, "x" * 9000, headers={"retry-after": "3"}))
    assert (wire.status, wire.headers["retry-after"]) == (429, "3")
    assert len(wire.body) < 1000


@pytest.mark.parametrize("code", ErrorCode)
def test_our_own_errors_are_read_back(code: ErrorCode) -> None:
    failure = Failure(code, "It is like this.", "messages[1].content")
    back = dialect.decode_error(dialect.encode_error(failure))
    if code in (ErrorCode.UNAUTHORIZED, ErrorCode.FORBIDDEN, ErrorCode.BACKEND_AUTH):
        assert (back.code, back.message) == (ErrorCode.BACKEND_AUTH, REFUSED)
    elif code is ErrorCode.INTERNAL:
        assert back.code is ErrorCode.BACKEND_ERROR, "another bridge's crash is not ours"
    else:
        assert back.code is code
        assert back.message == "messages.1.content: It is like this."


@pytest.mark.parametrize(
    ("status", "body", "code", "message"),
    [
        (401, b'{"detail":"key sk-abc is wrong"}', ErrorCode.BACKEND_AUTH, REFUSED),
        (403, b"", ErrorCode.BACKEND_AUTH, REFUSED),
        (404, b'{"detail":"Not Found"}', ErrorCode.BACKEND_ERROR, "The backend answered with status 404."),
        (404, b'{"detail":"No such agent"}', ErrorCode.NOT_FOUND, "No such agent"),
        (405, b'{"detail":"Method Not Allowed"}', ErrorCode.BACKEND_ERROR, "The backend answered with status 405."),
        (429, b"slow down", ErrorCode.RATE_LIMITED, "The backend answered with status 429."),
        (500, b"<html>", ErrorCode.BACKEND_ERROR, "The backend answered with status 500."),
        (500, b'{"error":{"code":"INTERNAL_ERROR","message":"no agent"}}', ErrorCode.BACKEND_ERROR, "no agent"),
        (500, b'{"error":"Server error","details":"no agent"}', ErrorCode.BACKEND_ERROR, "Server error: no agent"),
        (500, b'{"error":"Server error","details":""}', ErrorCode.BACKEND_ERROR, "Server error"),
        (500, b'{"error":"Server error","details":{"a":1}}', ErrorCode.BACKEND_ERROR, "Server error"),
        (503, b"[]", ErrorCode.OVERLOADED, "The backend answered with status 503."),
        (418, b'{"detail":[{"msg":5},7]}', ErrorCode.INVALID_REQUEST, "The backend answered with status 418."),
    ],
)  # fmt: skip
def test_a_backends_refusal(status: int, body: bytes, code: ErrorCode, message: str) -> None:
    failure = dialect.decode_error(WireResponse(status, {"content-type": "application/json"}, body))
    assert (failure.code, failure.message) == (code, message)


def test_what_a_backend_says_of_the_request_keeps_its_status() -> None:
    for status in (400, 404, 409, 413, 418, 422, 429):
        assert dialect.decode_error(WireResponse(status, {}, b"{}")).http_status == status
    assert refused(400, "too_large") == (ErrorCode.TOO_LARGE, 400)


def refused(status: int, kind: str) -> tuple[ErrorCode, int]:
    body = orjson.dumps({"detail": [{"type": kind, "loc": ["body"], "msg": "x"}]})
    failure = dialect.decode_error(WireResponse(status, {}, body))
    return failure.code, failure.http_status


def test_what_a_backend_says_of_itself_is_not_the_callers_fault() -> None:
    for status in (405, 500, 501):
        assert dialect.decode_error(WireResponse(status, {}, b"{}")).http_status == 502
    # Another bridge's word counts, and not the status of another kind beside it.
    assert refused(404, "run_lost") == (ErrorCode.RUN_LOST, 500)
    assert refused(500, "unsupported") == (ErrorCode.UNSUPPORTED, 400)


def test_of_a_backends_headers_only_the_time_to_wait_is_handed_on() -> None:
    headers = {"retry-after": "3", "server": "uvicorn", "set-cookie": "a=b"}
    for status in (429, 401):
        assert dialect.decode_error(WireResponse(status, headers, b"")).headers == {"retry-after": "3"}


@pytest.mark.parametrize(
    ("wire", "code", "said"),
    [
        (WireResponse(200, {}, b'{"error":"Server error","details":"x"}'), ErrorCode.BACKEND_ERROR, "Server error: x"),
        (WireResponse(200, {}, b'{"detail":"no agent"}'), ErrorCode.BACKEND_ERROR, "no agent"),
        (WireResponse(200, {}, b"<html>"), ErrorCode.BACKEND_PROTOCOL, "neither an event stream nor"),
        (WireResponse(200, {}, b"[1]"), ErrorCode.BACKEND_PROTOCOL, "neither an event stream nor"),
        (WireResponse(200, {}, b'{"detail":""}'), ErrorCode.BACKEND_PROTOCOL, "neither an event stream nor"),
        (WireResponse(200, {}, b'{"type":"error","error":"x"}'), ErrorCode.BACKEND_ERROR, "x"),
        (WireResponse(503, {}, b""), ErrorCode.OVERLOADED, "status 503"),
        (WireResponse(400, {}, b""), ErrorCode.INVALID_REQUEST, "status 400"),
        (WireResponse(400, {}, b'{"type":"text","content":"x"}'), ErrorCode.INVALID_REQUEST, "status 400"),
    ],
)
def test_an_answer_in_one_piece_is_a_failed_run(wire: WireResponse, code: ErrorCode, said: str) -> None:
    reading = AnswerDecoder(dialect, context(), wire.headers, status=wire.status)
    failure = fold(verify(reading.receive(wire.body) + reading.close())).failure
    assert failure is not None
    assert failure.code is code
    assert said in failure.message


# ------------------------------------------------------------------ what it says of itself


def test_the_endpoints() -> None:
    runs = {e.path for e in AGKit.surface if e.operation is Operation.RUN and e.method == "POST"}
    assert runs == {"/send-message", "/v1/aibot/bots/{id}/send-message", "/aibot/bots/{id}/send-message"}
    assert [(e.method, e.path) for e in AGKit.surface if e.operation is Operation.HEALTH] == [("GET", "/healthz")]


def test_health() -> None:
    for alive, status in ((True, 200), (False, 503)):
        wire = dialect.encode_health(alive)
        assert wire.status == status
        assert orjson.loads(wire.body)["status"] == ("healthy" if alive else "unhealthy")


def test_the_card() -> None:
    capabilities = dialect.capabilities
    assert (capabilities.history, capabilities.keeps_history, capabilities.client_runs_calls) == (
        HistoryMode.DELTA,
        True,
        False,
    )
    # Of generation 2's interrupts no id is on the wire.
    assert not capabilities.names_interrupts
    assert capabilities.answer(Feature.TOOL_RESULT) is Support.EXACT
    assert capabilities.request(Feature.IMAGE_URL) is Support.REFUSE
