"""`dialect-bridge explain`: the pages of the error codes come with the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.cli import main
from bridge.errors import ErrorCode
from bridge.server.page.error_pages import meanings, page_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("code", ErrorCode)
def test_a_code_is_explained(code: ErrorCode, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(code)]) == 0
    shown = capsys.readouterr().out
    assert shown == page_of(code)
    assert shown.startswith(f"# {code}\n\n{meanings()[code]}\n")
    assert "](" not in shown, "a link that leads nowhere"
    page = (ROOT / "docs" / "errors" / f"{code}.md").read_text(encoding="utf-8")
    assert page.startswith(page_of(code, links=True))


def test_all_codes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [str(code) for code in ErrorCode]
    assert all(line.endswith(meanings()[ErrorCode(line.split()[0])]) for line in lines)


def test_an_unknown_code_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "backend_out"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "expected one of invalid_request, " in said.err
    assert "got 'backend_out'" in said.err
    assert main(["explain", "backend_aut"]) == 2
    assert "did you mean 'backend_auth'?" in capsys.readouterr().err


def test_nothing_that_is_shipped_names_an_address_of_the_project() -> None:
    """The project has none yet: log lines, the web page and the metadata name no repository and no site of it."""
    files = [path for room in ("bridge", "adapters", "deploy") for path in (ROOT / room).rglob("*") if path.is_file()]
    texts = {path: path.read_bytes().decode("utf-8", "replace") for path in (*files, ROOT / "pyproject.toml")}
    assert [str(path) for path, text in texts.items() if "github.com/dialect-bridge" in text] == []
