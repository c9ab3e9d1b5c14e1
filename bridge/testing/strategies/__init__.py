"""Hypothesis strategies for event streams, requests and the positions where bytes are cut.

`answers()` drives the `Builder`, so every stream obeys the grammar, as if a decoder had made it. Each feature can be
left out by keyword, for dialects that do not support it. `requests()` does the same for requests; `splits()` and
`batches()` cut bytes and lists anywhere. Needs the package `hypothesis`.
"""

from bridge.testing.strategies.answers import AnswerFeatures, answers, nothing
from bridge.testing.strategies.cuts import batches, splits
from bridge.testing.strategies.requests import RequestFeatures, requests, samplings, tools
from bridge.testing.strategies.values import (
    ALL_FINISHES,
    ALL_KINDS,
    ALL_SOURCES,
    AWKWARD,
    MIMES,
    SNIPPETS,
    arguments,
    failures,
    json_objects,
    json_values,
    media,
    names,
    sources,
    texts,
)

__all__ = [
    "ALL_FINISHES",
    "ALL_KINDS",
    "ALL_SOURCES",
    "AWKWARD",
    "MIMES",
    "SNIPPETS",
    "AnswerFeatures",
    "RequestFeatures",
    "answers",
    "arguments",
    "batches",
    "failures",
    "json_objects",
    "json_values",
    "media",
    "names",
    "nothing",
    "requests",
    "samplings",
    "sources",
    "splits",
    "texts",
    "tools",
]
