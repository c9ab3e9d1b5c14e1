"""docs/configuration.md, every key of the configuration: `make pages` writes it from the JSON Schema.

The tables of a dialect's options come from the same schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from bridge.engine.config import json_schema
from bridge.engine.config.kinds import BUILT_IN
from tests.docs.tables import ROOT, dialects

_WORDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true, false",
    "object": "mapping",
}
PIPE = "\\|"
"""In a cell of a table."""

PAGE = ROOT / "docs" / "configuration.md"

HEAD = """\
# Configuration

The configuration is one YAML file. The bridge validates it before it serves anything: for an unknown key or a wrong
value, the error names file, line and key, and what is expected there. `dialect-bridge check FILE` validates a file,
`dialect-bridge schema` prints a JSON Schema for editors, and `make pages` generates this page from that schema.

- Environment variables: `${NAME}` and `${NAME:-default}` are replaced in any string, and `${file:/path}` by the content
  of a file.
- *duration*: a number of seconds, or `500ms`, `5s`, `10m`, `24h`, `90d`. *size*: a number of bytes, or `64KiB`,
  `10MiB`.
- Where `off` is a value, `false` is accepted too, since YAML reads a bare `off` as false.
- *required*: the key has no default. An empty value (`auth:`) is the same as an absent key.
- Paths in `stores`: `sqlite:///x` and `file:x` are relative to the working directory, `sqlite:////x` and
  `file:///x` absolute.
