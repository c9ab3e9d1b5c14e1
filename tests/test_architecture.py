"""The architecture: which package imports which, that nothing imports in a circle, and what a codec may not use.

Read from the source with `ast`, imports inside functions and those for type checking only (`if TYPE_CHECKING:`)
included.
"""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from bridge.contract import registry

ROOT = Path(__file__).parents[1]

# Each room below `bridge/` and the rooms whose modules it may import, from the ground up. `bridge` is the module
# `bridge/__init__.py`. A new room fails the tests until it has a row here. The packages of `bridge/sdk` are for
# programs: each also imports the adapter of its name.
_BASE = {"errors", "model", "contract", "toolkit"}
_ENGINE = {*_BASE, "translation", "stores", "run", "engine"}
ROOMS: dict[str, set[str]] = {
    "version": set(),
    "errors": set(),
    "model": {"errors"},
    "contract": {"errors", "model"},
    "toolkit": {"errors", "model", "contract"},
    "translation": _BASE,
    "jsonrpc": {"errors", "model", "translation"},
    "stores": {"errors", "model"},
    "run": {*_BASE, "translation", "jsonrpc", "stores"},
    "engine": {*_BASE, "translation", "stores", "run"},
    "server": {*_ENGINE, "jsonrpc", "version"},
    "asgi": {"engine", "errors", "server"},
    "bridge": {"version", "errors", "model", "translation", "engine"},
    "sdk": {*_BASE, "stores", "run", "server"},
    "testing": {*_BASE, "translation", "run", "engine"},
    "cli": {*_ENGINE, "jsonrpc", "server", "asgi", "version"},
    "__main__": {"cli"},
}

# The floors inside a room, from the ground up; "" are the modules that stand in the room itself. Its `__init__.py` is
# its face, above all of them.
FLOORS: dict[str, tuple[str, ...]] = {
    "contract": ("", "optional"),
    "translation": ("framing", "", "policies", "library"),
    "run": ("conversation", "", "tools", "backends", "durable"),
    "engine": ("config", "telemetry", ""),
    "server": ("connect", "auth", "requests", "sessions", "operations", "page", "grpc", "host"),
    "sdk": ("agentscope", "aip"),
    "testing": ("strategies", ""),
}

FOLDER, DIALECTS = "adapters", "bridge.dialects"
"""The folder of the dialects, and the package that it is imported as."""

KITS = {"openai"}
"""Folders of `adapters/` that are no dialects: what the wires of one vendor share, for the dialects that speak it."""

# What a dialect may use: our four rooms, the kits, two libraries, and of the standard library what has no clock, no
# randomness and no I/O. A kit may use what a dialect may, but no dialect.
ADAPTER_ROOMS = {"bridge.model", "bridge.contract", "bridge.toolkit", "bridge.errors"}
ADAPTER_LIBRARIES = {"orjson", "pydantic"}
IMPURE = {
    "asyncio", "concurrent", "multiprocessing", "threading", "socket", "socketserver", "ssl", "selectors", "select",
    "http", "urllib.request", "subprocess", "os", "io", "pathlib", "shutil", "tempfile", "glob", "signal", "sys",
    "time", "random", "secrets", "uuid", "logging", "importlib", "aiohttp", "grpc", "requests", "httpx",
}  # fmt: skip
CLOCKS = {"now", "utcnow", "today"}


@dataclass(frozen=True)
class Import:
    """One imported module, as an absolute name."""

    module: str
    line: int
    typing_only: bool


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def sources(*packages: str) -> list[Path]:
    return sorted(p for package in packages for p in (ROOT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return DIALECTS + name.removeprefix(FOLDER) if name.partition(".")[0] == FOLDER else name


def where(path: Path, line: int = 1) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


@cache
def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or path.with_name(f"{path.name}.py").exists()


@cache
def imports(path: Path, tree: ast.Module | None = None) -> list[Import]:
    """Every import of the file, wherever it stands."""
    package = name_of(path) if path.name == "__init__.py" else name_of(path).rpartition(".")[0]
    out: list[Import] = []

    def walk(node: ast.AST, typing_only: bool) -> None:
        if isinstance(node, ast.Import):
            out.extend(Import(a.name, node.lineno, typing_only) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) + 1 - node.level]) if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            for alias in node.names:
                whole = f"{module}.{alias.name}"
                out.append(Import(whole if is_module(whole) else module, node.lineno, typing_only))
        elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for child in node.body:
                walk(child, True)
            for child in node.orelse:
                walk(child, typing_only)
            return
        for child in ast.iter_child_nodes(node):
            walk(child, typing_only)

    walk(tree or parsed(path), False)
    return out


