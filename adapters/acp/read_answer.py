"""What an agent says during a prompt -> events.

A call is known from whatever names it first. Its title, its kind and its input change until it runs, so that clients
get it when it begins to run, or waits for a permission. Its input comes in snapshots, and its content replaces what was
there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bridge.contract import Context
from bridge.contract.optional.agents import PromptAnswer
from bridge.dialects.acp.permissions import (
    DECLINED,
    FORM,
    PERMISSION,
    allowed,
    form_answer,
    form_payload,
    is_rejection,
    options_in,
    permission_answer,
    permission_payload,
    rejected,
)
from bridge.dialects.acp.wire import (
    ASKED,
    COMPLETED,
    EARLIER_CALL,
    ERROR_CODES,
    ERRORS,
    FAILED,
    FINISH_REASONS,
    IN_PROGRESS,
    NAME,
    NO_CALL,
    Wire,
    blocks_in,
    diffs_in,
    noted,
    part_of,
    parts_of,
)
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Custom,
    Data,
    Event,
    FinishReason,
    Interrupted,
    Part,
    PartKind,
    Raw,
    Resume,
    Text,
    UsageReported,
)
from bridge.model.jsontext import arguments_text, dict_of, text_of, whole
from bridge.toolkit import JsonDecoder
from bridge.toolkit.counts import counts_in
from bridge.toolkit.error_table import OWN
from bridge.toolkit.errors import error_in
from bridge.toolkit.redact import masked

UPDATE: Final = "session/update"
PLAN: Final = "acp.plan"
"""The name of the custom event with an agent's plan."""

AUTH_NEEDED = (
    "The agent has to be authenticated: log in with its own command as the user that runs the bridge, or put its key "
    "into `env` of the backend."
)
_NO_RESULT = "The agent reported no result of this call."
_REFUSED = "The call was not allowed."
_LONGEST_NAME = 64
_PREFIX = re.compile(r"([A-Za-z_][\w.-]{0,63}?)__.")
"""The name of a tool in the ids of its calls, as Gemini CLI writes them."""
_GENERIC = frozenset({"", "internal error", "internal error.", "error"})
_SETTINGS = frozenset(
    {
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "user_message_chunk",
    }
)
"""Updates that say nothing of the answer: the state of the session, and what the client said."""


@dataclass(slots=True)
class _Call:
    """A tool call as known so far."""

    id: str
    name: str = ""
    title: str = ""
    kind: str = ""
    input: Any = None
    output: Any = None
    content: list[Any] = field(default_factory=list)
    locations: list[Any] = field(default_factory=list)
    terminal: list[str] = field(default_factory=list)
    told: bool = False
    resulted: bool = False
    refused: bool = False

    def update(self, wire: Wire, *, asks: bool = False) -> None:
        """Take over what is there; what is absent or null is unchanged. `asks`: it stands in a permission, whose input
        may be another one than that of the call.
        """
        meta = dict_of(wire.get("_meta"))
        shown_as = dict_of(meta.get(ASKED)).get("call")
        if shown_as in (NO_CALL, EARLIER_CALL):  # the agent is another bridge
            self.told, self.resulted = True, shown_as == NO_CALL
        self.name = text_of(wire.get("name")) or _tool_name(meta) or self.name
        self.title = text_of(wire.get("title")) or self.title
        self.kind = text_of(wire.get("kind")) or self.kind
        if wire.get("rawInput") is not None and not (asks and self.input):
            self.input = wire["rawInput"]
        if wire.get("rawOutput") is not None:
            self.output = wire["rawOutput"]
        if isinstance(wire.get("content"), list) and not asks:
            self.content = wire["content"]
        if isinstance(wire.get("locations"), list):
            self.locations = wire["locations"]
        if piece := text_of(dict_of(meta.get("terminal_output")).get("data")):
            self.terminal.append(piece)

    @property
    def shown_name(self) -> str:
        """The name of the tool, which most agents do not say: else the kind of the call, else its title."""
        prefix = _PREFIX.match(self.id)
        kind = self.kind if self.kind != "other" else ""
        title = self.title.strip().partition("\n")[0][:_LONGEST_NAME]
        return self.name or (prefix[1] if prefix else "") or kind or title or self.kind or "tool"

    @property
    def arguments(self) -> str:
        return arguments_text(self.input) or "{}"

    def result(self, *, fresh: bool) -> list[Part]:
        """Return what the tool said: its content, else the output of its terminal, else its raw output.

        `fresh`: the content came with the result. Else it may only describe the call, and a text of the raw output
        follows it.
        """
        parts: list[Part] = parts_of(blocks_in(self.content))
        diffs: list[Part] = [Data(diff) for diff in diffs_in(self.content)]
        if not parts and self.terminal:
            parts = [Text("".join(self.terminal))]
        elif parts and not fresh and isinstance(self.output, str) and self.output:
            parts = [*parts, Text("\n" + self.output)]
        if not parts and not diffs and self.output is not None:
            parts = [Text(self.output) if isinstance(self.output, str) else Data(self.output)]
        return parts + diffs


