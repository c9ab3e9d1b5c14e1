"""The explanation of an error code: what it means, its status, what to check. The documentation has the same pages.

What a code means is its docstring in `bridge/errors.py`; what to check is in `steps.json`, which the web page reads.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources

from bridge.errors import RULES, ErrorCode
from bridge.server.page.documents import plain


def page_of(code: ErrorCode, *, links: bool = False) -> str:
    """Return the page of a code, as Markdown. Links to other pages of the documentation become text without `links`."""
    rule = RULES[code]
    again = "The same request may succeed later." if rule.retry else "Repeating the request does not help."
    head = f"# {code}\n\n{meanings()[code]}\n\nHTTP {rule.http}, gRPC `{rule.grpc}`. {again}"
    checks = "\n".join(f"- {step}" for step in _steps()[code]["en"])
    shown = checks if links else plain(checks)
    return f"{head}\n\n## What to check\n\n{shown}\n"


@cache
def meanings() -> Mapping[ErrorCode, str]:
    """Return what each code means: its docstring, which Python itself forgets."""
    tree = ast.parse(resources.files("bridge").joinpath("errors.py").read_text(encoding="utf-8"))
    (enum,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == ErrorCode.__name__]
    found: dict[ErrorCode, str] = {}
    for member, text in zip(enum.body, enum.body[1:], strict=False):
        match member, text:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str() as said)):
                found[ErrorCode[name]] = " ".join(said.split())
    return found


@cache
def _steps() -> dict[str, dict[str, list[str]]]:
    steps: dict[str, dict[str, list[str]]] = json.loads(
        resources.files(__package__).joinpath("files", "steps.json").read_text(encoding="utf-8")
    )
    return steps
