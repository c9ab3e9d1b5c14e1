"""Calls of tools -> requests."""

from __future__ import annotations

from typing import Any, NamedTuple

from bridge.contract import Context
from bridge.dialects.mcp import errors
from bridge.dialects.mcp.call import Call, digest
from bridge.dialects.mcp.errors import refused
from bridge.dialects.mcp.options import FrontOptions
from bridge.dialects.mcp.questions import resume_of
from bridge.dialects.mcp.tools import arguments_of
from bridge.dialects.mcp.wire import NAME, STATELESS, Method, Wire
from bridge.errors import ErrorCode, RequestError, shortened
from bridge.model import HistoryMode, Media, MediaKind, Message, Part, Request, Resume, Text, source_of
from bridge.model.jsontext import dict_of, kind_of
from bridge.model.media_types import type_of_name
from bridge.toolkit import Node

STATE = "state"
STATE_LIFE = 3600.0
"""Seconds for which a question of a call without a session can be answered."""
_THREAD = 16
"""Characters of the name of a new conversation: few, as models copy it."""


class Notes(NamedTuple):
    """What an answer depends on beside the run.

    `token`: of progress, None if the client asked for none. `elicits`: questions are asked as forms. `digest`: of the
    arguments, for the state of a question.
    """

    id: Any = None
    tool: str = ""
    stateless: bool = True
    version: str = STATELESS
    token: Any = None
    elicits: bool = False
    digest: str = ""


def notes_of(request: Request | None) -> Notes:
    """Return the notes on a request; those of a call without a progress token if there are none."""
    known = (request.extra(NAME) if request is not None else {}).get("notes")
    return Notes(**{key: known[key] for key in Notes._fields if key in known}) if isinstance(known, dict) else Notes()


def new_thread(context: Context) -> str:
    """Return the name of the conversation that a call begins."""
    return context.run_id[:_THREAD]


def conversations(route: str, tool: str) -> str:
    """Return the purpose for which the ids of a tool's conversations are marked: to another tool they are unknown."""
    return f"conversation\0{route}\0{tool}"


def read_request(call: Call, context: Context) -> Request:
    """Return the request of a call, or of the answers to the questions of a task.

    Raises `RequestError`: with a kind for what is wrong with the message, without for what a model can mend.
    """
    if call.method == Method.UPDATE_TASK:
        resume = _answers(_inputs(call))
        return Request([], stream=False, history=HistoryMode.DELTA, resume=resume, extras=_noted(call))
    if call.method != Method.CALL:
        raise refused(errors.UNKNOWN_METHOD, f"{shortened(call.method)!r} is no call of a tool.", "method")
    sent = call.params.get("arguments")
    if call.head.stateless:
        if call.params.get("requestState") is not None:
            return _continued(call, context, sent)
        if call.params.get("inputResponses") is not None:
            text = "params.requestState: required beside params.inputResponses."
            raise refused(errors.PARAMS, text, "params.requestState")
    messages, thread = _read_arguments(call, context, sent)
    # The client of a task waits for nothing but its id.
    stream = not (call.takes_tasks and call.site.durable)
    thread = thread or new_thread(context)
    return Request(messages, thread_id=thread, stream=stream, history=HistoryMode.DELTA, extras=_noted(call))


def _noted(call: Call) -> dict[str, dict[str, Any]]:
    notes: Wire = {"id": call.head.id, "stateless": call.head.stateless, "elicits": call.elicits}
    if isinstance(name := call.params.get("name"), str):
        notes |= {"tool": name, "digest": digest(name, call.params.get("arguments"))}
    token = call.meta.get("progressToken")
    if isinstance(token, str | int | float) and not isinstance(token, bool):
        notes["token"] = token
    return {NAME: {"notes": {**notes, "version": call.version}}}


