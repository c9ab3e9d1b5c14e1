"""The operation `history`: a stored conversation, one day at a time."""

from __future__ import annotations

from datetime import UTC, date, datetime, tzinfo
from zoneinfo import ZoneInfo

from aiohttp import web

from bridge.contract import HistoryFile, HistoryMessage, HistoryPage, QueuedRunsDialect, require
from bridge.engine.bridge import Bridge
from bridge.engine.route import Route
from bridge.errors import BridgeError, ErrorCode
from bridge.model import Media, Message, Text, ToolResult, json_text, result_text
from bridge.model.jsontext import loads
from bridge.model.parts import url_of
from bridge.run.conversation.queued_turns import SHOWN, MessageInfo, own_metadata
from bridge.server.operations.attachment_service import AttachmentService
from bridge.server.operations.queued_run_endpoints import check_owner
from bridge.server.requests.exchange import ServerExchange
from bridge.server.requests.http_messages import response_of
from bridge.stores import Conversation


class HistoryHandler:
    """Serves the `history` endpoints of one route; `files` signs the URLs of its images."""

    def __init__(self, bridge: Bridge, route: Route, files: AttachmentService) -> None:
        self._bridge = bridge
        self._route = route
        self._dialect = require(route.dialect, QueuedRunsDialect)
        self._files = files
        name = bridge.config.server.time_zone
        self._zone: tzinfo = UTC if name == "UTC" else ZoneInfo(name)

    async def __call__(self, exchange: ServerExchange) -> web.StreamResponse:
        query = self._dialect.decode_history(await exchange.read())
        owner, history = exchange.user, self._bridge.history
        thread = query.thread_id
        if thread is None:
            thread = await history.latest(owner, self._route.path)
        else:
            await check_owner(self._bridge, self._route, owner, thread)
        if thread is None:
            return response_of(self._dialect.encode_history(HistoryPage()))
        conversation = await history.load(owner, self._route.path, thread) or Conversation(thread)
        day, rows, more = self._day(conversation, query.before)
        base = self._files.base(exchange.http)
        entries = [await self._entry(message, seq, owner, base) for seq, message in rows]
        return response_of(
            self._dialect.encode_history(HistoryPage(thread, day, more, tuple(entries), conversation.dropped))
        )

    def _day(
        self, conversation: Conversation, before: date | None
    ) -> tuple[date | None, list[tuple[int, Message]], bool]:
        """Return the last day before `before` with visible messages, these with positions, and if there are more."""
        days: dict[date, list[tuple[int, Message]]] = {}
        for seq, message in enumerate(conversation.messages, conversation.dropped + 1):
            if visible(message):
                days.setdefault(self._at(message).date(), []).append((seq, message))
        known = sorted(day for day in days if before is None or day < before)
        return (known[-1], days[known[-1]], len(known) > 1) if known else (None, [], False)

    def _at(self, message: Message) -> datetime:
        return datetime.fromtimestamp(MessageInfo.of(message).at, self._zone)

    async def _entry(self, message: Message, seq: int, owner: str, base: str) -> HistoryMessage:
        files = [await self._file(part, owner, base) for part in message.parts if isinstance(part, Media)]
        return HistoryMessage(
            message.id or "",
            seq,
            message.role,
            text_in(message),
            self._at(message),
            tuple(file for file in files if file is not None),
            own_metadata(message),
        )

    async def _file(self, part: Media, owner: str, base: str) -> HistoryFile | None:
        """Return a file with a fresh URL if the bridge stores it; None if it has no URL or does not exist."""
        url, mime = url_of(part), part.mime or "application/octet-stream"
        location = self._bridge.attachments.find(url) if url else None
        if location is None:
            return HistoryFile(mime, url) if url else None
        try:
            found = await self._files.sign(owner, *location, base)
        except BridgeError as error:
            if error.code not in (ErrorCode.NOT_FOUND, ErrorCode.FORBIDDEN):
                raise
            return None
        return HistoryFile(found.mime, found.url)


def visible(message: Message) -> bool:
    """Return whether people see this message when they read the conversation back."""
    if SHOWN not in MessageInfo.of(message).views or message.role not in ("user", "assistant", "tool"):
        return False
    return message.role != "assistant" or bool(text_in(message)) or any(isinstance(p, Media) for p in message.parts)


def text_in(message: Message) -> str:
    """Return the readable text of a message: its text, or a tool's result as JSON."""
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    if results:
        return "\n".join(_as_json(result_text(result.parts)) for result in results)
    return "".join(part.text for part in message.parts if isinstance(part, Text))


def _as_json(text: str) -> str:
    try:
        loads(text)
    except ValueError:
        return json_text(text)
    return text
