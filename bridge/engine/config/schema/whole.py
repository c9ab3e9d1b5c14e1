"""The sections that belong to no other, and the whole."""

from __future__ import annotations

import os
from typing import Annotated, Self

from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from bridge.contract import AgentTasksDialect
from bridge.contract.surface import shown_path
from bridge.engine.config.kinds import AttachmentsUrl, HistoryUrl, OptionalSecret, RunsUrl, Text, Url, dialect_of
from bridge.engine.config.origin import ConfigOrigin
from bridge.engine.config.problems import at, expected, wrong
from bridge.engine.config.schema.backends import BackendSection
from bridge.engine.config.schema.base import OrOff, Section
from bridge.engine.config.schema.routes import RouteSection
from bridge.engine.config.schema.server import ServerSection
from bridge.engine.config.units import Duration, Size
from bridge.errors import ConfigError

DAY = 86400.0


class RetentionSection(Section):
    events: Duration = Field(
        default=DAY,
        description="retention of the events of runs"
        ". For: clients that resume a run, or fetch a task's result, after a day; short times where "
        "disks are small",
    )
    history: Duration = Field(
        default=90 * DAY,
        description="retention of threads and messages, and of the files of threads"
        ". For: rules on how long personal data may be kept",
    )


def _a_second(value: float) -> float:
    """Shorter ones would take a busy process for a dead one."""
    if value < 1:
        raise expected("at least 1s")
    return value


class StoresSection(Section):
    history: OrOff[HistoryUrl] = Field(
        default="sqlite:///data/bridge.db",
        description="URL of the store of conversations and stored answers: sqlite or postgresql; off = none"
        ". For: several machines (postgresql), a place of your own (sqlite), nothing on disk (off)",
        repr=False,
    )
    runs: RunsUrl = Field(
        default="sqlite:///data/bridge.db",
        description="URL of the store of runs, with events, queue, cancellations and leases: sqlite or postgresql"
        ". For: several machines (postgresql), or a place of your own (sqlite)",
        repr=False,
    )
    attachments: AttachmentsUrl = Field(
        default="file:data/attachments",
        description="URL of the store of uploaded files and media of answers: file, s3, gs or az"
        ". For: several machines, or files in the object store of your cloud",
        repr=False,
    )
    lease: Annotated[Duration, AfterValidator(_a_second)] = Field(
        default=10.0,
        description="time without a sign of life after which a process counts as dead: its runs end "
        "and its locks on conversations are released; at least 1s"
        ". For: machines that pause for longer (a suspended VM, a busy database), or runs that must "
        "end sooner",
    )
    max_run: OrOff[Size] = Field(
        default=64 * 2**20,
        description="maximum size of the stored events of one run in bytes; a longer run fails"
        ". For: agents that run for hours or send large files",
    )
    max_messages: Annotated[int, Field(ge=1)] = Field(
        default=10_000,
        description="maximum number of messages of one conversation; the oldest turns are deleted beyond it"
        ". For: conversations that go on for months",
    )
    max_conversation: Size = Field(
        default=64 * 2**20,
        description="maximum size of one conversation in bytes; the oldest turns are deleted beyond it"
        ". For: conversations with many pictures and files",
    )
    max_conversations: OrOff[Annotated[int, Field(ge=1)]] = Field(
        default=None,
        description="maximum number of conversations of one user; those unused for longest are deleted beyond it. "
        "All clients with one API key are one user"
        ". For: public pages, where anyone may begin conversations",
    )
    retention: RetentionSection = Field(
        default_factory=RetentionSection, description="retention times. For: small disks, or rules on personal data"
    )


class SpeechSection(Section):
    url: Url = Field(
        description="base URL of an OpenAI-compatible service with /audio/transcriptions"
        ". For: voice input of AgentRuns clients"
    )
    api_key: OptionalSecret = Field(
        default=None, description="API key of the service; empty = none. For: services that need a key"
    )
    model: Text = Field(
        default="whisper-1", description="model for transcriptions. For: services with other models than OpenAI's"
    )


class Config(Section):
    """The whole configuration of one bridge."""

    server: ServerSection = Field(
        default_factory=ServerSection,
        description="the server: address, limits, authentication. For: everyone who serves others than this machine",
    )
    backends: dict[str, BackendSection] = Field(
        description="name -> a backend that answers requests. For: every configuration"
    )
    routes: tuple[RouteSection, ...] = Field(
        min_length=1, description="frontends: dialects and their paths. For: every configuration"
    )
    stores: StoresSection = Field(
        default_factory=StoresSection,
        description="databases and files for state. For: several machines, or state in a place of your own",
    )
    speech: SpeechSection | None = Field(
        default=None, description="speech to text; absent = not offered. For: frontends with a microphone"
    )
    _origin: ConfigOrigin | None = PrivateAttr(default=None)
    """Set by `load`."""

    @model_validator(mode="after")
    def _push(self) -> Self:
        """Push notifications are sent of tasks that are kept, to URLs that are kept with them."""
        for index, route in enumerate(self.routes):
            dialect = dialect_of(route.dialect)
            if not isinstance(dialect, AgentTasksDialect) or not dialect.push_hosts(route.options):
                continue
            place = ("routes", index, "options", "push")
            if not route.durable:
                raise at(place, wrong("push notifications need a route with durable: true"))
            if self.stores.history is None:
                raise at(place, wrong("push notifications need stores.history"))
        return self

    def from_file(self, origin: ConfigOrigin) -> Self:
        """Remember the file, for `located`; return the configuration."""
        self._origin = origin
        return self

    @property
    def folder(self) -> str | None:
        """The folder of the file that the configuration was read from; None if it was in none."""
        if self._origin is None or not self._origin.positions:
            return None
        return os.path.dirname(os.path.abspath(self._origin.name))

    def located(self, error: ConfigError) -> ConfigError:
        """Return an error that a checked configuration caused later, with file and line if it names a key."""
        return error if self._origin is None else self._origin.located(error)

    def describe(self) -> list[str]:
        """The route table, a line for each endpoint: method, path, dialect, and the backends behind it."""
        rows: list[tuple[str, str, str, str]] = []
        for route in self.routes:
            ways = ", ".join(f"{name} ({self.backends[name].dialect})" for name in route.backends)
            for path, endpoint in route.endpoints():
                rows.append((endpoint.method, shown_path(path), route.dialect, ways))
            if route.path is None:
                rows.append(("gRPC", f"{route.listen} {route.agent_id}", route.dialect, ways))
        first_width, name = (max((len(row[n]) for row in rows), default=0) for n in (1, 2))
        return [f"{row[0]:<6} {row[1]:<{first_width}}  {row[2]:<{name}} -> {row[3]}" for row in rows]
