"""docs/capabilities.md, what each dialect carries: `make pages` prints its tables from the code."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from bridge.contract import Capabilities, Feature, FeatureSupport, Support, registry
from bridge.model import HistoryMode

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "capabilities.md"


def dialects() -> list[str]:
    """The dialects that this project brings, in its own order; what else is installed does not belong here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(project["entry-points"][registry.GROUP])


_SPAN = r"(<!-- {0} -->\n).*?(<!-- /{0} -->)"


def cards() -> str:
    """The declared capabilities: features in which dialects differ as tables, all others as sentences."""
    known = {name: registry.get(name) for name in dialects()}
    every = {name: dialect.capabilities for name, dialect in known.items()}
    served = {name: every[name] for name, dialect in known.items() if dialect.served}
    called = {name: every[name] for name, dialect in known.items() if dialect.called}
    return "\n\n".join(
        [
            "## Answers\n\nWhat clients of the dialect receive:",
            _table({name: capabilities.answers for name, capabilities in served.items()}),
            "## Requests\n\nWhat backends of the dialect receive:",
            _table({name: capabilities.requests for name, capabilities in called.items()}),
            "## Conversations and tools",
            _manners(every, served, called),
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


def _manners(
    every: Mapping[str, Capabilities], served: Mapping[str, Capabilities], called: Mapping[str, Capabilities]
) -> str:
    def row(what: str, *cells: str) -> str:
        return f"| {what} | {' | '.join(cells)} |"

    def cells(cards: Mapping[str, Capabilities], said: Callable[[Capabilities], str]) -> list[str]:
        """A cell for each dialect; one that has no such side has nothing to say."""
        return [said(card) if name in cards else "-" for name, card in every.items()]

    return "\n".join(
        [
            row("", *(f"`{name}`" for name in every)),
            "|---" * (len(every) + 1) + "|",
            row(
                "its clients send",
                *cells(
                    served, lambda c: "new messages" if c.history is HistoryMode.DELTA else "the whole conversation"
                ),
            ),
            row("its backends store the conversation", *cells(called, _memory)),
            row(
                "its clients run the tool calls they see",
                *cells(served, lambda c: "yes" if c.client_runs_calls else "no"),
            ),
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
