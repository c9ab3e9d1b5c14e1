"""Events -> the stream of a task: the task, its states, its artifacts in pieces.

Each frame is a whole JSON-RPC response, or over plain HTTP the bare event. Per token only the text is dumped.
"""

from __future__ import annotations

from typing import Any

from bridge.contract import KEEPALIVE, Context
from bridge.dialects.a2a.old_rest import write_result
from bridge.dialects.a2a.read_request import Notes
from bridge.dialects.a2a.updates import ANSWER, Updates, history_of
from bridge.dialects.a2a.wire import Version, Wire, part_said, written
from bridge.model import Heartbeat
from bridge.toolkit.template import HOLE, Template

_NEW_NAMES = {"status-update": "statusUpdate", "artifact-update": "artifactUpdate"}


def enveloped(result: Any, notes: Notes) -> Any:
    """Return what a client of this call gets for a result."""
    if notes.old_rest:
        return write_result(result)
    return result if notes.rest else {"jsonrpc": "2.0", "id": notes.id, "result": result}


def named(kind: str, value: Wire, version: Version) -> Wire:
    """Return an object of the protocol in its place: as the field that names it, or with its `kind`."""
    return {_NEW_NAMES.get(kind, kind): value} if version is Version.NEW else {"kind": kind, **value}


class A2AEncoder(Updates):
    """Writes each update as a frame. With `goes_on`, its reader knows the task already."""

    def __init__(self, context: Context, reader: Notes | None = None, *, goes_on: bool = False) -> None:
        super().__init__(context, reader)
        self._goes_on = goes_on
        self._text: tuple[str, Wire] = "", {}
        self._template: Template

    def _write(self, kind: str, value: Wire) -> None:
        self.out.append(self.frame(kind, value))

    def frame(self, kind: str, value: Wire) -> bytes:
        """Return the frame of an object of the protocol."""
        return written(enveloped(named(kind, value, self.version), self.reader))

    # ------------------------------------------------------------------ what is told

    def begin(self, state: Wire) -> None:
        if self._goes_on:
            return
        task: Wire = {"id": self.task_id, "contextId": self.context_id, "status": state}
        if self.notes.history != 0 and (history := history_of(self.context, self.notes, self.version)):
            task["history"] = history
        self._write("task", task)

    def status(self, status: Wire, metadata: Wire, *, final: bool = False) -> None:
        wire: Wire = {"taskId": self.task_id, "contextId": self.context_id, "status": status}
        if self.reader.version is Version.OLD:
            wire["final"] = final
        self._write("status-update", {**wire, "metadata": metadata} if metadata else wire)

    def artifact(self, artifact: Wire) -> None:
        self._write("artifact-update", self._piece(artifact, append=False, last=True))

    def text_began(self, artifact_id: str, text: str, metadata: Wire) -> None:
        self._text = artifact_id, metadata
        part = part_said({"text": text}, metadata, self.version)
        artifact = {"artifactId": artifact_id, "name": ANSWER, "parts": [part]}
        self._write("artifact-update", self._piece(artifact, append=False, last=False))
        frame = named("artifact-update", self._next(HOLE, last=False), self.version)
        self._template = Template(enveloped(frame, self.reader), one_line=True)

    def text_goes_on(self, text: str) -> None:
        self.out.append(self._template(text))

    def text_ended(self) -> None:
        self._write("artifact-update", self._next("", last=True))

    def _next(self, text: Any, *, last: bool) -> Wire:
        """A further piece of the text that began last."""
        artifact_id, metadata = self._text
        artifact = {"artifactId": artifact_id, "parts": [part_said({"text": text}, metadata, self.version)]}
        return self._piece(artifact, append=True, last=last)

    def _piece(self, artifact: Wire, *, append: bool, last: bool) -> Wire:
        wire: Wire = {"taskId": self.task_id, "contextId": self.context_id, "artifact": artifact}
        if self.version is Version.OLD:
            return {**wire, "append": append, "lastChunk": last}
        return {**wire, **({"append": True} if append else {}), **({"lastChunk": True} if last else {})}

    def heartbeat(self, event: Heartbeat) -> None:
        self.out.append(KEEPALIVE)
