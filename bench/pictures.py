"""The ratios as pictures: bars in SVG, on a ground of their own so that they are read on light and dark pages alike."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import budgets
from budgets import Budget
from results import PEERS, RAW, SUBJECT, Measured, ratio

CHAT = "openai-chat"
WIDTH, LABEL, LINE, HEAD, FOOT = 760, 320, 24, 56, 34
STYLE = (
    ".ground{fill:#fff;stroke:#cfd8dc}text{fill:#263238}.small{font-size:12px}.met{fill:#00897b}.missed{fill:#d84315}"
    ".other{fill:#78909c}.range{stroke:#263238}.limit{stroke:#263238;stroke-dasharray:5 3}.one{stroke:#b0bec5}"
)
PER_PAIR = {"stream-paced-c32": "paced", "stream-burst-32": "burst"}
OTHERS_FILE = "performance-others.svg"
OTHERS = (
    ("stream-paced-c32", "stream", "event of a paced stream"),
    ("stream-short", "stream", "stream of one event"),
    ("plain-c32", "plain", "request without a stream"),
)
GROUP = "group"
"""The kind of a line that is the title of the bars below it."""


@dataclass(frozen=True, slots=True)
class Bar:
    """`kind` is a class of STYLE, or `GROUP`."""

    label: str
    value: float
    kind: str
    spread: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Drawing:
    """A file's name, the words that stand for the picture, and the picture."""

    file: str
    told: str
    svg: str


def bars(title: str, shown: Sequence[Bar], limit: float | None = None, *, decades: bool = False) -> str:
    """Horizontal bars from 0, or on a scale of decades; a line at 1 and one, dashed, at the limit."""
    most = max([limit or 1.0, *(b.spread[1] if b.spread else b.value for b in shown)]) * 1.08
    least = min([0.1, *(b.value for b in shown if b.kind != GROUP)]) / 2 if decades else 0.0
    room = WIDTH - LABEL - 70

    def x(value: float) -> float:
        part = math.log(value / least) / math.log(most / least) if decades else value / most
        return round(LABEL + max(0.0, part) * room, 1)

    height = HEAD + LINE * len(shown) + FOOT
    bottom = height - FOOT + 4
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title"'
        ' font-family="system-ui, sans-serif" font-size="13">',
        f'<title id="title">{escape(title)}</title><style>{STYLE}</style>',
        f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        f'<text x="16" y="28" font-size="15">{escape(title)}</text>',
    ]
    for n, bar in enumerate(shown):
        y = HEAD + n * LINE
        if bar.kind == GROUP:
            out.append(f'<text x="16" y="{y + 15}" font-weight="600">{escape(bar.label)}</text>')
            continue
        out.append(f'<text x="{LABEL - 10}" y="{y + 13}" text-anchor="end">{escape(bar.label)}</text>')
        width = round(x(bar.value) - LABEL, 1)
        out.append(f'<rect class="{bar.kind}" x="{LABEL}" y="{y}" width="{width}" height="16" rx="2"/>')
        end = x(bar.value)
        if bar.spread:
            low, end = x(bar.spread[0]), max(end, x(bar.spread[1]))
            out.append(f'<line class="range" x1="{low}" y1="{y + 8}" x2="{x(bar.spread[1])}" y2="{y + 8}"/>')
        said = f"{bar.value:.2f}" if bar.value < 10 else f"{bar.value:.0f}"
        out.append(f'<text x="{end + 6}" y="{y + 13}">{said}</text>')
    # The words stand to the outer sides of their lines, which may be close together.
    for at, kind, said, anchor in ((1.0, "one", "1", "end"), (limit, "limit", f"goal {limit or 0:g}", "start")):
        if at is not None:
            out.append(f'<line class="{kind}" x1="{x(at)}" y1="{HEAD - 8}" x2="{x(at)}" y2="{bottom}"/>')
            out.append(f'<text class="small" x="{x(at)}" y="{bottom + 16}" text-anchor="{anchor}">{said}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def _per_pair(measured: Measured, budget: Budget) -> list[Bar]:
    """The pairs with a budget; the others are so much larger that no difference between these would show."""
    return [
        Bar(v.case, v.found, "missed" if v.state == "missed" else "met", v.spread)
        for v in budgets.judged(measured, budget)
        if v.found is not None and not v.apart
    ]


def _others(measured: Measured) -> Iterator[Bar]:
    """Gateways with openai-chat on both sides, the cheapest first, as a ratio to the reference."""
    for scenario, kind, said in OTHERS:
        found = [
            Bar(row.target, cost.middle, "met" if row.target == SUBJECT else "other")
            for row in measured.of(scenario)
            if (row.front, row.back, row.kind) == (CHAT, CHAT, kind) and row.target in ("nginx", SUBJECT, *PEERS)
            if (cost := ratio(row, measured.reference_of(row, RAW), measured.cost(scenario))) is not None
        ]
        if found:
            yield Bar(said, 0.0, GROUP)
            yield from sorted(found, key=lambda bar: bar.value)


def drawings(measured: Measured) -> Iterator[Drawing]:
    """Those for which there are figures."""
    for budget in budgets.PER_PAIR:
        name = PER_PAIR.get(budget.scenario)
        if name and (shown := _per_pair(measured, budget)):
            title = f"CPU time of an {budget.what}, times {RAW}"
            told = f"{title}: from {min(b.value for b in shown):.2f} to {max(b.value for b in shown):.2f}."
            yield Drawing(f"performance-{name}.svg", told, bars(title, shown, budget.goal))
    if shown := list(_others(measured)):
        title = "CPU time, openai-chat on both sides; 1 = a proxy that copies bytes (logarithmic, less is better)"
        words = "".join(f"; {b.label}:" if b.kind == GROUP else f" {b.label} {b.value:.2f}" for b in shown)
        yield Drawing(OTHERS_FILE, f"{title}{words}.", bars(title, shown, decades=True))
