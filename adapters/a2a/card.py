"""Agent cards, as a caller reads them: where and how the agent is called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from bridge.contract import WireRequest, WireResponse
from bridge.dialects.a2a.options import BackOptions
from bridge.dialects.a2a.wire import CARD_PATH, HTTP_JSON, JSON_RPC, Version, camel_keys
from bridge.errors import BackendError, ErrorCode, shortened
from bridge.model.jsontext import dict_of, read_json, text_of
from bridge.toolkit.paths import climbs

_MAX_AGE = re.compile(r"max-age\s*=\s*\"?(\d{1,9})", re.IGNORECASE)
_KEPT, _LONGEST = 60.0, 86400.0
"""Seconds for which a card is cached: if its server sends no lifetime, and at most."""
LARGEST = 1024 * 1024
"""The largest card that is read, in bytes."""
_MOST = 64
"""Interfaces of a card that are read; further ones are ignored."""
_MEMO = "card"
_PATH = "/%:@!$&'()*+,;=~"
"""Characters that need no quoting in a path, beside letters, digits and `-._`."""
_NAMES = {JSON_RPC.lower(): JSON_RPC, "json-rpc": JSON_RPC, "http+json": HTTP_JSON, "rest": HTTP_JSON}
_VERSIONS = {"": Version.NEW, "1": Version.NEW, "0": Version.OLD}
"""By the major version of an interface."""


@dataclass(frozen=True, slots=True)
class Interface:
    """One way to call the agent. `path` is that of its address; None = the backend's own URL."""

    binding: str
    version: Version
    path: str | None = None
    query: tuple[tuple[str, str], ...] = ()
    tenant: str = ""

    @property
    def old_rest(self) -> bool:
        """True for HTTP+JSON of 0.3, whose objects are of another form."""
        return (self.binding, self.version) == (HTTP_JSON, Version.OLD)


@dataclass(slots=True)
class Card:
    """How a card's agent is called, and until when the card is cached, in Unix seconds."""

    interfaces: list[Interface]
    streaming: bool
    etag: str = ""
    fresh_until: float = 0.0


def assumed(options: BackOptions, now: float) -> Card:
    """What is assumed of an agent without a card."""
    binding = HTTP_JSON if options.binding == "http+json" else JSON_RPC
    return Card([Interface(binding, Version(options.version or Version.NEW))], True, "", now + _KEPT)


def remembered(memo: dict[str, Any]) -> Card | None:
    """The card that a run has read before."""
    found = memo.get(_MEMO)
    return found if isinstance(found, Card) else None


def remember(memo: dict[str, Any], card: Card) -> None:
    """Keeps a card for other runs of the backend."""
    memo[_MEMO] = card


def question(known: Card | None) -> WireRequest:
    """Return the request for the card, conditional if one is known."""
    headers = {"accept": "application/json", "a2a-version": str(Version.NEW)}
    if known is not None and known.etag:
        headers["if-none-match"] = known.etag
    return WireRequest("GET", CARD_PATH, headers)


def read_card(answer: WireResponse, known: Card | None, now: float) -> Card:
    """Return the card in an answer. Raises `BackendError` for one that names no way to call the agent."""
    until = now + _lifetime(answer.headers.get("cache-control", ""))
    if answer.status == 304 and known is not None:
        known.fresh_until = until
        return known
    value = read_json(answer.body)
    if not isinstance(value, dict):
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        got = f", got {shortened(kind)}" if kind and not kind.endswith("json") else ""
        raise BackendError(
            f"The agent card ({CARD_PATH}) is not a JSON object{got}. Expected the backend's url to be the agent's "
            "base address, without the path of the card; for an agent without a card, set the option card: none.",
            code=ErrorCode.BACKEND_PROTOCOL,
        )
    card = camel_keys(value)
    entries = _entries(card)
    interfaces = [found for each in entries if (found := _interface(each)) is not None]
    if not interfaces:
        named = (f"{_binding(each)} {text_of(each.get('protocolVersion'))}".strip() for each in entries)
        offered = ", ".join(filter(None, dict.fromkeys(named)))
        raise BackendError(
            f"The agent card ({CARD_PATH}) offers {shortened(offered) or 'no interface'}; expected an http or https "
            "URL for JSONRPC or HTTP+JSON in version 1.x or 0.x. Without a card the agent can be called with the "
            "option card: none.",
            code=ErrorCode.BACKEND_PROTOCOL,
        )
    streaming = dict_of(card.get("capabilities")).get("streaming") is True
    return Card(interfaces, streaming, answer.headers.get("etag", ""), until)


def chosen(card: Card, options: BackOptions, *, old: bool = False) -> Interface:
    """Return the interface to call: the first of the binding and the version that the options name.

    Without them JSON-RPC comes before HTTP+JSON, and 1.0 before 0.3; `old` prefers 0.3. Raises `BackendError`.
    """
    binding = {"jsonrpc": JSON_RPC, "http+json": HTTP_JSON}.get(options.binding or "")
    version = Version.OLD if old else options.version
    fits = [i for i in card.interfaces if binding in (None, i.binding) and version in (None, i.version)]
    if not fits:
        have = ", ".join(sorted({f"{i.binding} {i.version}" for i in card.interfaces}))
        raise BackendError(
            f"The agent card offers {shortened(have)}, which does not fit the options binding and version.",
            code=ErrorCode.BACKEND_PROTOCOL,
        )
    return min(fits, key=lambda i: (i.version is not Version.NEW, i.binding != JSON_RPC))


def _entries(card: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the interfaces that a card of either form lists; those of 0.3 count where there are none of 1.0."""
    listed = card.get("supportedInterfaces")
    entries = _objects(listed)
    if any(map(_interface, entries)) or not isinstance(card.get("url"), str):
        return entries
    first = {"url": card["url"], "transport": card.get("preferredTransport") or JSON_RPC}
    spoken = card.get("protocolVersion") or Version.OLD
    old = [first, *_objects(card.get("additionalInterfaces"))]
    return [*entries, *({**each, "protocolVersion": spoken} for each in old)]


def _objects(listed: object) -> list[dict[str, Any]]:
    return [camel_keys(each) for each in listed[:_MOST] if isinstance(each, dict)] if isinstance(listed, list) else []


def _binding(wire: dict[str, Any]) -> str:
    return text_of(wire.get("protocolBinding") or wire.get("transport"))


def _interface(wire: dict[str, Any]) -> Interface | None:
    binding = _NAMES.get(_binding(wire).lower())
    url = text_of(wire.get("url"))
    if binding is None or not url:
        return None
    version = _VERSIONS.get(text_of(wire.get("protocolVersion")).partition(".")[0])
    if version is None:
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.scheme not in ("http", "https", "") or climbs(parts.path):
        return None
    # The host is the one that the operator named: a card cannot send requests, and keys, elsewhere.
    path = quote(parts.path, safe=_PATH) or "/"
    return Interface(binding, version, path, tuple(parse_qsl(parts.query)), text_of(wire.get("tenant")))


def _lifetime(header: str) -> float:
    if "no-cache" in header.lower() or "no-store" in header.lower():
        return 0.0
    found = _MAX_AGE.search(header)
    return min(float(found[1]), _LONGEST) if found else _KEPT
