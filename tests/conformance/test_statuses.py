"""One table says what a backend's status means; every dialect keeps to it."""

import pytest

from bridge.contract import WireResponse, registry
from bridge.errors import BY_STATUS
from bridge.model import fold, verify
from bridge.testing.wires import context
from bridge.translation import AnswerDecoder

BODY = b'{"error": {"message": "It failed for sk-secret0123456789abcdef."}}'
DIALECTS = registry.called()


@pytest.mark.parametrize("status", [401, 403, 405, 409, 413, 429, 502, 503, 504])
@pytest.mark.parametrize("name", DIALECTS)
def test_a_status_means_the_same_in_every_dialect(name: str, status: int) -> None:
    failure = registry.get(name).decode_error(WireResponse(status, {"content-type": "application/json"}, BODY))
    assert failure.code is BY_STATUS[status]
    assert "sk-secret" not in failure.message


@pytest.mark.parametrize("status", [400, 503])
@pytest.mark.parametrize("name", DIALECTS)
def test_a_whole_answer_with_an_error_status_is_the_failure_that_its_body_says(name: str, status: int) -> None:
    dialect, headers = registry.get(name), {"content-type": "application/json"}
    for body in (BODY, b"{}", b"[]", b"<html>"):
        reading = AnswerDecoder(dialect, context(dialect.back_options()), headers, status=status)
        answer = fold(verify(reading.receive(body) + reading.close()))
        assert answer.failure == dialect.decode_error(WireResponse(status, headers, body))