def room_of(module: str) -> str | None:
    """The room of a module of `bridge`; None for a module of somebody else."""
    pieces = module.split(".")
    if pieces[0] != "bridge":
        return None
    return pieces[1] if len(pieces) > 1 else "bridge"


def floor_of(module: str) -> int:
    """The floor of a module inside its room; that of a face is above all."""
    room, *inner = module.split(".")[1:]
    floors = FLOORS[room]
    if not inner:
        return len(floors)
    return floors.index(inner[0]) if inner[0] in floors else floors.index("")


def standing_rooms() -> set[str]:
    folder = ROOT / "bridge"
    files = {p.stem for p in folder.glob("*.py") if p.stem != "__init__"}
    rooms = {p.name for p in folder.iterdir() if p.is_dir() and any(p.rglob("*.py"))}
    return {"bridge"} | files | rooms - {"dialects"}


# ---------------------------------------------------------------------- rooms


def test_every_room_has_a_row_and_every_row_a_room() -> None:
    assert set(ROOMS) == standing_rooms()
    assert {room for allowed in ROOMS.values() for room in allowed} <= set(ROOMS)


def test_no_row_names_a_room_above_it() -> None:
    order = list(ROOMS)
    above = {
        room: [name for name in allowed if order.index(name) >= order.index(room)] for room, allowed in ROOMS.items()
    }
    assert {room: names for room, names in above.items() if names} == {}


def test_every_floor_has_its_packages() -> None:
    for room, floors in FLOORS.items():
        standing = {p.parent.name for p in (ROOT / "bridge" / room).glob("*/__init__.py")}
        assert standing == set(floors) - {""}


def trespasses(path: Path, tree: ast.Module | None = None) -> Iterator[str]:
    name = name_of(path)
    own = room_of(name) or ""
    for found in imports(path, tree):
        room = room_of(found.module)
        if room == "dialects":
            pieces = name.split(".")
            if own == "sdk" and found.module.split(".")[2:3] == pieces[2:3]:
                continue
            yield f"{where(path, found.line)}: the engine knows no dialect, but imports {found.module}"
        elif room and room != own and room not in ROOMS[own]:
            yield f"{where(path, found.line)}: {own} may not import {found.module}"
        elif room == own and room in FLOORS and found.module != name:
            same = own == "sdk" and floor_of(name) != floor_of(found.module)
            if same or floor_of(found.module) > floor_of(name):
                yield f"{where(path, found.line)}: {name} may not import {found.module}, on a floor above it"


def test_rooms_import_only_what_their_row_names() -> None:
    assert [t for path in sources("bridge") for t in trespasses(path)] == []


