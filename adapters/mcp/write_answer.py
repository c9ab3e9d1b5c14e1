"""Events -> notifications of progress, and the response of the call as the last frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bridge.contract import Context, Feature, Frame, FrameLike, ToolQuestion
from bridge.dialects.mcp import results
from bridge.dialects.mcp.capabilities import card
from bridge.dialects.mcp.options import FrontOptions
from bridge.dialects.mcp.questions import Form, form_of, resume_of
from bridge.dialects.mcp.read_request import STATE, STATE_LIFE, conversations, notes_of
from bridge.dialects.mcp.wire import NAME, Head, Wire, result, written
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    ArgsDelta,
    ContentAdded,
    Event,
    FinishReason,
    Heartbeat,
    Interrupted,
    Media,
    PartKind,
    PartStarted,
    Request,
    RunFailed,
    RunFinished,
    RunStarted,
    TextDelta,
    UsageReported,
)
from bridge.model.events import AWAITS_RESULT
from bridge.model.text import interrupt_text
from bridge.toolkit import Encoder
from bridge.toolkit.counts import counts_of

_MESSAGE = "message"
_FOREIGN_CALL = Failure(
    ErrorCode.UNSUPPORTED, "The agent called a tool of its client, and waits for the result; a tool has no such client."
)
_HAS_MODE = "2025-11-25"
"""From this revision on a question says in which mode it is asked."""


class CallEncoder(Encoder):
    """Writes one call. `before` wrote the run whose questions this one continues.

    `members` is the result, once the run has ended; None where `questions` are to be asked first.
    """

    dialect = NAME

    def __init__(self, context: Context, before: CallEncoder | None = None) -> None:
        self.notes = notes_of(context.request)
        self._options = FrontOptions.of(context)
        site = context.site
        holds = site is not None and (self.notes.stateless or site.holds_questions)
        self._asks = self.notes.elicits and holds
        # Questions are written here in any case, since they tell the call that they are about.
        super().__init__(context, card(structured=self._options.structured, asks=True))
        self.members: Wire | None = None
        self.questions: list[ToolQuestion] = []
        self._head = Head(self.notes.id, self.notes.stateless)
        self._count: int = before._count if before is not None else 0
        self._numbers: int = before._numbers if before is not None else 0
        self._earlier = before._said() if before is not None else ""
        self._texts: list[str] = []
        self._media: list[Media] = [*before._media] if before is not None else []
        self._pieces: list[str] = []
        self._called: list[str] = []
        self._calls: dict[str, tuple[str, list[str]]] = {}
        self._arguments: dict[str, list[str]] = {}
        self._asked: list[tuple[Interrupted, Form]] = []
        self._awaits_result = False
        self._usage: UsageReported | None = None
        self._model: str | None = None

    def encode(self, events: Sequence[Event]) -> list[FrameLike]:
        for event in events:
            if isinstance(event, Interrupted):
                self._awaits_result = self._awaits_result or event.reason == AWAITS_RESULT
            elif isinstance(event, PartStarted) and event.kind is PartKind.TOOL_CALL and event.name:
                self._called.append(event.name)
                arguments = self._arguments[event.part_id] = []
                self._calls[event.call_id or ""] = event.name, arguments
            elif isinstance(event, ArgsDelta) and event.part_id in self._arguments:
                self._arguments[event.part_id].append(event.text)
        return super().encode(events)

    def batch_ended(self) -> None:
        self._report()

    # ------------------------------------------------------------------ progress

    def _report(self) -> None:
        """Write what was said since the last time, as one notification."""
        said, called = "".join(self._pieces), self._called
        self._pieces, self._called = [], []
        if self._options.progress == "all":
            for name in called:
                self._progress(f"calls {name}")
        if said and self._options.progress != "off":
            self._progress(said)

    def _progress(self, message: str | None) -> None:
        if self.notes.token is None or self.members is not None:
            return
        self._count += 1
        params: Wire = {"progressToken": self.notes.token, "progress": self._count}
        if message is not None:
            params["message"] = message
        self._write({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

    def _write(self, message: Wire) -> None:
        self.out.append(Frame(written(message), _MESSAGE))

    def heartbeat(self, event: Heartbeat) -> None:
        self._progress(None)

    # ------------------------------------------------------------------ content

    def run_started(self, event: RunStarted) -> None:
        self._model = event.model

    def text(self, event: TextDelta) -> None:
        self._texts.append(event.text)
        self._pieces.append(event.text)

    def content(self, event: ContentAdded) -> None:
        if isinstance(event.part, Media):
            self._media.append(event.part)

    def usage_reported(self, event: UsageReported) -> None:
        self._usage = event

    def interrupted(self, event: Interrupted) -> None:
        name, arguments = self._calls.get(event.call_id or "", ("", []))
        self._asked.append((event, form_of(event, f"{name}({''.join(arguments)})" if name else "")))

    # ------------------------------------------------------------------ the end

    def failed(self, event: RunFailed) -> None:
        self._report()
        self._finish({**results.failed(event.error), "_meta": self._meta(str(event.error.code))})

    def finished(self, event: RunFinished) -> None:
        self._report()
        if event.reason is FinishReason.TOOL_CALLS or self._awaits_result:
            self._finish({**results.failed(_FOREIGN_CALL), "_meta": self._meta(str(event.reason))})
        elif event.reason is not FinishReason.INTERRUPTED or not (self._asked and self._asks):
            self._finish(self._whole(event.reason))
        elif self.notes.stateless:
            self._finish(self._input_required())
        else:
            self._ask()

    def _finish(self, members: Wire) -> None:
        site = self.context.site
        members = results.shaped(self._head, site.version if site is not None else "", members)
        self._write(result(self._head, members))
        self.members = members

    def _said(self) -> str:
        texts = (self._earlier, "".join(self._texts))
        return "\n\n".join(filter(None, texts))

    def said_last(self) -> str:
        """Return the last line of the text so far."""
        lines = [line for line in self._said().splitlines() if line.strip()]
        return lines[-1].strip()[:200] if lines else ""

    def _whole(self, reason: FinishReason) -> Wire:
        if reason is FinishReason.INTERRUPTED:
            self._tell()
        said, conversation = self._said(), self._conversation()
        content = [results.text(said)] if said else []
        for number, media in enumerate(self._media):
            content.append(results.medium(media, self.context.run_id, number, self.notes.version))
        if reason is FinishReason.INTERRUPTED and conversation:
            again = f"call {self.notes.tool} again with this conversation and the answer as its prompt"
            content.append(results.text(f"The agent waits for an answer: ask the user, then {again}."))
        if conversation:
            content.append(results.text(f"conversation: {conversation}"))
        if reason is FinishReason.LENGTH:
            content.append(results.text(results.CUT))
        members: Wire = {"content": content or [results.text("")], "isError": False}
        if self._options.structured:
            members["structuredContent"] = {
                "answer": said,
                **({"conversation": conversation} if conversation else {}),
                "finish_reason": str(reason),
                **({"usage": counts_of(self._usage)} if self._usage is not None else {}),
            }
        return {**members, "_meta": self._meta(str(reason))}

    def _meta(self, reason: str) -> Wire:
        meta: Wire = {results.own("finish_reason"): reason}
        if self._usage is not None:
            meta[results.own("usage")] = counts_of(self._usage)
        if self._model:
            meta[results.own("model")] = self._model
        return meta

    def _conversation(self) -> str:
        """Return the id by which a later call continues this conversation; empty if none can."""
        request, site = self.context.request, self.context.site
        if site is None or request is None or not site.remembers or not request.thread_id:
            return ""
        return site.sealer.mark(conversations(site.route, self.notes.tool), site.owner, request.thread_id)

    # ------------------------------------------------------------------ questions

    def _tell(self) -> None:
        """Add the questions to the text, for a client without forms; some are in it already."""
        for event, form in self._asked:
            self.lost.add(Feature.INTERRUPT, "sent as text")
            if interrupt_text(event):
                self._texts.append(f"\n\n{form.message}" if self._texts else form.message)

    def input_requests(self) -> Wire:
        """Return the questions, by their keys."""
        return {
            event.interrupt_id: {"method": "elicitation/create", "params": _params(form, mode=True)}
            for event, form in self._asked
        }

    def _input_required(self) -> Wire:
        request, site = self.context.request, self.context.site
        assert request is not None
        assert site is not None
        state = {
            "r": site.route,
            "t": request.thread_id,
            "q": {event.interrupt_id: int(form.in_words) for event, form in self._asked},
            "d": self.notes.digest,
            "u": int(self.context.created_at + STATE_LIFE),
        }
        return {
            "resultType": "input_required",
            "inputRequests": self.input_requests(),
            "requestState": site.sealer.seal(STATE, site.owner, state),
        }

    def _ask(self) -> None:
        for event, form in self._asked:
            asked_id = f"{self.context.run_id}-{self._numbers}"
            self._numbers += 1
            params = _params(form, mode=self.notes.version == _HAS_MODE)
            members = {"jsonrpc": "2.0", "id": asked_id, "method": "elicitation/create", "params": params}
            self.questions.append(ToolQuestion(event.interrupt_id, asked_id, written(members)))

    def answered(self, results: Mapping[str, Any]) -> Request:
        request = self.context.request
        assert request is not None
        resume = [
            resume_of(event.interrupt_id, form.in_words, results.get(event.interrupt_id), "elicitation")
            for event, form in self._asked
        ]
        return replace(request, messages=[], resume=resume)


def _params(form: Form, *, mode: bool) -> Wire:
    return {**({"mode": "form"} if mode else {}), "message": form.message, "requestedSchema": form.schema}
