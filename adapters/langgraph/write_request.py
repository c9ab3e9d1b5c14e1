"""Requests for a run: the input of the graph, or the answer to what its thread waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bridge.contract import Context, Feature, WireRequest, json_request
from bridge.dialects.langgraph.blocks import block_of
from bridge.dialects.langgraph.capabilities import CAPABILITIES
from bridge.dialects.langgraph.options import BackOptions
from bridge.dialects.langgraph.wire import BREAKPOINT, MODES, NAME, UNNAMED, Wire, thread_id
from bridge.dialects.openai.shapes import write_function
from bridge.errors import ErrorCode, RequestError
from bridge.model import Media, Message, Part, Reasoning, Request, Resume, ToolCall, ToolResult, as_text
from bridge.model.jsontext import dumps, input_of
from bridge.toolkit.fields import Fields
from bridge.toolkit.message_losses import MessageLosses
from bridge.toolkit.tools import supported

_SYSTEM = frozenset({"system", "developer"})
_LOSSES = MessageLosses(
    CAPABILITIES, takes=lambda part, role: isinstance(part, Media) and role not in _SYSTEM, told=_SYSTEM
)
_FIELDS = Fields(NAME, carries={"thread_id", "resume"})
_PARAMETERS: dict[str, Callable[[Request, Context], Any]] = {
    "model": lambda request, context: context.model or request.model,
    "temperature": lambda request, _: request.sampling.temperature,
    "top_p": lambda request, _: request.sampling.top_p,
    "max_tokens": lambda request, _: request.sampling.max_tokens,
    "stop": lambda request, _: request.sampling.stop,
    "seed": lambda request, _: request.sampling.seed,
    "reasoning_effort": lambda request, _: request.reasoning_effort,
    "user_id": lambda request, _: request.user_id,
}
"""What of a request `context` may hold, by the names of the option `configurable`."""
_ATTRIBUTES = {name: f"sampling.{name}" for name in ("temperature", "top_p", "max_tokens", "stop", "seed")}


# ------------------------------------------------------------------ messages


def messages_of(request: Request) -> list[Wire]:
    """Return the messages of a request, in LangChain's form with roles. Raises `Unsupported`."""
    return [wire for message in request.messages for wire in _message(message)]


def _message(message: Message) -> Iterator[Wire]:
    """Write a message; the results of tools in it are messages of their own, before what a person says beside them."""
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    spoken = [part for part in message.parts if not isinstance(part, (ToolResult, Reasoning))]
    identity = {"id": message.id} if message.id else {}
    written = list(_spoken(message, spoken, identity))
    told = [_result(part, identity if not written and len(results) == 1 else {}) for part in results]
    yield from [*written, *told] if message.role == "assistant" else [*told, *written]


def _spoken(message: Message, parts: Sequence[Part], identity: Wire) -> Iterator[Wire]:
    calls = [_call(part) for part in parts if isinstance(part, ToolCall)]
    role = "system" if message.role in _SYSTEM else "assistant" if message.role == "assistant" else "user"
    content = _content([part for part in parts if not isinstance(part, ToolCall)], media=role != "system")
    if not content and not calls:
        return
    name = {"name": message.name} if message.name else {}
    yield {"role": role, "content": content, **identity, **name, **({"tool_calls": calls} if calls else {})}


def _content(parts: Sequence[Part], *, media: bool = True) -> str | list[Wire]:
    """Return a text where the parts are one, else blocks."""
    blocks = [block_of(p) if media and isinstance(p, Media) else {"type": "text", "text": as_text(p)} for p in parts]
    blocks = [block for block in blocks if block.get("text") != ""]
    if not blocks:
        return ""
    return blocks[0]["text"] if len(blocks) == 1 and "text" in blocks[0] else blocks


def _call(call: ToolCall) -> Wire:
    return {"name": call.name, "args": input_of(call.arguments), "id": call.call_id, "type": "tool_call"}


def _result(result: ToolResult, identity: Wire) -> Wire:
    name = {"name": result.name} if result.name else {}
    status = "error" if result.is_error else "success"
    content = _content(result.parts)
    return {"role": "tool", "tool_call_id": result.call_id, "content": content, "status": status, **name, **identity}


