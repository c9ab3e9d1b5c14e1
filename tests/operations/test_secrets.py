"""Secrets with characters that nobody sees are cleaned or refused, never sent or compared."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from bridge.cli import main
from bridge.engine.config import load
from bridge.errors import ConfigError

INVISIBLE = {
    "byte order mark": "\ufeff",
    "zero width space": "\u200b",
    "zero width joiner": "\u200d",
    "word joiner": "\u2060",
    "no-break space": "\xa0",
    "soft hyphen": "\xad",
    "direction mark": "\u200e",
    "hangul filler": "\u3164",
    "variation selector": "\ufe0f",
    "tag": "\U000e0020",
}
PLACES = ("{0}sk-secret", "sk-{0}secret", "sk-secret{0}")
MARKS = pytest.mark.parametrize("mark", INVISIBLE.values(), ids=INVISIBLE)


def config(key: str | None = None, *, header: str | None = None, client: str | None = None, **more: Any) -> Any:
    back: dict[str, Any] = {"dialect": "openai-chat", "url": more.get("url", "http://127.0.0.1:1/v1")}
    if key is not None:
        back["api_key"] = key
    if header is not None:
        back["headers"] = {"X-Key": header}
    auth = {"keys": [{"name": "a", "key": client}]} if client is not None else None
    return {
        "server": {"auth": auth, "secret": more.get("secret")},
        "stores": {"history": more.get("history", "off")},
        "backends": {"it": back},
        "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
    }


def mistake(made: dict[str, Any], folder: Path) -> str:
    import yaml

    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(made, allow_unicode=True), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(str(file))
    return caught.value.message


@MARKS
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["key", "header", "client", "secret"])
def test_an_invisible_character_is_named_and_the_secret_is_not(
    tmp_path: Path, mark: str, place: str, kind: str
) -> None:
    text = place.format(mark)
    made = config(**{kind: text * 4 if kind == "secret" else text})
    found = mistake(made, tmp_path)
    assert f"U+{ord(mark):04X}" in found
    assert "secret" not in found.replace("server.secret", "")
    assert mark not in found


@pytest.mark.parametrize("text", [" sk-secret", "sk-secret "])
@pytest.mark.parametrize("kind", ["key", "client"])
def test_a_space_at_an_end_is_refused(tmp_path: Path, text: str, kind: str) -> None:
    assert "begins or ends with a space" in mistake(config(**{kind: text}), tmp_path)


@MARKS
def test_an_invisible_character_in_a_url_is_refused(tmp_path: Path, mark: str) -> None:
    assert f"U+{ord(mark):04X}" in mistake(config(url=f"http://127.0.0.1:1/v1{mark}"), tmp_path)
    assert f"U+{ord(mark):04X}" in mistake(config(history=f"postgresql://u:p{mark}@127.0.0.1/db"), tmp_path)


def test_a_secret_in_a_file_loses_its_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xef\xbb\xbfsk-secret\r\n")
    import yaml

    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config(f"${{file:{tmp_path / 'key'}}}")))
    key = load(str(file)).backends["it"].api_key
    assert key is not None
    assert key.get_secret_value() == "sk-secret"


def test_visible_characters_of_any_language_are_a_secret(tmp_path: Path) -> None:
    import yaml

    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config(client="Schl\u00fcssel \u5bc6\u94a5")))
    assert load(str(file)).server.auth is not None


@MARKS
def test_a_key_on_the_command_line(mark: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"sk-{mark}secret-of-thirty-two-characters\n"))
    assert main(["key", "web", "--hash"]) == 2
    url = "http://127.0.0.1:1/v1"
    assert main(["chat", url, "--dialect", "openai-chat", "--api-key", f"sk-{mark}secret", "Hello"]) == 2
    assert "secret" not in capsys.readouterr().err
