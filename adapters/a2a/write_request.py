"""`Request` -> the one message that an agent is sent, and the requests around a task."""

from __future__ import annotations

from bridge.contract import Context, WireRequest
from bridge.dialects.a2a.capabilities import CAPABILITIES
from bridge.dialects.a2a.card import Interface
from bridge.dialects.a2a.old_rest import write_params
from bridge.dialects.a2a.options import BackOptions
from bridge.dialects.a2a.read_answer import CALL, TASK, notes_of
from bridge.dialects.a2a.wire import (
    EXTENSIONS_HEADER,
    HTTP_JSON,
    INTERRUPT_ID,
    NAME,
    OLD_BASE,
    OLD_EXTENSIONS_HEADER,
    VERSION_HEADER,
    Method,
    Version,
    Wire,
    message,
    method_name,
    part_said,
    result_part,
    write_part,
    written,
)
from bridge.errors import Unsupported
from bridge.model import (
    Data,
    HistoryMode,
    Media,
    Message,
    Part,
    Reasoning,
    Request,
    Resume,
    Text,
    as_text,
)
from bridge.model.error_paths import unsupported
from bridge.toolkit.fields import Fields
from bridge.toolkit.message_losses import MessageLosses
from bridge.toolkit.paths import segment

_PATHS = {
    Method.SEND: ("POST", "/message:send"),
    Method.STREAM: ("POST", "/message:stream"),
    Method.GET: ("GET", "/tasks/{id}"),
    Method.CANCEL: ("POST", "/tasks/{id}:cancel"),
}


_FIELDS = Fields(NAME, carries={"resume"})
"""A message has no field of a request; what it can carry goes with its metadata."""


_LOSSES = MessageLosses(CAPABILITIES, takes=lambda part, role: isinstance(part, Media))
"""`Sender` finds out whether a medium can be sent."""


