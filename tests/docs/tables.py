"""docs/capabilities.md, what each dialect carries: `make pages` prints its tables from the code."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from bridge.codec import Capabilities, Feature, FeatureSupport, Support, registry
from bridge.model import HistoryMode

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "capabilities.md"


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
            "## Answers\n\nWhat clients of the dialect receive:",
            _table({name: capabilities.answers for name, capabilities in every.items()}),
            "## Requests\n\nWhat backends of the dialect receive:",
            _table({name: capabilities.requests for name, capabilities in every.items()}),
            "## Conversations and tools",
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
                *("the whole conversation" if c.history is HistoryMode.FULL else "new messages" for c in values),
            ),
            row("its backends store the conversation", *(_memory(capabilities) for capabilities in values)),
            row("its clients run the tool calls they see", *("yes" if c.client_runs_calls else "no" for c in values)),
        ]
    )


def _memory(capabilities: Capabilities) -> str:
    if not capabilities.keeps_history:
        return "no"
    return "yes, and get all of it" if capabilities.wants_whole else "yes"


def spanned(text: str, name: str, table: str) -> str:
    """The text with `table` between its marks. Raises `ValueError` when it has none of this name."""
    text, found = re.subn(_SPAN.format(name), lambda m: f"{m[1]}{table}\n{m[2]}", text, count=1, flags=re.DOTALL)
    if not found:
        raise ValueError(f"there is no <!-- {name} --> ... <!-- /{name} -->")
    return text


def page() -> str:
    """The whole page."""
    return spanned(PAGE.read_text(encoding="utf-8"), "cards", cards())
