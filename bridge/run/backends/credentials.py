"""Credentials of backends that expire: tokens of a command or of a cloud's library, and signatures.

A token is fetched by one task at a time, before it expires; requests wait only if there is none that is valid. What a
command prints is in no message and in no log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, Protocol

from yarl import URL

from bridge.contract.wire import WireRequest
from bridge.errors import BackendError, ConfigError, ErrorCode
from bridge.model.jsontext import read_json

log = logging.getLogger("bridge.http")

LIFETIME = 600.0
"""Seconds for which a token is used that does not say when it expires."""
_MARGIN = 300.0
"""Seconds before the end of a token in which the next one is fetched; a fifth of its life, if that is less."""
_PAUSE = 1.0
"""Seconds after a failure in which nothing is fetched."""
_LONGEST = 64 * 1024
"""Bytes that a command may print."""
_TOKEN = re.compile(r"[\x21-\x7e]+")
_MOST = 16_384
"""Characters of a token."""
_SECONDS = re.compile(r"\d{1,15}(?:\.\d{1,9})?", re.ASCII)
_REFUSED = "The bridge has no valid credentials for the backend."


class Credentials(Protocol):
    """What authenticates each request of a backend."""

    signs_bodies: bool
    """True if the headers depend on the body, which has to be known."""

    async def headers(self, wire: WireRequest, url: URL) -> Mapping[str, str]:
        """Return the headers of a request. Raises `BackendError`."""
        ...

    def refused(self, status: int, headers: Mapping[str, str]) -> bool:
        """Return whether an answer with this status and these headers refuses the credentials of its request."""
        ...

    async def renew(self, wire: WireRequest) -> bool:
        """The backend refused a request. Return whether there are other credentials to try once more."""
        ...

    async def close(self) -> None:
        """End what is going on."""
        ...


@dataclass(frozen=True, slots=True)
class Token:
    """A token, and the Unix time at which it expires."""

    value: str
    expires: float


Fetch = Callable[[], Awaitable[Token]]
"""Fetches a new token. Raises `CredentialsError`."""


class CredentialsError(Exception):
    """No token could be fetched; the text says why, and repeats nothing that the source said."""


class TokenCredentials:
    """The token of one backend, sent in a header."""

    signs_bodies = False

    def __init__(self, fetch: Fetch, header: str = "authorization", learn: Callable[[str], None] | None = None) -> None:
        """`learn` is called with each token, before it is sent."""
        self._fetch = fetch
        self._header = header.lower()
        self._learn = learn
        self._token: Token | None = None
        self._renew_at = 0.0
        self._task: asyncio.Task[Token] | None = None
        self._failed: tuple[float, str] | None = None

    async def headers(self, wire: WireRequest, url: URL) -> Mapping[str, str]:
        return {self._header: self._written(await self._valid())}

    def refused(self, status: int, headers: Mapping[str, str]) -> bool:
        return status == 401

    async def renew(self, wire: WireRequest) -> bool:
        sent, token = wire.headers.get(self._header), self._token
        if token is not None and self._written(token) != sent:
            return True  # it was renewed for another request
        self._token = None
        try:
            return self._written(await self._next()) != sent
        except BackendError:
            return False

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _written(self, token: Token) -> str:
        return f"Bearer {token.value}" if self._header == "authorization" else token.value

    async def _valid(self) -> Token:
        token, now = self._token, time.time()
        if token is None or now >= token.expires:
            return await self._next()
        if now >= self._renew_at:
            with contextlib.suppress(BackendError):
                self._start()
        return token

    async def _next(self) -> Token:
        try:
            return await asyncio.shield(self._start())
        except CredentialsError as error:
            raise _failure(str(error)) from None
        except (OSError, ValueError) as error:
            raise _failure(f"failed: {type(error).__name__}") from None

    def _start(self) -> asyncio.Task[Token]:
        """Return the task that fetches the next token; there is one at a time."""
        if self._task is None or self._task.done():
            if self._failed is not None and time.monotonic() < self._failed[0]:
                raise _failure(self._failed[1])
            self._task = asyncio.get_running_loop().create_task(self._fetched())
            self._task.add_done_callback(self._ended)
        return self._task

    async def _fetched(self) -> Token:
        token = await self._fetch()
        now = time.time()
        if token.expires <= now:
            raise CredentialsError("gave a token that has expired")
        self._token, self._failed = token, None
        self._renew_at = token.expires - min(_MARGIN, (token.expires - now) / 5)
        if self._learn is not None:
            self._learn(token.value)
        return token

    def _ended(self, task: asyncio.Task[Token]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            said = str(error) if isinstance(error, CredentialsError) else f"failed: {type(error).__name__}"
            self._failed = (time.monotonic() + _PAUSE, said)
            log.warning("credentials of a backend: the source %s", said)


def _failure(cause: str) -> BackendError:
    error = BackendError(_REFUSED, code=ErrorCode.BACKEND_AUTH)
    error.failure.cause = f"The source of its credentials {cause} (check auth of the backend)."
    return error


# ------------------------------------------------------------------ a command


class TokenCommand:
    """Fetches tokens with a command, which prints one: alone, or in a JSON object that may say when it expires."""

    def __init__(self, command: tuple[str, ...], timeout: float, lifetime: float = LIFETIME) -> None:
        self._command = command
        self._timeout = timeout
        self._lifetime = lifetime

    async def __call__(self) -> Token:
        return token_in(await self._printed(), self._lifetime)

    async def _printed(self) -> bytes:
        name = PurePath(self._command[0]).name
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise CredentialsError(f"({name}) cannot be started: {type(error).__name__}") from None
        try:
            async with asyncio.timeout(self._timeout):
                printed = await self._read(process)
                status = await process.wait()
        except TimeoutError:
            raise CredentialsError(f"({name}) did not end within {self._timeout:g} s") from None
        finally:
            # Its children, too, which may keep its output open.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if status != 0:
            raise CredentialsError(f"({name}) ended with status {status}")
        return printed

    async def _read(self, process: asyncio.subprocess.Process) -> bytes:
        assert process.stdout is not None
        printed = b""
        while piece := await process.stdout.read(_LONGEST):
            printed += piece
            if len(printed) > _LONGEST:
                raise CredentialsError("printed more than 64 KiB")
        return printed


_VALUES = ("token", "access_token", "accessToken", "id_token")
_TIMES = ("expires_at", "expires_on", "expiresOn", "expiry", "token_expiry", "expirationTimestamp", "expiration")
_INNER = ("status", "credential")
"""The names in what `az`, `gcloud config config-helper`, `kubectl` plugins and OAuth servers print."""


def token_in(printed: bytes, lifetime: float = LIFETIME) -> Token:
    """Return the token that was printed. Raises `CredentialsError`, which repeats nothing of it."""
    text = printed.decode("utf-8", "replace").strip()
    if not text:
        raise CredentialsError("printed nothing")
    if not text.startswith("{"):
        if not _is_token(text):
            raise CredentialsError("printed something that is no token")
        return Token(text, time.time() + lifetime)
    found = read_json(text.encode())
    if not isinstance(found, dict):
        raise CredentialsError("printed something that is no JSON object")
    inner = next((found[name] for name in _INNER if isinstance(found.get(name), dict)), found)
    value = next((inner[name] for name in _VALUES if isinstance(inner.get(name), str)), "")
    if not _is_token(value):
        raise CredentialsError("printed a JSON object without a token")
    return Token(value, _expiry(inner, lifetime))


def _is_token(text: str) -> bool:
    return len(text) <= _MOST and _TOKEN.fullmatch(text) is not None


def _expiry(found: Mapping[str, Any], lifetime: float) -> float:
    if (seconds := _number(found.get("expires_in"))) is not None:
        return time.time() + seconds
    for name in _TIMES:
        given = found.get(name)
        if given is None:
            continue
        if (number := _number(given)) is not None:
            return number / 1000 if number > 1e11 else number
        try:
            moment = datetime.fromisoformat(given)
        except (TypeError, ValueError):
            raise CredentialsError(f"printed a time in {name} that cannot be read") from None
        return moment.timestamp()
    return time.time() + lifetime


def _number(value: Any) -> float | None:
    if isinstance(value, str) and _SECONDS.fullmatch(value):
        return float(value)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


# ------------------------------------------------------------------ clouds


def google_tokens(scope: str) -> Fetch:
    """Return what fetches tokens of Google's default credentials. Raises `ConfigError` without its library."""
    try:
        import google.auth
        import google.auth.transport.requests
    except ImportError:
        raise ConfigError("gcp needs the extra gcp: pip install 'dialect-bridge[gcp]'") from None
    known: list[Any] = []

    def fetch() -> Token:
        if not known:
            known.append(google.auth.default(scopes=[scope])[0])
        (credentials,) = known
        credentials.refresh(google.auth.transport.requests.Request())
        # The library's times have no zone and mean UTC.
        expires = credentials.expiry.replace(tzinfo=UTC).timestamp() if credentials.expiry else 0.0
        return Token(credentials.token, expires or time.time() + LIFETIME)

    return _in_a_thread(fetch)


