"""The architecture: which package imports which, that nothing imports in a circle, and what a codec may not use.

Read from the source with `ast`, imports inside functions included. Imports for type checking only
(`if TYPE_CHECKING:`) count like all others in `adapters/`; inside `bridge/` they may also point upwards, since they
import nothing at run time.
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

from bridge.codec import registry

ROOT = Path(__file__).parents[1]

# Each package or module below `bridge/` and what it may import. `bridge` is `bridge/__init__.py` itself. A new package
# fails the tests until it has a row here. The packages named `server` hold the handlers of their parent: they stand
# beside `bridge/server`, above everything else. The packages of `bridge/sdk` are libraries for programs, on top of all:
# each also imports the adapter of its name, and no row names one of them.
_BASE = {"errors", "model", "codec"}
_WHOLE = {*_BASE, "framing", "config", "pipeline", "translation", "transports", "telemetry", "engine", "bridge"}
_SERVERS = {"server", "grpc.server", "runs.server"}
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "liveness": set(),
    "model": {"errors"},
    "codec": {"errors", "model"},
    "framing": {"errors", "codec"},
    "jsonrpc": {"errors", "codec", "framing"},
    "agents": {*_BASE, "jsonrpc", "pipeline"},
    "config": {"errors", "codec"},
    "connect": {"errors"},
    "stores": {"errors", "liveness", "model"},
    "translation": {*_BASE, "framing"},
    "pipeline": {*_BASE, "stores", "translation"},
    "runs": {*_BASE, "framing", "liveness", "pipeline", "stores", "translation", "transports"},
    "runs.server": {*_BASE, "engine", "framing", "pipeline", "runs", "server", "stores", "translation"},
    "grpc": {*_BASE, "pipeline"},
    "grpc.server": {*_BASE, "engine", "grpc", "liveness", "pipeline", "server", "stores", "telemetry"},
    "transports": {*_BASE, "framing", "pipeline", "translation"},
    "speech": {"errors"},
    "library": {*_BASE, "pipeline", "translation"},
    "telemetry": {*_BASE, "pipeline"},
    "engine": {*_BASE, "agents", "config", "grpc", "pipeline", "runs", "speech", "stores", "telemetry", "transports"},
    "rpc": {*_BASE, "engine", "jsonrpc", "pipeline", "stores"},
    "testing": {*_BASE, "framing", "config", "pipeline", "transports", "library", "engine", "translation"},
    "server": {*_WHOLE, "connect", "grpc", "jsonrpc", "rpc", "runs", *_SERVERS, "stores", "speech"},
    "asgi": {"engine", "errors", "server"},
    "tool_stdio": {*_BASE, "asgi", "engine", "framing", "jsonrpc"},
    "sdk": set(),
    "sdk.agentscope": {"codec"},
    "sdk.aip": {*_BASE, "grpc", "grpc.server", "server", "stores"},
    "cli": {*_WHOLE, "connect", "grpc", "jsonrpc", "library", "liveness", "rpc", "server", "tool_stdio"},
    "bridge": {"errors", "model", "engine", "library"},
    "__main__": {"cli"},
}

FOLDER, DIALECTS = "adapters", "bridge.dialects"
"""The folder of the dialects, and the package that it is imported as."""

KITS = {"openai"}
"""Folders of `adapters/` that are no dialects: what the wires of one vendor share, for the dialects that speak it."""

# What a dialect may use: our three rooms, the kits, two libraries, and of the standard library what has no clock, no
# randomness and no I/O. A kit may use what a dialect may, but no dialect.
ADAPTER_ROOMS = {"bridge.model", "bridge.codec", "bridge.errors"}
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
                is_module = (ROOT / Path(*whole.split("."))).is_dir() or (
                    ROOT / (whole.replace(".", "/") + ".py")
                ).exists()
                out.append(Import(whole if is_module else module, node.lineno, typing_only))
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
    if len(pieces) == 1:
        return "bridge"
    return ".".join(pieces[1:3]) if ".".join(pieces[1:3]) in ROOMS else pieces[1]


def standing_rooms() -> set[str]:
    folder = ROOT / "bridge"
    files = {p.stem for p in folder.glob("*.py") if p.stem != "__init__"}
    rooms = {p.name for p in folder.iterdir() if p.is_dir() and any(p.glob("*.py"))}
    rooms |= {f"{p.parent.name}.server" for p in folder.glob("*/server") if any(p.glob("*.py"))}
    rooms |= {f"sdk.{p.name}" for p in folder.glob("sdk/*") if any(p.glob("*.py"))}
    return {"bridge"} | files | rooms - {"dialects"}


# ---------------------------------------------------------------------- rooms


def test_every_room_has_a_row_and_every_row_a_room() -> None:
    assert set(ROOMS) == standing_rooms()
    assert {room for allowed in ROOMS.values() for room in allowed} <= set(ROOMS)


def test_the_lower_rooms_have_no_way_back() -> None:
    """Nothing below the engine can reach itself by way of other rooms."""
    upper = {"engine", "bridge", *_SERVERS}
    for start in set(ROOMS) - upper - {"__main__", "asgi", "cli", "rpc", "sdk.aip", "testing", "tool_stdio"}:
        reached: set[str] = set()
        ahead = set(ROOMS[start])
        while ahead:
            room = ahead.pop()
            reached.add(room)
            ahead |= ROOMS[room] - reached
        assert start not in reached
        assert not reached & upper


def trespasses(path: Path, tree: ast.Module | None = None) -> Iterator[str]:
    own = room_of(name_of(path)) or ""
    for found in imports(path, tree):
        room = room_of(found.module)
        if room == "dialects":
            if own.startswith("sdk.") and found.module.split(".")[2:3] == [own.removeprefix("sdk.")]:
                continue
            yield f"{where(path, found.line)}: the engine knows no dialect, but imports {found.module}"
        elif room and room != own and not found.typing_only and room not in ROOMS[own]:
            yield f"{where(path, found.line)}: {own} may not import {found.module}"


def test_rooms_import_only_what_their_row_names() -> None:
    assert [t for path in sources("bridge") for t in trespasses(path)] == []


def test_rows_promise_no_more_than_is_used() -> None:
    """A row that allows what nobody needs is a wall with a hole."""
    used: dict[str, set[str]] = {room: set() for room in ROOMS}
    for path in sources("bridge"):
        own = room_of(name_of(path)) or ""
        used[own] |= {room for i in imports(path) if (room := room_of(i.module)) and room != own}
    loose = {room: sorted(ROOMS[room] - used[room] - _BASE) for room in ROOMS}
    # The command line and the server stand on top and may import everything below.
    assert {room: extra for room, extra in loose.items() if extra and room not in ("cli", "server")} == {}


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
        "from bridge.pipeline import Run",
        "from bridge import pipeline",
        "import bridge",
        "import bridge.server.app",
        "if TYPE_CHECKING:\n    from bridge.engine import Bridge",
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
        "from bridge.codec.jsontext import dumps",
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
        ("model/parts.py", "from bridge.codec import Card", True),
        ("model/parts.py", "def f():\n    from bridge.codec import Card", True),
        ("model/parts.py", "if TYPE_CHECKING:\n    from bridge.codec import Card", False),
        ("model/parts.py", "if TYPE_CHECKING:\n    pass\nelse:\n    from bridge.codec import Card", True),
        ("model/parts.py", "from ..codec import Card", True),
        ("model/parts.py", "from .events import Event", False),
        ("model/parts.py", "from bridge import engine", True),
        ("model/parts.py", "from bridge import Text", True),
        ("errors.py", "import bridge.model.parts", True),
        ("pipeline/run.py", "from bridge.framing import sse", True),
        ("server/app.py", "import bridge.dialects", True),
        ("server/app.py", "from bridge import dialects", True),
        ("server/app.py", "from ..dialects.one import dialect", True),
        ("server/app.py", "if TYPE_CHECKING:\n    from bridge.dialects.one import dialect", True),
        ("codec/registry.py", "from bridge.dialects.one import dialect", True),
        ("codec/registry.py", "import bridgehead", False),
        ("sdk/aip/node.py", "from bridge.dialects.aip.codec import dialect", False),
        ("sdk/aip/node.py", "from bridge.dialects import aip", False),
        ("sdk/aip/node.py", "from bridge.dialects.agentscope.codec import dialect", True),
        ("sdk/aip/node.py", "from bridge.dialects import agentscope", True),
        ("sdk/aip/node.py", "import bridge.dialects", True),
        ("sdk/aip/node.py", "from bridge.sdk.agentscope import Role", True),
        ("sdk/aip/node.py", "from bridge.engine import Bridge", True),
        ("server/app.py", "from bridge.sdk.aip import Agent", True),
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
EXTRAS = {"asyncpg", "grpc", "jwt", "obstore", "openai"}
SERVER = {"aiohttp", "yaml", *EXTRAS, "bridge.server", "bridge.config", "bridge.engine", "bridge.stores"}
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
    ["bridge.model", "bridge.codec", "bridge.jsonrpc", "bridge.pipeline", "bridge.sdk.agentscope", "bridge.sdk.aip"],
)
def test_the_names_of_rooms_are_there(package: str) -> None:
    module = importlib.import_module(package)
    assert len(set(module.__all__)) == len(module.__all__)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
