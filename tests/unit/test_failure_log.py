"""What fails again and again is logged once, and once that it works again."""

from __future__ import annotations

import logging

import pytest

from bridge.errors import BackendError, ErrorCode, FailureLog


def test_one_line_for_each_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bridge.x")
    failures = FailureLog(logging.getLogger("bridge.x"))
    error = BackendError("the database is away", code=ErrorCode.STORE_UNAVAILABLE)
    failures.works("a cannot be read")
    failures.failed("a cannot be read", error)
    failures.failed("a cannot be read", error)
    failures.failed("b cannot be written", error)
    failures.works("a cannot be read")
    failures.works("a cannot be read")
    failures.failed("a cannot be read", error)
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "a cannot be read: the database is away"),
        ("WARNING", "b cannot be written: the database is away"),
        ("INFO", "resolved: a cannot be read"),
        ("WARNING", "a cannot be read: the database is away"),
    ]
