"""`JsonDecoder`: what every dialect of JSON frames does with frames that are wrong."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.contract import Context, Dialect, Frame, Losses, registry
from bridge.errors import ErrorCode
from bridge.model import Event, PartKind, RunFailed, RunFinished, TextDelta, fold, verify
from bridge.model.jsontext import MAX_DEPTH
from bridge.toolkit import JsonDecoder

JSON_DIALECTS = ("openai-chat", "openai-responses", "anthropic-messages", "gemini", "agentscope", "ag-ui", "ag-kit")
NAMES_ERRORS = ("openai-chat", "openai-responses", "anthropic-messages")
_DEEP = b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1)
TOO_DEEP = "An event of the backend is nested too deep."


class Words(JsonDecoder):
    """A protocol of two words, as somebody else would write its decoder."""

    def read(self, event: dict[str, Any], name: str | None) -> None:
        if isinstance(word := event.get("word"), str):
            self.builder.flow(0, PartKind.TEXT, word)
            self.repeat.learn(event, ("word",), self.builder.flowing(0))
        if event.get("over") is True:
            self.builder.finish()
            self.builder.end()


def context(dialect: Dialect | None = None) -> Context:
    return Context("run", "thread", 1.0, dialect.back_options() if dialect else None, "m", None, Losses())


def words(*frames: bytes | Frame) -> list[Event]:
    decoder = Words(context())
    return list(verify([*decoder.feed(frames), *decoder.close()]))


def failed(name: str, *frames: bytes | Frame) -> str | None:
    """The message with which a decoder fails on these frames; None while it has not failed."""
    dialect = registry.get(name)
    decoder = dialect.decoder(context(dialect))
    last = [*decoder.feed(frames), None][-2:][0]
    return last.error.message if isinstance(last, RunFailed) else None


def test_objects_are_read_and_the_rest_is_handled() -> None:
    events = words(
        b'{"word":"a"}', b"", b" \n", b"[DONE]", b"7", b"null", b'["x"]', b' {"word":"b"} ', b'{"over":true}'
    )
    assert fold(events).text == "ab"
    assert isinstance(events[-1], RunFinished)


def test_nothing_is_read_after_the_end() -> None:
    assert fold(words(b'{"over":true}', b'{"word":"late"}', b"{")).text == ""


def test_like_frames_are_read_by_their_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = Words(context())
    decoder.feed([b'{"word":"%d"}' % n for n in range(3)])
    monkeypatch.setattr(decoder, "read", None)
    assert [e.text for e in decoder.feed([b'{"word":"more"}']) if isinstance(e, TextDelta)] == ["more"]


def test_unpaired_surrogates_are_replaced() -> None:
    assert fold(words(rb'{"word":"a\ud83d"}', b'{"over":true}')).text == "a\ufffd"


def test_an_input_that_ends_early_is_truncated() -> None:
    last = words(b'{"word":"a"}')[-1]
    assert isinstance(last, RunFailed)
    assert last.error.code is ErrorCode.TRUNCATED_STREAM


@pytest.mark.parametrize("name", JSON_DIALECTS)
@pytest.mark.parametrize("body", [b'{"x":%b}', rb'{"x":%b,"y":"\ud83d"}', b"[%b]"], ids=["", "surrogate", "list"])
def test_what_is_nested_too_deep_fails_the_run(name: str, body: bytes) -> None:
    assert failed(name, body % _DEEP) == TOO_DEEP


@pytest.mark.parametrize("name", JSON_DIALECTS)
def test_what_is_not_json_fails_the_run(name: str) -> None:
    text = failed(name, b"<html>")
    assert text is not None
    assert "JSON" in text


@pytest.mark.parametrize("name", JSON_DIALECTS)
@pytest.mark.parametrize("data", [b"", b" \r\n", b"7", b'"text"', b"[]", rb'["\ud83d"]', b"null"])
def test_frames_that_say_nothing_are_ignored(name: str, data: bytes) -> None:
    assert failed(name, data) is None


@pytest.mark.parametrize("name", NAMES_ERRORS)
@pytest.mark.parametrize("data", [b"out of luck", b'"out of luck"'])
def test_an_event_named_error_may_hold_no_object(name: str, data: bytes) -> None:
    assert failed(name, Frame(data, "error")) == "out of luck"
