"""Tasks as a whole: a run, or a chain of them, put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.contract import Context, WireResponse
from bridge.dialects.a2a.read_request import Notes, notes_of
from bridge.dialects.a2a.updates import ANSWER, Updates, history_of
from bridge.dialects.a2a.wire import JSON_TYPE, State, Wire, part_said, written
from bridge.dialects.a2a.write_answer import enveloped, named
from bridge.dialects.a2a.write_errors import DETAIL, Head, encode_error
from bridge.model import Event, RunFailed


class TaskFolder(Updates):
    """Puts one run of a task together: `task` is the task as this run alone left it."""

    def __init__(self, context: Context, reader: Notes | None = None) -> None:
        super().__init__(context, reader)
        self.artifacts: dict[str, Wire] = {}
        self.state: Wire = {"state": State.SUBMITTED.said(self.version)}
        self.metadata: Wire = {}
        self.said: list[Wire] = []
        self._last: list[str] = []
        self._pieces: dict[str, list[str]] = {}
        self._marked: dict[str, Wire] = {}

    def begin(self, state: Wire) -> None:
        self.state = state

    def status(self, status: Wire, metadata: Wire, *, final: bool = False) -> None:
        if not final and "message" in status:
            self.said.append(status["message"])
        self.state = status if final else {k: v for k, v in status.items() if k != "message"}
        self.metadata.update(metadata)

    def artifact(self, artifact: Wire) -> None:
        self.artifacts[artifact["artifactId"]] = artifact

    def text_began(self, artifact_id: str, text: str, metadata: Wire) -> None:
        self.artifacts[artifact_id] = {"artifactId": artifact_id, "name": ANSWER, "parts": []}
        self._last = self._pieces[artifact_id] = [text]
        self._marked[artifact_id] = metadata

    def text_goes_on(self, text: str) -> None:
        self._last.append(text)

    def folded(self) -> list[Wire]:
        """Return the artifacts so far, the pieces of each text as one part."""
        for artifact_id, pieces in self._pieces.items():
            part = part_said({"text": "".join(pieces)}, self._marked[artifact_id], self.version)
            self.artifacts[artifact_id]["parts"] = [part]
        return list(self.artifacts.values())


def assemble(events: Sequence[Event], context: Context) -> WireResponse:
    """Return the task of one run; a run that failed without content is its error response."""
    folder = TaskFolder(context)
    folder.encode(events)
    last = events[-1]
    if isinstance(last, RunFailed) and not (folder.artifacts and notes_of(context.request).message):
        notes = folder.notes
        if context.request is not None and notes.message:
            last.error.details = {**last.error.details, DETAIL: Head(notes.rest, notes.id, notes.old_rest)}
        return encode_error(last.error)
    return response(named("task", task_of([folder], folder.notes.history), folder.version), folder.notes)


def task_of(folders: Sequence[TaskFolder], history: int | None = None, *, artifacts: bool = True) -> Wire:
    """Return the task that these runs make up; `history` is how many of its messages are shown, None is all."""
    last = folders[-1]
    task: Wire = {"id": last.task_id, "contextId": last.context_id, "status": last.state}
    if artifacts and (made := [artifact for folder in folders for artifact in folder.folded()]):
        task["artifacts"] = made
    said: list[Wire] = []
    for folder in folders:
        said += [*history_of(folder.context, folder.notes, folder.version), *folder.said]
        if folder is not last and "message" in folder.state:
            said.append(folder.state["message"])
    if shown := said if history is None else said[-history:] if history else []:
        task["history"] = shown
    if last.metadata:
        task["metadata"] = last.metadata
    return task


def response(result: Any, notes: Notes) -> WireResponse:
    """Return a response in the binding of its call."""
    media_type = JSON_TYPE if notes.rest and not notes.old_rest else "application/json"
    return WireResponse(200, {"content-type": media_type}, written(enveloped(result, notes)))