def _read_arguments(call: Call, context: Context, sent: Any) -> tuple[list[Message], str | None]:
    """Return the messages, and the conversation that they continue."""
    if not isinstance(sent, dict | None):
        raise _invalid(f"arguments: expected an object, got {kind_of(sent)}.")
    arguments = Node(sent or {}, "arguments")
    known = arguments_of(FrontOptions.of(context), call.site)
    if unknown := next((name for name in arguments.value if name not in known), None):
        raise _invalid(f"arguments.{shortened(unknown)}: unknown; expected {', '.join(known)}.")
    prompt = arguments.need_string("prompt")
    parts: list[Part] = [Text(prompt)]
    for name, kind in (("images", MediaKind.IMAGE), ("files", MediaKind.FILE)):
        for index, url in enumerate(arguments.array(name) or ()):
            parts.append(_medium(url, kind, f"arguments.{name}[{index}]"))
    if not prompt.strip() and len(parts) == 1:
        raise _invalid("arguments.prompt: expected a text, got an empty one.")
    places = ("arguments", "arguments.prompt", *(f"arguments[{n}]" for n in range(1, len(parts))))
    asked = Message("user", parts, places=places)
    messages = [asked]
    if system := arguments.string("system"):
        messages = [Message("system", [Text(system)], places=("arguments.system",)), asked]
    return messages, _thread(call, arguments.string("conversation"))


def _thread(call: Call, conversation: str | None) -> str | None:
    """Return the thread of a conversation that was begun here, by this caller and with this tool."""
    if not conversation:
        return None
    thread = call.site.sealer.marked(conversations(call.site.route, call.params["name"]), call.site.owner, conversation)
    if thread is None:
        text = f"arguments.conversation: there is no conversation {shortened(conversation)!r}"
        raise RequestError(f"{text}; leave it out to begin a new one.", code=ErrorCode.NOT_FOUND)
    return thread


def _medium(url: Any, kind: MediaKind, place: str) -> Media:
    if not isinstance(url, str) or not url:
        raise _invalid(f"{place}: expected a URL, got {kind_of(url)}.")
    source, mime = source_of(url)
    if not mime and not url.lower().startswith(("http://", "https://")):
        raise _invalid(f"{place}: expected a URL of http, https or data.")
    name = url.rpartition("/")[2].partition("?")[0] if not mime else ""
    return Media(kind, source, mime=mime or type_of_name(name or None), filename=name or None)


def _invalid(text: str) -> RequestError:
    return RequestError(text)


# ------------------------------------------------------------------ answers to questions


def _inputs(call: Call) -> Wire:
    inputs = call.params.get("inputResponses")
    if not isinstance(inputs, dict) or not inputs:
        text = "params.inputResponses: expected an object with an answer to each question."
        raise refused(errors.PARAMS, text, "params.inputResponses")
    return inputs


def _answers(inputs: Wire) -> list[Resume]:
    """The answers to the questions of a task: in which form each was asked is known when its runs are."""
    return [Resume(key, "resolved", answer, place=f"params.inputResponses.{key}") for key, answer in inputs.items()]


def _continued(call: Call, context: Context, sent: Any) -> Request:
    """The same call again, with the answers to the questions with which it ended."""
    site, name, sealed = call.site, call.params["name"], call.params["requestState"]
    state = site.sealer.open(STATE, site.owner, sealed) if isinstance(sealed, str) else None
    if state is None or state.get("r") != site.route or state.get("d") != digest(name, sent):
        text = "params.requestState: expected the one of the last result, for the same call."
        raise refused(errors.PARAMS, text, "params.requestState")
    if state["u"] < context.created_at:
        raise refused(errors.PARAMS, "params.requestState: it has expired; call the tool again.", "params.requestState")
    inputs, asked = _inputs(call), dict_of(state["q"])
    if missing := next((key for key in asked if key not in inputs), None):
        place = f"params.inputResponses.{shortened(missing)}"
        raise refused(errors.PARAMS, f"{place}: required, the answer to a question.", place)
    resume = [resume_of(key, bool(word), inputs[key], f"params.inputResponses.{key}") for key, word in asked.items()]
    return Request([], thread_id=state["t"], history=HistoryMode.DELTA, resume=resume, extras=_noted(call))
