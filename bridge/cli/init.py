"""`dialect-bridge init`: writes a configuration with comments, from flags or from a few questions.

Both sides may be named by a program (`claude-code`, `ollama`) or by a dialect. The URL is asked what it is before it is
written, and the last lines are those to paste into each program.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bridge.cli.demo import DEMO, mount_of
from bridge.contract import AgentDialect, ModelsDialect, Operation, ToolServerDialect, registry
from bridge.contract.surface import shown_path
from bridge.engine.config import load
from bridge.engine.config.advice import warnings
from bridge.engine.config.kinds import BUILT_IN, PYTHON
from bridge.errors import ConfigError
from bridge.server.connect import (
    CLIENTS,
    FROM_PAGES,
    SERVERS,
    BackendProgram,
    ClientProgram,
    RouteAddress,
    named,
    unknown,
)
from bridge.server.connect.probe import is_loopback, probe

Answer = TypeVar("Answer")
_URL = re.compile(r"https?://[^\s/]\S*")
_WITHOUT_SCHEME = re.compile(r"[\w.-]+(:\d+)?(/\S*)?")
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


_ENTRIES = (Operation.RUN, Operation.START, Operation.TOOLS, Operation.CONNECT)
"""The operations with which a client of a route begins."""
_COMMAND = "dialect-bridge"
_TARGET = "agent:run"
"""The module and function of `--to python`, unless a flag names them."""
_AGENT = '''\
"""The agent that config.yaml serves: put yours in place of the answer.

