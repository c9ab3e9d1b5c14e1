"""How an AgentScope backend ends an answer, as the clients of every dialect learn it, streamed and whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import Feature, Support, registry
from bridge.errors import BridgeError, Unsupported
from bridge.model import Answer, FinishReason, fold, verify
from bridge.testing.wires import decode
from bridge.translation.library import Translator

FRONTS = [name for name in registry.called() if registry.get(name).served]
ERROR = {"code": "ACCESS_DENIED", "message": "not this"}
HEAD = {"object": "response", "id": "r", "session_id": "s", "created_at": 1_700_000_001}
CREATED, DONE = ({**HEAD, "status": status} for status in ("created", "completed"))
OPEN: dict[str, Any] = {"object": "message", "id": "m", "type": "message", "role": "assistant", "status": "in_progress"}
HALF = {
    "object": "content", "type": "text", "msg_id": "m", "index": 0, "delta": True, "status": "in_progress",
    "text": "half",
}  # fmt: skip
ENDS = ["rejected", "canceled", "failed", "incomplete"]

FAILURES: dict[str, list[dict[str, Any]]] = {
    **{f"response {s}": [{**DONE, "status": s, "error": ERROR}] for s in (*ENDS, "completed")},
    **{f"message {s}": [{**OPEN, "status": s, **ERROR}, DONE] for s in ENDS},
    "message with error": [{**OPEN, "status": "failed", "error": ERROR}, DONE],
    "content failed": [
        {**HALF, "delta": False, "status": "failed", "error": ERROR}, {**OPEN, "status": "completed"}, DONE,
    ],
}  # fmt: skip


def answer_of(front: str, events: list[dict[str, Any]]) -> tuple[Answer, bytes, Translator]:
    translator = Translator("agentscope", front, run_id="run1")
    wire = b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events)
    out = translator.feed(wire) + translator.close()
    return fold(verify(decode(registry.get(front), [out]))), out, translator


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("said", [[], [OPEN, HALF]], ids=["nothing", "half"])
@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_reaches_every_client_with_its_words(name: str, said: list[Any], front: str) -> None:
    answer, out, _ = answer_of(front, [CREATED, *said, *FAILURES[name]])
    assert answer.failure is not None, out
    assert "not this" in answer.failure.message


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("name", FAILURES)
def test_a_whole_answer_that_failed_is_an_error(name: str, front: str) -> None:
    *messages, end = FAILURES[name]
    body = {**end, "output": [m for m in messages if m["object"] == "message"]}
    if name == "content failed":
        body["output"] = [{**OPEN, "status": "completed", "content": [messages[0]]}]
    with pytest.raises(BridgeError) as caught:
        Translator("agentscope", front).response(
            json.dumps(body).encode(), headers={"content-type": "application/json"}
        )
    if isinstance(caught.value, Unsupported):
        assert front in ("ag-kit", "ag-ui", "aip")
        return
    assert (caught.value.message, caught.value.failure.backend_code) == ("not this", "ACCESS_DENIED")


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize(
    ("status", "reason", "feature"),
    [
        ("rejected", FinishReason.CONTENT_FILTER, Feature.FINISH_CONTENT_FILTER),
        ("incomplete", FinishReason.LENGTH, Feature.FINISH_LENGTH),
        ("canceled", FinishReason.CANCELED, Feature.FINISH_CANCELED),
    ],
)
@pytest.mark.parametrize("place", ["response", "message"])
def test_an_end_without_an_error_is_a_reason_or_a_named_loss(
    place: str, status: str, reason: FinishReason, feature: Feature, front: str
) -> None:
    end = [{**DONE, "status": status}] if place == "response" else [{**OPEN, "status": status}, DONE]
    answer, out, translator = answer_of(front, [CREATED, OPEN, HALF, *end])
    support = registry.get(front).capabilities.answer(feature)
    if support is Support.EXACT:
        assert answer.reason is reason, out
    else:
        assert answer.failure is not None or str(feature) in translator.lost


@pytest.mark.parametrize("front", [f for f in FRONTS if not f.startswith("agentscope")])
def test_what_no_other_dialect_knows_is_named_as_lost(front: str) -> None:
    vote = {**OPEN, "id": "v", "type": "vote", "status": "completed", "content": []}
    chart = {**HALF, "type": "chart", "delta": False, "status": "completed"}
    for unknown in ([vote], [OPEN, chart, {**OPEN, "status": "completed"}]):
        _, out, translator = answer_of(front, [CREATED, *unknown, DONE])
        kind = "vote" if unknown[0] is vote else "chart"
        if registry.get(front).capabilities.answer(Feature.RAW) is Support.EXACT:
            assert kind.encode() in out
        else:
            assert kind in translator.lost_details["raw"]
