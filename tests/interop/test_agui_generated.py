"""The official AG-UI client takes every stream that our encoder writes, whatever a backend said."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model import Event, StateChanged, StateOp, fold
from bridge.translation.framing.sse import join
from tests.dialects.ag_ui.helpers import decode, encode, flat, flat_wire, new_client, old_client
from tests.dialects.ag_ui.test_properties import NEARLY
from tests.interop.client import VERSIONS, Driver, View, read
from tests.strategies import answers, json_values

pytestmark = pytest.mark.interop

# What it says of a failed run, and of patches that do not fit the state.
EXPECTED = ("Agent execution failed", "Failed to apply state patch")

versions = pytest.mark.parametrize("version", VERSIONS, ids=[f"client {v}" for v in VERSIONS.values()])


def stream_for(version: str, events: list[Event]) -> bytes:
    return join(encode(events, new_client() if version == "1" else old_client()))


def taken(driver: Driver, version: str, body: bytes) -> View:
    view = read(driver, version, body)
    assert view.rejected is None, view.rejected
    assert view.unhandled == []
    assert view.last["type"] in ("RUN_FINISHED", "RUN_ERROR")
    return view


@versions
@given(events=answers())
def test_every_answer(driver: Driver, version: str, events: list[Event]) -> None:
    """It is taken whole, and the client has what our own decoder reads from the same bytes."""
    body = stream_for(version, events)
    view = taken(driver, version, body)
    if any(isinstance(e, StateChanged) and e.op is StateOp.MESSAGES for e in events):
        return  # the snapshot takes the place of what was said
    assert [line for line in view.console if not line[1].startswith(EXPECTED)] == []
    ours = flat(fold(decode([body])).messages)
    # Reasoning that is encrypted only has no words.
    assert Counter(flat_wire(view.messages)) == Counter(part for part in ours if part != ("reasoning", ""))


@versions
@given(values=st.lists(NEARLY | json_values(), max_size=6))
def test_whatever_a_backend_sends(driver: Driver, version: str, values: list[Any]) -> None:
    frames = [b"data: " + orjson.dumps(v) + b"\n\n" for v in values]
    taken(driver, version, stream_for(version, decode(frames)))