def azure_tokens(scope: str) -> Fetch:
    """Return what fetches tokens of Azure's default credentials. Raises `ConfigError` without its library."""
    try:
        from azure.identity import DefaultAzureCredential
    except ImportError:
        raise ConfigError("azure needs the extra azure: pip install 'dialect-bridge[azure]'") from None
    known: list[Any] = []

    def fetch() -> Token:
        if not known:
            known.append(DefaultAzureCredential())
        found = known[0].get_token(scope)
        return Token(found.token, float(found.expires_on))

    return _in_a_thread(fetch)


def _in_a_thread(fetch: Callable[[], Token]) -> Fetch:
    async def fetched() -> Token:
        try:
            return await asyncio.to_thread(fetch)
        except Exception as error:
            raise CredentialsError(f"failed: {type(error).__name__}") from None

    return fetched


_REGION = re.compile(r"\.([a-z]{2}(?:-[a-z]{1,12}){1,3}-\d)\.(?:amazonaws|api\.aws)")
_MANTLE = "bedrock-mantle"
"""The service of Bedrock's endpoints at `bedrock-mantle.<region>.api.aws`; all others are of `bedrock`."""
_KEYS_REFUSED = re.compile(r"ExpiredToken|RequestExpired|UnrecognizedClient|InvalidClientTokenId|InvalidToken")
"""The kinds of AWS errors that other keys may mend, in the header x-amzn-errortype."""


