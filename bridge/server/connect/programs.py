"""What is known of a program: its dialect, and the lines that connect it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, TypeVar

from bridge.errors import ConfigError

NO_KEY = "unused"
"""The key in snippets for a bridge that needs none: most programs refuse an empty one."""

FROM_PAGES = (
    "Any page may call the bridge. To keep others out, and to let yours resume runs and read histories, name its "
    'origin: `server: {cors: {origins: ["http://localhost:5173"]}}`.'
)
"""The note of every program that calls from a page."""


@dataclass(frozen=True, slots=True)
class RouteAddress:
    """A route: `origin` is the address of the bridge, without a slash at the end; `path` is that of the route.

    `command` and `file` are the bridge's program and its configuration, for programs that start it themselves.
    """

    origin: str
    path: str
    model: str = "demo"
    key: str = NO_KEY
    command: str = "dialect-bridge"
    file: str = "/path/to/config.yaml"

    @property
    def base(self) -> str:
        """The base URL of the route."""
        return self.origin + self.path.rstrip("/")

    def filled(self, text: str, escape: Callable[[str], str] = str) -> str:
        """Return a text with the values of its places, each as `escape` writes it."""
        values = {
            "<base>": self.base,
            "<path>": self.path,
            "<origin>": self.origin,
            "<root>": self.base.removesuffix("/v1"),
            "<key>": self.key,
            "<model>": self.model,
            "<command>": self.command,
            "<file>": self.file,
        }
        for name, value in values.items():
            text = text.replace(name, escape(value))
        return text


@dataclass(frozen=True, slots=True)
class Snippet:
    """Lines to paste. `where` says into what: a file, a shell, a menu of the program.

    `text` has the places `<base>`, `<path>` (that of the route), `<origin>`, `<root>` (the base URL without `/v1`),
    `<key>`, `<model>`, `<command>` and `<file>` (those of a `RouteAddress`).
    """

    where: str
    language: str
    text: str

    def at(self, place: RouteAddress) -> str:
        """Return the lines for a route."""
        return place.filled(self.text)


@dataclass(frozen=True, slots=True)
class CodingAgent:
    """How a program for the command line is started so that it calls a route.

    `install` is the command that installs it. `variables` and `arguments` have the places of a `Snippet`. `removed`
    are variables that would win over those. `settings` is the text of a file that `settings_variable` names.
    `needs_model`: it names no model of its own. `dialects`, if not all of the client's. `path`: the agent adds this to
    its base URL by itself, so the path of a route has to end with it.
    """

    command: str
    install: str
    variables: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    settings: str = ""
    settings_variable: str = ""
    needs_model: bool = False
    dialects: tuple[str, ...] = ()
    path: str = ""


@dataclass(frozen=True, slots=True)
class ClientProgram:
    """A program that calls a route.

    `dialects` are those that it speaks, the recommended one first; `own_models`: it asks for models by names of its
    own. `browser`: it calls from a page, so that its origin must be in `server.cors.origins`. `notes` are what else a
    user has to know, each a sentence of Markdown. `agent`: `dialect-bridge run` can start it.
    """

    title: str
    dialects: tuple[str, ...]
    snippets: tuple[Snippet, ...]
    own_models: bool = False
    browser: bool = False
    notes: tuple[str, ...] = ()
    agent: CodingAgent | None = None


@dataclass(frozen=True, slots=True)
class BackendProgram:
    """A server or service that a backend calls. `key` is the variable that its users keep its key in."""

    title: str
    dialect: str
    url: str
    key: str = ""
    notes: tuple[str, ...] = ()


def _client(value: dict[str, Any]) -> ClientProgram:
    snippets = tuple(Snippet(s["where"], s["language"], "\n".join(s["lines"])) for s in value["snippets"])
    flags = {name: value.get(name, False) for name in ("own_models", "browser")}
    agent = _agent(value["agent"]) if "agent" in value else None
    notes = tuple(value.get("notes", ()))
    return ClientProgram(value["title"], tuple(value["dialects"]), snippets, **flags, notes=notes, agent=agent)


def _agent(value: dict[str, Any]) -> CodingAgent:
    fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in value.items()}
    return CodingAgent(**fields)


def _server(value: dict[str, Any]) -> BackendProgram:
    notes = tuple(value.get("notes", ()))
    return BackendProgram(value["title"], value["dialect"], value["url"], value.get("key", ""), notes)


_TABLE: dict[str, Any] = json.loads(resources.files(__package__).joinpath("programs.json").read_bytes())
CLIENTS: dict[str, ClientProgram] = {name: _client(value) for name, value in _TABLE["clients"].items()}
"""The programs that call a route, by the name that users type; a dialect's own name works as well."""
AGENTS: dict[str, ClientProgram] = {
    client.agent.command: client for client in CLIENTS.values() if client.agent is not None
}
"""The coding agents among them, by their commands."""
SERVERS: dict[str, BackendProgram] = {name: _server(value) for name, value in _TABLE["servers"].items()}
"""The servers, services and agents that a backend calls, by name."""
ANSWERS: list[dict[str, Any]] = _TABLE["answers"]
"""What servers answer to a GET, by which `probe` recognizes their dialects; the first entry that fits counts.

`list` is the array of models and `id` the field with their names, which begin with `prefix`; `holds` and `lacks` are
fields of each. An answer without models has `keys`. `dialects`: the one that is named, and those that are alike.
"""
Kind = TypeVar("Kind", ClientProgram, BackendProgram)


def named(programs: Mapping[str, Kind], name: str) -> Kind | None:
    """Return the program of this name; spaces, dots and capitals do not matter. None if there is none."""
    return programs.get(name.strip().lower().replace(" ", "-").replace("_", "-").replace(".", "-"))


def unknown(name: str, programs: Mapping[str, Kind], dialects: list[str]) -> ConfigError:
    """Return the error for a name that is neither a program nor a dialect, with the nearest ones."""
    import difflib  # here, since servers do not need it

    near = difflib.get_close_matches(name.lower(), [*programs, *dialects], n=2, cutoff=0.6)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    lists = f"Programs: {', '.join(programs)}\n  Dialects: {', '.join(dialects)}"
    return ConfigError(f"unknown program or dialect {name!r}{hint}\n  {lists}")
