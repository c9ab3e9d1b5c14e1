"""Failures: one table for all codes, one fitting exception for each."""

from __future__ import annotations

import pytest

from bridge.errors import (
    RULES,
    BackendError,
    BridgeError,
    Canceled,
    ConfigError,
    ErrorCode,
    Failure,
    RequestError,
    Unsupported,
)

GRPC = {
    "CANCELLED", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED",
    "ABORTED", "INTERNAL", "UNAVAILABLE", "UNAUTHENTICATED",
}  # fmt: skip


def test_every_code_has_a_rule() -> None:
    assert list(RULES) == list(ErrorCode)


@pytest.mark.parametrize("code", ErrorCode)
def test_rules_make_sense(code: ErrorCode) -> None:
    rule = RULES[code]
    assert 400 <= rule.http <= 599
    assert rule.grpc in GRPC
    failure = Failure(code, "x")
    assert failure.http_status == rule.http
    assert failure.may_retry is rule.retry
    if code in RequestError.codes:
        assert rule.http < 500, "the caller's fault is a 4xx"
        assert not rule.retry, "the same call would fail again"


@pytest.mark.parametrize(
    ("code", "http"),
    [
        (ErrorCode.BACKEND_AUTH, 502),
        (ErrorCode.RATE_LIMITED, 429),
        (ErrorCode.CANCELED, 499),
        (ErrorCode.BACKEND_TIMEOUT, 504),
        (ErrorCode.TOO_LARGE, 413),
    ],
)
def test_statuses_that_clients_rely_on(code: ErrorCode, http: int) -> None:
    assert Failure(code, "x").http_status == http


def test_a_truer_status_wins() -> None:
    assert Failure(ErrorCode.INVALID_REQUEST, "x", status=422).http_status == 422


@pytest.mark.parametrize("code", ErrorCode)
def test_a_failure_becomes_the_fitting_exception(code: ErrorCode) -> None:
    failure = Failure(code, "what happened", "place", 418, "word", {"a": "b"}, {"c": 1})
    error = BridgeError.of(failure)
    fitting: list[type[BridgeError]] = [
        k for k in (Unsupported, RequestError, BackendError, Canceled) if code in k.codes
    ]
    assert [type(error)] == (fitting or [BridgeError])
    assert len(fitting) == (0 if code in OURS else 1)
    assert error.failure is failure
    assert error.code is code
    assert error.message == str(error) == "what happened"


OURS = {ErrorCode.RUN_LOST, ErrorCode.RUN_TIMEOUT, ErrorCode.STORE_UNAVAILABLE, ErrorCode.INTERNAL}
"""Codes for which the bridge itself answers."""


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (BridgeError, ErrorCode.INTERNAL),
        (RequestError, ErrorCode.INVALID_REQUEST),
        (Unsupported, ErrorCode.UNSUPPORTED),
        (BackendError, ErrorCode.BACKEND_ERROR),
        (Canceled, ErrorCode.CANCELED),
        (ConfigError, ErrorCode.INVALID_REQUEST),
    ],
)
def test_each_class_has_its_code(kind: type[BridgeError], code: ErrorCode) -> None:
    assert kind("x").failure == Failure(code, "x")


def test_an_exception_carries_all_that_a_failure_can() -> None:
    error = BackendError(
        "x",
        code=ErrorCode.RATE_LIMITED,
        param="model",
        status=429,
        backend_code="quota",
        headers={"retry-after": "1"},
        details={"a": 1},
    )
    assert error.failure == Failure(ErrorCode.RATE_LIMITED, "x", "model", 429, "quota", {"retry-after": "1"}, {"a": 1})
