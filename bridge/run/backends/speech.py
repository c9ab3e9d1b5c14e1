"""Speech to text: sends a WAV file to an OpenAI-compatible `/audio/transcriptions`."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import TYPE_CHECKING

from bridge.errors import BackendError, ErrorCode, RequestError
from bridge.model.jsontext import loads

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from yarl import URL

LIMIT = 10 * 2**20
"""Bytes of the longest recording."""

EMPTY = "empty"
UNSUPPORTED_FORMAT = "unsupported_format"
"""`details["reason"]` of the two kinds of `invalid_request`, for dialects that have a word for each."""

_TYPES = frozenset({"audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave", "application/octet-stream", ""})
_HEAD = 12
_CONNECT = 5.0  # seconds
_LARGEST_ANSWER = 2**20


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
    seconds, `proxy` the proxy that leads there.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        model: str = "whisper-1",
        timeout: float = 60.0,
        proxy: URL | None = None,
    ) -> None:
        self._url = f"{url.rstrip('/')}/audio/transcriptions"
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._model = model
        self._timeout = timeout
        self._proxy = proxy

    async def transcribe(self, wav: bytes) -> str:
        """Return the text of a recording. Raises `BackendError` without the message of the service.

        The error is a 503 if the service cannot be reached, times out, fails, rejects the key or sends an invalid
        answer; a recording that it rejects is `invalid_request` (`UNSUPPORTED_FORMAT`).
        """
        import aiohttp

        from bridge.run.backends.lookups import Resolver

        form = aiohttp.FormData()
        form.add_field("file", wav, filename="audio.wav", content_type="audio/wav")
        form.add_field("model", self._model)
        form.add_field("response_format", "json")
        try:
            # A connection for each recording: a kept one may be closed by the service just when the next one is sent.
            async with (
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(resolver=Resolver(), force_close=True),
                    timeout=aiohttp.ClientTimeout(total=self._timeout, sock_connect=_CONNECT),
                    cookie_jar=aiohttp.DummyCookieJar(),
                ) as session,
                session.post(
                    self._url, data=form, headers=self._headers, allow_redirects=False, proxy=self._proxy
                ) as response,
            ):
                if response.status in (400, 413, 415, 422):
                    words = "The recording cannot be understood."
                    raise RequestError(words, details={"reason": UNSUPPORTED_FORMAT})
                if response.status >= 300:
                    raise unavailable(f"status {response.status}")
                answer = loads(await _read(response.content))
        except (aiohttp.ClientError, ValueError, OSError) as error:
            raise unavailable(type(error).__name__) from None
        text = answer.get("text") if isinstance(answer, dict) else None
        if not isinstance(text, str):
            raise unavailable("no text in its answer")
        return text


async def _read(content: StreamReader) -> bytes:
    body = bytearray()
    async for piece in content.iter_chunked(2**16):
        body += piece
        if len(body) > _LARGEST_ANSWER:
            raise ValueError("endless")
    return bytes(body)


def unavailable(reason: str) -> BackendError:
    """The one error for whatever is wrong with the service, and for none at all. `reason` holds no text of others."""
    return BackendError(f"Speech cannot be transcribed now ({reason}).", code=ErrorCode.BACKEND_UNAVAILABLE, status=503)
