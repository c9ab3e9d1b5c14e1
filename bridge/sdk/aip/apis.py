"""An HTTP call as a tool: arguments in the URL where it has `{name}`, the rest in query or body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp

from bridge.dialects.aip.described import typed
from bridge.dialects.aip.generation import as_map_value
from bridge.toolkit.paths import climbs

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_IN_QUERY = ("GET", "DELETE")
_PLACE = re.compile(r"\{(\w+)\}")
_SHOWN = 500
"""Characters of an error body that are shown."""


class ApiCall:
    """Calls `method` at `url`. `timeout` in seconds; `longest` bytes of an answer are read."""

    def __init__(self, url: str, method: str, headers: Mapping[str, str] | None, timeout: float, longest: int) -> None:
        """Raises `ValueError` for another method or scheme, and for an address whose host a caller could choose: it is
        sent the headers, in which there may be a key.
        """
        self.method = method.upper()
        if self.method not in METHODS:
            raise ValueError(f"api_method: expected one of {', '.join(METHODS)}, got {method[:20]!r}")
        if not url.startswith(("http://", "https://")):
            raise ValueError("api_url: expected a URL with http or https")
        if _PLACE.search(urlsplit(url).netloc):
            raise ValueError("api_url: arguments are allowed in the path and the query, not in the host")
        if climbs(urlsplit(url).path):
            raise ValueError("api_url: expected a path without the segments . and ..")
        self.url = url
        self.headers = dict(headers or {})
        self.timeout = timeout
        self.described: Mapping[str, str] = {}
        self._longest = longest

    @property
    def arguments(self) -> dict[str, str]:
        """Return the names in the URL, for a tool without described arguments."""
        return dict.fromkeys(_PLACE.findall(self.url), "a part of the address")

    async def __call__(self, arguments: Mapping[str, Any]) -> str:
        """The body as text. Raises `ValueError` for a missing argument, one that leads to another place, an error
        status, a redirect, or too long an answer, `aiohttp.ClientError` and `TimeoutError` when the call fails.
        """
        named = _PLACE.findall(self.url)
        url = self._address(named, arguments)
        rest = {name: value for name, value in arguments.items() if name not in named}
        query = {name: as_map_value(value) for name, value in rest.items()} if self.method in _IN_QUERY else None
        body = None if self.method in _IN_QUERY else typed(rest, self.described)
        limit = aiohttp.ClientTimeout(total=self.timeout)
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            # The headers are for this service alone, and so are the arguments.
            session.request(
                self.method, url, params=query, json=body, headers=self.headers, allow_redirects=False
            ) as answer,
        ):
            if 300 <= answer.status < 400:
                raise ValueError(f"HTTP status {answer.status}: the service redirects; redirects are not followed")
            text = await self._text(answer)
            if not answer.ok:
                raise ValueError(f"HTTP status {answer.status}: {text[:_SHOWN]}")
            return text

    def _address(self, named: list[str], arguments: Mapping[str, Any]) -> str:
        """Return the URL with its arguments, none of which can change its structure: they are untrusted."""
        missing = [name for name in named if name not in arguments]
        if missing:
            raise ValueError(f"missing argument {missing[0]!r}, which is part of the URL")
        values = {name: as_map_value(arguments[name]) for name in named}
        url = _PLACE.sub(lambda place: quote(values[place[1]], safe=""), self.url)
        for name in _PLACE.findall(urlsplit(self.url).path):
            if not values[name] or climbs(urlsplit(url).path):
                got = values[name][:_SHOWN]
                raise ValueError(f"argument {name!r}: expected the name of a part of the address, got {got!r}")
        return url

    async def _text(self, answer: aiohttp.ClientResponse) -> str:
        came = bytearray()
        async for chunk in answer.content.iter_chunked(65536):
            came += chunk
            if len(came) > self._longest:
                raise ValueError(f"the answer is longer than {self._longest} bytes")
        return came.decode(answer.charset or "utf-8", "replace")
