"""Every regular expression of the project takes linear time, whatever it is given.

All patterns are found by importing every module; patterns that are made elsewhere than in a module or a class are
listed in `MADE`, with examples. Each is run on hostile texts of two sizes that are built from its own literals and
from a fixed set of pieces. CPU times are compared with each other only.
"""

from __future__ import annotations

import ast
import gc
import importlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest

from bridge.contract import registry
from bridge.dialects.aip.options import BackOptions
from bridge.toolkit import redact, repeat

ROOT = Path(__file__).parents[1]
FACTOR = 4
SIZES = [64, 256, 1024, 4096, 16384]
MOST = 2.2 * FACTOR
"""Linear is `FACTOR`, quadratic its square; what a busy machine adds lies between."""
DEAR = 0.01
"""Seconds after which no longer text is tried: the growth is seen before."""

Pattern = re.Pattern[str] | re.Pattern[bytes]

# Where patterns are made while the program runs, and what they look like there.
MADE: dict[str, list[Pattern]] = {
    "bridge/toolkit/redact.py": [
        p for words in (["a" * 200], ["a-" * 90 + "b", "a-" * 90, "Bearer eyJhbGci.eyJz"])
        if (p := redact.Secrets(words)._known) is not None
    ] + [p for address in ("a" * 200, "a.b:80") if (p := redact._address_pattern(address)) is not None],
    "bridge/toolkit/repeat.py": [
        repeat._pattern(form, "delta") for form in (repeat._STRING, repeat._NUMBER, repeat._LETTERS)
    ],
    "adapters/aip/read_answer.py": [re.compile(BackOptions.model_fields["error_pattern"].default)],
    "bridge/translation/pair.py": [
        re.compile(names) for name in registry.names() if (names := registry.get(name).capabilities.tool_names)
    ],
    "bridge/translation/requirements.py": [
        re.compile(names)
        for name in registry.names()
        if (names := registry.get(name).capabilities.demands.message_names)
    ],
    "adapters/aip/options.py": [],  # only checks that the one above can be compiled
    "bridge/testing/queue.py": [re.compile(r"/runs/(?P<id>[^/]+)/events/(?P<other>[^/]+)$")],
}  # fmt: skip
METHODS = ("match", "fullmatch", "search", "sub", "split", "findall", "finditer")
EITHER = ("fullmatch", "sub")
"""The dearest of those that begin at one place, and of those that begin at each."""


PARTS = 20
"""Tests that share the patterns. They are looked for when one runs: each process that collects would do it, too."""


@dataclass(frozen=True)
class Found:
    """A pattern and the methods by which its module uses it."""

    place: str
    pattern: Pattern
    methods: tuple[str, ...]


def sources() -> list[Path]:
    return sorted(p for package in ("bridge", "adapters") for p in (ROOT / package).rglob("*.py"))


def module_of(path: Path) -> Any:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return importlib.import_module(re.sub(r"^adapters\b", "bridge.dialects", name))


@cache
def uses(path: Path) -> dict[str, set[str]]:
    """Which methods of patterns the module calls, by the name of what it calls them on."""
    out: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            out.setdefault(getattr(node.value, "id", getattr(node.value, "attr", "")), set()).add(node.attr)
    return out


def within(value: Any) -> Iterator[Pattern]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (tuple, list, set, frozenset)):
        for each in value:
            yield from within(each)
    elif isinstance(value, dict):
        yield from within([*value, *value.values()])


@cache
def found() -> list[Found]:
    """Each pattern once, by all methods that any module uses for it."""
    out: dict[tuple[str, Pattern], set[str]] = {}
    for path in sources():
        if path.name == "__main__.py":
            continue
        module, place = module_of(path), str(path.relative_to(ROOT))
        holders = [
            vars(module),
            *(vars(v) for v in vars(module).values() if isinstance(v, type) and v.__module__ == module.__name__),
        ]
        for holder in holders:
            for name, value in list(holder.items()):
                for pattern in within(value):
                    used = uses(path).get(name) or EITHER  # where it cannot be seen
                    out.setdefault((f"{place}:{name}", pattern), set()).update(used)
        for number, pattern in enumerate(MADE.get(place, ())):
            out.setdefault((f"{place}:made-{number}", pattern), set()).update(("match", "search", "sub"))
    return [Found(place, pattern, tuple(sorted(used))) for (place, pattern), used in out.items()]


# ---------------------------------------------------------------------- hostile texts

PIECES = (
    "a", "A", "0", "-", ".", "_", "/", ":", " ", "\t", "\n", "\r\n", '"', "'", "=", "@", "[", "(", "{", "|", "$", "\\",
    ",", "é", "://", "eyJ", "sk-", "a.", "a-", "a ", "0.",
)  # fmt: skip
STARTS = ("a", "0", '"', "a:")
ENDS = ("", "\x00", "\n")


