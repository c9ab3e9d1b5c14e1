"""Speech to text: sends a WAV file to an OpenAI-compatible `/audio/transcriptions`, through the `openai` package."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterable
from typing import TYPE_CHECKING

from bridge.errors import BackendError, ConfigError, ErrorCode, RequestError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

LIMIT = 10 * 2**20
"""Bytes of the longest recording."""

EMPTY = "empty"
UNSUPPORTED_FORMAT = "unsupported_format"
"""`details["reason"]` of the two kinds of `invalid_request`, for dialects that have a word for each."""

_TYPES = frozenset({"audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave", "application/octet-stream", ""})
_HEAD = 12
_CONNECT = 5.0  # seconds


async def read_wav(data: AsyncIterable[bytes] | None, content_type: str = "", *, limit: int = LIMIT) -> bytes:
    """Return a whole recording; reading stops at `limit` bytes. `content_type`: as declared; empty = not declared.

    Raises `RequestError`: too_large; invalid_request with `details["reason"]` `EMPTY` or `UNSUPPORTED_FORMAT`.
    """
    if data is not None and content_type not in _TYPES:
        raise _unsupported()
    wav = bytearray()
    if data is not None:
        async for piece in data:
            wav += piece
            if len(wav) > limit:
                raise RequestError(
                    f"The recording is larger than the limit of {limit} bytes.", code=ErrorCode.TOO_LARGE
                )
            if len(wav) >= _HEAD and not _is_wav(wav):
                raise _unsupported()
    if not wav:
        raise RequestError("There is no recording.", details={"reason": EMPTY})
    if not _is_wav(wav):
        raise _unsupported()
    return bytes(wav)


def _is_wav(data: bytes | bytearray) -> bool:
    return data[:4] == b"RIFF" and data[8:12] == b"WAVE"


def _unsupported() -> RequestError:
    return RequestError(
        "Expected a WAV file (audio/wav), which begins with RIFF....WAVE.", details={"reason": UNSUPPORTED_FORMAT}
    )


class Speech:
    """A service that transcribes. `url` is its base, to which `/audio/transcriptions` is added; `timeout` is in
    seconds.

    Raises `ConfigError` if the client package is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        model: str = "whisper-1",
        timeout: float = 60.0,
        proxy: str | None = None,
    ) -> None:
        """`proxy` is the URL of the proxy that leads there; None = it is called directly."""
        try:
            from openai import Omit
        except ImportError:
            raise ConfigError("needs the extra speech: pip install 'dialect-bridge[speech]'", key="speech") from None
        self._model = model
        self._timeout = timeout
        self._base_url = url
        self._api_key = api_key or "none"
        self._proxy = proxy
        self._client: AsyncOpenAI | None = None
        # Missing settings would come from the package's own environment variables, which belong to another service.
        foreign = ("OpenAI-Organization", "OpenAI-Project", *(() if api_key else ("Authorization",)))
        self._headers = dict.fromkeys(foreign, Omit())

    def open(self) -> None:
        """Connects to nothing yet."""
        if self._client is not None:
            return
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Timeout

        self._client = AsyncOpenAI(
            base_url=self._base_url,
            api_key=self._api_key,
            timeout=Timeout(self._timeout, connect=_CONNECT),
            # Clients try again by themselves, and counts multiply.
            max_retries=0,
            # Without the environment: which proxy it means is decided once, for everything that the bridge calls.
            http_client=DefaultAsyncHttpxClient(
                proxy=self._proxy, trust_env=False, verify=ssl.create_default_context()
            ),
        )

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def transcribe(self, wav: bytes) -> str:
        """Return the text of a recording. Raises `BackendError` without the message of the service.

        The error is a 503 if the service cannot be reached, times out, fails, rejects the key or sends an invalid
        answer; a recording that it rejects is `invalid_request` (`UNSUPPORTED_FORMAT`).
        """
        self.open()
        assert self._client is not None
        from openai import APIStatusError, OpenAIError

        try:
            async with asyncio.timeout(self._timeout):
                transcription = await self._client.audio.transcriptions.create(
                    file=("audio.wav", wav, "audio/wav"),
                    model=self._model,
                    response_format="json",
                    extra_headers=self._headers,
                )
        except APIStatusError as error:
            if error.status_code in (400, 413, 415, 422):
                words = "The recording cannot be understood."
                raise RequestError(words, details={"reason": UNSUPPORTED_FORMAT}) from None
            raise unavailable(f"status {error.status_code}") from None
        except (OpenAIError, ValueError, TimeoutError) as error:
            raise unavailable(type(error).__name__) from None
        text = getattr(transcription, "text", None)
        if not isinstance(text, str):
            raise unavailable("no text in its answer")
        return text


def unavailable(reason: str) -> BackendError:
    """The one error for whatever is wrong with the service, and for none at all. `reason` holds no text of others."""
    return BackendError(f"Speech cannot be transcribed now ({reason}).", code=ErrorCode.BACKEND_UNAVAILABLE, status=503)
