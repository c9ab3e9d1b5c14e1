"""Our messages -> `Msg` objects of the service, and answers to what a reply waits for.

Messages take text and media; a list with anything else is answered with 200 and fails later. So system text stands
before the user's first text, and earlier calls and results are told as text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bridge.contract import Context, Feature, Losses, WireRequest, json_request
from bridge.dialects.agentscope_service.calls import ASKING, SUBMITTED, Block, Waiting
from bridge.dialects.agentscope_service.capabilities import CAPABILITIES
from bridge.dialects.agentscope_service.options import BackOptions
from bridge.errors import ErrorCode, RequestError
from bridge.model import (
    FileRef,
    Inline,
    Media,
    Message,
    Part,
    Reasoning,
    Request,
    Text,
    ToolResult,
    as_text,
)
from bridge.model.error_paths import unsupported
from bridge.model.jsontext import dumps
from bridge.model.media_types import type_of_name
from bridge.model.parts import after_last_answer, mime_of
from bridge.toolkit.fields import INTEGER, NUMBER, Fields, Row
from bridge.toolkit.message_losses import MessageLosses

NAME = "agentscope-service"
USER_HEADER = "x-user-id"
_SYSTEM = frozenset({"system", "developer"})

Wire = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """What a request says: every message as it goes to a new session, and those behind the last answer."""

    whole: list[Wire]
    news: list[Wire]
    results: dict[str, Wire]
    """The outputs of tools behind the last answer, by the ids that clients know, as results without id and name."""
    words: list[Wire]
    """The blocks of the other messages there."""


class MessageWriter:
    """Writes the messages of one request; what cannot be said is noted in the context."""

    def __init__(self, context: Context, options: BackOptions) -> None:
        self._lost = context.lost
        self._options = options
        self._messages: list[Message] = []

    def write(self, request: Request) -> Said:
        """Raises `Unsupported` for a medium that the service does not take."""
        self._messages = request.messages
        _LOSSES.note(request.messages, self._lost)
        first_new = after_last_answer(request.messages)
        whole: list[Wire] = []
        news: list[Wire] = []
        results: dict[str, Wire] = {}
        words: list[Wire] = []
        system: list[str] = []
        for index, message in enumerate(request.messages):
            if message.role in _SYSTEM:
                system.append(self._system(message))
                continue
            blocks, found = self._content(message)
            if index >= first_new:
                results.update(found)
                words += [block for part, block in blocks if not isinstance(part, ToolResult)]
            if not blocks:
                continue
            role = "assistant" if message.role == "assistant" else "user"
            before: list[Wire] = []
            if role == "user" and any(system):
                before.append(_text("\n\n".join(filter(None, system))))
                system.clear()
            head: Wire = {"name": message.name or role, "role": role}
            whole.append({**head, "content": [*before, *(block for _, block in blocks)]})
            if index >= first_new and (said := [block for part, block in blocks if not isinstance(part, ToolResult)]):
                # The session has the results of its own tools; those that it waits for are no message.
                news.append({**head, "content": [*before, *said]})
        if any(system):
            told = _text("\n\n".join(filter(None, system)))
            whole.append({"name": "user", "role": "user", "content": [told]})
        if request.metadata:
            for messages in (whole, news):
                if messages:
                    messages[-1]["metadata"] = request.metadata
        return Said(whole, news, results, words)

    def _system(self, message: Message) -> str:
        drop = self._options.system == "drop"
        self._lost.add(Feature.SYSTEM, "backend option system" if drop else "put before the user's first text")
        return "" if drop else "".join(as_text(part) for part in message.parts)

    def _content(self, message: Message) -> tuple[list[tuple[Part, Wire]], dict[str, Wire]]:
        """The blocks of a message, each with its part, and the tools' outputs in it."""
        blocks: list[tuple[Part, Wire]] = []
        results: dict[str, Wire] = {}
        for part in message.parts:
            if isinstance(part, ToolResult):
                output = [b for p in part.parts for b in self._blocks(p)]
                state = "error" if part.is_error else "success"
                results[part.call_id] = {"type": "tool_result", "output": output, "state": state}
            blocks += [(part, block) for block in self._blocks(part)]
        return blocks, results

    def _blocks(self, part: Part) -> Iterator[Wire]:
        match part:
            case Text():
                if part.text:
                    yield _text(part.text)
            case Media():
                yield self._media(part)
            case Reasoning():
                pass
            case _:
                if text := as_text(part):
                    yield _text(text)

    def _media(self, media: Media) -> Wire:
        source = media.source
        assert not isinstance(source, FileRef)  # which is refused
        name = {"name": media.filename} if media.filename else {}
        if isinstance(source, Inline):
            mime = mime_of(media) or "application/octet-stream"
            return {"type": "data", "source": {"type": "base64", "data": source.base64, "media_type": mime}, **name}
        guessed = media.mime or type_of_name(media.filename) or type_of_name(source.url.partition("?")[0])
        if guessed is None:
            why = "agentscope-service needs the media type of a URL: expected one, or a URL that ends in a file "
            raise unsupported(self._messages, media, f"{why}extension.")
        return {"type": "data", "source": {"type": "url", "url": source.url, "media_type": guessed}, **name}


