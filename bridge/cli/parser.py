"""The commands and options of the command line. The module of a command is imported when it runs."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from bridge.errors import BridgeError, ConfigError

Command = Callable[[argparse.Namespace], int]


def run(argv: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    if not argv:
        _parser().print_help(sys.stderr)
        return 2
    args = _arguments(argv)
    command: Command = args.run
    try:
        return command(args)
    except ConfigError as error:
        print(error.message, file=sys.stderr)
        return 2
    except BridgeError as error:
        print(f"{error.code}: {error.message}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of stdout has exited; Python would complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (KeyboardInterrupt, EOFError):
        # Ctrl-C, or Ctrl-D at a question.
        return 130


_UNKNOWN = re.compile(r"argument COMMAND: invalid choice: '([^']*)' \(choose from (.*)\)")
_WORD = re.compile(r"[\w-]+")
_OPTION = re.compile(r"(?<![\w-])--[\w-]+")


class _Parser(argparse.ArgumentParser):
    """Suggests the command or the option that was probably meant."""

    def error(self, message: str) -> NoReturn:
        if (unknown := _UNKNOWN.match(message)) is not None:
            names = _WORD.findall(unknown[2])
            message = f"unknown command {unknown[1]!r}{_similar(unknown[1], names)} (commands: {', '.join(names)})"
        super().error(message)

    def unknown(self, words: Sequence[str]) -> NoReturn:
        """Refuse arguments that the command does not have."""
        options = _OPTION.findall(self.format_help())
        hints = {_similar(word.partition("=")[0], options) for word in words if word.startswith("-")}
        self.error(f"unrecognized arguments: {' '.join(words)}{''.join(sorted(hints))}")


def _similar(word: str, names: Iterable[str]) -> str:
    import difflib

    found = difflib.get_close_matches(word, list(names), 1, 0.6)
    return f"; did you mean {found[0]!r}?" if found else ""


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse arguments. Before Python 3.12, argparse rejects positionals after an option, such as `chat`'s TEXT."""
    parser = _parser()
    words = sys.argv[1:] if argv is None else list(argv)
    end = words.index("--") if "--" in words and words[0] == "run" else len(words)
    args, rest = parser.parse_known_args(words[:end])
    args.arguments = words[end + 1 :]
    if rest and hasattr(args, "text") and not any(word.startswith("-") for word in rest):
        args.text = [*args.text, *rest]
    elif rest:
        args.parser.unknown(rest)
    return args


def _port(text: str) -> int:
    if text.isascii() and text.isdecimal() and int(text) <= 65535:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected 0 to 65535, got {text!r}")


