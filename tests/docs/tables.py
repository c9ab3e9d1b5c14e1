"""The tables of README.md that are printed from the code: `python -m tests.docs.tables` writes them anew."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from bridge.codec import Capabilities, Feature, FeatureSupport, Support, registry
from bridge.model import HistoryMode

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


def dialects() -> list[str]:
    """The dialects that this project brings, in its own order; what else is installed does not belong here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(project["entry-points"][registry.GROUP])


_SPAN = r"(<!-- {0} -->\n).*?(<!-- /{0} -->)"


def cards() -> str:
    """What the cards say: the features on which dialects differ as tables, all others as sentences."""
    every = {name: registry.get(name).capabilities for name in dialects()}
    return "\n\n".join(
        [
            "What a client of the dialect is told of an answer:",
            _table({name: capabilities.answers for name, capabilities in every.items()}),
            "What a backend of the dialect is told of a request:",
            _table({name: capabilities.requests for name, capabilities in every.items()}),
            "And how they talk:",
            _manners(every),
        ]
    )


def _table(entries: Mapping[str, Mapping[Feature, FeatureSupport]]) -> str:
    rows, same = [], dict[Support, list[str]]()
    for feature in next(iter(entries.values())):
        supports = [of[feature].support for of in entries.values()]
        if len(set(supports)) == 1:
            same.setdefault(supports[0], []).append(f"`{feature}`")
        else:
            rows.append(f"| `{feature}` | {' | '.join(supports)} |")
    head = ["| feature | " + " | ".join(f"`{name}`" for name in entries) + " |", "|---" * (len(entries) + 1) + "|"]
    told = [f"{support.capitalize()} in every dialect: {', '.join(names)}." for support, names in same.items()]
    return "\n".join([*head, *rows, "", *told])


def _manners(every: Mapping[str, Capabilities]) -> str:
    def row(what: str, *cells: str) -> str:
        return f"| {what} | {' | '.join(cells)} |"

    values = every.values()
    return "\n".join(
        [
            row("", *(f"`{name}`" for name in every)),
            "|---" * (len(every) + 1) + "|",
            row(
                "its clients send",
                *("the whole talk" if c.history is HistoryMode.FULL else "what is new" for c in values),
            ),
            row("its backends remember the talk", *(_memory(capabilities) for capabilities in values)),
            row("its clients run the tool calls they see", *("yes" if c.client_runs_calls else "no" for c in values)),
        ]
    )


def _memory(capabilities: Capabilities) -> str:
    if not capabilities.keeps_history:
        return "no"
    return "yes, and are sent all of it" if capabilities.wants_whole else "yes"


TABLES = {"cards": cards}


def spanned(text: str, name: str, table: str) -> str:
    """The text with `table` between its marks. Raises `ValueError` when it has none of this name."""
    text, found = re.subn(_SPAN.format(name), lambda m: f"{m[1]}{table}\n{m[2]}", text, count=1, flags=re.DOTALL)
    if not found:
        raise ValueError(f"there is no <!-- {name} --> ... <!-- /{name} -->")
    return text


def written(text: str) -> str:
    """The text of README.md with all tables as they ought to be."""
    for name, table in TABLES.items():
        text = spanned(text, name, table())
    return text


if __name__ == "__main__":
    README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8")
