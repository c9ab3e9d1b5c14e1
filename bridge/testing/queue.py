"""A fake backend of a dialect that queues runs: it stores the frames of each run and sends them to its readers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

from bridge.contract import Frame, Operation, QueuedRunsDialect, RunRef, WireRequest, WireResponse
from bridge.errors import BridgeError, ErrorCode, Failure
from bridge.testing.script import Reply, ScriptedBackend
from bridge.translation.framing import sse

_GONE = Failure(
    ErrorCode.NOT_FOUND,
    "Its events are no longer stored.",
    status=410,
    details={"operation": Operation.SUBSCRIBE},
)


class QueuedRuns:
    """The runs of one backend. Frames are numbered over all of them, and a reader gets those after its last one."""

    def __init__(self, speaker: ScriptedBackend, dialect: QueuedRunsDialect) -> None:
        self._speaker = speaker
        self._dialect = dialect
        self._logs: dict[RunRef, list[tuple[int, bytes]]] = {}
        self._broken: set[RunRef] = set()
        self._count = 0

    def reply(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, ended: bool
    ) -> tuple[Reply, bool]:
        """The answer to a request, and whether it is all of it: a run that broke off is not."""
        request = self._request(method, target, headers, body)
        if request is None:
            return _answer(WireResponse(404)), True
        operation, wire = request
        try:
            if operation is Operation.START:
                return self._start(wire, ended), True
            run = self._dialect.decode_cancel(wire)
            if operation is Operation.CANCEL:
                return _answer(self._dialect.encode_canceled(run)), True
            return self._read(run, wire)
        except BridgeError as error:
            return _answer(self._dialect.encode_error(error.failure)), True

    def _request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[Operation, WireRequest] | None:
        """Which endpoint this is for; the base path may be any."""
        parts = urlsplit(target)
        for endpoint in self._dialect.surface:
            pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(endpoint.path))
            found = re.search(pattern + r"$", parts.path)
            known = endpoint.operation in (Operation.START, Operation.SUBSCRIBE, Operation.CANCEL)
            if found is not None and known and endpoint.method == method:
                params = {name: unquote(value) for name, value in found.groupdict().items()}
                query = dict(parse_qsl(parts.query))
                return endpoint.operation, WireRequest(method, endpoint.path, headers, query, params, body)
        return None

    def _start(self, wire: WireRequest, ended: bool) -> Reply:
        reply = self._speaker.reply(wire.body, wire.headers, ended=ended)
        if reply.status >= 300:
            return reply
        request = self._speaker.requests[-1]
        run = RunRef(request.thread_id or "", request.run_id or "")
        log = self._logs[run] = []
        splitter = sse.Splitter()
        for frame in splitter.feed(reply.body):
            self._count += 1
            named = Frame(frame) if isinstance(frame, bytes) else Frame(frame.data, frame.event)
            named.id = f"{self._count}-0"
            log.append((self._count, sse.join([named])))
        if not ended:
            self._broken.add(run)
        return _answer(self._dialect.encode_started(run, run.run_id, True))

    def _read(self, run: RunRef, wire: WireRequest) -> tuple[Reply, bool]:
        log = self._logs.get(run, [])
        last = int(wire.headers.get("last-event-id", "0-0").partition("-")[0])
        left = [data for number, data in log if number > last]
        if not left:
            return _answer(self._dialect.encode_error(_GONE) if run in self._broken else WireResponse(204)), True
        return Reply(200, {"content-type": sse.CONTENT_TYPE}, left), run not in self._broken


def _answer(wire: WireResponse) -> Reply:
    return Reply(wire.status, wire.headers, [wire.body])
