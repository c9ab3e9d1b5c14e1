"""A template writes what dumping the whole frame would, whatever the text and whatever else is in the frame."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.model.jsontext import dumps, escape_line_breaks, loads
from bridge.testing.strategies import json_objects
from bridge.toolkit.template import HOLE, NUMBER, Template, filled
from tests.strategies import texts

ANY_TEXT = texts() | st.text(st.characters(exclude_categories=()))


@given(json_objects(awkward=True), ANY_TEXT)
@example({"a": "\0", "b": "%b%d%s", "\1": "\\u0000"}, "%")
@example({"a": "\ud83d", "k\ud83d": 2**70}, "x\ud83d")
def test_a_frame_is_written_as_if_dumped(more: dict[str, Any], text: str) -> None:
    frame = {"first": HOLE, **more, "inside": [{"index": 1, "text": HOLE}]}
    assert Template(frame)(text) == dumps(filled(frame, text))


@given(ANY_TEXT, st.integers(0, 2**53))
def test_a_number_stands_before_the_text(text: str, number: int) -> None:
    template = Template({"n": NUMBER, "%": "100%", "text": HOLE})
    assert template(text, number) == dumps({"n": number, "%": "100%", "text": text})


@pytest.mark.parametrize("text", ["a\u2028b", "\u0085", "plain", "\u2029\u00e9"])
def test_line_breaks_are_escaped_on_one_line(text: str) -> None:
    frame = {"name": "x\u2028", "text": HOLE}
    written = Template(frame, one_line=True)(text)
    assert written == escape_line_breaks(dumps(filled(frame, text)))
    assert len(written.decode().splitlines()) == 1
    assert loads(written) == filled(frame, text)
