"""Requests, as any frontend dialect might decode them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from hypothesis import strategies as st

from bridge.model import (
    Data,
    HistoryMode,
    MediaKind,
    Message,
    Origin,
    Part,
    Reasoning,
    Refusal,
    Request,
    ResponseFormat,
    Resume,
    Sampling,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMode,
    ToolResult,
)
from bridge.testing.strategies.values import (
    ALL_KINDS,
    ALL_SOURCES,
    arguments,
    json_objects,
    json_values,
    media,
    names,
    texts,
)

T = TypeVar("T")


@dataclass(frozen=True)
class RequestFeatures:
    """The features of a request: the keywords of `requests()`."""

    system: bool = True
    developer: bool = True
    names: bool = True
    message_ids: bool = True
    media: Collection[MediaKind] = ALL_KINDS
    sources: Collection[type] = ALL_SOURCES
    mime: bool = True
    filename: bool = True
    data: bool = True
    reasoning: bool = True
    signatures: bool = True
    refusal: bool = True
    tool_history: bool = True
    unpaired_arguments: bool = True
    origins: bool = True
    result_media: bool = True
    tools: bool = True
    tool_choice: bool = True
    parallel_tool_calls: bool = True
    sampling: Collection[str] = tuple(Sampling.__dataclass_fields__)
    response_format: bool = True
    reasoning_effort: bool = True
    model: bool = True
    ids: bool = True
    user_id: bool = True
    delta: bool = True
    resume: bool = True
    state: bool = True
    context: bool = True
    metadata: bool = True
    extras: bool = True
    empty: bool = True
    awkward: bool = True
    max_messages: int = 4

    def texts(self) -> st.SearchStrategy[str]:
        """Texts as these features allow them."""
        return texts(empty=self.empty, awkward=self.awkward)


def _maybe(wanted: bool, strategy: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    return st.none() | strategy if wanted else st.none()


def _parts_said(asked: RequestFeatures, role: str) -> st.SearchStrategy[list[Part]]:
    kinds: list[st.SearchStrategy[Part]] = [asked.texts().map(Text)]
    if role == "user":
        if asked.media:
            kinds.append(media(asked.media, asked.sources, mime=asked.mime, filename=asked.filename))
        if asked.data:
            kinds.append(json_values(awkward=asked.awkward).map(Data))
    if role == "assistant":
        if asked.reasoning:
            signature = st.sampled_from((None, "c2lnbmVk")) if asked.signatures else st.none()
            kinds.append(st.builds(Reasoning, asked.texts(), signature))
        if asked.refusal:
            kinds.append(asked.texts().map(Refusal))
    return st.lists(st.one_of(kinds), min_size=1, max_size=3)


def _message(draw: Any, asked: RequestFeatures, role: str, parts: list[Part]) -> Message:
    message_id = draw(st.sampled_from((None, "m-1"))) if asked.message_ids else None
    name = draw(_maybe(asked.names, names())) if role != "tool" else None
    return Message(role, parts, message_id, name)


def _tool_turn(draw: Any, asked: RequestFeatures, turn: int) -> list[Message]:
    """An assistant that calls, and the results of its calls: one tool message for each."""
    calls: list[Part] = []
    results: list[Message] = []
    for number in range(draw(st.integers(1, 2))):
        call_id, name = f"call-{turn}-{number}", draw(names())
        origin = draw(st.sampled_from(Origin)) if asked.origins else Origin.FUNCTION
        calls.append(ToolCall(call_id, name, draw(arguments(unpaired=asked.unpaired_arguments)), origin))
        parts: list[Part] = [Text(draw(asked.texts()))]
        if asked.result_media and asked.media:
            parts += draw(st.lists(media(asked.media, asked.sources), max_size=1))
        results.append(_message(draw, asked, "tool", [ToolResult(call_id, parts)]))
    return [_message(draw, asked, "assistant", calls), *results]


def _messages(draw: Any, asked: RequestFeatures) -> list[Message]:
    out: list[Message] = []
    heads = ["system"] * asked.system + ["developer"] * asked.developer
    if heads and draw(st.booleans()):
        out.append(_message(draw, asked, draw(st.sampled_from(heads)), [Text(draw(asked.texts()))]))
    kinds = ["user", "assistant"] + ["tool"] * asked.tool_history
    for turn, kind in enumerate(draw(st.lists(st.sampled_from(kinds), max_size=asked.max_messages))):
        if kind == "tool":
            out += _tool_turn(draw, asked, turn)
        else:
            out.append(_message(draw, asked, kind, draw(_parts_said(asked, kind))))
    out.append(_message(draw, asked, "user", draw(_parts_said(asked, "user"))))
    return out


@cache
def tools() -> st.SearchStrategy[Tool]:
    """Generate tools with and without their optional fields."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    return st.builds(
        Tool, names(), st.none() | texts(), st.sampled_from((None, schema, {})), st.sampled_from((None, True, False))
    )


