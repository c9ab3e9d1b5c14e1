"""What clients and backends choose does not leave its place: a name in a path, a name on a line of a stream."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest

from bridge.contract import CountingDialect, Frame, FrameLike, WireRequest, registry
from bridge.errors import BackendError, RequestError
from bridge.model import Message, MessageStarted, Raw, Request, Resume, RunFinished, RunStarted, Text
from bridge.testing.wires import context, encode
from bridge.toolkit.paths import check_path, climbs, resource, segment
from bridge.translation import framing
from bridge.translation.library import Translator
from tests.cases import all_cases

DIALECTS = {name: registry.get(name) for name in registry.names()}
FRONTS = [name for name, dialect in DIALECTS.items() if dialect.served]
BACKS = [name for name, dialect in DIALECTS.items() if dialect.called]
OUTSIDE = [
    *("..", ".", "...", "../../other/models/x", "./x", "a/../../b", "a/./b", "a/..", "/x", "x/", "a//b", "..\\x"),
    *("a\\b", "%2e%2e/x", "a%2f..%2fb", "a%5cb", "a\r\nb", "a\0b", "a\x7fb", "a\x85b", "a%0d%0ab"),
    *("\ud800", "%2e", "a%2f%2fb"),
]
"""Values that would change the address, in the eyes of some server."""
INSIDE = {
    "gpt-4.1": "gpt-4.1",
    "org/model:free": "org/model%3Afree",
    "a..b": "a..b",
    "..a": "..a",
    "a b?c#d;e": "a%20b%3Fc%23d%3Be",
    "\u6a21\u578b": "%E6%A8%A1%E5%9E%8B",
    "100%": "100%25",
    "%252e%252e": "%25252e%25252e",
}
"""Values that are names, and how they stand in a path."""


@pytest.mark.parametrize("value", [*OUTSIDE, ""])
def test_a_value_that_would_change_the_address_is_refused(value: str) -> None:
    for make in (resource, segment):
        with pytest.raises(RequestError, match=r"^model: expected a name( without |, got)") as refused:
            make(value, "model")
        assert refused.value.failure.param == "model"
    with pytest.raises(BackendError) as by_backend:
        segment(value, "task id", by_backend=True)
    assert by_backend.value.failure.code == "backend_protocol"


def test_every_other_value_is_percent_encoded() -> None:
    for value, path in INSIDE.items():
        assert resource(value, "model") == path
        assert segment(value, "model") == path.replace("/", "%2F")
        check_path(f"/v1/models/{path}")


@pytest.mark.parametrize("path", ["/a/../b", "/a/%2e%2e/b", "/..", "/a\\b", "/a\r\nb", "/a/%2E", "/a%2f..%2fb"])
def test_no_request_is_sent_to_a_path_that_leads_out_of_its_prefix(path: str) -> None:
    with pytest.raises(RequestError):
        check_path(path)


# ------------------------------------------------------------------ all dialects, as backends


@pytest.mark.parametrize("back", BACKS)
def test_no_value_of_a_request_changes_a_backends_address(back: str) -> None:
    """The path is the one of an ordinary request, or the request is refused with the name of the field."""
    dialect = DIALECTS[back]
    with all_cases() as case:
        for value in (*OUTSIDE, *INSIDE):
            asked = Request([Message("user", [Text("q")])], model=value, thread_id=value, user_id=value)
            answered = replace(asked, model="m", resume=[Resume(value, "resolved", payload=True)])
            for request in (asked, answered):
                for counts in (False, True):
                    with case((value, counts)):
                        check(dialect, request, counts)


def check(dialect: Any, request: Request, counts: bool) -> None:
    if counts and not isinstance(dialect, CountingDialect):
        return
    about = context(dialect.back_options(), request)
    about.model = None
    write = dialect.count_request if counts else dialect.encode_request
    try:
        wire: WireRequest = write(request, about)
    except RequestError as error:
        refusal = error.failure
    else:
        refusal = None
    if refusal is not None:
        assert refusal.param or refusal.code == "unsupported"
        return
    assert not climbs(wire.path)
    assert "\\" not in unquote(wire.path)
    assert unquote(wire.path).isprintable()


@pytest.mark.parametrize("front", FRONTS)
def test_the_client_is_told_which_field_in_its_own_shape(front: str) -> None:
    """A name of a model that leaves the backend's prefix is a 400 of the client's dialect."""
    translator = Translator("gemini", front, run_id="run1", created_at=1_700_000_000.0)
    wire = DIALECTS[front].example_request("q")
    path = wire.path.replace("default", "..%2f..%2fx")
    body = wire.body
    if b'"model"' in body and front != "gemini":
        body = json.dumps({**json.loads(body), "model": "../../x"}).encode()
    elif front != "gemini":
        translator = Translator("gemini", front, model="../../x", run_id="run1")
    with pytest.raises(RequestError, match=r"^model: expected a name without .* got '\.\.[/%]") as refused:
        translator.request(body, client=front, headers=wire.headers, path=path)
    assert refused.value.failure.param == "model"
    answer = DIALECTS[front].encode_error(refused.value.failure)
    assert answer.status in (200, 400, 422)
    assert b"model: " in answer.body


# ------------------------------------------------------------------ names on the lines of a stream

LINES = ["a\nevent: pwn\ndata: {}\n\n", "a\rb", "a\r\nb", "a\0b", "\ud800", "\n", ""]


@pytest.mark.parametrize("name", [name for name in LINES if name])
def test_a_frame_has_no_name_that_ends_its_line(name: str) -> None:
    with pytest.raises(ValueError, match=r"^event: expected a name without CR, LF and NUL"):
        Frame(b"x", event=name)
    with pytest.raises(ValueError, match=r"^id: expected an id without CR, LF and NUL"):
        Frame(b"x", id=name)


@pytest.mark.parametrize("comment", [b"a\nb", b"a\rb"])
def test_a_comment_is_one_line(comment: bytes) -> None:
    with pytest.raises(ValueError, match=r"^comment: expected one line"):
        Frame(comment=comment)


def test_names_that_a_line_holds_are_written() -> None:
    for name in ("ping", "a b", "\u00fc\u2028", "x.y-z"):
        assert framing.sse.join([Frame(b"1", name, name)]) == f"id: {name}\nevent: {name}\ndata: 1\n\n".encode()


@pytest.mark.parametrize("front", FRONTS)
def test_no_name_that_a_backend_chose_makes_a_frame(front: str) -> None:
    """Events that a dialect does not know keep their number of frames, whatever they are called."""
    with all_cases() as case:
        for owner in DIALECTS:
            for name in LINES:
                with case((owner, name)):
                    usual, odd = frames(front, owner, "usual"), frames(front, owner, name)
                    assert len(odd) <= len(usual)
                    events = {frame.event for frame in odd if isinstance(frame, Frame)}
                    assert "pwn" not in events


def frames(front: str, owner: str, name: str) -> list[FrameLike]:
    """What a client reads of an answer with events of `owner` that have this name."""
    odd = ({"type": name, "x": 1}, {"event": {"type": name, "x": 1}}, {"event": name, "id": name})
    raw = [Raw(owner, value) for value in odd]
    written = encode(DIALECTS[front], [RunStarted("run1"), MessageStarted("m"), *raw, RunFinished()])
    splitter = framing.of(DIALECTS[front].framing).Splitter()
    return [*splitter.feed(written), *splitter.close()]
