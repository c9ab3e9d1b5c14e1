"""What follows from the capabilities of two dialects."""

from __future__ import annotations

from typing import NoReturn

import pytest

from bridge import Request
from bridge.contract import Capabilities, Losses, registry
from bridge.translation.pair import pair_of
from bridge.translation.policies.stages import StageContext, prepare


def refused(*_: object) -> NoReturn:
    raise AssertionError("the capabilities were asked")


@pytest.mark.parametrize("back", ["openai-chat", "anthropic-messages", "gemini", "ag-ui", "agentscope"])
@pytest.mark.parametrize("front", ["openai-chat", "anthropic-messages", "ag-ui"])
def test_no_request_but_the_first_asks(front: str, back: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cards = registry.get(front).capabilities, registry.get(back).capabilities
    before = prepare((), StageContext(Request("Hello"), *cards, None, Losses()))
    monkeypatch.setattr(Capabilities, "answer", refused)
    monkeypatch.setattr(Capabilities, "request", refused)
    after = prepare((), StageContext(Request("Hello"), *cards, None, Losses()))
    assert list(map(type, after.stages)) == list(map(type, before.stages))


def test_a_pair_has_a_direction() -> None:
    chat, messages = registry.get("openai-chat").capabilities, registry.get("anthropic-messages").capabilities
    assert pair_of(chat, messages).wraps_signatures
    assert pair_of(chat, messages) is pair_of(chat, messages)
    assert pair_of(chat, messages) is not pair_of(messages, chat)
    assert pair_of(messages, chat).legal_name is not None
    assert pair_of(chat, chat).legal_name is None
