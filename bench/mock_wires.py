"""The mock upstream's replies in all other dialects: its chat stream, written by the product's own encoders in advance.

Chat and AgentScope replies are written by hand after real servers (mock_replies.py); of the rest there are as many real
servers as manners, and what counts is that every target reads the same bytes.
"""

from __future__ import annotations

from dataclasses import replace

from mock_replies import (
    CREATED,
    MODEL,
    REPEAT_HOLE,
    STAMP_HOLE,
    Plan,
    Settings,
    chat_body,
    chat_events,
    http_json_bytes,
)

from bridge.translation.library import Translator

OWN_ID = b"i" * 32  # stands for the ids of the run API, which must be those of the request
WIRES = (
    *("agentscope-java", "ag-kit", "ag-ui", "agent-runs", "ai-sdk-ui"),
    *("openai-responses", "anthropic-messages", "gemini", "a2a"),
)
PLAIN = ("openai-responses", "anthropic-messages")  # those with replies in one piece


def _translator(dialect: str) -> Translator:
    return Translator("openai-chat", dialect, model=MODEL, run_id=OWN_ID.decode(), created_at=CREATED)


def stream(dialect: str, s: Settings) -> Plan:
    """A streamed reply; in the run API its ids are holes, `Plan.named` says so."""
    translator = _translator(dialect)
    written = b"".join([*map(translator.feed, chat_events(s, False)), translator.close()])
    events, texts = [], 0
    for block in written.split(b"\n\n")[:-1]:
        # Behind the deltas come repeats of the text, which show the stamps of the deltas.
        block = block if texts < s["tokens"] else block.replace(STAMP_HOLE, REPEAT_HOLE)
        texts += block.count(STAMP_HOLE)
        number = b"id: 1-%d\n" % (len(events) + 1) if dialect == "agent-runs" else b""
        events.append(number + block + b"\n\n")
    return replace(s.plan(events), named=dialect == "agent-runs")


def plain(dialect: str, s: Settings) -> bytes:
    """The reply in one piece, with its HTTP head."""
    return http_json_bytes(200, _translator(dialect).response(chat_body(s)))


class Wires:
    """The replies under one state of the settings, each made when it is first asked for."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.made: dict[tuple[str, bool], Plan | bytes] = {}

    def answer(self, dialect: str, streamed: bool) -> Plan | bytes:
        streamed = streamed or dialect not in PLAIN
        if (key := (dialect, streamed)) not in self.made:
            self.made[key] = stream(dialect, self.settings) if streamed else plain(dialect, self.settings)
        return self.made[key]