# ------------------------------------------------------------------ answers


@dataclass(frozen=True, slots=True)
class Open:
    """What a thread waits for: the values of its questions by their ids, or a breakpoint."""

    questions: dict[str, Any]
    at_breakpoint: bool = False


def open_in(state: Any) -> Open | None:
    """Return what the state of a thread says that it waits for; None if it does not say."""
    tasks = state.get("tasks") if isinstance(state, dict) else None
    following = state.get("next") if isinstance(state, dict) else None
    if not isinstance(tasks, list) or not isinstance(following, list):
        return None
    found: dict[str, Any] = {}
    for task in tasks:
        asked = task.get("interrupts") if isinstance(task, dict) else None
        for question in asked if isinstance(asked, list) else ():
            if isinstance(question, dict):
                name = question.get("interrupt_id") or question.get("id")
                found[name if isinstance(name, str) and name else f"{UNNAMED}-{len(found)}"] = question.get("value")
    return Open(found, bool(following) and not found)


def needs_state(request: Request) -> bool:
    """Return whether only the questions of the thread show the form of these answers, or which they answer."""
    return any(
        not answer.interrupt_id
        or answer.interrupt_id.startswith(UNNAMED)
        or answer.decision != "resolved"
        or answer.payload is None
        or isinstance(answer.payload, bool)
        or (isinstance(answer.payload, dict) and not answer.payload.keys().isdisjoint(("approve", "approved")))
        for answer in request.resume
    )


def command_of(request: Request, waits: Open | None) -> Wire | None:
    """Return the command that answers what the thread waits for; None where it waits at a breakpoint.

    Raises `RequestError` for an answer to a question that the thread does not ask.
    """
    if any(answer.interrupt_id == BREAKPOINT for answer in request.resume) or (waits and waits.at_breakpoint):
        return None
    return {"resume": _by_id(request.resume, waits.questions) if waits is not None else _unseen(request.resume)}


def _unseen(answers: list[Resume]) -> Any:
    """Return the answers to questions that are not known."""
    for answer in answers:
        if not answer.interrupt_id or answer.interrupt_id.startswith(UNNAMED):
            return formed(None, answer)
    return {answer.interrupt_id: formed(None, answer) for answer in answers}


def _by_id(answers: list[Resume], questions: dict[str, Any]) -> Any:
    left = dict(questions)
    found: dict[str, Any] = {}
    for answer in answers:
        if answer.interrupt_id and not answer.interrupt_id.startswith(UNNAMED):
            if answer.interrupt_id not in questions:
                raise _not_open(answer)
            found[answer.interrupt_id] = formed(left.pop(answer.interrupt_id, None), answer)
    for answer in answers:
        if not answer.interrupt_id or answer.interrupt_id.startswith(UNNAMED):
            if not left and not found:
                raise _not_open(answer)
            found |= {name: formed(left[name], answer) for name in left}
            left.clear()
    if any(name.startswith(UNNAMED) for name in found):
        return next(iter(found.values()))  # this server takes answers without ids only
    return found


def _not_open(answer: Resume) -> RequestError:
    text = f"{answer.place}: the agent is no longer waiting for this answer."
    return RequestError(text, code=ErrorCode.CONFLICT, param=answer.place)


def formed(question: Any, answer: Resume) -> Any:
    """Return an answer as the question wants it: decisions where it asks to approve actions, else as it is."""
    payload = answer.payload
    if isinstance(question, dict) and isinstance(actions := question.get("action_requests"), list):
        if isinstance(payload, dict) and "decisions" in payload:
            return payload
        words = _words(payload)
        reject = {"type": "reject", **({"message": words} if words else {})}
        return {"decisions": [{"type": "approve"} if answer.agrees else reject] * len(actions)}
    if isinstance(question, list) and question and all(_is_old_approval(each) for each in question):
        if isinstance(payload, list):
            return payload
        words = _words(payload)
        one = {"type": "accept", "args": None}
        if not answer.agrees:
            one = {"type": "response", "args": words} if words else {"type": "ignore", "args": None}
        return [one] * len(question)
    return answer.agrees if payload is None else payload


def _is_old_approval(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("action_request"), dict)