def test_rows_promise_no_more_than_is_used() -> None:
    """A row that allows what nobody needs is a wall with a hole."""
    used: dict[str, set[str]] = {room: set() for room in ROOMS}
    for path in sources("bridge"):
        own = room_of(name_of(path)) or ""
        used[own] |= {room for i in imports(path) if (room := room_of(i.module)) and room != own}
    loose = {room: sorted(ROOMS[room] - used[room]) for room in ROOMS}
    assert {room: extra for room, extra in loose.items() if extra} == {}


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the groups of modules that reach each other."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen, ahead = set[str](), set(graph[start])
        while ahead:
            module = ahead.pop()
            seen.add(module)
            ahead |= graph[module] - seen
        reached[start] = seen
    return [{start, *(m for m in reached[start] if start in reached[m])} for start in graph if start in reached[start]]


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports inside functions count: a circle that works by its order of imports breaks with the next one."""
    modules = {name_of(path): path for path in sources("bridge") if "dialects" not in path.parts}
    graph = {
        name: {i.module for i in imports(path) if not i.typing_only and i.module in modules and i.module != name}
        for name, path in modules.items()
    }
    assert circles(graph) == []


def test_a_circle_of_imports_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [{"b", "c"}, {"b", "c"}]


# ---------------------------------------------------------------------- dialects


def dialects() -> list[str]:
    folders = {p.name for p in (ROOT / FOLDER).iterdir() if (p / "__init__.py").exists()}
    assert folders >= KITS
    return sorted(folders - KITS)


def impurities(path: Path, tree: ast.Module | None = None) -> Iterator[str]:
    """What a codec file does that a codec may not do."""
    own = ".".join(name_of(path).split(".")[:3])
    for found in imports(path, tree):
        module, top = found.module, found.module.partition(".")[0]
        place = f"{where(path, found.line)}: "
        if room_of(module) == "dialects":
            package = ".".join(module.split(".")[:3])
            if own == DIALECTS or package not in {own, *(f"{DIALECTS}.{kit}" for kit in KITS)}:
                yield f"{place}a dialect may not import another one: {module}"
        elif top == "bridge":
            if not any(module == room or module.startswith(room + ".") for room in ADAPTER_ROOMS):
                yield f"{place}a dialect may not import {module}"
        elif module in IMPURE or top in IMPURE:
            yield f"{place}a codec has no clock, no randomness, no I/O, but imports {module}"
        elif top not in ADAPTER_LIBRARIES and top not in sys.stdlib_module_names:
            yield f"{place}a dialect may use {sorted(ADAPTER_LIBRARIES)} and the standard library, not {module}"
    for node in ast.walk(tree or parsed(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS:
            yield f"{where(path, node.lineno)}: a codec has no clock, but calls {ast.unparse(node.func)}"
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("open", "print", "input")
        ):
            yield f"{where(path, node.lineno)}: a codec has no I/O, but calls {node.func.id}"


def test_dialects_are_pure_and_strangers_to_each_other() -> None:
    files = sources(FOLDER)
    assert len({p.parent for p in files}) > 1
    assert [i for path in files for i in impurities(path)] == []


@pytest.mark.parametrize(
    "line",
    [
        "import asyncio",
        "import socket as s",
        "from time import monotonic",
        "import uuid",
        "import random",
        "from aiohttp import web",
        "import grpc.aio",
        "from urllib.request import urlopen",
        "def f():\n    import os",
        "from bridge.run import Run",
        "from bridge import run",
        "import bridge",
        "import bridge.server.host.app",
        "if TYPE_CHECKING:\n    from bridge.engine.bridge import Bridge",
        "from bridge.dialects.another.codec import x",
        "from bridge.dialects import another",
        "from bridge.dialects.openai_chat.wire import x",
        "import bridge.dialects.another",
        "if TYPE_CHECKING:\n    from bridge.dialects.another import dialect",
        "from ..another import codec",
        f"import {FOLDER}",
        f"from {FOLDER}.one.wire import x",
        "from ..another import x",
        "import numpy",
        "x = datetime.now()",
        "x = datetime.datetime.utcnow()",
        "x = date.today()",
        "x = open('f')",
    ],
)
def test_the_rule_for_dialects_bites(line: str) -> None:
    assert list(impurities(ROOT / FOLDER / "one" / "codec.py", ast.parse(line)))


def test_a_kit_imports_no_dialect_and_is_none() -> None:
    for kit in KITS:
        line = ast.parse("from bridge.dialects.one.wire import x")
        assert list(impurities(ROOT / FOLDER / kit / "api.py", line))
        assert kit not in registry.names()


@pytest.mark.parametrize(
    "line",
    [
        "from bridge.model import Text",
        "from bridge.model.jsontext import dumps",
        "from bridge import errors",
        "import orjson",
        "from pydantic import Field",
        "from datetime import datetime",
        "from urllib.parse import urlsplit",
        "from bridge.dialects.one.wire import x",
        "from .wire import x",
        "from . import wire",
        "from bridge.dialects.openai.api import x",
        "from bridge.dialects import openai",
    ],
)
def test_the_rule_for_dialects_lets_pass(line: str) -> None:
    assert list(impurities(ROOT / FOLDER / "one" / "codec.py", ast.parse(line))) == []


@pytest.mark.parametrize(
    ("place", "line", "bad"),
    [
        ("model/parts.py", "from bridge.contract import Card", True),
        ("model/parts.py", "def f():\n    from bridge.contract import Card", True),
        ("model/parts.py", "if TYPE_CHECKING:\n    from bridge.contract import Card", True),
        ("model/parts.py", "from ..contract import Card", True),
        ("model/parts.py", "from .events import Event", False),
        ("model/parts.py", "from bridge import engine", True),
        ("model/parts.py", "from bridge import Text", True),
        ("errors.py", "import bridge.model.parts", True),
        ("contract/dialect.py", "from bridge.toolkit.encoder import Encoder", True),
        ("contract/dialect.py", "from bridge.contract.optional.rpc import RpcDialect", True),
        ("contract/optional/rpc.py", "from bridge.contract.dialect import Dialect", False),
        ("run/run.py", "from bridge.engine.config import load", True),
        ("run/run.py", "from bridge.run.backends import http", True),
        ("run/run.py", "from bridge.run import Run", True),
        ("run/backends/http_backend.py", "from bridge.run.backend import Call", False),
        ("run/conversation/turns.py", "if TYPE_CHECKING:\n    from bridge.run.run import Run", True),
        ("server/auth/api_keys.py", "from bridge.server.requests.limits import Limits", True),
        ("server/host/app.py", "import bridge.dialects", True),
        ("server/host/app.py", "from bridge import dialects", True),
        ("server/host/app.py", "from ...dialects.one import dialect", True),
        ("server/host/app.py", "if TYPE_CHECKING:\n    from bridge.dialects.one import dialect", True),
        ("contract/registry.py", "from bridge.dialects.one import dialect", True),
        ("contract/registry.py", "import bridgehead", False),
        ("sdk/aip/node.py", "from bridge.dialects.aip.codec import dialect", False),
        ("sdk/aip/node.py", "from bridge.dialects import aip", False),
        ("sdk/aip/node.py", "from bridge.dialects.agentscope.codec import dialect", True),
        ("sdk/aip/node.py", "from bridge.dialects import agentscope", True),
        ("sdk/aip/node.py", "import bridge.dialects", True),
        ("sdk/aip/node.py", "from bridge.sdk.agentscope import Role", True),
        ("sdk/aip/node.py", "from bridge.engine.bridge import Bridge", True),
        ("server/host/app.py", "from bridge.sdk.aip import Agent", True),
    ],
)
def test_the_rule_for_rooms_bites(place: str, line: str, bad: bool) -> None:
    assert bool(list(trespasses(ROOT / "bridge" / place, ast.parse(line)))) is bad


# ---------------------------------------------------------------------- names of dialects


def docstrings(tree: ast.Module) -> set[int]:
    """The ids of the nodes that are docstrings, of modules, classes, functions and the names before them."""
    found: set[int] = set()
    for node in ast.walk(tree):
        for body in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            for child in body if isinstance(body, list) else ():
                if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                    found.add(id(child.value))
    return found


def dialect_names() -> set[str]:
    """As the configuration writes them and as their folders are called."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {*project["entry-points"]["bridge.dialects"], *dialects()}


