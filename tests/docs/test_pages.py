"""Pages that are printed from the code are current and whole; adapters name the options that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.contract import registry
from bridge.engine.config import parse
from bridge.errors import RULES, ErrorCode
from tests.docs import chinese, configuration, errors
from tests.docs.helpers import ROOT, run
from tests.docs.links import slug
from tests.docs.pages import PAGES
from tests.docs.reference import FOLDER
from tests.docs.tables import dialects

OWN = {name: ROOT / "docs" / "dialects" / f"{name.removesuffix('-java')}.md" for name in dialects()}


# Those of the reference are in `test_site.py`, which reads all sources anyway.
@pytest.mark.parametrize(
    "path", [path for path in PAGES if path.parent != FOLDER], ids=lambda path: path.relative_to(ROOT).as_posix()
)
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


# Each limit is what stands now: a new key replaces one, or has users who cannot do without it.
MOST_KEYS, MOST_OPTIONS = 125, 221


def test_keys_do_not_grow_in_number() -> None:
    assert 100 < len(configuration.keys()) <= MOST_KEYS
    assert 150 < len(configuration.options()) <= MOST_OPTIONS


def row_of(key: str, part: str) -> list[str]:
    """The cells of a key's row in a part of a page; empty if it has none."""
    rows = [line for line in part.splitlines() if line.startswith(f"| `{key}` |")]
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", rows[0])[1:-1]] if rows else []


def problem_of(entry: dict[str, Any], row: list[str]) -> str | None:
    """What is missing in the description of a key, or in its row: key, value, default, what, for."""
    what, users = configuration.described(entry)
    if len(what.split()) < 2 or len(users.split()) < 2:
        return "no description, or nobody who sets it"
    if not row:
        return "no row"
    return None if row[3].replace("\\|", "|") == what and row[4] == users else "another row"


def test_each_key_has_its_row_and_users() -> None:
    parts = configuration.PAGE.read_text(encoding="utf-8").split("\n## ")
    of = {part.partition("\n")[0]: part for part in parts}
    found = {}
    for path, entry in configuration.keys().items():
        section, _, key = path.partition(".")
        found[path] = problem_of(entry, row_of(key, of[section]))
    assert {path: problem for path, problem in found.items() if problem} == {}


@pytest.mark.parametrize("name", dialects())
def test_each_option_has_its_row_and_users(name: str) -> None:
    page = OWN[name].read_text(encoding="utf-8")
    found = {}
    for path, entry in configuration.options().items():
        dialect, _, rest = path.partition(" ")
        role, _, key = rest.partition(".")
        if dialect != name:
            continue
        owner = {"front": "route", "back": "backend"}[role]
        # The page of a family has the table of one dialect, and of the other one what differs.
        tables = [
            page.partition(f"<!-- {each} {owner} options -->")[2].partition("<!-- /")[0]
            for each in (name, name.removesuffix("-java"))
        ]
        problems = [problem_of(entry, row_of(key, table)) for table in tables]
        found[path] = None if None in problems else problems[0]
    assert {path: problem for path, problem in found.items() if problem} == {}


def test_a_key_without_users_is_found() -> None:
    entry = {"description": "how long it waits. For: slow backends"}
    row = ["`wait`", "duration", "`5s`", "how long it waits", "slow backends"]
    assert problem_of(entry, row) is None
    assert problem_of(entry, []) == "no row"
    assert problem_of(entry, [*row[:4], "fast backends"]) == "another row"
    assert problem_of({"description": "how long it waits"}, row) == "no description, or nobody who sets it"
    assert problem_of({}, row) == "no description, or nobody who sets it"


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
