"""What a stream holds while its backend is silent. Bytes and objects, no time: a change that holds more shows."""

from __future__ import annotations

import pytest
from held import FRONTS, held

MARGIN = 1.05
MOST = {"openai-chat": 15_000, "ag-ui": 17_900}
"""Bytes that our code has allocated for a stream, as measured; lower them when the code gets better."""
OBJECTS = 50


@pytest.mark.parametrize("front", FRONTS)
async def test_an_open_stream_does_not_hold_more(front: str) -> None:
    found = await held(front)
    assert found.bytes <= MOST[front] * MARGIN, found.lines.most_common(12)
    assert found.objects <= OBJECTS
    # It must be counted at all: a run, its backend's call, a decoder and an encoder are objects of ours.
    assert found.bytes >= 5_000
    assert found.objects >= 10
