"""Brings a request to what the API of its backend demands (`bridge.contract.demands`).

Every request passes here before it is encoded, whatever the client's dialect is, except on passthrough routes. What is
as demanded stays the same object. Nothing here raises, and the work grows linearly with the messages, parts, tools and
schemas of the request. The same messages are changed in the same way in every request of a conversation.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from functools import cache
from operator import is_
from typing import Any

from bridge.contract import Context, Dialect, Feature, Losses, WireRequest
from bridge.contract.demands import NOTHING, Demands, SchemaDemands, SystemPlace
from bridge.model import (
    Inline,
    Media,
    MediaKind,
    Message,
    Part,
    Reasoning,
    Request,
    Sampling,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    as_text,
)
from bridge.model.jsontext import dumps, input_of, is_object
from bridge.model.media_types import registered, type_of_base64
from bridge.model.parts import LINKED
from bridge.toolkit.tools import FUNCTION
from bridge.translation.histories import arranged, joined, with_parts
from bridge.translation.schemas import SchemaWriter, is_taken
from bridge.translation.survey import PLAIN, SYSTEM, Survey, surveyed

_compiled = cache(re.compile)
log = logging.getLogger("bridge.run")

_SEPARATOR = "\n\n"


def required(request: Request, demands: Demands, lost: Losses, survey: Survey | None = None) -> Request:
    """Return the request as `demands` wants it: the same object if it is so, else a copy.

    What the backend does not get, or gets though the client did not say it, is added to `lost`. `survey` is the
    survey of its messages, if there is one already.
    """
    if demands is NOTHING:
        return request
    if survey is None:
        survey = surveyed(request.messages)
    if survey is PLAIN and not (request.tools or demands.needs_user) and demands.own in (request.extras or ()):
        return request
    changes = _Changes(request, demands, lost)
    changes.messages(survey)
    if request.tools:
        changes.tools(request.tools)
    if not changes.is_own:
        changes.fields()
    if changes.told:
        log.debug("changed for the backend: %s", "; ".join(changes.told))
    return changes.request


class _Changes:
    """The changes of one request; `told` lists them."""

    def __init__(self, request: Request, demands: Demands, lost: Losses) -> None:
        self.request = request
        self.told: list[str] = []
        self.is_own = bool(demands.own) and demands.own in (request.extras or ())
        self._given = request
        self._demands = demands
        self._lost = lost

    def _set(self, what: str, feature: Feature | None = None, **fields: Any) -> None:
        """Change fields of the request. `feature`: what is lost by that."""
        if self.request is self._given:
            self.request = self._given.copy()
        for name, value in fields.items():
            setattr(self.request, name, value)
        self.told.append(what)
        if feature is not None:
            self._lost.add(feature, what)

    # ------------------------------------------------------------------ messages

    def messages(self, survey: Survey) -> None:
        demands, kinds = self._demands, survey.kinds
        if survey.has_later_system or survey.has_several_systems:
            is_one = demands.system is SystemPlace.ONE
            is_first = survey.has_later_system and demands.system is SystemPlace.FIRST and not self.is_own
            if is_one or is_first:
                self._system(is_one)
        if demands.results_follow_calls and not LINKED.isdisjoint(kinds):
            extras = self.request.extra(demands.own) if self.is_own else {}
            is_stored = not demands.stored_by.isdisjoint(extras)
            given = self.request.messages
            messages, changed = arranged(given, demands, own=self.is_own, is_stored=is_stored)
            if changed:
                self._set(changed, Feature.TOOL_HISTORY, messages=messages)
        if demands.needs_user:
            self._user()
        if demands.one_message_per_turn and not _OF_TURNS.isdisjoint(kinds):
            messages = joined(self.request.messages, own=self.is_own)
            if messages is not self.request.messages:
                self._set("calls of a turn stand in one message", messages=messages)
        if not self.is_own:
            if not _CHANGEABLE.isdisjoint(kinds):
                self._parts()
            # An added result has the name of its call, and joined messages may have a blank among their texts.
            is_rearranged = self.request is not self._given
            if survey.has_names or is_rearranged:
                self._names()
            if demands.no_blank_texts and (survey.is_mixed or is_rearranged):
                self._texts()
            if demands.no_trailing_blank:
                self._end()

    def _system(self, is_one: bool) -> None:
        """System messages before all others; where only one may stand there, their texts in one."""
        messages = self.request.messages
        system = [m for m in messages if m.role in SYSTEM]
        others = [m for m in messages if m.role not in SYSTEM]
        if all(map(is_, [*system, *others], messages)) and not (is_one and len(system) > 1):
            return
        if is_one:
            system = [_as_one(system)]
        what = f"system messages are sent {'as one, ' if is_one else ''}before all others"
        self._set(what, Feature.SYSTEM if is_one else None, messages=[*system, *others])

    def _user(self) -> None:
        """A request of system messages alone: the last one asks."""
        messages = self.request.messages
        if not messages or (messages[-1].role not in SYSTEM and _says(messages[-1])):
            return
        if any(m.role not in SYSTEM and _says(m) for m in messages):
            return
        spoken = [m for m in messages if m.role in SYSTEM and _says(m)]
        if spoken:
            asks = replace(spoken[-1], role="user")
            self._set("the last system message is sent as the user's", Feature.SYSTEM, messages=[*spoken[:-1], asks])

    def _parts(self) -> None:
        """Arguments of calls, and types of media."""
        change = self._changed_part
        if not (self._demands.object_arguments or self._demands.media_types):
            return
        out: list[Message] | None = None
        for index, message in enumerate(self.request.messages):
            if _CHANGEABLE.isdisjoint(map(type, message.parts)):
                continue
            parts = list(map(change, message.parts))
            if not all(map(is_, parts, message.parts)):
                out = [*self.request.messages] if out is None else out
                out[index] = replace(message, parts=parts)
        if out is not None:
            self._set("arguments and media types are spelled as the API knows them", messages=out)

    def _changed_part(self, part: Part) -> Part:
        if isinstance(part, Media) and self._demands.media_types:
            mime = _media_type(part)
            return part if mime == part.mime else replace(part, mime=mime)
        if isinstance(part, ToolCall) and self._demands.object_arguments:
            is_text = part.extras is not None and part.extras.get(self._demands.own)
            return part if is_text or is_object(part.arguments) else replace(part, arguments=_arguments(part))
        if isinstance(part, ToolResult) and Media in map(type, part.parts):
            inner = list(map(self._changed_part, part.parts))
            return part if all(map(is_, inner, part.parts)) else replace(part, parts=inner)
        return part

    def _texts(self) -> None:
        """Texts beside other parts of a message or a result, without those that show nothing."""
        out: list[Message] | None = None
        for index, message in enumerate(self.request.messages):
            if not _may_be_blank(message.parts):
                continue
            pieces = [(n, _with_visible(message.parts[n])) for n in _visible(message.parts)]
            changed = with_parts(message, pieces, is_first=True)
            if changed is not message:
                out = [*self.request.messages] if out is None else out
                out[index] = changed
        if out is not None:
            self._set("texts without a visible character are left out", messages=out)

    def _names(self) -> None:
        """Names of people and agents."""
        pattern, longest = self._demands.message_names, self._demands.longest_message_name
        if pattern is None:
            return
        allowed = _compiled(pattern)
        out: list[Message] | None = None
        for index, message in enumerate(self.request.messages):
            name = message.name
            if not name or (allowed.fullmatch(name) and (longest is None or len(name) <= longest)):
                continue
            legal = "".join(c if allowed.fullmatch(c) else "_" for c in name[:longest])
            out = [*self.request.messages] if out is None else out
            out[index] = replace(message, name=legal)
        if out is not None:
            self._set("names of messages without what the API refuses", Feature.MESSAGE_NAME, messages=out)

    def _end(self) -> None:
        """Without blanks at the end of an answer that the model is to continue."""
        last = self.request.messages[-1] if self.request.messages else None
        text = last.parts[-1] if last is not None and last.role == "assistant" and last.parts else None
        if last is None or not isinstance(text, Text) or text.text == text.text.rstrip():
            return
        ended = replace(last, parts=[*last.parts[:-1], replace(text, text=text.text.rstrip())])
        self._set("blanks at the end are left out", messages=[*self.request.messages[:-1], ended])

    # ------------------------------------------------------------------ tools and schemas

    def tools(self, tools: list[Tool]) -> None:
        if self._demands.unique_tools:
            tools = self._unique_tools(tools)
        demands = self._demands.own_tool_schemas if self.is_own else self._demands.tool_schemas
        if demands is None:
            return
        dropped: dict[str, None] = {}
        changed = [_with_schema(tool, demands, dropped) for tool in tools]
        if all(new is old for new, old in zip(changed, tools, strict=True)):
            return
        self._set("schemas of tools are made objects with properties", tools=changed)
        if dropped:
            self._lost.add(Feature.TOOLS, f"of schemas: {', '.join(dropped)[:200]}")

    def _unique_tools(self, tools: list[Tool]) -> list[Tool]:
        if len({tool.name for tool in tools}) == len(tools):
            return tools
        first = {tool.name: tool for tool in reversed(tools) if tool.kind == FUNCTION}
        kept = [tool for tool in tools if tool.kind != FUNCTION or first[tool.name] is tool]
        if len(kept) < len(tools):
            self._set("of tools with one name the first is sent", Feature.TOOLS, tools=kept)
        return kept

    # ------------------------------------------------------------------ fields

    def fields(self) -> None:
        """Fields of clients of other dialects."""
        self._format()
        self._sampling()
        if self._demands.metadata_needs_store and self.request.metadata:
            self._set("metadata is taken only with store: true", Feature.METADATA, metadata={})

    def _format(self) -> None:
        wanted, demands = self.request.response_format, self._demands.output_schemas
        if wanted is None or wanted.schema is None or demands is None:
            return
        writer = SchemaWriter(demands)
        written = writer.write(wanted.schema)
        if written == wanted.schema:
            return
        dropped = ", ".join(writer.dropped)[:200]
        what = f"of the schema: {dropped}" if dropped else "the objects of the schema are closed"
        self._set(what, Feature.RESPONSE_FORMAT, response_format=replace(wanted, schema=written))

    def _sampling(self) -> None:
        given = self.request.sampling
        sampling = self._with_stops(given)
        least = self._demands.least_output
        if least is not None and sampling.max_tokens is not None and sampling.max_tokens < least:
            sampling = replace(sampling, max_tokens=least)
            self._tell(f"the limit of an answer is at least {least} tokens")
        if self._demands.no_sampling_with_effort and self.request.reasoning_effort not in (None, "none"):
            sampling = self._with_neither(sampling)
        if self._demands.temperature_or_top_p:
            sampling = self._with_one(sampling)
        most = self._demands.most_temperature
        if most is not None and sampling.temperature is not None and sampling.temperature > most:
            sampling = replace(sampling, temperature=most)
            self._tell(f"temperatures above {most:g} are sent as {most:g}")
        if sampling is not given:
            if self.request is self._given:
                self.request = self._given.copy()
            self.request.sampling = sampling

    def _with_stops(self, sampling: Sampling) -> Sampling:
        stops, demands = sampling.stop, self._demands
        if not stops:
            return sampling
        if demands.no_blank_stops and not all(map(str.strip, stops)):
            stops = [stop for stop in stops if stop.strip()]
            self._tell("blank stop sequences are left out")
        if demands.most_stops is not None and len(stops) > demands.most_stops:
            stops = stops[: demands.most_stops]
            self._tell(f"only {demands.most_stops} stop sequences are sent")
        return sampling if stops is sampling.stop else replace(sampling, stop=stops or None)

    def _with_neither(self, sampling: Sampling) -> Sampling:
        if sampling.temperature is None and sampling.top_p is None:
            return sampling
        self._tell("temperature and top_p are left out beside a reasoning effort")
        return replace(sampling, temperature=None, top_p=None)

    def _with_one(self, sampling: Sampling) -> Sampling:
        """Only one of temperature and top_p: a value that is the default of every API says nothing."""
        temperature, top_p = sampling.temperature, sampling.top_p
        if temperature is None or top_p is None:
            return sampling
        if top_p != _DEFAULT and temperature == _DEFAULT:
            self.told.append("temperature 1 is left out beside top_p")
            return replace(sampling, temperature=None)
        if top_p == _DEFAULT:
            self.told.append("top_p 1 is left out beside temperature")
        else:
            self._tell("top_p is left out beside temperature")
        return replace(sampling, top_p=None)

    def _tell(self, what: str) -> None:
        self.told.append(what)
        self._lost.add(Feature.SAMPLING, what)


_OF_TURNS: frozenset[type] = frozenset({ToolCall, Reasoning})
_CHANGEABLE: frozenset[type] = frozenset({Media, ToolCall, ToolResult})
_DEFAULT = 1
"""Temperature and top_p of a request without them, at every vendor."""


def _as_one(messages: list[Message]) -> Message:
    """System messages as one, which has the first one's role."""
    parts: list[Part] = [part for message in messages for part in message.parts]
    if all(type(part) is Text for part in parts):
        texts = [as_text(part) for part in parts]
        parts = [Text(_SEPARATOR.join(filter(None, texts)))]
    return replace(messages[0], parts=parts, extras=None)


