"""Any value in the places that rules read: citations, log probabilities, errors, demands. Nothing raises."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.contract import Context, Demands, Losses, SchemaDemands, SystemPlace, registry
from bridge.errors import ErrorCode
from bridge.model import (
    Event,
    FinishReason,
    Inline,
    Media,
    MediaKind,
    Message,
    MessageEnded,
    MessageStarted,
    MessageStatus,
    PartEnded,
    PartKind,
    PartStarted,
    Reasoning,
    Request,
    RunFinished,
    RunStarted,
    Sampling,
    Text,
    TextDelta,
    Tool,
    ToolCall,
    ToolResult,
)
from bridge.testing.wires import answers_whole
from bridge.toolkit.citations import annotations_in, citations_in, with_citations
from bridge.toolkit.error_table import ErrorTable, members, names
from bridge.toolkit.logprobs import logprobs_in, shared_logprobs
from bridge.translation.requirements import required

NAMES = ["url", "title", "start_index", "end_index", "url_citation", "source", "type", "token", "logprob", "bytes",
         "top_logprobs", "content", "code", "message", "status", "details", "reason", "@type", "domain", "metadata",
         "dialect_bridge", "retryDelay", "data", "error"]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=12,
)
FRONTS = [name for name in registry.names() if registry.get(name).served]


@given(st.lists(JSON, max_size=3), JSON)
def test_any_citations_and_log_probabilities_are_read(citations: list[Any], logprobs: Any) -> None:
    extras = with_citations(shared_logprobs(logprobs), citations)
    assert len(annotations_in(extras)) == len(citations)
    for each in citations_in(extras, Losses(), 5, 3):
        assert (type(each["url"]), type(each["title"])) == (str, str)
    assert all(isinstance(each["token"], str) for each in logprobs_in(shared_logprobs(logprobs)))


@settings(max_examples=30)
@given(st.lists(JSON, max_size=3), JSON)
@pytest.mark.parametrize("front", FRONTS)
def test_every_client_gets_an_answer_with_any_citations(front: str, citations: list[Any], logprobs: Any) -> None:
    events: list[Event] = [
        RunStarted("r", "t", "m", 1.0),
        MessageStarted("m"),
        PartStarted("p", "m", PartKind.TEXT),
        TextDelta("p", "Hi", shared_logprobs(logprobs)),
        PartEnded("p", extras=with_citations(None, citations)),
        MessageEnded("m", MessageStatus.COMPLETED, FinishReason.STOP),
        RunFinished(FinishReason.STOP, 2.0),
    ]
    each = registry.get(front)
    context = Context("r", "t", 1.0, each.front_options(), "m", None, Losses())
    assert each.encoder(context).encode(events)
    if answers_whole(each):
        assert each.assemble(events, context).status == 200


# ------------------------------------------------------------------ errors

TABLES = st.builds(
    ErrorTable,
    codes=st.dictionaries(st.text(max_size=3), st.sampled_from(ErrorCode), max_size=3),
    words_of=st.sampled_from([members("code", "type", "reason"), names("status", "code"), members()]),
    told_of=st.sampled_from([members("code"), names("code", "message"), names()]),
    statuses=st.dictionaries(st.integers(400, 599), st.sampled_from(ErrorCode), max_size=3),
    other_refusals=st.none() | st.sampled_from(ErrorCode),
    keys=st.frozensets(st.integers(400, 410)),
    named=st.frozensets(st.integers(400, 410)),
    plain=st.booleans(),
    kept=st.frozensets(st.integers(400, 599)),
    own=st.frozensets(st.text(max_size=3)),
    inner=st.booleans(),
)


@given(TABLES, st.dictionaries(st.sampled_from(NAMES), JSON, max_size=5), st.none() | st.integers(400, 599))
def test_any_table_reads_any_error(table: ErrorTable, error: dict[str, Any], status: int | None) -> None:
    failure = table.failure(error, status)
    assert failure.message
    assert 400 <= failure.http_status <= 599
    assert table.text(failure)


# ------------------------------------------------------------------ demands

SCHEMAS = st.none() | st.builds(
    SchemaDemands,
    st.booleans(), st.booleans(), st.booleans(), st.booleans(),
    st.frozensets(st.sampled_from(["minimum", "pattern", "anyOf"])), st.none() | st.integers(0, 2),
)  # fmt: skip
_KINDS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int | None": st.none() | st.integers(16, 64),
    "float | None": st.none() | st.floats(0, 2),
    "str | None": st.none() | st.just(r"[a-zA-Z0-9_-]+"),
    "str": st.sampled_from(["", "openai-chat"]),
    "frozenset[str]": st.just(frozenset()),
    "SystemPlace": st.sampled_from(list(SystemPlace)),
    "SchemaDemands | None": SCHEMAS,
}
DEMANDS = st.builds(Demands, **{field.name: _KINDS[str(field.type)] for field in fields(Demands)})
TEXTS = st.text(max_size=4) | st.sampled_from(["", " ", "{}", "null", '{"a":1}', "[1]"])
PARTS: st.SearchStrategy[Any] = st.one_of(
    st.builds(Text, TEXTS),
    st.builds(Reasoning, TEXTS),
    st.builds(ToolCall, st.sampled_from("ab"), TEXTS, TEXTS),
    st.builds(ToolResult, st.sampled_from("abc"), st.lists(st.builds(Text, TEXTS), max_size=2)),
    st.builds(Media, st.just(MediaKind.IMAGE), st.builds(Inline, TEXTS), st.none() | TEXTS),
)
MESSAGES = st.builds(
    Message, st.sampled_from(["system", "developer", "user", "assistant", "tool"]), st.lists(PARTS, max_size=3)
)
REQUESTS = st.builds(
    Request,
    st.lists(MESSAGES, max_size=4),
    tools=st.none() | st.lists(st.builds(Tool, TEXTS, st.none(), st.none() | st.dictionaries(TEXTS, JSON)), max_size=2),
    sampling=st.builds(Sampling, temperature=st.none() | st.floats(0, 2), stop=st.none() | st.lists(TEXTS, max_size=6)),
)


@given(REQUESTS, DEMANDS)
def test_any_request_is_brought_to_any_demands_once(request: Request, demands: Demands) -> None:
    once = required(request, demands, Losses())
    again = required(once, demands, Losses())
    assert again.messages == once.messages
    assert again.tools == once.tools
