"""`dialect-bridge init`: writes a configuration with comments, from flags or from a few questions."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from bridge.cli.demo import DEMO, mount_of
from bridge.codec import ModelsDialect, Operation, registry
from bridge.codec.surface import shown_path
from bridge.config import load
from bridge.errors import ConfigError


@dataclass(frozen=True, slots=True)
class _Wanted:
    fronts: list[str]
    back: str
    url: str
    key: str | None
    model: str | None
    port: int


def init(args: argparse.Namespace) -> int:
    """Write the file. Raises `ConfigError` for an unknown dialect, and for a file that is there already."""
    file = Path(args.output)
    if file.exists() and not args.force:
        raise ConfigError(f"{file}: exists already; --force replaces it, --output writes another file")
    wanted = _wanted(args)
    text = _text(wanted)
    load(file, text=text)
    file.write_text(text, encoding="utf-8")
    print(f"wrote {file}")
    if wanted.key is not None:
        print(f"it reads the backend's key from ${wanted.key}")
    name = "" if args.output == "config.yaml" else f" {file}"
    print(f"start it with: dialect-bridge serve{name}")
    return 0


def _wanted(args: argparse.Namespace) -> _Wanted:
    """Return the choices of the flags; on a terminal, ask for the missing ones."""
    asks = sys.stdin.isatty() and args.to is None
    names = registry.over_http()
    fronts = (
        args.source or (_ask(f"Which dialect does your frontend speak? {', '.join(names)}", "") if asks else "").split()
    )
    for name in fronts:
        if not registry.get(name).served:
            raise ConfigError(
                f"--from {name}: only backends can speak this dialect; expected one of {', '.join(names)}"
            )
        if registry.get(name).over_grpc:
            raise ConfigError(f"--from {name}: a route over gRPC needs `listen` and `agent_id`; see docs/dialects")
    if not fronts:
        raise ConfigError(f"--from: required, the dialect of your frontend: {', '.join(names)}")
    back = args.to or (_ask("Which dialect does your model or agent speak?", DEMO) if asks else DEMO)
    if back == DEMO:
        return _Wanted(fronts, back, "", None, None, args.port)
    dialect = registry.get(back)
    if not dialect.called:
        raise ConfigError(
            f"--to {back}: only routes can speak this dialect; expected one of {', '.join(registry.called())}"
        )
    url = args.url or (_ask("At which URL?", dialect.url) if asks else dialect.url)
    if not url:
        raise ConfigError(f"--url: required, the base URL of the {back} backend")
    named = isinstance(dialect, ModelsDialect)
    model = args.model or (_ask("Which model? (empty: the client names it)", "") if asks and named else None)
    return _Wanted(fronts, back, url, args.api_key_env or dialect.key_variable or None, model or None, args.port)


def _ask(question: str, default: str) -> str:
    answer = input(f"{question} [{default}] " if default else f"{question} ").strip()
    return answer or default


def _text(wanted: _Wanted) -> str:
    name = DEMO if wanted.back == DEMO else "main"
    lines = [
        "# Written by `dialect-bridge init`. Check a change with `dialect-bridge check`.",
        "# All keys: `dialect-bridge schema`.",
        "",
        "server:",
        f"{'  host: 127.0.0.1':33}# any other address needs auth",
        f"  port: {wanted.port}",
        '  # auth: {keys: [{name: me, key: "${BRIDGE_KEY}"}]}',
        "",
        "backends:",
        f"  {name}:",
        f"{f'    dialect: {wanted.back}':33}# a scripted agent" if name == DEMO else f"    dialect: {wanted.back}",
    ]
    if wanted.url:
        lines.append(f"    url: {json.dumps(wanted.url)}")
    if wanted.key is not None:
        lines.append(f'    api_key: "${{{wanted.key}:-}}"')
    elif wanted.url:
        lines.append('    # api_key: "${BACKEND_KEY}"')
    if wanted.model is not None:
        lines.append(f"    model: {json.dumps(wanted.model)}")
    elif wanted.back != DEMO and isinstance(registry.get(wanted.back), ModelsDialect):
        lines.append(f"{'    # model: ...':33}# without it, the model that the client names")
    lines += ["", "routes:"]
    for front in wanted.fronts:
        path = mount_of(dialect := registry.get(front))
        endpoint = next(e for e in dialect.surface if e.operation in (Operation.RUN, Operation.START))
        lines += [
            f"{f'  - dialect: {front}':33}# {endpoint.method} {path}{shown_path(endpoint.path)}",
            f"    path: {path}",
            f"    backend: {name}",
        ]
    return "\n".join(lines) + "\n"
