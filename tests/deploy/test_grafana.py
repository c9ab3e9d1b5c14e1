"""The dashboard asks for what is there: each metric, and each label of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from bridge.engine.telemetry.metrics import BridgeMetrics
from bridge.errors import ErrorCode
from bridge.server.auth.api_keys import Reason
from tests.docs.helpers import ROOT

FOLDER = ROOT / "deploy" / "grafana"
SELECTED = re.compile(r"\b((?:bridge|process)_[a-z_]+)(?:\{([^}]*)\})?")
GROUPED = re.compile(r"by \(([^)]*)\)")
_HISTOGRAM = ("_bucket", "_sum", "_count")


def metrics() -> dict[str, set[str]]:
    """Every series that can be read, with its labels."""
    source = BridgeMetrics(shared=False)
    text = source.text().decode()
    known: dict[str, set[str]] = {}
    labels = {name: set(names) for name, names in source.labels.items()}
    for family in text_string_to_metric_families(text):
        base = labels.get(family.name, set())
        match family.type:
            case "counter":
                known[f"{family.name}_total"] = base
            case "histogram":
                known.update({f"{family.name}{end}": base | {"le"} for end in _HISTOGRAM})
            case _:
                known[family.name] = base
    return known


def expressions(board: dict[str, Any]) -> Iterator[str]:
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def test_every_metric_and_label_of_the_dashboards_is_there() -> None:
    known = metrics()
    asked = set()
    for path in FOLDER.glob("*.json"):
        for expression in expressions(json.loads(path.read_text(encoding="utf-8"))):
            found = SELECTED.findall(expression)
            assert found, expression
            for name, chosen in found:
                assert name in known, f"{path.name}: {name} in {expression}"
                labels = set(re.findall(r"(\w+)=~", chosen))
                for group in GROUPED.findall(expression):
                    labels |= {label.strip() for label in group.split(",")}
                assert labels <= known[name], f"{path.name}: {labels - known[name]} of {name} in {expression}"
                asked.add(re.sub("_(bucket|sum|count)$", "", name))
    shown = {re.sub("_(bucket|sum|count)$", "", name) for name in known if name.startswith("bridge_")}
    assert shown == {name for name in asked if name.startswith("bridge_")}, "a metric that no panel shows"


def test_panels_are_numbered_and_lie_side_by_side() -> None:
    board = json.loads((FOLDER / "dialect-bridge.json").read_text(encoding="utf-8"))
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)


def test_the_alerts_ask_for_what_there_is() -> None:
    """Each metric and each label, codes and reasons included."""
    known, seen = metrics(), set[str]()
    words = {str(code) for code in ErrorCode} | {str(reason) for reason in Reason}
    (group,) = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("page", "ticket")
        for name, selected in SELECTED.findall(rule["expr"]):
            seen.add(name)
            for label, value in re.findall(r'(\w+)=~?"([^"]*)"', selected):
                assert label in known[name]
                for word in value.split("|"):
                    assert any(re.fullmatch(word, each) for each in words), word
        grouped = {label.strip() for names in GROUPED.findall(rule["expr"]) for label in names.split(",") if label}
        assert grouped <= set().union(*(known[name] for name, _ in SELECTED.findall(rule["expr"])))
        used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert used <= grouped
    assert seen <= known.keys()