class Decoder(JsonDecoder):
    """Reads the messages of an agent during one prompt: notifications, questions, and the answer to the prompt.

    See `bridge.contract.optional.agents.AgentPrompt`. Without `live`, it reads a recorded stream, in which a question
    ends the run.
    """

    def __init__(self, context: Context, *, live: bool = False) -> None:
        super().__init__(context)
        self._context = context
        self._live = live
        self._calls: dict[str, _Call] = {}
        self._sum: dict[str, int] = {}
        self._fill: Wire = {}
        self._number = 0
        self._message_id: str | None = None
        self._after_call = False
        self._was_refused = self._was_canceled = False
        self.questions: dict[str, Wire] = {}

    # ------------------------------------------------------------------ a recorded stream

    def read(self, event: dict[str, Any], name: str | None) -> None:
        method = event.get("method")
        if method == UPDATE:
            self._update(dict_of(dict_of(event.get("params")).get("update")))
        elif method in (PERMISSION, FORM) and "id" in event:
            self._ask(event)
        elif method is None and dict_of(event.get("error")):
            self._failed(event["error"])
        elif method is None and "result" in event and "id" in event:
            self._answered(event["result"])
        elif method is None and (error := error_in(event)) is not None:
            self.fail(ERRORS.failure(error))
        elif method is None:
            self.saw_unknown = True

    # ------------------------------------------------------------------ a live prompt

    @property
    def ended(self) -> bool:
        return self.builder.done

    @property
    def runs_tool(self) -> bool:
        return any(call.told and not call.resulted for call in self._calls.values())

    def message(self, message: Wire) -> list[Event]:
        self.read(message, None)
        return self.builder.take()

    def ask(self, message: Wire) -> list[Event]:
        self._ask(message)
        return self.builder.take()

    def decide(self, message: Wire, policy: str) -> tuple[list[Event], PromptAnswer]:
        params = dict_of(message.get("params"))
        if message.get("method") == FORM:
            return [], PromptAnswer(DECLINED)
        call = self._asked_call(params)
        answer = allowed(params) if policy == "allow_once" else rejected(params)
        self._decided(call, params, answer)
        return self.builder.take(), answer

    def answer(self, question: Wire, resume: Resume) -> PromptAnswer:
        params = dict_of(question.get("params"))
        if question.get("method") == FORM:
            return form_answer(params, resume)
        answer = permission_answer(params, resume)
        self._decided(self._calls.get(_call_id(params)), params, answer)
        return answer

    def park(self) -> list[Event]:
        self.builder.finish(FinishReason.INTERRUPTED)
        self.builder.end()
        return self.builder.take()

    def resume(self, context: Context) -> None:
        self._context = context
        self.builder = context.builder()
        self.questions = {}
        self._message_id, self._after_call = None, False

    def cancel(self) -> None:
        self._was_canceled = True

    def answered(self, result: Any) -> list[Event]:
        self._answered(result)
        return self.builder.take()

    def refused(self, error: Wire) -> list[Event]:
        self._failed(error)
        return self.builder.take()

    def broken(self, failure: Failure) -> list[Event]:
        self.fail(failure)
        return self.builder.take()

    # ------------------------------------------------------------------ updates

    def _update(self, update: Wire) -> None:
        kind = text_of(update.get("sessionUpdate"))
        match kind:
            case "agent_message_chunk":
                self._chunk(update, PartKind.TEXT)
            case "agent_thought_chunk":
                self._chunk(update, PartKind.REASONING)
            case "tool_call" | "tool_call_update":
                self._tool(update)
            case "plan" | "usage_update" | "available_commands_update" if self._passes_on:
                self._note_fill(update)
                self.builder.emit(Raw(NAME, update))
            case "plan":
                self._plan(update)
            case "usage_update":
                self._note_fill(update)
            case _ if kind in _SETTINGS:
                pass
            case "" if not update:
                self.saw_unknown = True
            case _:
                self.builder.emit(Raw(NAME, update))

    @property
    def _passes_on(self) -> bool:
        """Return whether the client speaks the same protocol, so that it can show what others cannot."""
        request = self._context.request
        return request is not None and NAME in (request.extras or ())

    def _note_fill(self, update: Wire) -> None:
        if update.get("sessionUpdate") == "usage_update":
            self._fill = {name: update[name] for name in ("used", "size", "cost") if update.get(name) is not None}

    def _chunk(self, update: Wire, kind: PartKind) -> None:
        for name, count in _counts(dict_of(update.get("_meta")).get("usage")).items():
            self._sum[name] = self._sum.get(name, 0) + count
        content = update.get("content")
        for block in content if isinstance(content, list) else [content]:  # a list is wrong, and seen
            part = _embedded(block) or part_of(block)
            if isinstance(part, Text):
                if part.text:
                    self.builder.flow(self._place(update), kind, part.text, part.extras)
            elif part is not None:
                self.builder.add(self._place(update), part)

    def _place(self, update: Wire) -> int:
        """Return the message of a chunk: a new one after a call, and when the agent names another one."""
        named = text_of(update.get("messageId")) or None
        if self._after_call or (named is not None and self._message_id not in (None, named)):
            self._next_message()
        self._message_id = named or self._message_id
        self.builder.message(self._number, message_id=named)
        return self._number

    def _next_message(self) -> None:
        self.builder.end_message(self._number)
        self._number += 1
        self._after_call, self._message_id = False, None

    def _plan(self, update: Wire) -> None:
        entries = update.get("entries")
        if isinstance(entries, list):
            self.builder.emit(Custom(PLAN, {"entries": entries}))

    # ------------------------------------------------------------------ tool calls

    def _tool(self, update: Wire) -> None:
        call = self._call(update)
        if call is None:
            return
        call.update(update)
        status, is_new = update.get("status"), not call.told
        if _of_bridge(update).get("isEarlier") is True:
            call.told = True
        if status in (IN_PROGRESS, COMPLETED, FAILED):
            self._tell(call)
        if status not in (COMPLETED, FAILED) or call.resulted:
            return
        parts = call.result(fresh=isinstance(update.get("content"), list))
        if parts or self._live or not is_new or status == COMPLETED:  # else it was cut off before it ran
            self._result(call, parts, is_error=status == FAILED)

    def _call(self, wire: Wire) -> _Call | None:
        call_id = text_of(wire.get("toolCallId"))
        return self._calls.setdefault(call_id, _Call(call_id)) if call_id else None

    def _tell(self, call: _Call) -> None:
        """Tell the call, once."""
        if call.told:
            return
        call.told = True
        key = ("call", call.id)
        extras = noted({"title": call.title or None, "kind": call.kind or None, "locations": call.locations or None})
        self.builder.open_part(
            key, self._number, PartKind.TOOL_CALL, call_id=call.id, name=call.shown_name, extras=extras
        )
        self.builder.delta(key, call.arguments)
        self.builder.end_part(key)
        self._after_call = True

    def _result(self, call: _Call, parts: list[Part], *, is_error: bool) -> None:
        call.resulted = True
        self.builder.result(call.id, parts, name=call.shown_name, is_error=is_error)
        self._after_call = True

    # ------------------------------------------------------------------ questions

    def _ask(self, message: Wire) -> None:
        params, interrupt_id = dict_of(message.get("params")), self._context.make_id("question")
        self.questions[interrupt_id] = message
        again = _of_bridge(params)
        if "payload" in again:  # the agent is another bridge
            call_id = text_of(again.get("callId")) or None
            if call_id is not None and message.get("method") == PERMISSION:
                self._asked_call(params)
            reason = text_of(again.get("reason")) or None
            asked = Interrupted(interrupt_id, reason, again["payload"], call_id)
        elif message.get("method") == FORM:
            call_id = text_of(params.get("toolCallId")) or None
            asked = Interrupted(interrupt_id, "input_required", form_payload(params), call_id)
        else:
            call = self._asked_call(params)
            if call is not None and call.resulted:
                call = None
            wire = dict_of(params.get("toolCall"))
            title = text_of(wire.get("title")) or (call.title if call else "") or "The agent asks for permission."
            content = wire.get("content")
            payload = permission_payload(title, options_in(params), content if isinstance(content, list) else [])
            reason = "tool_call" if call is not None else "approval"
            asked = Interrupted(interrupt_id, reason, payload, call.id if call is not None else None)
        self.builder.interrupt(asked)
        self.builder.finish(FinishReason.INTERRUPTED)

    def _asked_call(self, params: Wire) -> _Call | None:
        """Return the call that needs a permission, after clients got it."""
        wire = dict_of(params.get("toolCall"))
        call = self._call(wire)
        if call is not None:
            call.update(wire, asks=True)
            self._tell(call)
        return call

    def _decided(self, call: _Call | None, params: Wire, answer: PromptAnswer) -> None:
        if is_rejection(params, answer.result):
            self._was_refused = True
            if call is not None:
                call.refused = True

    # ------------------------------------------------------------------ the end

    def _answered(self, result: Any) -> None:
        wire = dict_of(result)
        reason = FINISH_REASONS.get(text_of(wire.get("stopReason")), FinishReason.STOP)
        if self._live:
            self._close_calls()
        self._report(wire)
        if reason is FinishReason.CANCELED and self._live and not self._was_canceled:
            if not self._was_refused:
                text = "The agent canceled its turn by itself."
                self.fail(Failure(ErrorCode.CANCELED, text))
                return
            reason = FinishReason.STOP
        self.builder.finish(reason)
        self.builder.end()

    def _close_calls(self) -> None:
        """Some agents do not say what became of a call that was refused. The client would run it itself."""
        for call in self._calls.values():
            if call.told and not call.resulted:
                text = _REFUSED if call.refused else _NO_RESULT
                self._result(call, [Text(text)], is_error=True)

    def _report(self, wire: Wire) -> None:
        meta = dict_of(wire.get("_meta"))
        counts = _counts(wire.get("usage")) or _counts(dict_of(meta.get("quota")).get("token_count")) or self._sum
        if counts.keys() >= {"input", "output"}:
            report = UsageReported(extras=noted({"usage_update": self._fill or None}))
            for name, count in counts.items():
                setattr(report, name, count)
            self.builder.usage(report)

    def _failed(self, error: Wire) -> None:
        if self._was_canceled:
            self.fail(Failure(ErrorCode.CANCELED, "The run was canceled."))
        else:
            self.fail(failure_of(error))