# Example command lines name dialects, the demo chooses which one it lists first, and a tool may be of an MCP server.
EXAMPLES = {"bridge/cli/parser.py", "bridge/cli/demo.py", "bridge/model/parts.py"}


def engine_sources() -> list[Path]:
    """The sources of `bridge/` without the libraries for programs, each of which is of one protocol."""
    return [path for path in sources("bridge") if not path.is_relative_to(ROOT / "bridge" / "sdk")]


def test_the_engine_names_no_dialect() -> None:
    names = dialect_names()
    assert names
    found = []
    for path in engine_sources():
        if path.relative_to(ROOT).as_posix() in EXAMPLES:
            continue
        tree = parsed(path)
        skipped = docstrings(tree)
        found += [
            f"{where(path, node.lineno)}: {node.value!r}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in skipped
            and any(name in node.value for name in names)
        ]
    assert found == []


def test_examples_name_dialects_in_examples_only() -> None:
    """Where examples may name a dialect, no comparison may."""
    names = dialect_names()
    for place in EXAMPLES:
        for node in ast.walk(parsed(ROOT / place)):
            if isinstance(node, (ast.Compare, ast.MatchValue)):
                assert not any(name in ast.unparse(node) for name in names)


def test_every_dialect_is_an_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    entries = project["entry-points"]["bridge.dialects"]
    assert sorted({target.partition(":")[0] for target in entries.values()}) == [
        f"bridge.dialects.{n}" for n in dialects()
    ]
    # Written forms of one protocol are further dialects of its folder, each an object of its own.
    assert len(set(entries.values())) == len(entries)


# ---------------------------------------------------------------------- modules