- The keys below `options` depend on the dialect: see the page of each [dialect](dialects/index.md).
"""

COMMON = {
    "server.host": "0.0.0.0",
    "server.port": "8080",
    "server.auth.keys": '[{name: web, key: "${WEB_KEY}"}]',
    "server.cors.origins": '["https://app.example"]',
    "server.limits.per_key": "{requests_per_minute: 60}",
    "server.public_url": "https://bridge.example",
    "server.workers": "4",
    "backends.*.dialect": "openai-chat",
    "backends.*.url": "https://api.openai.com/v1",
    "backends.*.api_key": '"${OPENAI_API_KEY}"',
    "backends.*.model": "gpt-5",
    "backends.*.model_map": '{"gpt-*": qwen3-max}',
    "backends.*.timeouts.total": "10m",
    "backends.*.retry.attempts": "2",
    "backends.*.target": '"agent:run"',
    "routes[].dialect": "ag-ui",
    "routes[].path": "/v1",
    "routes[].backend": "[llm, spare]",
    "routes[].models": '{"gpt-*": llm, "*": agent}',
    "routes[].durable": "true",
    "stores.history": "postgresql://db/bridge",
    "stores.runs": "postgresql://db/bridge",
    "stores.retention.history": "30d",
}
"""The keys that people set, each with an example."""

SECTIONS = {
    "server": "Server",
    "backends": "Backend",
    "routes": "Route",
    "stores": "Stores",
    "speech": "Speech",
}
"""The parts of the page, and the definition in the schema that each shows: of backends and routes one entry."""
_UNITS = {
    "duration": ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")),
    "size": ((2**20, "MiB"), (2**10, "KiB")),
}


def page() -> str:
    """The whole page."""
    definitions = json_schema()["$defs"]
    top = _table(definitions["Config"], "", definitions, deep=False)
    rows = [f"| `{path}` | `{example}` | {_described(path, definitions)} |" for path, example in COMMON.items()]
    common = "\n".join(["## The keys that people set", "", "| key | example | what |", "|---|---|---|", *rows])
    parts = [
        f"## {path}\n\n{_text(definitions, name)}{_table(definitions[name], '', definitions)}"
        for path, name in SECTIONS.items()
    ]
    return "\n\n".join([HEAD.rstrip(), common, "## All keys", top, *parts]) + "\n"


def _described(path: str, definitions: dict[str, Any]) -> str:
    """The description of a key, without what follows its first semicolon."""
    first, *steps = re.split(r"\.\*\.|\[\]\.|\.", path)
    owner, entry = definitions[SECTIONS[first]], dict[str, Any]()
    for step in steps:
        entry = owner["properties"][step]
        owner = section(entry, definitions) or {}
    return str(entry["description"]).partition(";")[0]


def options(dialect: str) -> str:
    """The options of a dialect, on a route and on a backend."""
    definitions = json_schema()["$defs"]
    tables = []
    for role, owner in (("front", "routes"), ("back", "backends")):
        name = definitions[f"{role}:{dialect}"]["$ref"].rpartition("/")[2]
        tables.append(f"Options of {owner}:\n\n{_table(definitions[name], '', definitions)}")
    return "\n\n".join(tables)


def _text(definitions: dict[str, Any], name: str) -> str:
    said = definitions[name].get("description")
    return f"{said}\n\n" if said else ""


def _table(owner: dict[str, Any], path: str, definitions: dict[str, Any], deep: bool = True) -> str:
    return "\n".join(["| key | value | default | what |", "|---|---|---|---|", *_rows(owner, path, definitions, deep)])


def _rows(owner: dict[str, Any], path: str, definitions: dict[str, Any], deep: bool) -> Iterator[str]:
    """A row for each key, and below it those of the section that it holds."""
    for key, entry in owner["properties"].items():
        kind = _kind(entry, definitions)
        default = "required" if key in owner.get("required", ()) else _default(entry, kind)
        yield f"| `{path}{key}` | {kind} | {default} | {entry.get('description', '')} |"
        below = section(entry, definitions) if deep else None
        if below is not None:
            step = ".*." if _is_list(entry) else "."
            yield from _rows(below, f"{path}{key}{step}", definitions, deep)


def _choices(entry: dict[str, Any]) -> list[dict[str, Any]]:
    return [choice for choice in entry.get("anyOf", [entry]) if choice.get("type") != "null"]


def _is_list(entry: dict[str, Any]) -> bool:
    return any(choice.get("type") == "array" for choice in _choices(entry))


def section(entry: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any] | None:
    """The section that a key holds, alone or as a list of such."""
    for choice in _choices(entry):
        found = choice.get("$ref") or choice.get("items", {}).get("$ref")
        if found and "properties" in (below := definitions[found.rpartition("/")[2]]):
            return dict(below)
    return None


def _kind(entry: dict[str, Any], definitions: dict[str, Any]) -> str:
    """What may be written, in words."""
    words = [_word(choice, definitions) for choice in _choices(entry)]
    return " or ".join(dict.fromkeys(word for word in words if word))


def _word(choice: dict[str, Any], definitions: dict[str, Any]) -> str:
    pattern = choice.get("pattern", "")
    match choice:
        case {"const": value}:
            return f"`{value}`"
        case {"enum": values}:
            return ", ".join(f"`{value}`" for value in _ours(values) if value is not False)
        case {"$ref": _}:
            return "mapping"
        case _ if "KMG" in pattern:
            return "size"
        case _ if "ms|s|m" in pattern:
            return "duration, `off`" if "|^(off" in pattern else "duration"
        case {"type": "string"} if "$" in pattern:
            return ""  # A number or a switch written as a variable.
        case {"type": "array", "items": items}:
            return f"list of {_kind(items, definitions) or 'text'}"
        case {"type": "object", "additionalProperties": dict() as items}:
            return f"mapping (each: {_kind(items, definitions)})"
        case _:
            return _plain(choice)


def _ours(values: list[Any]) -> list[Any]:
    """Of a list of dialects those that belong to this project; every other list as it is."""
    own = dialects()
    return [*own, *(value for value in values if value in BUILT_IN)] if set(own) <= set(values) else values


def _plain(choice: dict[str, Any]) -> str:
    word = _WORDS[choice["type"]]
    low, high = choice.get("minimum"), choice.get("maximum")
    if high is not None:
        return f"{word}, {low} to {high}"
    return f"{word}, {low} or more" if low is not None else word


def _default(entry: dict[str, Any], kind: str) -> str:
    value = entry.get("default")
    if value in (None, [], {}, ""):
        return ""
    for size, unit in _UNITS.get(kind.replace(",", " ").split()[0], ()):
        if value and value % size == 0:
            return f"`{value / size:g}{unit}`"
    if kind.startswith("duration"):
        return f"`{value * 1000:g}ms`"
    is_plain = isinstance(value, str) and value.isprintable()
    told = value if is_plain else f"{value:g}" if isinstance(value, float) else json.dumps(value)
    return f"`{told.replace('|', PIPE)}`"