def _visible(parts: list[Part]) -> list[int]:
    """Return the positions of the parts but blank texts; all of them if nothing else is there."""
    # A text with fields of its own may be empty: Gemini signs such a part.
    kept = [n for n, part in enumerate(parts) if not isinstance(part, Text) or part.text.strip() or part.extras]
    return kept or list(range(len(parts)))


def _may_be_blank(parts: list[Part]) -> bool:
    """Return whether a text beside others, or in a result, shows nothing."""
    is_beside = len(parts) > 1
    for part in parts:
        if type(part) is Text:
            if is_beside and (not part.text or part.text.isspace()):
                return True
        elif type(part) is ToolResult and _may_be_blank(part.parts):
            return True
    return False


def _with_visible(part: Part) -> Part:
    if not isinstance(part, ToolResult):
        return part
    kept = _visible(part.parts)
    return part if len(kept) == len(part.parts) else replace(part, parts=[part.parts[n] for n in kept])


def _says(message: Message) -> bool:
    """Return whether a message has more than blank texts and reasoning."""
    return any(
        part.text.strip() if isinstance(part, Text) else not isinstance(part, Reasoning) for part in message.parts
    )


def _with_schema(tool: Tool, demands: SchemaDemands, dropped: dict[str, None]) -> Tool:
    if tool.kind != FUNCTION or tool.parameters is None or is_taken(tool.parameters, demands):
        return tool
    writer = SchemaWriter(demands)
    written = writer.write(tool.parameters)
    dropped.update(writer.dropped)
    return tool if written is tool.parameters else replace(tool, parameters=written)


def _arguments(call: ToolCall) -> str:
    return dumps(input_of(call.arguments)).decode()


def _media_type(media: Media) -> str | None:
    """The registered type of a medium; that of an image is what its bytes say."""
    mime = registered(media.mime)
    is_image = media.kind is MediaKind.IMAGE or (mime or "").startswith("image/")
    if not isinstance(media.source, Inline) or not (is_image or mime is None):
        return mime
    found = type_of_base64(media.source.base64)
    return found if found is not None and (found.startswith("image/") or not is_image) else mime


def encoded(dialect: Dialect, request: Request, context: Context) -> WireRequest:
    """Return a request as `dialect` writes it for a backend that demands what its card says.

    Raises `Unsupported` for what the dialect cannot express.
    """
    options = dialect.back_options.of(context)
    return dialect.encode_request(required(request, dialect.demands(options), context.lost), context)
