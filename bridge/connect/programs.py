"""What is known of a program: its dialect, and the lines that connect it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeVar

from bridge.errors import ConfigError

NO_KEY = "unused"
"""The key in snippets for a bridge that needs none: most programs refuse an empty one."""


@dataclass(frozen=True, slots=True)
class Place:
    """The address of a route. `origin` is that of the bridge, without a slash at the end; `path` that of the route."""

    origin: str
    path: str
    model: str = "demo"
    key: str = NO_KEY

    @property
    def base(self) -> str:
        """The base URL of the route."""
        return self.origin + self.path.rstrip("/")


@dataclass(frozen=True, slots=True)
class Snippet:
    """Lines to paste. `where` says into what: a file, a shell, a menu of the program.

    `text` has the places `<base>`, `<origin>`, `<root>` (the base URL without `/v1`), `<key>` and `<model>`.
    """

    where: str
    language: str
    text: str

    def at(self, place: Place) -> str:
        """Return the lines for a route."""
        values = {
            "<base>": place.base,
            "<origin>": place.origin,
            "<root>": place.base.removesuffix("/v1"),
            "<key>": place.key,
            "<model>": place.model,
        }
        text = self.text
        for name, value in values.items():
            text = text.replace(name, value)
        return text


@dataclass(frozen=True, slots=True)
class Client:
    """A program that calls a route.

    `dialects` are those that it speaks, the recommended one first; `own_models`: it asks for models by names of its
    own. `browser`: it calls from a page, so that its origin must be in `server.cors.origins`. `notes` are what else a
    user has to know, each a sentence of Markdown.
    """

    title: str
    dialects: tuple[str, ...]
    snippets: tuple[Snippet, ...]
    own_models: bool = False
    browser: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Server:
    """A server or service that a backend calls. `key` is the variable that its users keep its key in."""

    title: str
    dialect: str
    url: str
    key: str = ""
    notes: tuple[str, ...] = ()


def _client(value: dict[str, Any]) -> Client:
    snippets = tuple(Snippet(s["where"], s["language"], "\n".join(s["lines"])) for s in value["snippets"])
    flags = {name: value.get(name, False) for name in ("own_models", "browser")}
    return Client(value["title"], tuple(value["dialects"]), snippets, **flags, notes=tuple(value.get("notes", ())))


def _server(value: dict[str, Any]) -> Server:
    notes = tuple(value.get("notes", ()))
    return Server(value["title"], value["dialect"], value["url"], value.get("key", ""), notes)


_TABLE: dict[str, Any] = json.loads(resources.files(__package__).joinpath("programs.json").read_bytes())
CLIENTS: dict[str, Client] = {name: _client(value) for name, value in _TABLE["clients"].items()}
"""The programs that call a route, by the name that users type; a dialect's own name works as well."""
SERVERS: dict[str, Server] = {name: _server(value) for name, value in _TABLE["servers"].items()}
"""The servers, services and agents that a backend calls, by name."""
ANSWERS: list[dict[str, Any]] = _TABLE["answers"]
"""What servers answer to a GET, by which `probe` recognizes their dialects; the first entry that fits counts.

`list` is the array of models and `id` the field with their names, which begin with `prefix`; `holds` and `lacks` are
fields of each. An answer without models has `keys`. `dialects`: the one that is named, and those that are alike.
"""
Kind = TypeVar("Kind", Client, Server)


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