def _takes(part: Part, role: str) -> bool:
    return isinstance(part, Media) and not (role in _SYSTEM or isinstance(part.source, FileRef))


_LOSSES = MessageLosses(CAPABILITIES, takes=_takes, told=_SYSTEM, keeps=(Feature.SYSTEM,))


def _text(text: str) -> Wire:
    return {"type": "text", "text": text}


# ---------------------------------------------------------------------- the whole request


PARAMETERS = Fields(
    NAME,
    Row("temperature", NUMBER, "sampling.temperature"),
    Row("top_p", NUMBER, "sampling.top_p"),
    Row("max_tokens", INTEGER, "sampling.max_tokens"),
    carries={"thread_id", "metadata", "resume"},
)
"""The parameters of a session's model, which only a new session gets."""


def note_losses(request: Request, context: Context, options: BackOptions) -> None:
    """Note what no request to the service has."""
    if PARAMETERS.write(request, context.lost, only=() if options.chat_model_config is None else None):
        context.lost.add(Feature.SAMPLING, "set when the session was created")


def session_body(agent: str, name: str, request: Request, context: Context, options: BackOptions) -> Wire:
    """What a session is made of: its name and its model."""
    body: Wire = {"agent_id": agent, "name": name}
    if options.chat_model_config is not None:
        config = dict(options.chat_model_config)
        parameters = config.get("parameters")
        said = PARAMETERS.write(request, Losses())  # what is lost has been noted
        config["parameters"] = {**(parameters if isinstance(parameters, dict) else {}), **said}
        body["chat_model_config"] = config
    return body


def chat_request(agent: str, session: str, given: Any, options: BackOptions) -> WireRequest:
    """Starts a run, or answers what a reply waits for."""
    body = {"agent_id": agent, "session_id": session, "input": given}
    return json_request("/chat/", dumps(body), {USER_HEADER: options.user_id})


def encode_request(request: Request, context: Context, options: BackOptions) -> WireRequest:
    """The request that carries the messages, for a session that is not known here."""
    said = MessageWriter(context, options).write(request)
    note_losses(request, context, options)
    return chat_request(options.agent_id or "", request.thread_id or "", said.whole, options)


# ---------------------------------------------------------------------- answers


@dataclass(frozen=True, slots=True)
class Answers:
    """The inputs that answer what a reply waits for, one request each."""

    inputs: list[Wire]
    answered: dict[str, Block]
    brought: frozenset[str]


def answers_in(request: Request, said: Said, waiting: Waiting) -> Answers:
    """What the request answers of this. Raises `RequestError` for an answer to what is not asked."""
    asking, submitted = waiting.of(ASKING), waiting.of(SUBMITTED)
    confirmed: dict[str, Wire] = {}
    for answer in request.resume:
        block = asking.get(answer.interrupt_id)
        if block is None:
            raise RequestError(
                f"{answer.place}: the agent is no longer waiting for this answer.",
                code=ErrorCode.CONFLICT,
                param=answer.place,
            )
        confirmed[answer.interrupt_id] = {"confirmed": answer.agrees, "tool_call": block, "rules": None}
    results: dict[str, Wire] = {}
    for shown, block in submitted.items():
        if shown in said.results:
            results[shown] = {**said.results[shown], "id": block["id"], "name": block.get("name") or ""}
    if results and said.words:
        # The service takes results alone; what was said beside them goes with the last one.
        last = results[list(results)[-1]]
        last["output"] = [*last["output"], *said.words]
    inputs: list[Wire] = []
    if confirmed:
        inputs.append(
            {
                "type": "USER_CONFIRM_RESULT",
                "reply_id": waiting.reply_id,
                "confirm_results": list(confirmed.values()),
            }
        )
    if results:
        inputs.append(
            {
                "type": "EXTERNAL_EXECUTION_RESULT",
                "reply_id": waiting.reply_id,
                "execution_results": list(results.values()),
            }
        )
    answered = {shown: waiting.calls[shown] for shown in (*confirmed, *results)}
    return Answers(inputs, answered, frozenset(results))