def failure_of(error: Wire) -> Failure:
    """Return the failure that an error of JSON-RPC means.

    Agents use one number for everything, and some have their words in the data alone.
    """
    number = whole(error.get("code"))
    said = text_of(error.get("message")).strip()
    if said.lower() in _GENERIC:
        said = _words_in(error.get("data")) or said
    code = ERROR_CODES.get(number) if number is not None else None
    if code is ErrorCode.BACKEND_AUTH:
        return Failure(code, AUTH_NEEDED, cause=masked(said))
    word = text_of(dict_of(error.get("data")).get("code"))
    failure = ERRORS.failure({"message": said, "code": word})
    if code is not None and word not in OWN:
        failure.code = code
    return failure


def _words_in(data: object) -> str:
    """Return the text in the data of an error: `details`, `message`, a text, or an error within a text."""
    if isinstance(data, str):
        return data.strip()
    wire = dict_of(data)
    for name in ("details", "message", "error"):
        found = wire.get(name)
        if isinstance(found, dict):
            found = found.get("message")
        if text := text_of(found).strip():
            return text
    return ""


def _counts(usage: object) -> dict[str, int]:
    """Return the counts of a usage object."""
    wire = dict_of(usage)
    counts = {name: whole(value) for name, value in counts_in(wire).items()}
    for name, places in _MORE_COUNTS.items():
        found = (whole(wire.get(place)) for place in places)
        counts.setdefault(name, next((each for each in found if each is not None and each >= 0), None))
    return {name: value for name, value in counts.items() if value is not None}


_MORE_COUNTS: Mapping[str, tuple[str, ...]] = {
    "cached": ("cachedReadTokens", "cached_read_tokens"),
    "written": ("cachedWriteTokens", "cached_write_tokens"),
    "reasoning": ("thoughtTokens", "thought_tokens", "reasoningOutputTokens", "reasoning_output_tokens"),
}


def _of_bridge(wire: Wire) -> Wire:
    """Return what another bridge says beside the protocol."""
    return dict_of(dict_of(wire.get("_meta")).get(ASKED))


def _embedded(block: object) -> Data | None:
    """Return a text file in a message, which is none of the agent's words."""
    resource = dict_of(dict_of(block).get("resource"))
    return Data(resource) if dict_of(block).get("type") == "resource" and text_of(resource.get("text")) else None


def _tool_name(meta: Wire) -> str:
    """Return the name of the tool, which some agents have among their own fields."""
    for value in (meta, *(dict_of(each) for each in meta.values())):
        if name := text_of(value.get("toolName")):
            return name
    return ""


def _call_id(params: Wire) -> str:
    return text_of(dict_of(params.get("toolCall")).get("toolCallId"))
