"""Packages that are not installed and that a configuration needs: `check` says what `serve` says, and no more."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.test_packages import CHAT, NEEDS
from tests.docs.helpers import bridge, run
from tests.server.harness import free_port

pytestmark = pytest.mark.slow

TOLD = {
    **{
        cloud: (
            module,
            f"backends.it.auth: {cloud} needs the extra {cloud}: pip install 'dialect-bridge[{cloud}]'",
        )
        for cloud, module in (("aws", "botocore"), ("azure", "azure"), ("gcp", "google.auth"))
    },
    "aip": (
        "grpc",
        "routes[0].dialect: the dialect aip needs grpc, which is not installed; pip install 'dialect-bridge[aip]'",
    ),
    "jwt": (
        "cryptography",
        "server.auth.jwt.jwks_url: needs the extra jwt: pip install 'dialect-bridge[jwt]'; "
        "only secret works without it",
    ),
    "httptools": (
        "httptools",
        "server.http_client: httptools is not installed; pip install 'dialect-bridge[httptools]'",
    ),
    "otel": (
        "opentelemetry",
        "server.traces: OpenTelemetry is not installed; pip install 'dialect-bridge[otel]' (opentelemetry is missing).",
    ),
    "postgres": (
        "asyncpg",
        "stores.history: postgresql needs the extra postgres: pip install 'dialect-bridge[postgres]'",
    ),
    "objects": ("obstore", "stores.attachments: s3 needs the extra objects: pip install 'dialect-bridge[objects]'"),
}
"""For each extra a module without which it is not there, and what is said then."""
SHARED = {"runs": "postgresql://127.0.0.1:1/none"}
NO_RUNS = ("asyncpg", "stores.runs: postgresql needs the extra postgres: pip install 'dialect-bridge[postgres]'")
RATES = {"auth": {"keys": [{"name": "a", "key": "secret"}]}, "limits": {"per_key": {"requests_per_minute": 5}}}
CASES = {extra: (*told, NEEDS[extra]) for extra, told in TOLD.items()}
CASES["shared-runs"] = (*NO_RUNS, {"routes": [{**CHAT, "dialect": "ag-ui", "durable": True}], "stores": SHARED})
CASES["shared-rates"] = (*NO_RUNS, {"stores": SHARED, "server": RATES})
"""What each test tries: one process runs them all, since starting one costs more than all commands together."""


def written(folder: Path, needs: dict[str, Any], name: str = "mine.yaml") -> Path:
    """A configuration that serves, and what is needed beside."""
    path = folder / name
    path.write_text(yaml.safe_dump({"backends": {"it": {"dialect": "demo"}}, "routes": [CHAT], **needs}))
    return path


def test_every_extra_is_tried() -> None:
    assert TOLD.keys() == NEEDS.keys()


def test_check_refuses_what_serve_refuses_in_the_same_words(tmp_path: Path) -> None:
    """None of the modules is there: each configuration is refused for its own."""
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({[module for module, _ in TOLD.values()]!r}))\n"
        "from bridge.cli import main\n"
        f"for path in {[f'{name}.yaml' for name in CASES]!r}:\n"
        f"    serve = ['serve', path, '--port', '{free_port()}']\n"
        "    for command in ['check', path], serve, [*serve, '--workers', '2']:\n"
        "        print(main(command), file=sys.stderr)\n"
    )
    for name, (_, _, needs) in CASES.items():
        written(tmp_path, needs, f"{name}.yaml")
    done = run(sys.executable, "-c", code, cwd=tmp_path, fresh=True)
    assert done.stdout == b""
    said = [
        re.sub(r"^([\w-]+\.yaml):[1-9][0-9]*: (?=[a-z])", r"\1: ", line) for line in done.stderr.decode().splitlines()
    ]
    told = [f"{name}.yaml: {told}" for name, (_, told, _) in CASES.items()]
    expected = {name: [each, "2"] * 3 for name, each in zip(CASES, told, strict=True)}
    # With several workers it is wrong before anything is looked for.
    expected["aip"][4] = "--workers: server.workers: agents at an address run in one process; expected 1"
    assert said == [line for lines in expected.values() for line in lines]


def test_check_says_nothing_of_what_is_installed(tmp_path: Path) -> None:
    """Nor does it connect, or leave anything behind. urllib3 binds a socket when it is imported, to look for IPv6."""
    code = (
        "import sys; seen = []\n"
        "sys.addaudithook(lambda event, _: seen.append(event) if event.startswith('socket.') else None)\n"
        "from bridge.cli import main\n"
        f"for path in {[f'{name}.yaml' for name in CASES]!r}:\n"
        "    code = main(['check', path])\n"
        "    print(code, path, sorted({'socket.connect', 'socket.getaddrinfo'} & set(seen)))\n"
    )
    paths = {written(tmp_path, needs, f"{name}.yaml") for name, (_, _, needs) in CASES.items()}
    done = run(sys.executable, "-c", code, cwd=tmp_path, fresh=True)
    assert done.stderr == b""
    lines = done.stdout.decode().splitlines()
    assert [line for line in lines if line.startswith("0 ")] == [f"0 {name}.yaml []" for name in CASES]
    assert [line for line in lines if " is valid" in line] == [f"{name}.yaml is valid." for name in CASES]
    assert set(tmp_path.iterdir()) == paths


def test_check_loads_nothing_that_is_not_named(tmp_path: Path) -> None:
    modules = {module for module, _ in TOLD.values()} | {"jwt"}
    code = (
        "import sys\n"
        "from bridge.cli import main\n"
        "main(['check', 'mine.yaml'])\n"
        f"print(sorted({modules!r} & set(sys.modules)))\n"
    )
    routes = [{**CHAT, "dialect": "ag-ui", "durable": True}, {**CHAT, "dialect": "agent-runs", "path": "/tasks"}]
    written(tmp_path, {"routes": routes})
    done = run(sys.executable, "-c", code, cwd=tmp_path, fresh=True)
    assert done.stdout.decode().splitlines()[-1] == "[]", done.stderr


def test_what_is_named_and_not_used_is_not_needed(tmp_path: Path) -> None:
    """No route keeps runs: nobody opens the store, and `serve` does not ask for its package either."""
    code = "import sys; sys.modules['asyncpg'] = None\nfrom bridge.cli import main\nprint(main(['check', 'mine.yaml']))"
    written(tmp_path, {"stores": SHARED})
    done = run(sys.executable, "-c", code, cwd=tmp_path, fresh=True)
    assert (done.stdout.splitlines()[-1], done.stderr) == (b"0", b"")


def test_agents_that_cannot_share_an_address_are_told_by_check(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    routes = [
        {"dialect": "aip", "listen": listen, "agent_id": name, "backend": "it", "options": {"max_message": size}}
        for name, size in (("a", 1_000_000), ("b", 2_000_000))
    ]
    written(tmp_path, {"routes": routes})
    told = f"routes at {listen} share one server, so that tls and max_message must be the same.\n"
    assert bridge("check", "mine.yaml", cwd=tmp_path) == (2, "", told)
