"""How much of an adapter its tests hold: small changes to its source, one at a time, and whether a test goes red.

    python bench/mutants.py ag_kit --count 60 --seed 1

Works on a copy of the last commit. For each mutant the dialect's own tests, conformance and fuzzing run until the
first failure, and if all pass, the tests of the translation, and the cases for this dialect of the tests over all
dialects. What survives is printed as a
line of source before and after: either nobody can notice it, or a test is missing.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bridge.contract import registry

ROOT = Path(__file__).parents[1]
_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
_TRANSLATION = ("tests/translation",)
"""Few of them name all the dialects that they concern, so that all run."""
_OF_ALL = ("tests/dialects/test_*.py", "tests/unit", "tests/test_wire*.py", "tests/security", "tests/pairs")
"""The tests over all dialects; those of servers and processes would take minutes for each mutant."""
_NOT_SMALL = """
from hypothesis import Phase
settings.load_profile("ci")
settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate])
settings.load_profile("mutants")
"""
"""An example that fails is enough; making it small takes most of the time."""


@dataclass(frozen=True)
class Mutant:
    """One file with one node changed."""

    path: Path
    line: int
    before: str
    after: str
    source: str


def places(path: Path) -> list[tuple[Path, int]]:
    """Where a module can be changed: the numbers of its nodes, in the order of a walk."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [(path, number) for number, node in enumerate(ast.walk(tree)) if _change(copy.deepcopy(node))]


def mutant_at(path: Path, number: int) -> Mutant:
    """The module with this node changed."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node = next(node for n, node in enumerate(ast.walk(tree)) if n == number)
    before = ast.unparse(node)
    _change(node)
    return Mutant(path, getattr(node, "lineno", 0), before, ast.unparse(node), ast.unparse(tree))


def _change(node: ast.AST) -> bool:
    """Changes the node in place; whether there was something to change."""
    match node:
        case ast.Compare():
            swap = _SWAPS.get(type(node.ops[0]))
            if swap is None:
                return False
            node.ops[0] = swap()  # type: ignore[call-overload]
        case ast.BoolOp() | ast.BinOp():
            swap = _SWAPS.get(type(node.op))
            if swap is None:
                return False
            node.op = swap()  # type: ignore[assignment]
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant(value=int()):
            node.value = int(node.value) + 1  # type: ignore[arg-type]
        case ast.If():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            node.value = ast.Constant(None)
        case ast.Expr(value=ast.Call()):
            node.value = ast.Constant(None)
        case _:
            return False
    ast.fix_missing_locations(node)
    return True


def survives(mutant: Mutant, folder: Path, tests: list[str], limit: float) -> bool:
    """Whether all tests pass with the mutant in place, which is taken out again."""
    original = mutant.path.read_text(encoding="utf-8")
    mutant.path.write_text(mutant.source, encoding="utf-8")
    try:
        return passes(folder, tests, limit)
    finally:
        mutant.path.write_text(original, encoding="utf-8")


def passes(folder: Path, tests: list[str], limit: float) -> bool:
    """Whether the tests pass in this copy. The same generated examples come each time."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "HYPOTHESIS_PROFILE": "ci", "PYTHONDONTWRITEBYTECODE": ""}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def tests_of(adapter: str, folder: Path) -> dict[str, list[str]]:
    """The tests of an adapter, in the order in which they run: those of its own and the suites, then those of all."""
    package = f"bridge.dialects.{adapter}."
    names = [n for n in registry.names() if type(registry.get(n)).__module__.startswith(package)]
    if not names:
        raise SystemExit(f"adapters/{adapter} brings no dialect that is installed")
    programs = [f"tests/sdk/{adapter}"] if (folder / "tests" / "sdk" / adapter).exists() else []
    chosen = ["-k", f"{adapter} or " + " or ".join(names)]
    of_all = [str(path.relative_to(folder)) for pattern in _OF_ALL for path in sorted(folder.glob(pattern))]
    return {
        "its own tests": [f"tests/dialects/{adapter}", *programs, "tests/conformance", "tests/fuzz", *chosen],
        "tests of the translation": [*_TRANSLATION],
        "tests over all dialects": [*of_all, *chosen],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("adapter", help="a folder of adapters/")
    parser.add_argument("--count", type=int, default=60, help="how many mutants are tried")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds; a mutant that never ends counts as found")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x"], cwd=folder, input=archive, check=True)
        paths = sorted((folder / "adapters" / args.adapter).glob("*.py"))
        every = [p for path in paths for p in places(path)]
        chosen = random.Random(args.seed).sample(every, min(args.count, len(every)))
        mutants = [mutant_at(*place) for place in chosen]
        stages = tests_of(args.adapter, folder)
        for path in paths:  # as mutants are written: without comments
            path.write_text(ast.unparse(ast.parse(path.read_text(encoding="utf-8"))), encoding="utf-8")
        with (folder / "tests" / "conftest.py").open("a", encoding="utf-8") as conftest:
            conftest.write(_NOT_SMALL)
        alive = dict.fromkeys(stages, 0)
        for mutant in mutants:
            finder = ""
            for stage, tests in stages.items():
                if not survives(mutant, folder, tests, args.limit):
                    finder = stage
                    break
                alive[stage] += 1
            if finder != next(iter(stages)):
                where = f"{mutant.path.relative_to(folder)}:{mutant.line}" + (f" (found by {finder})" if finder else "")
                print(f"{where}\n  - {_first(mutant.before)}\n  + {_first(mutant.after)}", flush=True)
        for stage, tests in stages.items():  # a mutant that survives shows that these tests pass
            if not alive[stage] and not passes(folder, tests, args.limit):
                raise SystemExit(f"{stage} fail without a mutant")
    found = ", ".join(f"{len(chosen) - count} with {stage}" for stage, count in alive.items())
    print(f"{args.adapter}: of {len(chosen)} mutants (of {len(every)} there are) are found: {found}")


def _first(source: str) -> str:
    return source.partition("\n")[0]


if __name__ == "__main__":
    main()