docs/your-agent.md has one for each framework, and what else it may yield.
"""

from collections.abc import AsyncIterator

from bridge.model import Request


async def run(request: Request) -> AsyncIterator[str]:
    yield f"You said: {request.messages[-1].text}"
'''
"""The agent that is written where there is none yet."""
_CHOSEN = "  # write what it is good at: a model chooses the tool by this"
_SHOWN = 8
"""Models that are listed before the rest is counted."""


@dataclass(frozen=True, slots=True)
class _Front:
    """A frontend: its dialect, and the program that speaks it where one was named."""

    dialect: str
    program: ClientProgram | None = None

    @property
    def own_models(self) -> bool:
        """Its requests name models of their own, whatever the backend has."""
        if self.program is not None:
            return self.program.own_models
        return self.dialect in {d for client in CLIENTS.values() if client.own_models for d in client.dialects[:1]}


@dataclass(frozen=True, slots=True)
class _Back:
    dialect: str
    program: BackendProgram | None = None


@dataclass(frozen=True, slots=True)
class _Wanted:
    fronts: list[_Front]
    back: str
    url: str
    key: str | None
    model: str | None
    port: int
    server: BackendProgram | None = None
    target: str = ""


def init(args: argparse.Namespace) -> int:
    """Write the file. Raises `ConfigError` for an unknown name, and for a file that is there already."""
    file = Path(args.output)
    if file.exists() and not args.force:
        raise ConfigError(f"{file}: exists already; --force replaces it, --output writes another file")
    choices = wanted(args)
    written = text(choices)
    config = load(file, text=written)
    try:
        file.write_text(written, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}") from None
    print(f"wrote {file}")
    if choices.target == _TARGET and not (agent := file.with_name("agent.py")).exists():
        agent.write_text(_AGENT, encoding="utf-8")
        print(f"wrote {agent}, an agent that repeats its input; put yours into its place")
    if choices.key is not None:
        print(f"it reads the backend's key from ${choices.key}")
    name = "" if args.output == "config.yaml" else f" {file}"
    print(f"start it with: dialect-bridge serve{name}")
    for note in choices.server.notes if choices.server is not None else ():
        print(f"\n{note}")
    for front in choices.fronts:
        _connect(front, choices, file)
    for warning in warnings(config):
        print(f"warning: {warning}", file=sys.stderr)
    return 0


def _connect(front: _Front, wanted: _Wanted, file: Path) -> None:
    """Print the lines that connect a program."""
    if front.program is None:
        return
    place = RouteAddress(
        f"http://127.0.0.1:{wanted.port}",
        mount_of(registry.get(front.dialect)),
        wanted.model or "demo",
        command=_command(),
        file=str(file.absolute()),
    )
    for snippet in front.program.snippets:
        print(f"\n{front.program.title}, {snippet.where}:\n")
        print("\n".join(f"    {line}".rstrip() for line in snippet.at(place).splitlines()))
    for note in (*front.program.notes, *([FROM_PAGES] if front.program.browser else ())):
        print(f"\n{note}")


def _command() -> str:
    """Return this program as others can start it, who may not have its folder in their `PATH`."""
    began = Path(sys.argv[0])
    found = shutil.which(began) if began.name == _COMMAND else None
    return str(Path(found).absolute()) if found else _COMMAND


def wanted(args: argparse.Namespace) -> _Wanted:
    """Return the choices of the flags; on a terminal, ask for the missing ones. Raises `ConfigError`."""
    asks = sys.stdin.isatty() and args.to is None
    if args.source or not asks:
        fronts = _given("--from", _fronts, ",".join(args.source or ()))
    else:
        fronts = _ask("Which program calls the bridge, or which dialect? Several are possible.", "", _fronts)
    if args.to or not asks:
        back = _given("--to", _back, args.to or DEMO)
    else:
        back = _ask("Which server, agent or dialect answers?", DEMO, _back)
    if back.dialect == DEMO:
        return _Wanted(fronts, DEMO, "", None, None, args.port)
    if back.dialect == PYTHON:
        target = args.target or (_ask("Which module and function?", _TARGET, str) if asks else _TARGET)
        return _Wanted(fronts, PYTHON, "", None, None, args.port, target=target)
    if args.target:
        raise ConfigError(f"--target: is for --to {PYTHON}, not for {args.to or back.dialect}")
    dialect, program = registry.get(back.dialect), back.program
    default = program.url if program is not None else dialect.url
    check_url = _url if dialect.called_over_http else str
    if args.url or not asks:
        url = _given("--url", check_url, args.url or default)
    else:
        url = _ask("At which URL?", default, check_url)
    if not url:
        raise ConfigError(f"--url: required, the base URL of the {back.dialect} backend")
    given = _given("--api-key-env", _variable, args.api_key_env or "")
    key = given or _key_of(url, program.key if program is not None else dialect.key_variable)
    models = list[str]()
    if args.probe and dialect.called_over_http and (args.url or asks or program is not None or is_loopback(url)):
        url, models = _probed(url, back.dialect, os.environ.get(key or "", ""))
    is_named = isinstance(dialect, ModelsDialect)
    model = args.model or (_ask("Which model? (empty: the client names it)", "", str) if asks and is_named else None)
    own = any(front.own_models for front in fronts)
    if not model and own and is_named and not args.model:
        if len(models) == 1:
            (model,) = models
        else:
            print("warning: --model: not given; these clients ask for models that the server lacks", file=sys.stderr)
    if model and models and model not in models:
        near = difflib.get_close_matches(model, models, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        print(f"warning: --model: the server lists no model {model!r}{hint}", file=sys.stderr)
    return _Wanted(fronts, back.dialect, url, key, model or None, args.port, program or _only(back.dialect))


def _key_of(url: str, variable: str) -> str | None:
    """Return the variable with the backend's key. A server on this machine gets no key that was not asked for."""
    return variable if variable and not is_loopback(url) else None


def _probed(url: str, dialect: str, key: str) -> tuple[str, list[str]]:
    """Ask the URL what it is. Return the URL to write, and the models that it lists."""
    found = probe(url, dialect, key)
    if found.problem:
        print(f"warning: --url: {found.problem}", file=sys.stderr)
    if found.models:
        more = f", and {len(found.models) - _SHOWN} more" if len(found.models) > _SHOWN else ""
        print(f"{found.url} lists the models {', '.join(found.models[:_SHOWN])}{more}")
    is_ours = found.dialect is None or registry.get(found.dialect).mount == registry.get(dialect).mount
    return (found.url if is_ours else url), found.models


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


