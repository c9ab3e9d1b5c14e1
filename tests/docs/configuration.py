"""docs/configuration.md, every key of the configuration: `make pages` writes it from the JSON Schema.

The tables of a dialect's options come from the same schema. The description of each key ends with `For:` and the
clients, backends or situations that need another value than the default: without one it would be a constant.
`python -m tests.docs.configuration` counts the keys.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bridge.engine.config import json_schema
from bridge.engine.config.kinds import BUILT_IN
from tests.docs.tables import ROOT, dialects, spanned

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
DIALECTS = {
    path: path.stem for path in sorted((ROOT / "docs" / "dialects").glob("*.md")) if path.stem in set(dialects())
}
"""The pages of dialects, and the dialect of each."""
ROLES = {"route": "front", "backend": "back"}
_MARK = re.compile(r"<!-- (([\w-]+) (route|backend) options) -->")
_FOR = " For: "
_VARIABLE = r"\$\{"

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
- *for*: who sets the key, or needs another value than the default.
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
    "server": "ServerSection",
    "backends": "BackendSection",
    "routes": "RouteSection",
    "stores": "StoresSection",
    "speech": "SpeechSection",
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
    """What a key is, without what follows the first semicolon."""
    first, *steps = re.split(r"\.\*\.|\[\]\.|\.", path)
    owner, entry = definitions[SECTIONS[first]], dict[str, Any]()
    for step in steps:
        entry = owner["properties"][step]
        owner = section(entry, definitions) or {}
    return described(entry)[0].partition(";")[0]


def described(entry: dict[str, Any]) -> tuple[str, str]:
    """Return what a key is, and what it is for, which may be empty."""
    text, _, users = entry.get("description", "").rpartition(_FOR)
    return (text.removesuffix("."), users.removesuffix(".")) if text else (users, "")


def dialect_page(path: Path) -> str:
    """The page of a dialect with a table for each mark. A mark of another dialect gets what differs from this one's."""
    text = path.read_text(encoding="utf-8")
    for mark, dialect, owner in _MARK.findall(text):
        rows = option_rows(dialect, ROLES[owner])
        if dialect != DIALECTS[path]:
            known = option_rows(DIALECTS[path], ROLES[owner])
            rows = [row for row in rows if row not in known]
        text = spanned(text, mark, "\n".join([*_HEAD_ROWS, *rows]))
    return text


def option_rows(dialect: str, role: str) -> list[str]:
    """The rows of the options of a dialect: `front` on a route, `back` on a backend."""
    definitions = json_schema()["$defs"]
    return list(_rows(options_of(dialect, role, definitions), "", definitions, deep=True))


def options_of(dialect: str, role: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of these options; one without properties if there are none."""
    found = definitions.get(f"{role}:{dialect}", {})
    return dict(definitions[found["$ref"].rpartition("/")[2]]) if found else {"properties": {}}


def leaves(owner: dict[str, Any], path: str, definitions: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The keys that hold a value and no section, each with its path and its schema."""
    for key, entry in owner.get("properties", {}).items():
        below = section(entry, definitions)
        if below is None:
            yield f"{path}{key}", entry
        else:
            yield from leaves(below, f"{path}{key}{_step(entry)}", definitions)


def keys() -> dict[str, dict[str, Any]]:
    """Each key of the engine, by its path."""
    definitions = json_schema()["$defs"]
    return {
        path: entry
        for name, owner in SECTIONS.items()
        for path, entry in leaves(definitions[owner], f"{name}.", definitions)
        if not path.endswith(".options")
    }


def options() -> dict[str, dict[str, Any]]:
    """Each option of each dialect, by dialect, role and path."""
    definitions = json_schema()["$defs"]
    return {
        f"{dialect} {role}.{path}": entry
        for dialect in dialects()
        for role in ROLES.values()
        for path, entry in leaves(options_of(dialect, role, definitions), "", definitions)
    }


_HEAD_ROWS = ("| key | value | default | what | for |", "|---|---|---|---|---|")


def _text(definitions: dict[str, Any], name: str) -> str:
    said = definitions[name].get("description")
    return f"{said}\n\n" if said else ""


def _table(owner: dict[str, Any], path: str, definitions: dict[str, Any], deep: bool = True) -> str:
    return "\n".join([*_HEAD_ROWS, *_rows(owner, path, definitions, deep)])


def _rows(owner: dict[str, Any], path: str, definitions: dict[str, Any], deep: bool) -> Iterator[str]:
    """A row for each key, and below it those of the section that it holds."""
    for key, entry in owner["properties"].items():
        kind = _kind(entry, definitions)
        default = "required" if key in owner.get("required", ()) else _default(entry, kind)
        what, users = described(entry)
        yield f"| `{path}{key}` | {kind} | {default} | {what.replace('|', PIPE)} | {users} |"
        below = section(entry, definitions) if deep else None
        if below is not None:
            yield from _rows(below, f"{path}{key}{_step(entry)}", definitions, deep)


def _choices(entry: dict[str, Any]) -> list[dict[str, Any]]:
    return [choice for choice in entry.get("anyOf", [entry]) if choice.get("type") != "null"]


def _is_list(entry: dict[str, Any]) -> bool:
    return any(choice.get("type") == "array" or _by_name(choice) for choice in _choices(entry))


def _by_name(choice: dict[str, Any]) -> dict[str, Any]:
    """The schema of the entries of a mapping with any names; empty if it has names of its own, or any values."""
    found = choice.get("additionalProperties")
    return found if isinstance(found, dict) else {}


def _step(entry: dict[str, Any]) -> str:
    return ".*." if _is_list(entry) else "."


def section(entry: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any] | None:
    """The section that a key holds: alone, in a list, or by names."""
    for choice in _choices(entry):
        found = choice.get("$ref") or choice.get("items", {}).get("$ref") or _by_name(choice).get("$ref")
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
            return f"`{value if isinstance(value, str) else json.dumps(value)}`"
        case {"enum": values}:
            return ", ".join(f"`{value}`" for value in _ours(values) if value is not False)
        case {"$ref": _}:
            return "mapping"
        case _ if "KMG" in pattern:
            return "size"
        case _ if "ms|s|m" in pattern:
            return "duration, `off`" if "|^(off" in pattern else "duration"
        case {"type": "string"} if pattern.endswith(_VARIABLE):
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
    low, high, above = choice.get("minimum"), choice.get("maximum"), choice.get("exclusiveMinimum")
    if above is not None:
        return f"{word}, more than {above}" + (f", up to {high}" if high is not None else "")
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


if __name__ == "__main__":
    sys.stdout.write(f"{len(keys())} keys of the engine, {len(options())} options of dialects\n")
