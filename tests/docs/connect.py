"""The pages of `docs/connect`, printed from the table of programs."""

from __future__ import annotations

import textwrap
from functools import partial

from bridge.contract import registry
from bridge.server.connect import CLIENTS, FROM_PAGES, SERVERS, ClientProgram, RouteAddress
from bridge.server.connect.programs import AGENTS
from tests.docs.tables import ROOT

FOLDER = ROOT / "docs" / "connect"
INDEX = FOLDER / "index.md"
ORIGIN = "http://127.0.0.1:8080"


def place(dialect: str) -> RouteAddress:
    """A route of this dialect where `init` mounts it."""
    return RouteAddress(ORIGIN, registry.get(dialect).mount or f"/{dialect}")


def index_page() -> str:
    rows = [
        f"| [{client.title}]({name}.md) | `{name}` | {', '.join(map(_linked, client.dialects))} |"
        for name, client in CLIENTS.items()
    ]
    servers = [
        f"| {server.title} | `{name}` | {_linked(server.dialect)} | `{server.url}` |"
        for name, server in SERVERS.items()
    ]
    return "\n".join(
        [
            "# Connect by name",
            "",
            "`dialect-bridge init --from PROGRAM --to SERVER` writes a configuration, asks the URL of the server what",
            "it is, and prints the lines to paste into the program. The page of a bridge shows the same lines for its",
            "own routes. Any program that speaks one of the dialects works, also one that is not listed here.",
            "The suite runs the lines of a program with the program itself, unless its page says that it did not.",
            "",
            "```bash",
            "dialect-bridge init --from claude-code --to ollama --model qwen3:8b",
            "```",
            "",
            "## Programs",
            "",
            "| program | name | dialects |",
            "|---|---|---|",
            *rows,
            "",
            "## Servers and agents",
            "",
            "| server | name | dialect | default URL |",
            "|---|---|---|---|",
            *servers,
            "",
        ]
    )


def program_page(name: str, client: ClientProgram) -> str:
    dialect = client.dialects[0]
    where = place(dialect)
    lines = [
        f"# Connect {client.title}",
        "",
        *_in_one_command(name),
        f"Dialect: {', '.join(map(_linked, client.dialects))}. "
        f"For a bridge at `{ORIGIN}` with a route at `{where.path}`:",
        "",
    ]
    for snippet in client.snippets:
        title = snippet.where[0].upper() + snippet.where[1:]
        lines += [f"{title}:", "", f"```{snippet.language}", snippet.at(where), "```", ""]
    for note in client.notes:
        lines += [note, ""]
    if client.browser:
        lines += [*textwrap.wrap(FROM_PAGES, 105, break_on_hyphens=False), ""]
    lines += [
        "A configuration, with any server or agent behind it:",
        "",
        "```bash",
        f"dialect-bridge init --from {name} --to ollama --model qwen3:8b",
        "```",
        "",
    ]
    return "\n".join(lines)


def _in_one_command(name: str) -> list[str]:
    """How `dialect-bridge run` starts a coding agent, if it is one."""
    for command, each in AGENTS.items():
        if each is CLIENTS[name]:
            command = f"dialect-bridge run {command} --to ollama --model qwen3:8b"
            return [
                "In one command, over any server or agent; arguments for the program itself stand after `--`:",
                "",
                "```bash",
                command,
                "```",
                "",
                "The bridge listens on a free local port, with a key for this program alone, and ends with it. Without",
                "`--to`, it is the one of `config.yaml`. To connect the program to a bridge that runs already:",
                "",
            ]
    return []


def _linked(dialect: str) -> str:
    page = {"agentscope-java": "agentscope"}.get(dialect, dialect)
    return f"[{dialect}](../dialects/{page}.md)"


PAGES = {INDEX: index_page, **{FOLDER / f"{n}.md": partial(program_page, n, c) for n, c in CLIENTS.items()}}