class Sender:
    """Writes the requests of one run. Raises `Unsupported` for what cannot be sent at all.

    `task_id` is the task that waits for this message, and `context_id` the conversation as the agent names it.
    """

    def __init__(self, request: Request, context: Context) -> None:
        self._request = request
        self._context = context
        self._options: BackOptions = BackOptions.of(context)
        self._lost = context.lost
        self._is_own = bool(request.extra(NAME))
        # A conversation that comes whole, with the agent's answers, is not the one that the agent may remember.
        whole = request.history is HistoryMode.FULL and any(each.role == "assistant" for each in request.messages)
        self.context_id = "" if whole else request.thread_id or ""
        self.task_id = next((_task_of(answer) for answer in request.resume), "")
        last = request.messages[-1] if request.messages else None
        self._message_id = (last.id if last is not None else None) or f"msg-{context.run_id}"
        self._record_losses()
        self._parts(Version.NEW)  # what cannot be sent is refused now, before the agent is called

    # ------------------------------------------------------------------ requests

    def send(self, interface: Interface, *, stream: bool) -> WireRequest:
        """The request with the message."""
        old = interface.version is Version.OLD
        version = Version.NEW if interface.old_rest else interface.version
        sent = message(
            self._message_id,
            "user",
            self._parts(version),
            version,
            context_id=self.context_id or None,
            task_id=self.task_id or None,
            metadata=self._metadata(),
        )
        extra = self._request.extra(NAME)
        if references := extra.get("referenceTaskIds"):
            sent["referenceTaskIds"] = references
        modes = extra.get("acceptedOutputModes")
        configuration: Wire = {"acceptedOutputModes": modes} if modes else {}
        configuration |= {"blocking": True} if old and not stream else {}
        params: Wire = {"message": sent, **({"configuration": configuration} if configuration else {})}
        if self._is_own and self._request.metadata:
            params["metadata"] = self._request.metadata
        return self._asked(interface, Method.STREAM if stream else Method.SEND, params, "", stream)

    def get(self, interface: Interface, task_id: str) -> WireRequest:
        """Return the request for the state of a task."""
        return self._asked(interface, Method.GET, {"id": task_id}, task_id)

    def cancel(self, interface: Interface, task_id: str) -> WireRequest:
        """Return the request to cancel a task."""
        return self._asked(interface, Method.CANCEL, {"id": task_id}, task_id)

    def _asked(
        self, interface: Interface, method: Method, params: Wire, task_id: str, stream: bool = False
    ) -> WireRequest:
        version = interface.version
        headers = {"content-type": "application/json", "accept": "text/event-stream" if stream else "application/json"}
        if version is Version.NEW:
            headers[VERSION_HEADER] = str(version)
        if self._options.extensions:
            name = EXTENSIONS_HEADER if version is Version.NEW else OLD_EXTENSIONS_HEADER
            headers[name] = ", ".join(self._options.extensions)
        if interface.tenant:
            params = {**params, "tenant": interface.tenant}
        path, verb, body = "", "POST", b""
        if interface.binding == HTTP_JSON:
            verb, path = _PATHS[method]
            if "{id}" in path:
                path = path.replace("{id}", segment(task_id, "task id", by_backend=True))
            if interface.old_rest:
                path = OLD_BASE + path
                params = write_params(params) if "message" in params else {"name": f"tasks/{task_id}"}
            elif interface.tenant:
                path = f"/{segment(interface.tenant, 'tenant', by_backend=True)}{path}"
            body = written({k: v for k, v in params.items() if k != "id"}) if verb == "POST" else b""
        else:
            envelope = {"jsonrpc": "2.0", "id": self._context.run_id, "method": method_name(method, version)}
            body = written({**envelope, "params": params})
        if interface.path is not None:
            whole = interface.path.rstrip("/") + path if path else interface.path
            return WireRequest(verb, whole, headers, dict(interface.query), body=body, rooted=True)
        return WireRequest(verb, path, headers, body=body)

    # ------------------------------------------------------------------ the message

    def _metadata(self) -> Wire:
        request = self._request
        metadata: Wire = dict(request.messages[-1].metadata) if self._is_own and request.messages else {}
        if self._options.metadata and not self._is_own:
            metadata |= request.metadata
        if self._options.metadata and request.user_id:
            metadata["user_id"] = request.user_id
        if self.task_id and len(request.resume) == 1:
            metadata |= _names(request.resume[0])
        return metadata

    def _parts(self, version: Version) -> list[Wire]:
        parts = [self._answer(answer, version) for answer in self._request.resume]
        if self.task_id and len(parts) > 1:
            for part, answer in zip(parts, self._request.resume, strict=True):
                if names := _names(answer):
                    part["metadata"] = {**part.get("metadata", {}), **names}
        parts += self._known(version) if self.context_id else self._anew(version)
        return parts or [part_said({"text": ""}, {}, version)]

    def _answer(self, answer: Resume, version: Version) -> Wire:
        """The answer to a question: the result of the call that waits, a text, or a value."""
        payload = answer.payload
        call = notes_of(answer).get(CALL)
        if isinstance(call, list) and len(call) == 2 and self.task_id:
            if answer.decision != "resolved":
                payload = {"status": "cancelled", "result": payload} if payload is not None else {"status": "cancelled"}
            return result_part(str(call[0]), str(call[1]), payload, version)
        if answer.decision != "resolved" and not isinstance(payload, str):
            return part_said({"text": "cancelled"}, {}, version)
        if payload is None or isinstance(payload, bool):
            payload = "no" if payload is False else "yes"
        if isinstance(payload, str):
            return part_said({"text": payload}, {}, version)
        wire = write_part(Data(payload), version)
        assert wire is not None
        return wire

    def _known(self, version: Version) -> list[Wire]:
        """Return what is new in a conversation that the agent remembers, without its own messages."""
        out: list[Wire] = []
        for each in self._request.messages:
            if each.role != "assistant":
                out += self._said(each, version)
        return out

    def _anew(self, version: Version) -> list[Wire]:
        """Return a conversation that the agent does not know: earlier turns as text, each with its role."""
        messages = self._request.messages
        answered = [index for index, each in enumerate(messages) if each.role == "assistant"]
        start = answered[-1] + 1 if answered else 0
        out: list[Wire] = []
        for each in messages[:start]:
            if text := "".join(_told(part) for part in each.parts):
                role = "" if each.role in ("system", "developer") else f"{each.role}: "
                out.append(part_said({"text": role + text}, {}, version))
            out += self._media(each, version)
        for each in messages[start:]:
            out += self._said(each, version)
        return out

    def _said(self, said: Message, version: Version) -> list[Wire]:
        """The parts of a message as they are; a tool's result that nothing waits for is text."""
        out: list[Wire] = []
        for part in said.parts:
            if isinstance(part, (Text, Media, Data)):
                out.append(self._written(part, version))
            elif text := _told(part):
                out.append(part_said({"text": text}, {}, version))
        return out

    def _media(self, said: Message, version: Version) -> list[Wire]:
        """Return the media of an earlier turn, which follow its text."""
        return [self._written(part, version) for part in said.parts if isinstance(part, Media)]

    def _written(self, part: Text | Media | Data, version: Version) -> Wire:
        wire = write_part(part, version)
        if wire is None:
            why = "a2a cannot send a file by its id; expected its data or URL."
            raise unsupported(self._request.messages, part, why)
        return wire

    # ------------------------------------------------------------------ losses

    def _record_losses(self) -> None:
        request, lost = self._request, self._lost
        if request.tools and self._options.tools == "refuse":
            raise Unsupported("tools: A2A agents run their own tools and accept none from clients.", param="tools")
        carried = {
            "metadata": self._options.metadata or self._is_own,
            "user_id": self._options.metadata,
            "thread_id": bool(self.context_id),
        }
        messages = [m for m in request.messages if m.role != "assistant"] if self.context_id else request.messages
        _LOSSES.note(messages, lost)
        _FIELDS.write(request, lost, carries={name for name, is_carried in carried.items() if is_carried})


def _task_of(answer: Resume) -> str:
    """The task that waits for this answer. A question that was not noted here is named like its task."""
    named = notes_of(answer).get(TASK)
    return named if isinstance(named, str) and named else answer.interrupt_id


def _names(answer: Resume) -> Wire:
    """The metadata that name the question of an answer, where the agent named it."""
    notes = notes_of(answer)
    return {INTERRUPT_ID: answer.interrupt_id} if notes.get("named") or not notes else {}


def _told(part: Part) -> str:
    """A part of an earlier turn as text; thoughts are the agent's own, and media go as they are."""
    if isinstance(part, (Reasoning, Media)):
        return ""
    return as_text(part)
