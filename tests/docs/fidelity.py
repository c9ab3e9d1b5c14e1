"""docs/fidelity.md, every pair of dialects and every feature: `make fidelity` writes it anew.

The fates and reasons are those of the cards. Whether the sending side of a pair can say a feature at all is tried: its
witness (`bridge.testing.witnesses`) is sent over that dialect's own wire.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from bridge.contract import (
    ANSWER_FEATURES,
    REQUEST_FEATURES,
    Dialect,
    Feature,
    FeatureSupport,
    RunsTools,
    Support,
    registry,
)
from bridge.model import HistoryMode
from bridge.testing.witnesses import supported_answers, supported_requests
from tests.docs.tables import dialects
from tests.recorded import answers

PAGE = Path(__file__).parents[2] / "docs" / "fidelity.md"

HEAD = """\
# Fidelity of pairs

What each pair of frontend and backend carries unchanged, and what happens to the rest. `make fidelity` generates this
page from the declared capabilities of the dialects (`dialect-bridge dialects`). The tests check it: they send each
feature, generated answers and requests, and recordings of the backend's dialect ({recorded} answers in all) through
each of the {pairs} pairs, and compare the results.

- Only features that the sending side can express are listed: over a backend without reasoning, no reasoning is lost.
- *exact*: it arrives with the same meaning. Ids, message boundaries and the size of deltas may differ.
- *as text*: its text arrives, its structure does not. *dropped*: it is omitted. Both are reported in `X-Bridge-Lost`,
  in the log line and on stderr of `translate`; for requests, *as text* is reported only if more than the structure is
  lost. *refused*: the request fails before the backend is called; a refused end of an answer becomes an error.
- A feature that is carried in part is listed with the part that is lost.
- The `context` of a request becomes a system message if the backend has no field for it.
- The reasons name options that change the result. `extras` are fields that only one dialect knows; they reach backends
  of the same dialect only.

Number of exact features, of those that the sender can express (answers / requests):
"""


def page() -> str:
    """The whole page."""
    every = [registry.get(name) for name in dialects()]
    fronts, backs = [d for d in every if d.served], [d for d in every if d.called]
    sections = [section for front in fronts for section in _frontend(front, backs)]
    head = HEAD.format(pairs=len(fronts) * len(backs), recorded=sum(len(answers(back.name)) for back in backs))
    return "\n\n".join([head + "\n" + _overview(fronts, backs), *sections]) + "\n"


def _overview(fronts: list[Dialect], backs: list[Dialect]) -> str:
    lines = [
        "| frontend \\ backend | " + " | ".join(f"`{back.name}`" for back in backs) + " |",
        "|---" * (len(backs) + 1) + "|",
    ]
    for front in fronts:
        cells = [f"[{_count(front, back)}](#{_anchor(front, back)})" for back in backs]
        lines.append(f"| `{front.name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _count(front: Dialect, back: Dialect) -> str:
    return " / ".join(
        f"{sum(entries[f].support is Support.EXACT for f in said)} of {len(said)}"
        for said, entries in (_answers(front, back), _requests(front, back))
    )


def _anchor(front: Dialect, back: Dialect) -> str:
    return f"{front.name}-over-{back.name}"


def _answers(front: Dialect, back: Dialect) -> tuple[list[Feature], Mapping[Feature, FeatureSupport]]:
    """What a backend can say, and the frontend's entries for it."""
    return [f for f in ANSWER_FEATURES if f in supported_answers(back)], front.capabilities.answers


def _requests(front: Dialect, back: Dialect) -> tuple[list[Feature], Mapping[Feature, FeatureSupport]]:
    """What a client can ask, and the backend's entries for it."""
    return [f for f in REQUEST_FEATURES if f in supported_requests(front)], back.capabilities.requests


def _frontend(front: Dialect, backs: list[Dialect]) -> Iterator[str]:
    yield f"## Clients of {front.name}"
    for back in backs:
        yield f"### {front.name} over {back.name}"
        yield "\n".join(f"- {line}" for line in _manners(front, back))
        answers, requests = _answers(front, back), _requests(front, back)
        yield f"Exact in answers: {_exact(*answers)}\n\nExact in requests: {_exact(*requests)}"
        rows = [*_losses("answer", *answers), *_losses("request", *requests)]
        yield (
            "\n".join(["| in | what | becomes | because |", "|---|---|---|---|", *rows]) if rows else "Nothing is lost."
        )


def _exact(said: list[Feature], entries: Mapping[Feature, FeatureSupport]) -> str:
    return ", ".join(f"`{f}`" for f in said if entries[f].support is Support.EXACT) + "."


def _losses(where: str, said: list[Feature], entries: Mapping[Feature, FeatureSupport]) -> list[str]:
    """One row for each reason."""
    groups: dict[tuple[Support, str], list[str]] = {}
    for feature in said:
        entry = entries[feature]
        if entry.support is not Support.EXACT:
            groups.setdefault((entry.support, entry.reason), []).append(f"`{feature}`")
    return [f"| {where} | {', '.join(names)} | {support} | {reason} |" for (support, reason), names in groups.items()]


def _manners(front: Dialect, back: Dialect) -> Iterator[str]:
    """What follows from how both sides talk, beside what they say."""
    whole = front.capabilities.history is HistoryMode.FULL
    if whole and back.capabilities.takes_news:
        yield "The client sends the whole conversation and the backend stores it: the backend gets only new messages."
    elif whole and back.capabilities.wants_whole:
        yield "The backend stores the conversation but gets all of it with each request, in one thread."
    elif not whole and back.capabilities.wants_whole:
        yield "The client sends only new messages and the backend needs all: the bridge stores them (`stores.history`)."
    elif not whole and not back.capabilities.keeps_history:
        yield "The client sends new messages and the backend stores none: the bridge stores them (`stores.history`)."
    else:
        yield "Both sides agree on who stores the conversation."
    if front.capabilities.client_runs_calls and back.capabilities.runs_tools is not RunsTools.NEVER:
        yield "Calls of tools that the backend ran itself are not sent, because the client would run them again."
    if front.capabilities.inline_media_only and supported_answers(back) & {Feature.IMAGE, Feature.AUDIO, Feature.FILE}:
        yield "Media in answers are exact if they are inline; URLs become links in the text."
    if back.capabilities.tool_names is not None:
        yield f"Tool names that do not match the backend's `{back.capabilities.tool_names}` are mapped both ways."


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
