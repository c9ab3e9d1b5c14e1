"""`dialect-bridge key`: a key and the line with its hash for the configuration."""

from __future__ import annotations

import pytest
import yaml

from bridge.cli import main
from tests.server.harness import serving
from tests.server.test_keys import setup, sha, status

pytestmark = pytest.mark.usefixtures("toy")


async def test_the_command_makes_a_key_and_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    name = 'the "web" of 工, 50%'
    assert main(["key", name]) == 0
    said = capsys.readouterr()
    key = said.err.splitlines()[-1]
    assert len(key) == 43
    assert key not in said.out
    async with serving(setup(*yaml.safe_load(said.out))) as base:
        assert [await status(base, shown) for shown in (key, key[:-1])] == [200, 401]
    assert main(["key", name]) == 0
    assert capsys.readouterr().out != said.out


@pytest.mark.parametrize(("given", "key"), [("k" * 40 + "\n", "k" * 40), ("k" * 40, "k" * 40), ("k\r\n", "k")])
def test_the_command_hashes_a_key(
    given: str, key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Input(given))
    assert main(["key", "web", "--hash"]) == 0
    said = capsys.readouterr()
    assert said.out == f'- {{name: "web", key_sha256: "{sha(key)}"}}\n'
    assert ("can be guessed" in said.err) == (len(key) < 32)
    assert key not in said.err or key == "k"


@pytest.mark.parametrize("given", ["", "\n", " k\n", "k \n", "a\x00b\n"])
def test_what_is_no_key(given: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", Input(given))
    assert main(["key", "web", "--hash"]) == 2
    said = capsys.readouterr()
    assert (said.out, "expected a key" in said.err) == ("", True)


def test_a_name_that_nobody_can_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", " "]) == 2
    assert "NAME: expected printable characters" in capsys.readouterr().err


class Input:
    def __init__(self, text: str) -> None:
        self._text = text

    def isatty(self) -> bool:
        return False

    def readline(self) -> str:
        return self._text
