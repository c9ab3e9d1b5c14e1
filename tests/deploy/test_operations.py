"""docs/operations.md and the schema for editors are true; `python -m tests.deploy.test_operations` writes them anew."""

from __future__ import annotations

import ast
import inspect
import json
import logging
import re
from enum import StrEnum

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bridge.contract import Scope
from bridge.engine.config import json_schema
from bridge.engine.telemetry.metrics import BridgeMetrics
from bridge.model import UsageReported
from bridge.server.auth.api_keys import Reason
from bridge.server.requests.access_log import AccessRecord
from tests.deploy.tools import lint
from tests.docs.helpers import CONFIGS, ROOT

PAGE = ROOT / "docs" / "operations.md"
SCHEMA = ROOT / "docs" / "config.schema.json"
CONFIGURATIONS = [
    ROOT / "config.yaml",
    ROOT / "deploy" / "container.yaml",
    ROOT / "deploy" / "kubernetes" / "config.yaml",
    *CONFIGS,
    *(ROOT / "examples" / "configs" / "production").glob("*.yaml"),
]
_OPERATIONS = re.compile(r"(<!-- operations -->\n).*?(<!-- /operations -->)", re.DOTALL)
_REASONS = re.compile(r"(<!-- reasons -->\n).*?(<!-- /reasons -->)", re.DOTALL)
_SPAN = re.compile(r"(<!-- metrics -->\n).*?(<!-- /metrics -->)", re.DOTALL)


def table() -> str:
    source = BridgeMetrics(shared=False)
    labels = source.labels
    rows = ["| metric | labels | what |", "|---|---|---|"]
    for family in text_string_to_metric_families(source.text().decode()):
        if family.name in labels:
            name = f"{family.name}_total" if family.type == "counter" else family.name
            rows.append(f"| `{name}` | {', '.join(labels[family.name])} | {family.documentation} ({family.type}) |")
    return "\n".join(rows)


def words(kind: type[StrEnum], *head: str) -> str:
    """The members of an enumeration with the docstrings that stand below them."""
    rows = [f"| {' | '.join(head)} |", "|---|---|"]
    (tree,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(tree, ast.ClassDef)
    for name, told in zip(tree.body[1::2], tree.body[2::2], strict=True):
        assert isinstance(name, ast.Assign)
        assert isinstance(told, ast.Expr)
        rows.append(f"| `{ast.literal_eval(name.value)}` | {ast.literal_eval(told.value)} |")
    return "\n".join(rows)


def page() -> str:
    text = _SPAN.sub(lambda m: f"{m[1]}{table()}\n{m[2]}", PAGE.read_text(encoding="utf-8"))
    text = _OPERATIONS.sub(lambda m: f"{m[1]}{words(Scope, 'operation', 'what it allows')}\n{m[2]}", text)
    return _REASONS.sub(lambda m: f"{m[1]}{words(Reason, 'reason', 'when')}\n{m[2]}", text)


def schema() -> str:
    return json.dumps(json_schema(), indent=2) + "\n"


def test_the_tables_are_those_of_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_facts_of_a_log_line_are_those_of_the_page(caplog: pytest.LogCaptureFixture) -> None:
    report = AccessRecord("id", "/v1", "ag-ui", "run")
    report.back, report.status, report.http, report.sent, report.first, report.retries = "b", "stop", 200, 9, 1.0, 1
    report.tried, report.continued_at, report.lost, report.trace_id = ["a", "b"], [9], ["state"], "0" * 32
    report.usage, report.user = UsageReported(input=1, output=2, cached=1), "ann"
    with caplog.at_level(logging.INFO, "bridge.access"):
        report.write()
    (record,) = caplog.records
    section = PAGE.read_text(encoding="utf-8").partition("\n## Logging\n")[2].partition("\n## ")[0]
    names = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    told = re.findall(r"`(\w+)`", "".join(names))
    assert sorted(told) == sorted(record.__dict__["facts"])


def test_the_schema_for_editors_is_that_of_the_code() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema()


@pytest.mark.interop
def test_every_configuration_names_the_schema_and_fits_it() -> None:
    for path in CONFIGURATIONS:
        found = re.match(r"# yaml-language-server: \$schema=(\S+)\n", path.read_text(encoding="utf-8"))
        assert found, path
        assert (path.parent / found[1]).resolve() == SCHEMA, path
    lint("check-jsonschema", "--schemafile", str(SCHEMA), *map(str, CONFIGURATIONS))


def test_the_files_that_it_names_are_there() -> None:
    for name in re.findall(r"`((?:deploy|examples|docs)/[\w./-]+|Dockerfile)`", PAGE.read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), name


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    SCHEMA.write_text(schema(), encoding="utf-8")
