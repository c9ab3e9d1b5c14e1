"""What the tests of JSON-RPC share: two sides joined by pipes, and the recorded conversations."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from bridge.jsonrpc.stdio import ClaimedStdio, StdioCarrier

CAPTURES = Path(__file__).parents[1] / "captures" / "acp"


@contextmanager
def joined_carriers(**settings: Any) -> Iterator[tuple[StdioCarrier, StdioCarrier]]:
    """Two carriers, each of which is sent what the other one sends."""
    one_in, two_out = os.pipe()
    two_in, one_out = os.pipe()
    one, two = ClaimedStdio(one_in, one_out), ClaimedStdio(two_in, two_out)
    try:
        yield StdioCarrier(one, **settings), StdioCarrier(two, **settings)
    finally:
        one.close()
        two.close()


class Line(NamedTuple):
    """One recorded line."""

    sender: str
    frame: bytes


@cache
def conversations() -> dict[str, list[Line]]:
    """The recorded conversations by name. A file with several connections gives several."""
    found: dict[str, list[Line]] = {}
    for path in sorted(CAPTURES.glob("*.jsonl")):
        lines: list[Line] = []
        number = 0
        for text in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(text)
            if "line" in entry:
                if json_or_none(entry["line"], "method") == "initialize" and lines:
                    found[f"{path.stem}-{number}"] = lines
                    lines, number = [], number + 1
                lines.append(Line(entry["from"], entry["line"].encode()))
        found[f"{path.stem}-{number}" if number else path.stem] = lines
    return found


def json_or_none(text: str, member: str) -> Any:
    try:
        return json.loads(text).get(member)
    except (ValueError, AttributeError):
        return None