def literals(pattern: Pattern) -> list[str]:
    """What stands word for word in a pattern's source, more or less."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    plain = re.sub(r"\\([^a-zA-Z0-9])", r"\1", re.sub(r"\(\?(?:P<\w+>|[a-zA-Z]*:|<?[=!])|\\[a-zA-Z]", " ", source))
    words = re.findall(r"[\w:/.<'-]+(?: [a-z]+)*", plain)
    return list(dict.fromkeys(word for word in words if len(word) <= 40))[:24]


def texts(pattern: Pattern) -> Iterator[Callable[[int], str]]:
    """Makers of texts of about so many characters."""
    own = literals(pattern)
    units = list(dict.fromkeys([*own, *PIECES]))
    shapes = [("", a + b) for a, b in product(own, units)] + [("", unit) for unit in units]
    shapes += [(start, unit) for start, unit in product([*own, *STARTS], PIECES)]
    # The ends take turns: each unit occurs in many shapes, so that each is tried with all of them.
    for (start, unit), end in zip(dict.fromkeys(shapes), cycle(ENDS), strict=False):
        yield lambda size, start=start, unit=unit, end=end: start + unit * (size // len(unit)) + end  # type: ignore[misc]


# ---------------------------------------------------------------------- measuring


def use(pattern: Pattern, method: str) -> Callable[[Any], object]:
    if method == "sub":
        nothing: Any = "" if isinstance(pattern.pattern, str) else b""
        return lambda text: pattern.sub(nothing, text)
    if method == "finditer":
        return lambda text: sum(1 for _ in pattern.finditer(text))
    work: Callable[[Any], object] = getattr(pattern, method)
    return work


def cost(work: Callable[[Any], object], text: Any, times: int) -> float:
    """The least CPU time of some runs, in seconds."""
    least = float("inf")
    for _ in range(times):
        before = time.thread_time_ns()
        work(text)
        least = min(least, time.thread_time_ns() - before)
    return max(least, 1000) / 1e9  # less than a microsecond is as good as nothing


def grows(work: Callable[[Any], object], made: Callable[[int], Any]) -> float | None:
    """By which factor the time grows with a text of `FACTOR` times the length; None when that is linear.

    Sizes rise until the text is long or costs much. What looks slow is measured again, more often and with longer
    texts.
    """
    before = last = 0.0
    for times, sizes in ((1, SIZES[:-1]), (3, SIZES), (5, SIZES)):
        before = last = 0.0
        for size in sizes:
            before, last = last, cost(work, made(size), times)
            if last > DEAR:
                break
        if last <= MOST * before:
            return None
    return last / before


def slowest(pattern: Pattern, methods: tuple[str, ...]) -> str | None:
    """What makes the pattern slow, if anything does."""
    binary = isinstance(pattern.pattern, bytes)
    for method in methods:
        work = use(pattern, method)
        for make in texts(pattern):
            made: Callable[[int], Any] = (lambda size, make=make: make(size).encode()) if binary else make  # type: ignore[misc]
            if (ratio := grows(work, made)) is not None:
                return f"{method} of {made(60)!r}...: {ratio:.0f} times the time for {FACTOR} times the text"
    return None


@pytest.fixture(autouse=True)
def _no_collections() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("part", range(PARTS))
def test_patterns_take_linear_time(part: int) -> None:
    slow = {each.place: slowest(each.pattern, each.methods) for each in found()[part::PARTS]}
    assert not {place: why for place, why in slow.items() if why is not None}


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"\beyJ[\w\-]{8,}\.[\w\-]+\.[\w\-]*", "sub"),
        (r"(?i)\b[a-z][a-z0-9+.-]*://\S+", "sub"),
        (r"(?i)\b(?:[a-z][a-z0-9+.-]*://\S+|ip(?:v4|v6)?:\S+)", "search"),
        (r"(\w+)\s*(?:\([^)]*\))?\s*:\s*(.+)", "match"),
        (r":param\s+(?:[\w.\[\], |]+\s+)?(\w+)\s*:\s*(.+)", "match"),
        (r"\[(.).*?\]", "sub"),
    ],
)
def test_slow_patterns_are_noticed(pattern: str, method: str) -> None:
    assert slowest(re.compile(pattern), (method,))


def of_re(node: ast.AST) -> str:
    """Return the function of `re` that is named here, or ""."""
    match node:
        case ast.Attribute(value=ast.Name(id="re"), attr=("compile" | "subn") as name):
            return name
        case ast.Attribute(value=ast.Name(id="re"), attr=name) if name in METHODS:
            return name
    return ""


def made_outside(node: ast.AST, inside: bool = False) -> bool:
    """Whether `re` is used for anything but `re.compile(...)` in a module or a class; `inside`: of a function."""
    if of_re(node):
        return True
    inside = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    plain = node.func if isinstance(node, ast.Call) and not inside and of_re(node.func) == "compile" else None
    return any(made_outside(child, inside) for child in ast.iter_child_nodes(node) if child is not plain)


def naming_re() -> Iterator[tuple[Path, ast.Module]]:
    """The modules in which the word stands."""
    for path in sources():
        if re.search(r"\bre(gex)?\b", text := path.read_text()):
            yield path, ast.parse(text)


def test_patterns_stand_where_they_are_found() -> None:
    """No function searches with a pattern of its own, but for those that are listed with examples."""
    assert {str(path.relative_to(ROOT)) for path, tree in naming_re() if made_outside(tree)} == set(MADE)


def test_nobody_hides_the_module_re() -> None:
    """By another name, or by its functions' names, its use would not be seen."""
    for path, tree in naming_re():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert node.module != "re", path
            elif isinstance(node, ast.Import):
                assert not any(a.name in ("re", "regex") and a.asname for a in node.names), path
