"""Data that a backend gets as text, or not at all, are named as lost, whoever says them."""

from __future__ import annotations

import pytest

from bridge.contract import Feature, Support, registry
from bridge.errors import Unsupported
from bridge.model import Data, Message, Request, Text, ToolCall, ToolResult
from bridge.testing.wires import context

DATA = Data({"kept": "as data"})
CONVERSATIONS = {
    "user": [Message("user", [Text("hello"), DATA])],
    "user, alone": [Message("user", [DATA])],
    "assistant": [Message("user", [Text("q")]), Message("assistant", [Text("a"), DATA]), Message("user", [Text("q")])],
    "beside a call": [
        Message("user", [Text("q")]),
        Message("assistant", [DATA, ToolCall("c1", "f", "{}")]),
        Message("tool", [ToolResult("c1", [Text("done")], "f")]),
    ],
}


@pytest.mark.parametrize("who", CONVERSATIONS)
@pytest.mark.parametrize("dialect", [name for name in registry.names() if registry.get(name).called])
def test_data_that_become_text_are_named(dialect: str, who: str) -> None:
    spoken = registry.get(dialect)
    request = Request(CONVERSATIONS[who])
    about = context(spoken.back_options(), request)
    if spoken.capabilities.request(Feature.DATA) is Support.EXACT:
        assert b"as data" in spoken.encode_request(request, about).body
        assert "data" not in about.lost.names
        return
    try:
        spoken.encode_request(request, about)
    except Unsupported as refused:
        assert "data" in refused.failure.message.lower()  # noqa: PT017
        return
    assert "data" in about.lost.names