def _tool_choice(draw: Any, offered: list[Tool]) -> ToolChoice:
    mode = draw(st.sampled_from(ToolMode))
    if mode is not ToolMode.NONE and draw(st.booleans()):
        return ToolChoice(mode, [draw(st.sampled_from([t.name for t in offered]))])
    return ToolChoice(mode)


def samplings(fields: Collection[str] = tuple(Sampling.__dataclass_fields__)) -> st.SearchStrategy[Sampling]:
    """Generate sampling settings within the usual ranges; only these `fields` are ever set."""
    return _samplings(tuple(fields))


@cache
def _samplings(fields: tuple[str, ...]) -> st.SearchStrategy[Sampling]:
    ranges: dict[str, st.SearchStrategy[Any]] = {
        "temperature": st.sampled_from((0.0, 0.7, 2.0)),
        "top_p": st.sampled_from((0.1, 1.0)),
        "max_tokens": st.integers(1, 10_000),
        "stop": st.lists(texts(empty=False), min_size=1, max_size=3),
        "seed": st.integers(0, 2**31),
        "n": st.integers(1, 3),
        "frequency_penalty": st.sampled_from((-2.0, 0.0, 0.5)),
        "presence_penalty": st.sampled_from((-2.0, 0.0, 0.5)),
    }
    return st.builds(Sampling, **{name: _maybe(name in fields, values) for name, values in ranges.items()})


@st.composite
def requests(draw: st.DrawFn, /, **asked: Any) -> Request:
    """Generate requests as a front decodes them; they end with a user's message. The keywords are the fields of
    `RequestFeatures`.
    """
    chosen = RequestFeatures(**asked)
    request = Request(_messages(draw, chosen), stream=draw(st.booleans()))
    if chosen.tools and draw(st.booleans()):
        request.tools = draw(st.lists(tools(), min_size=1, max_size=2, unique_by=lambda t: t.name))
        if chosen.tool_choice and draw(st.booleans()):
            request.tool_choice = _tool_choice(draw, request.tools)
        request.parallel_tool_calls = draw(_maybe(chosen.parallel_tool_calls, st.booleans()))
    request.sampling = draw(samplings(chosen.sampling))
    if chosen.response_format:
        request.response_format = draw(st.none() | _response_formats())
    request.reasoning_effort = draw(_maybe(chosen.reasoning_effort, st.sampled_from(("low", "medium", "high"))))
    request.model = draw(_maybe(chosen.model, st.sampled_from(("model-1", "vendor/model:2"))))
    if chosen.ids:
        request.thread_id = draw(st.sampled_from((None, "thread-1")))
        request.run_id = draw(st.sampled_from((None, "run-1")))
        request.parent_run_id = draw(st.sampled_from((None, "run-0")))
    request.user_id = draw(_maybe(chosen.user_id, st.just("user-1")))
    if chosen.delta:
        request.history = draw(st.sampled_from(HistoryMode))
    if chosen.resume:
        answer = st.builds(Resume, names(), st.sampled_from(("resolved", "cancelled")), json_values())
        request.resume = draw(st.lists(answer, max_size=2))
    if chosen.state:
        request.state = draw(st.none() | json_objects(awkward=chosen.awkward))
    if chosen.context:
        entry = st.fixed_dictionaries({"description": texts(), "value": texts()})
        request.context = draw(st.lists(entry, max_size=2))
    if chosen.metadata:
        request.metadata = draw(st.dictionaries(names(), texts(awkward=chosen.awkward), max_size=2))
    if chosen.extras:
        request.extras = draw(st.sampled_from((None, {"some-dialect": {"service_tier": "auto"}})))
    return request


@cache
def _response_formats() -> st.SearchStrategy[ResponseFormat]:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    return st.sampled_from(
        (
            ResponseFormat("text"),
            ResponseFormat("json"),
            ResponseFormat("json_schema", "answer", schema),
            ResponseFormat("json_schema", "answer", schema, True, "what it is"),
        )
    )