def _fronts(text: str) -> list[_Front]:
    """Return the frontends that a text names, separated by commas, or dialects by spaces."""
    dialects = registry.over_http()
    names = list(dict.fromkeys(name for name in text.replace(",", " ").split()))
    fronts = list[_Front]()
    for name in names:
        if (program := named(CLIENTS, name)) is not None:
            fronts.append(_Front(program.dialects[0], program))
            continue
        if name == DEMO or (registry.known(name) and not registry.get(name).served):
            raise ConfigError(f"only backends can speak {name}; expected one of {', '.join(dialects)}")
        if not registry.known(name):
            raise unknown(name, CLIENTS, list(dialects))
        if registry.get(name).over_grpc:
            raise ConfigError(f"{name}: a route over gRPC needs `listen` and `agent_id`; see docs/dialects")
        fronts.append(_Front(name))
    if not fronts:
        lists = f"{', '.join(CLIENTS)}), or its dialect ({', '.join(dialects)})"
        raise ConfigError(f"required, the program that calls the bridge ({lists}")
    return fronts


def _back(name: str) -> _Back:
    if name in BUILT_IN:
        return _Back(name)
    if (program := named(SERVERS, name)) is not None:
        return _Back(program.dialect, program)
    if not registry.known(name):
        raise unknown(name, SERVERS, [*registry.called(), *BUILT_IN])
    if not registry.get(name).called:
        raise ConfigError(f"only routes can speak {name}; expected one of {', '.join(registry.called())}")
    return _Back(name)


def _only(dialect: str) -> BackendProgram | None:
    """Return the server that is meant by a dialect that no other one speaks."""
    of_it = [server for server in SERVERS.values() if server.dialect == dialect]
    return of_it[0] if len(of_it) == 1 else None


def _url(text: str) -> str:
    if not text or _URL.fullmatch(text):
        return text
    hint = f"; did you mean http://{text}?" if _WITHOUT_SCHEME.fullmatch(text) else ""
    raise ConfigError(f"expected a URL such as https://host/v1, got {text!r}{hint}")


def _variable(name: str) -> str:
    if name and not _VARIABLE.fullmatch(name):
        raise ConfigError("expected the name of an environment variable, such as OPENAI_API_KEY, not the key itself")
    return name


def text(wanted: _Wanted) -> str:
    """Return the file for these choices."""
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
    if wanted.target:
        lines.append(f"{f'    target: {json.dumps(wanted.target)}':33}# module:function, beside this file or installed")
    if wanted.back not in BUILT_IN and isinstance(registry.get(wanted.back), AgentDialect):
        folder = '    cwd: "agents/{owner}"'
        lines.append(f"{folder:33}# where it works; in place of the url: command and args")
    if wanted.key is not None:
        lines.append(f'    api_key: "${{{wanted.key}:-}}"')
    elif wanted.url:
        lines.append('    # api_key: "${BACKEND_KEY}"')
    own = any(front.own_models for front in wanted.fronts)
    if wanted.model is not None:
        lines.append(f"    model: {json.dumps(wanted.model)}")
    elif wanted.back not in BUILT_IN and isinstance(registry.get(wanted.back), ModelsDialect):
        lines.append(f"{'    # model: ...':33}# without it, the model that the client names")
    if wanted.model is not None and own:
        line = f'    model_map: {{"*": {json.dumps(wanted.model)}}}'
        lines.append(f"{line:33}# these clients name models of their own")
    lines += ["", "routes:"]
    routes = dict.fromkeys(front.dialect for front in wanted.fronts)
    for front in routes:
        dialect = registry.get(front)
        path = mount_of(dialect)
        endpoint = next(e for e in dialect.surface if e.operation in _ENTRIES)
        lines += [
            f"{f'  - dialect: {front}':33}# {endpoint.method} {path}{shown_path(endpoint.path)}",
            f"    path: {path}",
            f"    backend: {name}",
        ]
        if isinstance(dialect, ToolServerDialect):
            lines += ["    options:"] if (missing := dialect.undescribed(dialect.front_options())) else []
            lines += [f'      {key}: "Asks the agent."{_CHOSEN}' for key in missing]
    return "\n".join(lines) + "\n"
