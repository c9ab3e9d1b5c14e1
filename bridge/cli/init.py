"""`dialect-bridge init`: writes a configuration with comments, from flags or from a few questions."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bridge.cli.demo import DEMO, mount_of
from bridge.codec import ModelsDialect, Operation, registry
from bridge.codec.surface import shown_path
from bridge.config import load
from bridge.config.advice import warnings
from bridge.errors import ConfigError

Answer = TypeVar("Answer")
_URL = re.compile(r"https?://[^\s/]\S*")
_WITHOUT_SCHEME = re.compile(r"[\w.-]+(:\d+)?(/\S*)?")
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


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
    config = load(file, text=text)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}") from None
    print(f"wrote {file}")
    if wanted.key is not None:
        print(f"it reads the backend's key from ${wanted.key}")
    name = "" if args.output == "config.yaml" else f" {file}"
    print(f"start it with: dialect-bridge serve{name}")
    for warning in warnings(config):
        print(f"warning: {warning}", file=sys.stderr)
    return 0


def _wanted(args: argparse.Namespace) -> _Wanted:
    """Return the choices of the flags; on a terminal, ask for the missing ones."""
    asks = sys.stdin.isatty() and args.to is None
    names = ", ".join(registry.over_http())
    if args.source or not asks:
        fronts = _given("--from", _fronts, ",".join(args.source or ()))
    else:
        fronts = _ask(f"Which dialect does your frontend speak? Several are possible. {names}", "", _fronts)
    if args.to or not asks:
        back = _given("--to", _back, args.to or DEMO)
    else:
        back = _ask("Which dialect does your model or agent speak?", DEMO, _back)
    if back == DEMO:
        return _Wanted(fronts, back, "", None, None, args.port)
    dialect = registry.get(back)
    check_url = str if dialect.over_grpc else _url
    if args.url or not asks:
        url = _given("--url", check_url, args.url or dialect.url)
    else:
        url = _ask("At which URL?", dialect.url, check_url)
    if not url:
        raise ConfigError(f"--url: required, the base URL of the {back} backend")
    named = isinstance(dialect, ModelsDialect)
    model = args.model or (_ask("Which model? (empty: the client names it)", "", str) if asks and named else None)
    key = _given("--api-key-env", _variable, args.api_key_env or "") or dialect.key_variable or None
    return _Wanted(fronts, back, url, key, model or None, args.port)


def _ask(question: str, default: str, check: Callable[[str], Answer]) -> Answer:
    """Ask until the answer is valid."""
    while True:
        answer = input(f"{question} [{default}] " if default else f"{question} ").strip()
        try:
            return check(answer or default)
        except ConfigError as error:
            print(error.message)


def _given(flag: str, check: Callable[[str], Answer], value: str) -> Answer:
    try:
        return check(value)
    except ConfigError as error:
        raise ConfigError(f"{flag}: {error.message}") from None


def _fronts(text: str) -> list[str]:
    """Return the dialects that a text names, separated by spaces or commas."""
    over_http = ", ".join(registry.over_http())
    names = list(dict.fromkeys(text.replace(",", " ").split()))
    for name in names:
        if name == DEMO or not registry.get(name).served:
            raise ConfigError(f"only backends can speak {name}; expected one of {over_http}")
        if registry.get(name).over_grpc:
            raise ConfigError(f"{name}: a route over gRPC needs `listen` and `agent_id`; see docs/dialects")
    if not names:
        raise ConfigError(f"required, the dialect of your frontend: {over_http}")
    return names


def _back(name: str) -> str:
    if name != DEMO and not registry.get(name).called:
        raise ConfigError(f"only routes can speak {name}; expected one of {', '.join(registry.called())}")
    return name


def _url(text: str) -> str:
    if not text or _URL.fullmatch(text):
        return text
    hint = f"; did you mean http://{text}?" if _WITHOUT_SCHEME.fullmatch(text) else ""
    raise ConfigError(f"expected a URL such as https://host/v1, got {text!r}{hint}")


def _variable(name: str) -> str:
    if name and not _VARIABLE.fullmatch(name):
        raise ConfigError("expected the name of an environment variable, such as OPENAI_API_KEY, not the key itself")
    return name


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
