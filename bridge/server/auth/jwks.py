"""The public keys of a token issuer (RFC 7517), fetched from its URL when they are needed and kept for a while.

What `jwt.PyJWKClient` does, without a blocking thread: keys are found by their id, an unknown id fetches the set again
(as issuers rotate keys), and if that fails, the old set stays valid for some time.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import orjson
from jwt import PyJWK
from jwt.exceptions import PyJWTError
from yarl import URL

from bridge.errors import BackendError, ErrorCode
from bridge.run.backends.lookups import Resolver
from bridge.run.backends.proxies import proxy_for

log = logging.getLogger("bridge.server")

LIFE = 300.0
"""Seconds after which a set is fetched again: a removed key is accepted for up to this time."""
PATIENCE = 3600.0
"""Seconds for which a set is used when its issuer does not answer."""
PAUSE = 2.0
"""Minimum seconds between two fetches, so that tokens with invented key ids cannot flood an issuer with requests."""
RETRY = 10.0
"""Seconds between two tries while the issuer fails and an older set serves on: each try makes requests wait."""
_LARGEST = 2**20
_TIMEOUT = aiohttp.ClientTimeout(total=3)


class KeySet:
    """The keys at one URL. `clock` gives seconds that only grow."""

    def __init__(self, url: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._clock = clock
        self._keys: list[dict[str, Any]] = []
        self._made: dict[tuple[int, str], PyJWK | None] = {}
        self._turn = 0  # how often the set was fetched
        self._fetched = self._failed = self._asked_again = -math.inf
        self._lock = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None

    async def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """The key with this id, for this algorithm; None when the issuer has none. Without an id, its only key.

        Raises `BackendError` (503) when no set can be had.
        """
        if self._clock() - self._fetched >= LIFE:
            await self._fetch(self._turn)
        found, turn = self._pick(kid, algorithm), self._turn
        # If another task is fetching the set, wait for its result.
        if found is None and (self._lock.locked() or self._clock() - self._asked_again >= PAUSE):
            self._asked_again = self._clock()
            await self._fetch(turn)
            found = self._pick(kid, algorithm)
        return found

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _pick(self, kid: str | None, algorithm: str) -> PyJWK | None:
        signing = [
            index
            for index, key in enumerate(self._keys)
            if key.get("use", "sig") == "sig" and key.get("alg", algorithm) == algorithm
        ]
        if kid is not None:
            signing = [index for index in signing if self._keys[index].get("kid") == kid]
        elif len(signing) > 1:
            return None
        return self._key(signing[0], algorithm) if signing else None

    def _key(self, index: int, algorithm: str) -> PyJWK | None:
        wanted = (index, algorithm)
        if wanted not in self._made:
            try:
                self._made[wanted] = PyJWK(self._keys[index], algorithm)
            except PyJWTError as error:
                # Its text repeats the key.
                log.warning("a key of server.auth.jwt.jwks_url cannot be used: %s", type(error).__name__)
                self._made[wanted] = None
        return self._made[wanted]

    async def _fetch(self, turn: int) -> None:
        """Fetches the set, unless another request has done so since `turn`. Raises `BackendError`."""
        async with self._lock:
            if self._turn != turn:
                return
            if self._clock() - self._failed >= (RETRY if self._turn else PAUSE):
                try:
                    self._keys, self._made = await self._read(), {}
                    self._turn, self._fetched = turn + 1, self._clock()
                    return
                except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as error:
                    self._failed = self._clock()
                    log.warning("server.auth.jwt.jwks_url cannot be read: %s", type(error).__name__)
            if self._clock() - self._fetched >= PATIENCE:
                raise BackendError(
                    "Tokens cannot be checked now: their issuer does not answer.",
                    code=ErrorCode.BACKEND_UNAVAILABLE,
                    status=503,
                    headers={"retry-after": "2"},
                )

    async def _read(self) -> list[dict[str, Any]]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=Resolver()),
                timeout=_TIMEOUT,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        proxy = proxy_for(URL(self._url))
        async with self._session.get(self._url, allow_redirects=False, proxy=proxy) as response:
            if response.status != 200:
                raise ValueError(f"status {response.status}")
            body = bytearray()
            async for piece in response.content.iter_chunked(2**16):
                body += piece
                if len(body) > _LARGEST:
                    raise ValueError("endless")
        found = orjson.loads(bytes(body))
        keys = found.get("keys") if isinstance(found, dict) else None
        if not isinstance(keys, list):
            raise ValueError("not a key set")
        return [key for key in keys if isinstance(key, dict)]
