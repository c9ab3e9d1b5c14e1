"""A conversation that began over one backend goes on over another: it gets no reasoning that its API refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.translation.library import Translator
from tests.pairs.test_answers_carry import candidate, chat_whole, message_whole, response_whole, whole
from tests.pairs.test_asked_for import BODIES, CHAT, GEMINI, MESSAGES, RESPONSES

OPAQUE = "T3BhcXVlT3BhcXVl"
DETAILS = {"reasoning_field": "reasoning_details"}


def thought_by(back: str) -> dict[str, Any]:
    """An answer with readable reasoning, opaque where its API has that."""
    if back == CHAT:
        return chat_whole({"content": "Hi", "reasoning_content": "Hmm"})
    if back == RESPONSES:
        answer = response_whole({"type": "output_text", "text": "Hi", "annotations": []})
        thought = {"type": "reasoning", "id": "rs_68", "summary": [{"type": "summary_text", "text": "Hmm"}],
                   "encrypted_content": OPAQUE}  # fmt: skip
        return {**answer, "output": [thought, *answer["output"]]}
    if back == MESSAGES:
        thinking = {"type": "thinking", "thinking": "Hmm", "signature": OPAQUE}
        return message_whole(thinking, {"type": "text", "text": "Hi"})
    answer = candidate("Hi")
    answer["candidates"][0]["content"]["parts"].insert(0, {"text": "Hmm", "thought": True})
    return answer


def next_request(front: str, body: dict[str, Any], strip: bool) -> dict[str, Any]:
    """The next request of a client; with `strip` it returns its items without ids, as some do."""
    if front == CHAT:
        turns = [body["choices"][0]["message"], {"role": "user", "content": "Go on"}]
        return {**BODIES[CHAT], "messages": [*BODIES[CHAT]["messages"], *turns]}
    if front == RESPONSES:
        items = [{k: v for k, v in item.items() if k != "id" or not strip} for item in body["output"]]
        return {"model": "m", "store": False, "input": [{"role": "user", "content": "hi"}, *items]}
    if front == MESSAGES:
        turn = {"role": "assistant", "content": body["content"]}
        user = {"role": "user", "content": "Go on"}
        return {**BODIES[MESSAGES], "messages": [*BODIES[MESSAGES]["messages"], turn, user]}
    return {"contents": [*BODIES[GEMINI]["contents"], body["candidates"][0]["content"], *BODIES[GEMINI]["contents"]]}


def reasoning_in(back: str, body: dict[str, Any]) -> list[Any]:
    if back == RESPONSES:
        return [item for item in body["input"] if item.get("type") == "reasoning"]
    if back == MESSAGES:
        blocks = [b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"]]
        return [block for block in blocks if "thinking" in block["type"]]
    return [part for content in body["contents"] for part in content["parts"] if "thoughtSignature" in part]


@pytest.mark.parametrize("strip", [False, True])
@pytest.mark.parametrize("second", [RESPONSES, MESSAGES, GEMINI])
@pytest.mark.parametrize("first", [CHAT, RESPONSES, MESSAGES, GEMINI])
@pytest.mark.parametrize(("front", "options"), [(RESPONSES, None), (MESSAGES, None), (GEMINI, None), (CHAT, None)])
def test_reasoning_goes_back_to_its_vendor_alone(
    front: str, options: Any, first: str, second: str, strip: bool
) -> None:
    answer, _ = whole(first, front, thought_by(first), options)
    asked = json.dumps(next_request(front, answer, strip)).encode()
    translator = Translator(second, front, client_options=options, model="m")
    sent = json.loads(translator.request(asked, client=front))
    if first == second and front in (RESPONSES, MESSAGES) and first in (RESPONSES, MESSAGES):
        assert OPAQUE in json.dumps(reasoning_in(second, sent))
        return
    assert reasoning_in(second, sent) == []
    assert OPAQUE not in json.dumps(sent)
    if front == second == RESPONSES:
        assert "reasoning_history" in translator.lost


def test_a_server_of_this_dialect_gets_its_own_readable_reasoning_back() -> None:
    """vLLM and others keep no reasoning, and read that of the request."""
    item = {"type": "reasoning", "id": "rs_a1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hmm"}]}
    body = {"model": "m", "input": [{"role": "user", "content": "hi"}, item]}
    sent = json.loads(Translator(RESPONSES, RESPONSES).request(json.dumps(body).encode(), client=RESPONSES))
    assert sent["input"][1] == item
