"""An agent that plays a script, without a network: what the calling side asks, and what it makes of the answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from bridge.contract import Context, FrameLike, WireRequest, WireResponse
from bridge.dialects.a2a import dialect
from bridge.dialects.a2a.options import BackOptions
from bridge.errors import BackendError, ErrorCode, Failure
from bridge.model import Event, HistoryMode, Message, Request, Resume, Text, verify
from bridge.model.events import TERMINAL

CARD: dict[str, Any] = {
    "name": "Agent",
    "description": "An agent",
    "version": "1",
    "supportedInterfaces": [
        {"url": "http://inside:9/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "http://inside:9/rest/", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
        {"url": "http://inside:9/old", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
    ],
    "capabilities": {"streaming": True},
}
OLD_CARD: dict[str, Any] = {
    "name": "Agent",
    "url": "http://inside:9/",
    "preferredTransport": "JSONRPC",
    "protocolVersion": "0.3.0",
    "capabilities": {"streaming": True},
}
IDS = {"taskId": "t1", "contextId": "c1"}


def status(state: str, text: str | None = None, **more: Any) -> dict[str, Any]:
    """An update of the task's status, in 1.0."""
    message = {"message": {"messageId": f"m-{text}", "role": "ROLE_AGENT", "parts": [{"text": text}]}} if text else {}
    return {"statusUpdate": {**IDS, "status": {"state": f"TASK_STATE_{state}", **message}, **more}}


def artifact(text: str, name: str = "a", **more: Any) -> dict[str, Any]:
    return {"artifactUpdate": {**IDS, "artifact": {"artifactId": name, "parts": [{"text": text}]}, **more}}


def task(state: str, *texts: str, **more: Any) -> dict[str, Any]:
    """A whole task with an artifact for each text."""
    artifacts = [{"artifactId": f"a{n}", "parts": [{"text": t}]} for n, t in enumerate(texts)]
    return {"task": {"id": "t1", "contextId": "c1", "status": {"state": f"TASK_STATE_{state}"}, **more} | (
        {"artifacts": artifacts} if artifacts else {}
    )}  # fmt: skip


def rpc(result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": "run", "result": result}).encode()


def error(code: int, message: str = "no") -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": "run", "error": {"code": code, "message": message}}).encode()


def whole(body: bytes | dict[str, Any], status_code: int = 200, **headers: str) -> WireResponse:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return WireResponse(status_code, {"content-type": "application/json", **named}, data)


class Broken(list[bytes]):
    """A stream whose connection breaks behind these events."""


Answer = WireResponse | Sequence[FrameLike]


def asking(*messages: Message | str, thread: str | None = None, resume: list[Resume] | None = None) -> Request:
    """A request as the bridge's memory hands it over: what is new, in the talk that the agent named."""
    said = [Message("user", [Text(m)]) if isinstance(m, str) else m for m in messages]
    return Request(said, thread_id=thread, history=HistoryMode.DELTA, resume=resume or [])


class Run:
    """One run against these answers, in order. `asked` are its requests, `pauses` the seconds before each."""

    def __init__(
        self,
        *answers: Answer,
        request: Request | None = None,
        memo: dict[str, Any] | None = None,
        now: float = 1000.0,
        **options: Any,
    ) -> None:
        request = request or asking("hello")
        self.context = Context("run", request.thread_id, now, BackOptions(**options), request=request)
        self.call = dialect.stepped(request, self.context, {} if memo is None else memo)
        self.asked: list[WireRequest] = []
        self.pauses: list[float] = []
        self.events: list[Event] = []
        self.failure: Failure | None = None
        self._answers = list(answers)
        self._go()

    def _go(self) -> None:
        while not (self.events and type(self.events[-1]) in TERMINAL):
            step = self.call.next()
            if step is None:
                self.events += self.call.close()
                break
            self.asked.append(step.wire)
            self.pauses.append(step.after)
            try:
                self._answered(self._answers.pop(0))
            except BackendError as raised:
                self.failure = raised.failure
                return
        verify(self.events)

    def _answered(self, answer: Answer) -> None:
        if not isinstance(answer, WireResponse):
            assert self.call.next() is None
            self.events += self.call.feed(answer)
            if not (self.events and type(self.events[-1]) in TERMINAL):
                broke = Failure(ErrorCode.TRUNCATED_STREAM, "broke") if isinstance(answer, Broken) else None
                self.events += self.call.ended(broke)
        elif answer.status < 300 or answer.status == 304:
            self.events += self.call.whole(answer)
        else:
            failure = dialect.decode_error(answer)
            failure.details["backend_status"] = answer.status
            if not self.call.refused(failure):
                raise BackendError.of(failure)

    def body(self, index: int = -1) -> Any:
        return json.loads(self.asked[index].body)

    def message(self, index: int = -1) -> Any:
        """The message that was sent."""
        body = self.body(index)
        return body["params"]["message"] if "params" in body else body["message"]
