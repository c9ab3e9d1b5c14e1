"""Pages that are printed from the code are current and whole; adapters name the options that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.contract import registry
from bridge.engine.config import json_schema, parse
from bridge.errors import RULES, ErrorCode
from tests.docs import chinese, configuration, errors
from tests.docs.helpers import ROOT, run
from tests.docs.links import slug
from tests.docs.pages import PAGES
from tests.docs.tables import dialects

OWN = {name: ROOT / "docs" / "dialects" / f"{name.removesuffix('-java')}.md" for name in dialects()}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_page_is_current(path: Path) -> None:
    assert PAGES[path]() == path.read_text(encoding="utf-8"), "`make pages` writes it anew"


def test_make_pages_writes_them() -> None:
    assert run("make", "-n", "pages").stdout.decode().endswith("python -m tests.docs.pages\n")


def test_sizes_and_times_have_units() -> None:
    """A default such as 67108864 says nothing to people."""
    for line in configuration.PAGE.read_text(encoding="utf-8").splitlines():
        if re.match(r"\| `[^`]+` \| (size|duration)", line):
            assert not re.fullmatch(r"`\d+`", line.split(" | ")[2]), line


def _codes(text: str) -> list[str]:
    return re.findall(r"^\| \[?`(\w+)`[^|]* \|", text, re.MULTILINE)


def test_every_code_has_its_row_in_the_list_and_for_every_dialect() -> None:
    first, *rest = errors.PAGE.read_text(encoding="utf-8").split("\n## ")
    assert _codes(first) == [str(code) for code in ErrorCode] == [str(code) for code in RULES]
    assert [section.partition("\n")[0] for section in rest] == [n for n in dialects() if registry.get(n).served]
    for section in rest:
        assert _codes(section) == [str(code) for code in ErrorCode]


def test_what_clients_see_is_told() -> None:
    """Four rows known from the protocols, so that a page of empty cells would be seen."""
    page = errors.PAGE.read_text(encoding="utf-8")
    for told in (
        "| `rate_limited` | `429` | `rate_limit_error` | `rate_limit_exceeded` |",
        "| `overloaded` | `529` | `overloaded_error` |",
        "| `run_lost` | `500` | `run_lost` | `AGENT_UNKNOWN_ERROR` |",
        "| `not_found` | `NOT_FOUND` |",
    ):
        assert told in page, told


def test_every_key_of_the_schema_has_its_row() -> None:
    page = configuration.PAGE.read_text(encoding="utf-8")
    schema = json_schema()["$defs"]
    for name in ("Server", "Cors", "Jwt", "ApiKey", "PerKey", "Backend", "Retry", "Route", "Stores", "Speech"):
        for key in schema[name]["properties"]:
            assert re.search(rf"^\| `(?:[\w.*]+\.)?{key}` \|", page, re.MULTILINE), f"{name}.{key}"


@pytest.mark.parametrize("path", configuration.COMMON)
def test_the_example_of_a_key_that_people_set_is_valid(path: str) -> None:
    config: dict[str, Any] = {
        "server": {"auth": "none"},
        "backends": {
            "llm": {"dialect": "openai-chat", "url": "http://h/v1"},
            "spare": {"dialect": "demo"},
            "agent": {"dialect": "python", "target": "other:run"},
        },
        "routes": [{"dialect": "openai-chat", "path": "/x", "backend": "llm"}],
    }
    if path.startswith("server.limits"):
        config["server"] = {"auth": {"keys": [{"name": "a", "key": "secret"}]}}
    if path.endswith(".models"):
        del config["routes"][0]["backend"]
    first, *steps = re.split(r"\.\*\.|\[\]\.|\.", path)
    entry = config.setdefault(first, {})
    if first == "backends":
        entry = entry["agent" if steps == ["target"] else "llm"]
    elif first == "routes":
        entry = entry[0]
    for step in steps[:-1]:
        entry[step] = entry[step] if isinstance(entry.get(step), dict) else {}
        entry = entry[step]
    entry[steps[-1]] = yaml.safe_load(configuration.COMMON[path])
    parse(config, env={"WEB_KEY": "k", "OPENAI_API_KEY": "k"})


def _told(page: str) -> set[str]:
    """The options in the tables of a page: those whose head names a column `option` or `key`."""
    found: set[str] = set()
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in table.splitlines()]
        for column in ("option", "key"):
            if column in rows[0]:
                found |= {row[rows[0].index(column)].strip("`") for row in rows[2:]}
    return {name.partition(".")[0] for name in found}


@pytest.mark.parametrize("name", dialects())
def test_a_dialects_page_has_all_its_options_and_no_others(name: str) -> None:
    dialect = registry.get(name)
    real = {*dialect.front_options.model_fields, *dialect.back_options.model_fields}
    told = _told(OWN[name].read_text(encoding="utf-8"))
    # Both spellings of a dialect share one page.
    family = [registry.get(other) for other in dialects() if OWN[other] == OWN[name]]
    known = {field for one in family for field in (*one.front_options.model_fields, *one.back_options.model_fields)}
    assert real - told == set()
    assert told - known == set()


@pytest.mark.parametrize("name", dialects())
def test_a_dialects_page_has_all_its_endpoints(name: str) -> None:
    told = OWN[name].read_text(encoding="utf-8")
    for endpoint in registry.get(name).surface:
        path = re.sub(r"\{(\w+):[^}]*\}", r"{\1}", endpoint.path)
        # One that is the mount path itself has no name to look for; gRPC has methods, all of them POST.
        wanted = path if registry.get(name).over_grpc else f"{endpoint.method} {path or '<mount path>'}"
        assert f"`{wanted}" in told, wanted


# ---------------------------------------------------------------------- Chinese


@pytest.mark.parametrize("path", chinese.ENGLISH, ids=lambda path: path.name)
def test_a_chinese_page_has_every_section(path: Path) -> None:
    """In the order of the English one; `test_a_page_is_current` holds that its code is the same."""
    english = chinese.ENGLISH[path].read_text(encoding="utf-8")
    headings = [name for name, _ in chinese.sections(english, chinese.HEADING)][1:]
    assert chinese.covered(path) == [slug(name) for name in headings]
    # Whole tables, too: one row for each row.
    rows = [len(re.findall(r"^\|", text, re.MULTILINE)) for text in (english, path.read_text(encoding="utf-8"))]
    assert rows[0] == rows[1]