class AwsSigner:
    """Signs requests with AWS Signature Version 4, by the default credentials of its library.

    Keys that expired are refused with 403 (AWS, "Common errors"); then they are looked up again.
    """

    signs_bodies = True

    def __init__(
        self, service: str | None, region: str | None, url: URL, learn: Callable[[str], None] | None = None
    ) -> None:
        """Raise `ConfigError` without its library, or without a region."""
        try:
            import botocore.auth
            import botocore.awsrequest
            import botocore.session
        except ImportError:
            raise ConfigError("aws needs the extra aws: pip install 'dialect-bridge[aws]'") from None
        self._request, self._auth = botocore.awsrequest.AWSRequest, botocore.auth.SigV4Auth
        self._new_session = botocore.session.get_session
        self._session = self._new_session()
        host = url.host or ""
        named = _REGION.search(f".{host}")
        found = region or (named[1] if named else None) or self._session.get_config_variable("region")
        if not found:
            raise ConfigError("expected a region: in aws.region, in the url, or in AWS_DEFAULT_REGION")
        self.service = service or (_MANTLE if host.startswith(f"{_MANTLE}.") else "bedrock")
        self.region: str = found
        self._learn = learn
        self._credentials: Any = None
        self._renewing = asyncio.Lock()
        self._not_before = 0.0

    async def headers(self, wire: WireRequest, url: URL) -> Mapping[str, str]:
        try:
            keys = await asyncio.to_thread(self._frozen)
        except Exception as error:
            raise _failure(f"failed: {type(error).__name__}") from None
        if keys is None:
            raise _failure("has none")
        if self._learn is not None and keys.token:
            self._learn(keys.token)
        kind = wire.headers.get("content-type")
        given = {"content-type": kind} if kind else {}
        request = self._request(method=wire.method, url=str(url), data=wire.body, headers=given)
        self._auth(keys, self.service, self.region).add_auth(request)
        return {name.lower(): str(value) for name, value in request.headers.items()}

    def _frozen(self) -> Any:
        """Return the keys, which the library renews, one at a time."""
        if self._credentials is None:
            self._credentials = self._session.get_credentials()
        return self._credentials.get_frozen_credentials() if self._credentials is not None else None

    def refused(self, status: int, headers: Mapping[str, str]) -> bool:
        kind = headers.get("x-amzn-errortype")
        return status in (401, 403) and (kind is None or _KEYS_REFUSED.match(kind) is not None)

    async def renew(self, wire: WireRequest) -> bool:
        sent = wire.headers.get("authorization", ""), wire.headers.get("x-amz-security-token")
        async with self._renewing:
            try:
                if self._is_other(await asyncio.to_thread(self._frozen), sent):
                    return True  # they were renewed for another request
                if time.monotonic() < self._not_before:
                    return False
                self._not_before = time.monotonic() + _PAUSE
                # A session of the library remembers what it found.
                self._session, self._credentials = await asyncio.to_thread(self._new_session), None
                return self._is_other(await asyncio.to_thread(self._frozen), sent)
            except Exception as error:
                log.warning("credentials of a backend: the source failed: %s", type(error).__name__)
                return False

    @staticmethod
    def _is_other(keys: Any, sent: tuple[str, str | None]) -> bool:
        """Return whether these are not the keys of a signature and the token beside it."""
        authorization, token = sent
        if keys is None:
            return False
        return f"Credential={keys.access_key}/" not in authorization or (keys.token or None) != token

    async def close(self) -> None:
        """Nothing is going on."""
