"""The operations `attach`, `sign` and `transcribe`: uploads of images and speech."""

from __future__ import annotations

from aiohttp import web

from bridge.contract import QueuedRunsDialect, StoredFile, require
from bridge.engine.bridge import Bridge
from bridge.engine.route import Route
from bridge.run.backends.speech import LIMIT, read_wav, unavailable
from bridge.server.operations.attachment_service import AttachmentService
from bridge.server.operations.forms import read_form
from bridge.server.operations.queued_run_endpoints import check_owner, queue_options
from bridge.server.requests.exchange import ServerExchange
from bridge.server.requests.http_messages import response_of
from bridge.server.requests.limits import RouteLimiter
from bridge.stores import Attachment


def files_of(bridge: Bridge, route: Route) -> AttachmentService:
    """The images of one route."""
    server = bridge.config.server
    return AttachmentService(
        bridge.attachments,
        route.path,
        public_url=server.public_url,
        limit=queue_options(route).max_attachment,
        slow_reader=server.slow_reader,
        note=bridge.notes_file(route),
    )


class UploadHandlers:
    """One handler for each of the operations, on one route."""

    def __init__(self, bridge: Bridge, route: Route, files: AttachmentService, limiter: RouteLimiter) -> None:
        self._bridge = bridge
        self._route = route
        self._dialect = require(route.dialect, QueuedRunsDialect)
        self._files = files
        self._limiter = limiter
        self._seconds = bridge.config.server.body_time

    async def attach(self, exchange: ServerExchange) -> web.StreamResponse:
        """An image, checked field by field before it is read."""
        names = self._dialect
        needs = (names.thread_field,)
        await exchange.hold(self._limiter.slot(exchange.user))
        async with read_form(
            exchange.http, names.file_field, limit=self._files.limit, seconds=self._seconds, needs=needs
        ) as form:
            thread = names.decode_attach(form.fields, form.file is not None)
            assert form.file is not None
            await check_owner(self._bridge, self._route, exchange.user, thread, make=True)
            stored = await self._files.upload(exchange.user, thread, form.file, self._files.base(exchange.http))
        return response_of(names.encode_attached(_file(stored)))

    async def sign(self, exchange: ServerExchange) -> web.StreamResponse:
        wire = await exchange.read()
        stored = await self._files.sign(
            exchange.user, *self._dialect.decode_sign(wire), self._files.base(exchange.http)
        )
        return response_of(self._dialect.encode_signed(_file(stored)))

    async def transcribe(self, exchange: ServerExchange) -> web.StreamResponse:
        """Transcribe a recording. It is read and checked before the service is called."""
        await exchange.hold(self._limiter.slot(exchange.user))
        async with read_form(exchange.http, self._dialect.audio_field, limit=LIMIT, seconds=self._seconds) as form:
            wav = await read_wav(form.file, form.content_type)
        speech = self._bridge.speech
        if speech is None:
            raise unavailable("no service is configured")
        return response_of(self._dialect.encode_transcript(await speech.transcribe(wav)))


def _file(stored: Attachment) -> StoredFile:
    return StoredFile(stored.bucket, stored.path, stored.mime, stored.url)
