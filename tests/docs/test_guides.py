"""The guides and the dialects' pages: their blocks run, their configurations load, their commands exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bridge.cli.parser import _arguments
from bridge.engine.assembly import assemble
from bridge.engine.config import load
from tests.docs import cookbook
from tests.docs.helpers import COMMAND, CONFIGS, EXAMPLES, ROOT, USUAL, Block, blocks_of, run
from tests.docs.helpers import Server as Process
from tests.docs.tables import dialects

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs"
GUIDES = [DOCS / f"{name}.md" for name in ("quickstart", "concepts", "cli", "faq", "extending")] + cookbook.PAGES
PAGES = [*GUIDES, *sorted((DOCS / "dialects").glob("*.md"))]
SECRETS = {
    "WEB_KEY": "key-of-web",
    "FRIDAY_KEY": "key-of-friday",
    "METRICS_KEY": "key-of-prometheus",
    "BRIDGE_KEY": "key-of-bridge-1234",
}


def _blocks(*languages: str) -> list[object]:
    """The blocks of these languages in all pages, as parameters."""
    return [
        pytest.param(block, id=f"{page.stem} {block.line}")
        for page in PAGES
        for block in blocks_of(page.read_text(encoding="utf-8"))
        if block.language in languages
    ]


def _lines() -> list[str]:
    """The lines of the shell blocks, each once."""
    texts = [b.text for page in PAGES for b in blocks_of(page.read_text(encoding="utf-8")) if b.language == "bash"]
    return list(dict.fromkeys(line for text in texts for line in text.splitlines()))


@pytest.mark.parametrize("block", _blocks("python"))
def test_a_python_block_runs(block: Block, demo: Process, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(block.text.replace(USUAL, demo.url), encoding="utf-8")
    done = run(sys.executable, "-W", "error", str(script), PYTHONPATH=str(EXAMPLES))
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout or "class Test" in block.text


@pytest.mark.parametrize("block", _blocks("yaml"))
def test_a_configuration_loads_and_assembles(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(block.text, encoding="utf-8")
    config = load(path, env=SECRETS)
    assert len(assemble(config)) == len(config.routes)


def _command(line: str) -> list[str]:
    """The words of a line without the variables before them and what is redirected."""
    words = shlex.split(re.split(r" [<>] ", line)[0])
    return words[next(i for i, word in enumerate(words) if not re.match(r"[A-Z_]+=", word)) :]


@pytest.mark.parametrize("line", _lines())
def test_a_command_names_what_there_is(line: str) -> None:
    program, *arguments = _command(line)
    assert program in ("dialect-bridge", "python", "pip", "curl", "make", "echo", "claude"), line
    if program == "dialect-bridge":
        _arguments(arguments)
    for path in re.findall(r"(?:examples|tests)/[\w./-]+", line):
        assert (ROOT / path).exists(), path


def entered(line: str) -> subprocess.CompletedProcess[bytes]:
    """Run what a person enters, without a shell where it would only divide it into words."""
    program, *arguments = shlex.split(line)
    if program == "dialect-bridge" and not re.search(r"[|<>&;$`*?~]", line):
        return run(COMMAND, *arguments)
    return run("bash", "-c", f"set -o pipefail; {line}")


CLI = [b.text for b in blocks_of((DOCS / "cli.md").read_text(encoding="utf-8")) if b.language == "bash"]


@pytest.mark.parametrize("line", [line for text in CLI for line in text.splitlines() if "-bridge serve" not in line])
def test_a_command_of_its_page_runs(line: str) -> None:
    done = entered(line)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize(
    "line", [each for each in _lines() if re.match(rf"dialect-bridge chat {USUAL}/\S+ \S+ ", each)]
)
def test_a_talk_with_the_demo(line: str, demo: Process) -> None:
    done = entered(line.replace(USUAL, demo.url))
    assert done.returncode == 0, done.stderr
    assert done.stdout or b"[calls" in done.stderr


def test_what_curl_asks_of_queued_runs(runs: Process) -> None:
    page = (DOCS / "dialects" / "agent-runs.md").read_text(encoding="utf-8")
    (block,) = [b for b in blocks_of(page) if b.language == "bash"]
    lines = block.text.replace(USUAL, runs.url).splitlines()
    told = [run("bash", "-c", line, KEY="key-of-web").stdout for line in lines]
    assert b'"taskId"' in told[0]
    assert b'"RUN_FINISHED"' in told[1]
    assert b"You said: Hello" in told[2]


# ---------------------------------------------------------------------- recipes


def test_every_configuration_of_the_examples_is_shown_once() -> None:
    shown = [
        ROOT / name for name in re.findall(r"<!-- file: (examples/configs/[^\s/]+) -->\n```yaml", cookbook.whole())
    ]
    assert sorted(shown) == CONFIGS


# ---------------------------------------------------------------------- pages


def test_every_dialect_has_a_page() -> None:
    index = (DOCS / "dialects" / "index.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| \[`([\w-]+)`\]", index, re.MULTILINE)) == sorted(dialects())


def test_every_page_is_found_by_its_readers() -> None:
    listed = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


@pytest.mark.parametrize("picture", sorted((DOCS / "images").iterdir()), ids=lambda picture: picture.name)
def test_a_picture_is_drawn_and_told(picture: Path) -> None:
    """It is well formed, fetches nothing, says in words what it shows, and is on a page."""
    text = picture.read_text(encoding="utf-8")
    assert ElementTree.fromstring(text).find("{*}title") is not None
    assert re.findall(r"https?://", text.replace("http://www.w3.org/2000/svg", "")) == []
    assert [page for page in DOCS.glob("*.md") if f"(images/{picture.name})" in page.read_text(encoding="utf-8")]
