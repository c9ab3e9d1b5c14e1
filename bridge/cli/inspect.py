"""Commands that only look: check, dialects, translate, schema. No network, except for `check --connect`."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bridge.cli.progress import Progress, amount
from bridge.contract import Dialect, registry

if TYPE_CHECKING:
    from bridge.engine.bridge import Bridge

_PIECE = 2**16
"""Bytes read from stdin at once, at most."""


def check(args: argparse.Namespace) -> int:
    """Validates a configuration and prints its routes; refuses what `serve` refuses before it listens.

    With `--connect`, it also opens the stores, and makes their tables where there are none. Settings that are valid and
    unlikely to work are warnings on stderr.
    """
    from bridge.engine.bridge import Bridge
    from bridge.engine.config import load
    from bridge.engine.config.advice import warnings
    from bridge.server.host.http_server import check as check_server

    config = load(args.config)
    bridge = Bridge.of(config)
    check_server(bridge)
    print(f"{args.config} is valid.")
    for line in config.describe():
        print(f"  {line}")
    for warning in warnings(config):
        print(f"warning: {warning}", file=sys.stderr)
    return _connect(bridge) if args.connect else 0


def _connect(bridge: Bridge) -> int:
    """Print whether each store can be written to. Return the exit code."""
    found = asyncio.run(bridge.probe_stores())
    for name, place, failure in found:
        if failure is None:
            print(f"store {name}, {place}, is ready.")
        else:
            print(f"store {name}, {place}, cannot be written to: {failure}", file=sys.stderr)
    return int(any(failure is not None for _, _, failure in found))


def dialects(args: argparse.Namespace) -> int:
    """Prints what each dialect can carry, from the cards."""
    every = [registry.get(name) for name in registry.names()]
    if args.json:
        print(json.dumps({dialect.name: _card_json(dialect) for dialect in every}, indent=2))
        return 0
    served = {d.name: d.capabilities for d in every if d.served}
    called = {d.name: d.capabilities for d in every if d.called}
    for title, role, cards in (
        ("answers to its clients", "answers", served),
        ("requests to its backends", "requests", called),
    ):
        features = list(getattr(next(iter(cards.values())), role))
        first = max(len(feature) for feature in features)
        columns = {
            name: [name, *(str(getattr(card, role)[feature].support) for feature in features)]
            for name, card in cards.items()
        }
        for part in _fitting(columns, shutil.get_terminal_size((100, 24)).columns - 2 - first):
            print(f"\n{title}")
            widths = [max(map(len, columns[name])) for name in part]
            for row in zip(["", *features], *(columns[name] for name in part), strict=True):
                print("  ".join(["", row[0].ljust(first), *map(str.ljust, row[1:], widths)]).rstrip())
    return 0


def _fitting(columns: Mapping[str, Sequence[str]], width: int) -> Iterator[list[str]]:
    """Yield the names of the columns in parts that are at most `width` characters wide, or have one column."""
    part, used = list[str](), 0
    for name, cells in columns.items():
        wide = 2 + max(map(len, cells))
        if part and used + wide > width:
            yield part
            part, used = [], 0
        part, used = [*part, name], used + wide
    if part:
        yield part


def _card_json(dialect: Dialect) -> dict[str, Any]:
    capabilities = dialect.capabilities

    def role(entries: Any) -> dict[str, Any]:
        return {
            str(f): {"fate": str(e.support), **({"reason": e.reason} if e.reason else {})} for f, e in entries.items()
        }

    return {
        "served": dialect.served,
        "called": dialect.called,
        "answers": role(capabilities.answers),
        "requests": role(capabilities.requests),
        "history": str(capabilities.history),
        "keeps_history": capabilities.keeps_history,
        "wants_whole": capabilities.wants_whole,
        "runs_tools": str(capabilities.runs_tools),
        "inline_media_only": capabilities.inline_media_only,
    }


def translate(args: argparse.Namespace) -> int:
    """Translates stdin to stdout, a stream while it comes; names on stderr what was lost.

    Returns 1 when what was read is the answer of a run that failed.
    """
    from bridge.translation.library import Translator

    if args.explain:
        return _explain(args)
    translator = Translator(args.source, args.target)
    if args.what == "stream":
        for data in _pieces("translated"):
            _write(translator.feed(data))
        _write(translator.close())
    else:
        data = b"".join(_pieces("read"))
        _write(translator.request(data, client=args.source) if args.what == "request" else translator.response(data))
    if translator.lost:
        print(f"lost: {', '.join(translator.lost)}", file=sys.stderr)
    if translator.failure is not None:
        print(f"failed: {translator.failure.code}: {translator.failure.message}", file=sys.stderr)
        return 1
    return 0


def _pieces(done: str) -> Iterator[bytes]:
    """Yield stdin as it comes, and report how much is `done`."""
    progress = _seen_apart()
    if sys.stdin.isatty():
        print("reading from the terminal; Ctrl-D ends the recording", file=sys.stderr)
    count = 0
    try:
        while data := os.read(sys.stdin.fileno(), _PIECE):
            yield data
            count += len(data)
            progress.tell(f"[{amount(count)} {done}]")
    finally:
        progress.clear()


def _seen_apart() -> Progress:
    """Progress, unless the output itself is seen on the same terminal."""
    progress = Progress()
    progress.on = progress.on and not sys.stdout.isatty()
    return progress


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _explain(args: argparse.Namespace) -> int:
    """Writes the translation in columns instead of the translated bytes."""
    from bridge.cli.explain import Explanation

    data = b"".join(_pieces("read"))
    progress = _seen_apart()

    def tell(done: int) -> None:
        progress.tell(f"[{amount(done)} of {amount(len(data))} explained]")

    explained = Explanation(data, args.source, args.target, args.what, tell)
    try:
        for line in explained.lines(shutil.get_terminal_size((120, 24)).columns):
            sys.stdout.buffer.write(line.encode())
    finally:
        progress.clear()
    sys.stdout.buffer.flush()
    return 1 if explained.failed else 0


def openapi(args: argparse.Namespace) -> int:
    """Prints the OpenAPI description of the HTTP routes of a configuration."""
    from bridge.engine.bridge import Bridge
    from bridge.engine.config import load
    from bridge.server.operations.openapi import describe
    from bridge.version import __version__

    print(json.dumps(describe(Bridge.of(load(args.config)), __version__), indent=2, ensure_ascii=False))
    return 0


def schema(args: argparse.Namespace) -> int:
    """Prints the JSON Schema of the configuration."""
    from bridge.engine.config import json_schema

    print(json.dumps(json_schema(), indent=2))
    return 0