def _words(payload: Any) -> str:
    found = payload.get("reason") if isinstance(payload, dict) else payload
    return found if isinstance(found, str) else ""


# ------------------------------------------------------------------ the whole request


class RunWriter:
    """Writes the requests of one run; what they cannot say is noted in the context, once.

    Raises `Unsupported` for a medium that the server does not take.
    """

    def __init__(self, request: Request, context: Context, options: BackOptions) -> None:
        self.request = request
        self._context = context
        self._options = options
        named = request.thread_id or (context.run_id if options.threads == "always" else "")
        self.thread = thread_id(named) if named else ""
        """The id of the thread at the server; empty for a run without one."""
        self.must_exist = False
        """The server is to refuse the run if it does not have the thread."""
        self.passes = False
        """The last request was one without input, which passes a breakpoint."""
        _LOSSES.note(request.messages, context.lost)
        self._settings = self._settings_of(request, context, options)

    def write(self, waits: Open | None = None) -> WireRequest:
        """Return the request that starts the run, or answers what the thread `waits` for.

        Raises `RequestError` for an answer to what is not asked.
        """
        return self._written(self._begin(waits))

    def write_pass(self) -> WireRequest:
        """Return the request that passes a breakpoint at aegra, which refuses a run without input."""
        self.passes = False
        return self._written({"command": {"resume": {}}})

    def more(self) -> WireRequest | None:
        """Return the request with what is said beside an answer: the server ignores the input of one that answers."""
        return self._written({"input": self._input()}) if self.request.resume and self.request.messages else None

    def _written(self, begin: Wire) -> WireRequest:
        body: Wire = {"assistant_id": self._options.assistant_id, **begin, "stream_mode": MODES}
        body |= {"stream_subgraphs": True, "stream_resumable": True}
        if self.thread:
            body |= {"on_disconnect": "continue", "if_not_exists": "reject" if self.must_exist else "create"}
        else:
            body["on_disconnect"] = "cancel"  # nobody can come back to it
        path = f"/threads/{self.thread}/runs/stream" if self.thread else "/runs/stream"
        return json_request(path, dumps({**body, **self._settings}), {"accept": "text/event-stream"})

    def _begin(self, waits: Open | None) -> Wire:
        if self.request.resume:
            command = command_of(self.request, waits)
            self.passes = command is None
            return {"input": None} if command is None else {"command": command}
        return {"input": self._input()}

    def _input(self) -> Wire:
        request, options = self.request, self._options
        state = request.state if options.state and isinstance(request.state, dict) else {}
        given: Wire = {**state, "messages": messages_of(request)}
        if options.tools == "state" and request.tools:
            tools = supported(request, NAME, self._context.lost)
            given["tools"] = [{"type": "function", "function": write_function(tool)} for tool in tools]
        return given

    def _settings_of(self, request: Request, context: Context, options: BackOptions) -> Wire:
        carried = {_ATTRIBUTES.get(name, name) for name in options.configurable}
        chosen = {name: _PARAMETERS[name](request, context) for name in options.configurable}
        given: Wire = {name: value for name, value in chosen.items() if value is not None}
        if options.context and request.context:
            carried.add("context")
            given |= {str(entry.get("description", n)): entry.get("value") for n, entry in enumerate(request.context)}
        carried.update({"tools"} if options.tools == "state" else (), {"state"} if options.state else ())
        config: Wire = {"recursion_limit": options.recursion_limit} if options.recursion_limit else {}
        if options.user_id and request.user_id:
            if given:  # a server may refuse a request with both
                given["user_id"] = request.user_id
            else:
                config["configurable"] = {"user_id": request.user_id}
        carried.update({"user_id"} if options.user_id else (), {"metadata"} if options.metadata else ())
        _FIELDS.write(request, context.lost, carries=carried)
        if request.state is not None and options.state and not isinstance(request.state, dict):
            context.lost.add(Feature.STATE, "a state that is no object")
        metadata = request.metadata if options.metadata else {}
        strategy = options.multitask_strategy
        return {
            **({"context": given} if given else {}),
            **({"config": config} if config else {}),
            **({"metadata": metadata} if metadata else {}),
            **({"multitask_strategy": strategy} if strategy else {}),
        }
