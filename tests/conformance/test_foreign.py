"""A stream without an event of its dialect is no answer, whatever ends it."""

import json
from typing import Any

import pytest

from bridge.contract import registry
from bridge.errors import ErrorCode
from bridge.model import fold, verify
from bridge.testing.wires import context
from bridge.translation.framing.sse import Splitter

DIALECTS = [name for name in registry.called() if not registry.get(name).over_grpc and name != "agentscope-service"]
"""The session of an AgentScope service ends its run, and not its stream."""


@pytest.mark.parametrize("end", [b"", b"data: [DONE]\n\n"], ids=["broken off", "ended"])
@pytest.mark.parametrize("event", [{"zzz": 1}, {"type": "zzz"}, {"id": "a", "model": "m"}], ids=repr)
@pytest.mark.parametrize("name", DIALECTS)
def test_a_stream_of_foreign_events_fails(name: str, event: Any, end: bytes) -> None:
    dialect = registry.get(name)
    decoder = dialect.decoder(context(dialect.back_options()))
    frames = Splitter().feed(b"data: " + json.dumps(event).encode() + b"\n\n" + end)
    failure = fold(verify([*decoder.feed(frames), *decoder.close()])).failure
    assert failure is not None
    assert failure.code in (ErrorCode.BACKEND_PROTOCOL, ErrorCode.TRUNCATED_STREAM)
