"""Requests for reasoning: budgets as efforts, and the `thinking` object of Anthropic's and other APIs."""

from __future__ import annotations

from bridge.model import Request
from bridge.toolkit.check import Node

READABLE, HIDDEN, OFF = "auto", "none", "none"
"""Values of `Request.reasoning_summary` for readable and for hidden reasoning, and of `reasoning_effort` for none."""
THINKING_FIELDS = frozenset({"type", "budget_tokens", "display", "clear_thinking"})
_MEDIUM, _HIGH = 4096, 16384
"""Thinking budgets, in tokens, from which an effort is called medium and high."""


def effort_of(budget: int | None) -> str | None:
    """Return the effort for a budget of tokens; None for a negative one, which leaves it to the model."""
    if budget is None or budget < 0:
        return None
    return OFF if budget == 0 else "low" if budget < _MEDIUM else "medium" if budget < _HIGH else "high"


def set_thinking(request: Request, thinking: Node, *, budgets: bool = True) -> None:
    """Read `thinking`: `{"type": "enabled" | "adaptive" | "disabled", "budget_tokens", "display"}`.

    `budgets`: a budget, or thinking turned off, is an effort for other dialects, unless the request has one. Raises
    `RequestError`.
    """
    kind = thinking.need_string("type")
    budget = thinking.integer("budget_tokens") if kind == "enabled" else None
    hidden = thinking.string("display") == "omitted"
    if kind == "disabled":
        if budgets:
            request.reasoning_effort = OFF
        return
    if kind not in ("enabled", "adaptive"):
        return
    request.reasoning_summary = HIDDEN if hidden else READABLE
    request.encrypted_reasoning = True
    if budgets and request.reasoning_effort is None:
        request.reasoning_effort = effort_of(budget)
