"""The exit code of `dialect-bridge translate`."""

from __future__ import annotations

import pytest

from tests.docs.helpers import COMMAND, run

pytestmark = pytest.mark.slow

REJECTED = b'{"object":"response","status":"rejected","error":{"code":"X","message":"not this"}}'
LINES = b'{"object":"response","status":"created"}\n{"object":"response","status":"failed"}\n'
DONE = b'{"object":"response","status":"completed","output":[]}'


def translate(data: bytes, *options: str) -> tuple[int, bytes, bytes]:
    done = run(COMMAND, "translate", "--from", "agentscope", "--to", "ag-kit", *options, input=data)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("options", [(), ("--explain",)], ids=["bytes", "explained"])
@pytest.mark.parametrize("data", [b"", REJECTED, LINES], ids=["nothing", "rejected", "lines"])
def test_a_recording_of_a_run_that_failed_exits_1(data: bytes, options: tuple[str, ...]) -> None:
    code, out, err = translate(data, *options)
    assert code == 1
    assert b"error" in out
    assert options or err.startswith(b"failed: ")


def test_any_other_recording_exits_0() -> None:
    assert translate(DONE) == (0, b"data: [DONE]\n\n", b"")