def test_the_bridge_treats_no_dialect_by_its_name() -> None:
    """What a protocol needs is a contract that its dialect inherits, or a field of its capabilities."""
    nodes = ((p, node) for p in engine_sources() for node in ast.walk(parsed(p)))
    words = ((p, node.value) for p, node in nodes if isinstance(node, ast.Constant))
    names = set(registry.names())
    named = [(p.name, word) for p, word in words if isinstance(word, str) and word in names]
    # The dialect that the demo prints first; and the origin of a tool, which is no dialect.
    assert named == [("demo.py", "openai-chat"), ("parts.py", "mcp")]


def test_every_module_says_why_it_exists() -> None:
    """An empty `__init__.py` has nothing to say."""
    silent = [p for p in sources("bridge", FOLDER) if parsed(p).body and not ast.get_docstring(parsed(p))]
    assert [where(p) for p in silent] == []


# What each door may not bring in: events are plain values, translation is sans-IO, and nobody who runs the bridge
# needs the tools of tests. (A dialect's options are pydantic models, so that `Translator` brings that one.)
EXTRAS = {"asyncpg", "grpc", "jwt", "obstore"}
SERVER = {"aiohttp", "yaml", *EXTRAS, "bridge.server", "bridge.engine.config", "bridge.engine", "bridge.stores"}
TESTS = {"hypothesis", "pytest", "_pytest", "bridge.testing"}
DOORS = {
    "import bridge": {"orjson", "pydantic", "asyncio", "importlib.metadata", "bridge.model", *SERVER, *TESTS},
    "from bridge import Request, TextDelta, fold, pretty": {"pydantic", "asyncio", "ssl", *SERVER, *TESTS},
    "from bridge import Translator, decode; decode(b'', 'openai-chat')": {"asyncio", "ssl", *SERVER, *TESTS},
    "from bridge import Bridge": {"aiohttp", "grpc", "yaml", "bridge.server", *TESTS},
    "from bridge.server import make_app": {*EXTRAS, *TESTS},
    "from bridge import Bridge; from bridge.server import make_app; "
    "make_app(Bridge.from_config({'backends': {'it': {'dialect': 'demo'}}, 'routes': "
    "[{'dialect': 'openai-chat', 'path': '/v1', 'backend': 'it'}]}))": {"grpc", *TESTS},
    "from bridge.dialects.aip import dialect": {"aiohttp", "asyncio", "ssl", "sqlite3", "bridge.sdk", *SERVER, *TESTS},
    "from bridge.jsonrpc import RpcPeer, RpcConnection": {"aiohttp", *SERVER, *TESTS},
    "from bridge.sdk.agentscope import ResponseBuilder": {"asyncio", "ssl", *SERVER, *TESTS},
    "from bridge.sdk.aip import Agent": {"bridge.sdk.agentscope", *TESTS},
    "import bridge.testing; bridge.testing.fake_backend": {"hypothesis", "pytest", "aiohttp"},
}


@pytest.mark.parametrize(("door", "heavy"), DOORS.items(), ids=DOORS)
def test_nothing_heavy_comes_in_unasked(door: str, heavy: set[str]) -> None:
    code = f"{door}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    loaded = set(done.stdout.split())
    assert "bridge" in loaded
    assert heavy & loaded == set()


def test_the_public_names_are_sorted_and_there() -> None:
    import bridge

    assert bridge.__all__ == sorted(bridge.__all__)
    assert len(set(bridge.__all__)) == len(bridge.__all__)
    for name in bridge.__all__:
        assert getattr(bridge, name) is not None
    assert set(bridge.__all__) <= set(dir(bridge))
    with pytest.raises(AttributeError, match="module 'bridge' has no attribute 'nothing_like_it'"):
        _ = bridge.nothing_like_it


def test_the_public_names_are_those_that_type_checkers_see() -> None:
    tree = parsed(ROOT / "bridge" / "__init__.py")
    block = next(n for n in tree.body if isinstance(n, ast.If))
    seen = [a.asname or a.name for n in block.body if isinstance(n, ast.ImportFrom) for a in n.names]
    import bridge

    assert sorted(seen) == bridge.__all__


@pytest.mark.parametrize(
    "package",
    ["bridge.model", "bridge.contract", "bridge.toolkit", "bridge.jsonrpc", "bridge.sdk.agentscope", "bridge.sdk.aip"],
)
def test_the_names_of_rooms_are_there(package: str) -> None:
    module = importlib.import_module(package)
    assert len(set(module.__all__)) == len(module.__all__)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
