"""What a bridge is given beside its routes: services of its own, and what a server in front of it adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.engine.telemetry.metrics import BridgeMetrics
    from bridge.engine.telemetry.tracing import Tracing
    from bridge.model import UsageReported
    from bridge.run.backends.fetch import Fetcher
    from bridge.run.backends.speech import Speech
    from bridge.run.conversation.turns import ConversationTurns
    from bridge.run.durable import RunSlots
    from bridge.run.durable.push import Pusher
    from bridge.stores import Attachments, RunStore


@dataclass(frozen=True)
class Services:
    """The services that the routes of a bridge use. A bridge starts and closes them.

    Attributes:
        turns: What keeps the conversations of routes.
        store: The runs of durable routes.
        attachments: Uploaded files, and media of answers.
        speech: Speech to text.
        fetchers: By the name of a backend: what fetches the media of its requests here.
        pushers: By the path of a route: what sends its push notifications.
        tracing: The spans of requests.
    """

    turns: ConversationTurns | None = None
    store: RunStore | None = None
    attachments: Attachments | None = None
    speech: Speech | None = None
    fetchers: Mapping[str, Fetcher] = field(default_factory=dict)
    pushers: Mapping[str, Pusher] = field(default_factory=dict)
    tracing: Tracing | None = None


@dataclass(frozen=True)
class Host:
    """What a server adds to the bridge that it serves; a bridge without a server has the defaults.

    Attributes:
        slots: The limits of the server, which apply to stored runs, too.
        metrics: The metrics that the server shows.
        spent: Called with the user and the usage of each run that has ended.
    """

    slots: RunSlots | None = None
    metrics: BridgeMetrics | None = None
    spent: Callable[[str, UsageReported | None], None] | None = None
