"""Log probabilities of tokens, in the form of chat completions, under `SHARED` in the extras of a piece of text:
`{"logprobs": {"content": [{"token", "logprob", "bytes", "top_logprobs": [...]}]}}`.
"""

from __future__ import annotations

from typing import Any

from bridge.model import SHARED, Extras
from bridge.model.jsontext import dict_of, is_number

Entry = dict[str, Any]


def shared_logprobs(values: Any) -> Extras | None:
    """`extras` of a piece of text that hold its log probabilities, for all dialects."""
    known = entries(values)
    return {SHARED: {"logprobs": {"content": known}}} if known else None


def logprobs_in(extras: Extras | None) -> list[Entry]:
    """The log probabilities of a piece of text."""
    return entries(dict_of((extras or {}).get(SHARED, {}).get("logprobs")).get("content"))


def entries(values: Any) -> list[Entry]:
    """Return the entries with a token and a number, which all clients require."""
    return [{**each, "top_logprobs": _tokens(each.get("top_logprobs"))} for each in _tokens(values)]


def _tokens(values: Any) -> list[Entry]:
    listed = values if isinstance(values, list) else []
    return [
        v for v in listed if isinstance(v, dict) and isinstance(v.get("token"), str) and is_number(v.get("logprob"))
    ]


def with_bytes(entry: Entry) -> Entry:
    """Return an entry with bytes, also of its alternatives, which some servers leave out."""
    return {**_with_bytes(entry), "top_logprobs": [_with_bytes(each) for each in entry["top_logprobs"]]}


def _with_bytes(token: Entry) -> Entry:
    octets = token.get("bytes")
    if isinstance(octets, list) and all(type(each) is int for each in octets):
        return token
    return {**token, "bytes": list(token["token"].encode("utf-8", "replace"))}
