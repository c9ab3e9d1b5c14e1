"""API keys in a file that is read again when it changes, so that keys come and go without a restart."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence

from bridge.engine.config import Config, parse_keys, read
from bridge.errors import BridgeError, ConfigError, log_unexpected
from bridge.server.auth.api_keys import Key, Keys
from bridge.server.auth.identity import key_of

log = logging.getLogger("bridge.server")

PAUSE = 1.0
"""Seconds between two checks of the file."""
_COARSE = 2 * 10**9
"""Nanoseconds in which a file may change twice and keep its time of change: file systems count in ticks."""


class KeyFile:
    """The keys in the file `path`. `parse` makes them of its text and raises `ConfigError` for a mistake.

    Requests check the file, at most once every `PAUSE` seconds, and wait for the check, so that keys are compared with
    the current file. A file that cannot be read or is invalid leaves the keys unchanged; the log reports it once.
    Belongs to one event loop.
    """

    def __init__(
        self, path: str, parse: Callable[[str], Sequence[Key]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Reads the file. Raises `ConfigError`."""
        self._path = path
        self._parse = parse
        self._clock = clock
        self._looked = clock()
        self._looking: asyncio.Task[None] | None = None
        self._stamp = self._stamped()
        self._text = read(path)
        self._keys = Keys(parse(self._text))
        self._mistake: str | None = None

    @classmethod
    def of(cls, config: Config) -> KeyFile | None:
        """Return the file that `server.auth.keys_file` names; None without one. Raises `ConfigError`."""
        path = config.server.auth.keys_file if config.server.auth is not None else None
        if path is None:
            return None
        return cls(path, lambda text: [key_of(section) for section in parse_keys(text, path, config)])

    @property
    def current(self) -> Keys:
        """The keys of the file as they were read last."""
        return self._keys

    async def keys(self) -> Keys:
        """Return the keys of the file as it was at most `PAUSE` seconds ago."""
        if self._looking is None and self._clock() - self._looked >= PAUSE:
            self._looked = self._clock()
            # In a thread: thousands of keys take seconds to parse, and a network's file system may not answer.
            self._looking = asyncio.create_task(asyncio.to_thread(self._check))
            self._looking.add_done_callback(self._seen)
        if self._looking is not None:
            await asyncio.shield(self._looking)
        return self._keys

    def _seen(self, looking: asyncio.Task[None]) -> None:
        self._looking = None

    def _check(self) -> None:
        try:
            stamp = self._stamped()
            if stamp is None or stamp != self._stamp:
                self._stamp = None
                text = read(self._path)
                self._stamp = stamp
                self._change(text)
        except BridgeError as error:
            if error.message != self._mistake:
                first, *more = error.message.splitlines()
                log.error("the keys are unchanged: %s%s", first, f" (and {len(more)} more)" if more else "")
            self._mistake = error.message
        except Exception as error:
            log_unexpected(log, "the keys are unchanged", error)

    def _change(self, text: str) -> None:
        if text != self._text:
            keys = self._parse(text)
            # All at once and last: concurrent lookups see the old keys or the new ones.
            self._text, self._keys = text, Keys(keys)
            log.info("%s was reloaded: %d keys", self._path, len(keys))
        elif self._mistake is not None:
            log.info("%s is valid again", self._path)
        self._mistake = None

    def _stamped(self) -> tuple[int, ...] | None:
        """Return a value that changes with the file; None after a change so recent that another might not show."""
        try:
            seen = os.stat(self._path)
        except OSError as error:
            raise ConfigError(f"{self._path}: cannot be read: {error.strerror or type(error).__name__}") from None
        if time.time_ns() - seen.st_mtime_ns < _COARSE:
            return None
        return seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino, seen.st_dev, seen.st_size