def _workers(text: str) -> int:
    if text.isascii() and text.isdecimal() and int(text):
        return int(text)
    raise argparse.ArgumentTypeError(f"expected 1 or more, got {text!r}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="dialect-bridge",
        description="Translate between the protocols of chat and agent clients, models and agents.",
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    serve = _command(
        commands, "bridge.cli.serve.serve", "serve a configuration", "dialect-bridge serve config.yaml --port 9000"
    )
    serve.add_argument(
        "config", nargs="?", metavar="CONFIG", help="default: config.yaml; if there is none, the demo is served"
    )
    _serving_arguments(serve)

    demo = _command(
        commands,
        "bridge.cli.serve.demo",
        "serve a scripted agent in every dialect that streams over HTTP, and open its page",
        "dialect-bridge demo --port 9000",
    )
    _serving_arguments(demo)
    demo.add_argument("--no-open", action="store_true", help="do not open the page in a browser")

    tools = _command(
        commands,
        "bridge.cli.mcp.mcp",
        "offer the routes of dialect mcp as tools over standard input and output",
        "dialect-bridge mcp config.yaml",
    )
    tools.add_argument("config", nargs="?", metavar="CONFIG", help="default: config.yaml")
    tools.add_argument("--config", dest="config_file", metavar="FILE", help="the same")
    tools.add_argument(
        "--route", action="append", default=[], metavar="PATH", help="only the tools of this route; repeatable"
    )
    _logging_arguments(tools)

    acp = _command(
        commands,
        "bridge.cli.acp.acp",
        "serve a route to the editor that starts this command, over standard input and output",
        "dialect-bridge acp --config config.yaml --route /acp",
    )
    acp.add_argument("--config", default="config.yaml", metavar="FILE", help="default: config.yaml")
    acp.add_argument("--route", metavar="PATH", help="path of the route; default: the only one with dialect acp")
    _logging_arguments(acp)

    init = _command(
        commands,
        "bridge.cli.init.init",
        "write a configuration, from flags or a few questions",
        "dialect-bridge init --from claude-code --to ollama --model qwen3:8b",
    )
    init.add_argument(
        "--from",
        dest="source",
        action="append",
        metavar="A",
        help="program that calls the bridge (claude-code, open-webui, ...) or dialect; repeatable",
    )
    init.add_argument(
        "--to",
        metavar="B",
        help="server (ollama, vllm, ...) or dialect of the backend; `python`: your own agent; `demo`: a scripted one",
    )
    init.add_argument("--url", metavar="URL", help="base URL of the backend")
    init.add_argument("--target", metavar="M:F", help="module and function of `--to python`; default: agent:run")
    init.add_argument("--model", metavar="M", help="model of the backend; default: the client's model")
    init.add_argument("--api-key-env", metavar="NAME", help="environment variable with the key of the backend")
    init.add_argument("--no-probe", dest="probe", action="store_false", help="do not ask the URL what it is")
    init.add_argument("--port", type=_port, default=8080, help="port to listen on")
    init.add_argument("--output", default="config.yaml", metavar="FILE", help="default: config.yaml")
    init.add_argument("--force", action="store_true", help="replace the file if there is one")

    run = _command(
        commands,
        "bridge.cli.run.run",
        "start a coding agent over a backend, with a bridge between them until it ends",
        "dialect-bridge run claude --to ollama --model qwen3:8b",
    )
    run.add_argument("agent", metavar="AGENT", help="claude, codex, gemini, qwen or opencode")
    run.add_argument("--to", metavar="B", help="server (ollama, vllm, ...) or dialect of the backend")
    run.add_argument("--config", metavar="FILE", help="configuration instead of --to; default: config.yaml")
    run.add_argument("--url", metavar="URL", help="base URL of the backend")
    run.add_argument("--target", metavar="M:F", help="module and function of `--to python`; default: agent:run")
    run.add_argument("--model", metavar="M", help="model of the backend")
    run.add_argument("--api-key-env", metavar="NAME", help="environment variable with the key of the backend")
    run.add_argument("--no-probe", dest="probe", action="store_false", help="do not ask the URL what it is")
    run.add_argument("--log", metavar="FILE", help="file for the bridge's log; default: warnings, in a temporary file")
    run.usage = f"{run.prog} AGENT [options] [-- ARGUMENTS of the agent]"

    explain = _command(
        commands,
        "bridge.cli.errors.explain",
        "explain an error code, or list all",
        "dialect-bridge explain backend_auth",
    )
    explain.add_argument("code", nargs="?", metavar="CODE", help="a code of a log line; default: list all codes")

    check = _command(
        commands, "bridge.cli.inspect.check", "validate a configuration", "dialect-bridge check config.yaml"
    )
    _config_argument(check)
    check.add_argument("--connect", action="store_true", help="also open the stores and write to them")

    dialects = _command(
        commands, "bridge.cli.inspect.dialects", "list what each dialect can carry", "dialect-bridge dialects --json"
    )
    dialects.add_argument("--json", action="store_true", help="print JSON")

    translate = _command(
        commands,
        "bridge.cli.inspect.translate",
        "translate a recording from stdin to stdout",
        "dialect-bridge translate --from openai-chat --to agentscope < stream.sse",
    )
    translate.add_argument("--from", dest="source", required=True, metavar="A", help="dialect of the input")
    translate.add_argument("--to", dest="target", required=True, metavar="B", help="dialect of the output")
    translate.add_argument(
        "--what", default="stream", choices=["stream", "request", "response"], help="the input; default: stream"
    )
    translate.add_argument(
        "--explain", action="store_true", help="show input, events, output and losses side by side: for bug reports"
    )

    chat = _command(
        commands,
        "bridge.cli.chat.chat",
        "chat with a server that speaks a dialect",
        "dialect-bridge chat http://127.0.0.1:8080/v1 --dialect openai-chat Hello",
    )
    chat.add_argument("url", metavar="URL", help="base URL; the dialect adds its own endpoint")
    chat.add_argument("--dialect", required=True, metavar="D", help="dialect of the server")
    chat.add_argument("--model", metavar="M", help="model to request; default: the server decides")
    chat.add_argument("--api-key", metavar="KEY", help="default: $BRIDGE_API_KEY")
    chat.add_argument(
        "text", nargs="*", default=[], metavar="TEXT", help="a message; without it, a conversation on the terminal"
    )

    nodes = _command(
        commands,
        "bridge.cli.nodes.nodes",
        "list the nodes registered at a running gateway",
        "dialect-bridge nodes 127.0.0.1:50051",
    )
    nodes.add_argument("address", metavar="ADDRESS", help="host:port of the gateway")
    nodes.add_argument("--domain", metavar="D", help="the nodes of one domain; default: all")
    nodes.add_argument("--json", action="store_true", help="print JSON")
    nodes.add_argument("--dialect", metavar="D", help="default: the dialect that has gateways")
    nodes.add_argument("--api-key", metavar="KEY", help="default: $BRIDGE_API_KEY")
    nodes.add_argument("--ca", metavar="FILE", help="CA certificates that verify the gateway; enables TLS")
    nodes.add_argument("--cert", metavar="FILE", help="client certificate, if the gateway requires one")
    nodes.add_argument("--cert-key", metavar="FILE", help="its private key")

    key = _command(
        commands,
        "bridge.cli.key.key",
        "create API keys and their lines for server.auth.keys",
        "dialect-bridge key web",
    )
    key.add_argument("names", nargs="+", metavar="NAME", help="user of the key; several names make several keys")
    key.add_argument("--hash", action="store_true", help="hash a key from stdin instead of generating one")

    openapi = _command(
        commands,
        "bridge.cli.inspect.openapi",
        "print an OpenAPI description of the HTTP endpoints of a configuration",
        "dialect-bridge openapi > openapi.json",
    )
    _config_argument(openapi)

    _command(
        commands,
        "bridge.cli.inspect.schema",
        "print the JSON Schema of the configuration",
        "dialect-bridge schema > schema.json",
    )

    shells = _command(
        commands,
        "bridge.cli.parser.completion",
        "print a completion script for a shell",
        "dialect-bridge completion bash > ~/.local/share/bash-completion/completions/dialect-bridge",
    )
    shells.add_argument("shell", choices=["bash", "zsh", "fish", "tcsh"])
    return parser


def completion(args: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        raise ConfigError("shell completion needs an extra: pip install 'dialect-bridge[completion]'") from None
    print(shtab.complete(_parser(), args.shell))
    return 0


def _serving_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="address to listen on; default: server.host")
    parser.add_argument("--port", type=_port, help="port to listen on; default: server.port")
    parser.add_argument(
        "--workers", type=_workers, metavar="N", help="processes that share the port; default: server.workers"
    )
    _logging_arguments(parser)


def _logging_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log-level", default="info", choices=["debug", "info", "warning", "error"], help="default: info"
    )
    parser.add_argument("--log-format", default="text", choices=["text", "json"], help="default: text")


def _command(commands: argparse._SubParsersAction[_Parser], function: str, what: str, example: str) -> _Parser:
    """The command that a function of its name runs, which is imported then: `--help` loads nothing."""
    module, _, name = function.rpartition(".")

    def run(args: argparse.Namespace) -> int:
        import importlib

        command: Command = getattr(importlib.import_module(module), name)
        return command(args)

    title = f"{what[0].upper()}{what[1:]}."
    command = commands.add_parser(
        name,
        help=what,
        description=title,
        epilog=f"example: {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,  # an example stays one line, to be copied
    )
    command.set_defaults(run=run, parser=command)
    return command


def _config_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", nargs="?", default="config.yaml", metavar="CONFIG", help="default: config.yaml")


def _version() -> str:
    from bridge.version import __version__

    return f"dialect-bridge {__version__}"
