"""The recordings `runs-*`: our answers to the recorded requests have the shape of the recorded answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.contract import Context, Frame, WireRequest, WireResponse
from bridge.dialects.agent_runs import dialect
from bridge.model import Raw, RunFailed, RunFinished, RunStarted, fold, verify
from bridge.translation.framing.sse import Splitter
from tests.server.harness import Reply, ask, fake_backend

from .helpers import BASE, CAPTURES, CHUNK, END, Client, llm, request_in, response_in, served

_ANSWERS = (
    "runs-create", "runs-cancel", "runs-history", "runs-attachment", "runs-transcribe", "runs-error-auth",
    "runs-error-input", "runs-error-last-event-id",
)  # fmt: skip


def shape(value: Any) -> Any:
    """What a JSON value is made of; of a list the kinds of its items."""
    if isinstance(value, dict):
        return {name: shape(item) for name, item in value.items() if name not in ("instance", "errors")}
    if isinstance(value, list):
        return [shape(item) for item in value[:2]]
    return type(value).__name__


async def replay(url: str, name: str) -> Reply:
    method, path, headers, body = request_in(name)
    return await ask(method, f"{url}{BASE}{path}", body, headers)


@pytest.mark.parametrize("name", _ANSWERS)
async def test_answers_have_the_recorded_shape(name: str, tmp_path: Path) -> None:
    async with fake_backend() as backend, served(tmp_path, speech={"url": backend.url}) as url:
        backend.answers(200, b'{"text":"hello"}')
        if name != "runs-create":
            await Client(url).run("text", "run-1")
        reply = await replay(url, name)
        status, headers, body = response_in(name)
        assert reply.status == status
        assert reply.headers["content-type"].partition(";")[0] == headers["content-type"].partition(";")[0]
        assert shape(reply.json) == shape(json.loads(body))
        if status >= 400:
            assert reply.json["code"] == json.loads(body)["code"]


async def test_the_recorded_readers(tmp_path: Path) -> None:
    """The same conversation as recorded: a run read whole, one dropped and resumed, a silent one left at its limit."""
    async with fake_backend() as backend, served(tmp_path, llm(backend)) as url:
        backend.streams(CHUNK % b"hello" + END)
        assert (await replay(url, "runs-create")).status == 202
        whole = await replay(url, "runs-events")
        _, headers, recorded = response_in("runs-events")
        for name in ("content-type", "cache-control", "x-accel-buffering"):
            assert whole.headers[name] == headers[name]
        kinds = [json.loads(frame.data)["type"] for frame in _frames(whole.body)]
        seen = [json.loads(frame.data)["type"] for frame in _frames(recorded)]
        assert list(dict.fromkeys(kinds)) == list(dict.fromkeys(seen))
        await Client(url).run(run="run-2")
        resumed = await replay(url, "runs-events-resumed")
        end = _frames(resumed.body)[-1]  # the recorded cursor lies behind everything we have
        assert json.loads(end.data)["type"] == "RUN_FINISHED"


def _frames(body: bytes) -> list[Frame]:
    splitter = Splitter()
    found = [*splitter.feed(body), *splitter.close()]
    assert all(isinstance(frame, Frame) and frame.id for frame in found)
    return [frame for frame in found if isinstance(frame, Frame)]


@pytest.mark.parametrize("name", ["runs-events", "runs-events-dropped", "runs-events-resumed", "runs-events-idle"])
def test_recorded_streams_can_be_read(name: str) -> None:
    _, _, body = response_in(name)
    decoder = dialect.decoder(Context("r1", options=dialect.back_options()))
    events = verify([*decoder.feed(_frames(body)), *decoder.close()])
    answer = fold(events)
    if name in ("runs-events", "runs-events-resumed"):
        assert isinstance(events[-1], RunFinished)
        assert answer.text
    else:
        assert isinstance(events[-1], RunFailed), "nothing that was cut counts as finished"


@pytest.mark.parametrize("later", [{"type": "RUN_ERROR", "message": "late"}, {"type": "RUN_STARTED"}])
def test_what_one_read_has_after_the_end_of_a_run_is_of_another(later: dict[str, Any]) -> None:
    frames = _frames(response_in("runs-events")[2])
    more = Frame(json.dumps({**later, "threadId": "t", "runId": "another"}).encode(), id="9-9")
    told = []
    for read in (frames, [*frames, more]):
        decoder = dialect.decoder(Context("r1", options=dialect.back_options()))
        told.append([*decoder.feed(read), *decoder.close()])
    assert told[0] == told[1]


@pytest.mark.parametrize("name", ["runs-create", "runs-error-input"])
def test_recorded_requests_can_be_read(name: str) -> None:
    _, path, headers, body = request_in(name)
    wire = WireRequest("POST", path, headers, body=body)
    context = Context("r1", options=dialect.front_options())
    if name == "runs-error-input":
        with pytest.raises(Exception, match="runtime_mode"):
            dialect.decode_request(wire, context)
        return
    request = dialect.decode_request(wire, context)
    assert (request.thread_id, request.run_id, dialect.mode_of(request)) == ("thread-r1", "run-1", "chat")


def test_recorded_refusals_can_be_read() -> None:
    for name in ("runs-error-auth", "runs-error-input", "runs-error-last-event-id"):
        status, headers, body = response_in(name)
        failure = dialect.decode_error(WireResponse(status, headers, body))
        assert failure.details["backend_status"] == status


def test_every_capture_is_used() -> None:
    names = {path.name.partition(".")[0] for path in CAPTURES.glob("*.http")}
    readers = {"runs-events", "runs-events-dropped", "runs-events-resumed", "runs-events-idle"}
    assert names == {*_ANSWERS, *readers}


@pytest.mark.parametrize("foreign", [{"runId": "theirs"}, {"threadId": "theirs"}, {"runId": "a", "threadId": "b"}])
def test_the_ids_of_a_run_stand_once_in_each_event_and_are_our_own(foreign: dict[str, str]) -> None:
    """A reader takes an event of another thread for another's; JSON with a key twice says two things."""
    strange = {"type": "HOLOGRAM", **foreign}
    encoder = dialect.encoder(Context("run-1", "thread-1", options=dialect.front_options()))
    frames = encoder.encode([RunStarted("run-1", "thread-1"), Raw("ag-ui", strange)])
    for frame in frames:
        data = frame.data if isinstance(frame, Frame) else frame
        pairs = json.loads(data, object_pairs_hook=list)
        assert [value for name, value in pairs if name == "runId"] == ["run-1"]
        assert [value for name, value in pairs if name == "threadId"] == ["thread-1"]
    assert "HOLOGRAM" in str(frames)
