"""Requests for reasoning in the words of servers that are called OpenAI-compatible.

`reasoning_effort` is OpenAI's. OpenRouter has `reasoning` and `include_reasoning`; Anthropic (LiteLLM), DeepSeek, GLM
and Kimi have `thinking`; Qwen (DashScope) has `enable_thinking` and `thinking_budget`, which vLLM and SGLang take in
`chat_template_kwargs`; Google has `thinking_config` in `google` or `extra_body.google`.
"""

from __future__ import annotations

from typing import Any

from bridge.errors import RequestError
from bridge.model import Request
from bridge.toolkit.check import Node
from bridge.toolkit.thinking import HIDDEN, OFF, READABLE, THINKING_FIELDS, effort_of, set_thinking

_KNOWN = {
    "reasoning": frozenset({"effort", "max_tokens", "exclude", "enabled", "summary"}),
    "thinking": THINKING_FIELDS,
    "chat_template_kwargs": frozenset({"enable_thinking", "thinking"}),
    "google": frozenset({"thinking_config"}),
    "extra_body": frozenset({"google"}),
}
"""Objects that our model has in other words, with the fields that it knows."""
_PLAIN = ("include_reasoning", "enable_thinking", "thinking_budget")
WORDS = frozenset({*_KNOWN, *_PLAIN})
"""Fields of requests that are read here."""


def set_reasoning(request: Request, body: Node) -> bool:
    """Set the effort, and whether the client wants to read the reasoning. Return False if a field has another type than
    these servers know: such fields are for the backend to judge.
    """
    effort = request.reasoning_effort
    try:
        _read(request, body)
    except RequestError:
        request.reasoning_effort, request.reasoning_summary = effort, None
        return False
    return True


def _read(request: Request, body: Node) -> None:
    shown = body.boolean("include_reasoning")
    if shown is not None:
        request.reasoning_summary = READABLE if shown else HIDDEN
    if (node := body.object("reasoning")) is not None:
        _openrouter(request, node)
    thinking = body.get("thinking")
    if isinstance(thinking, dict) and isinstance(thinking.get("type"), str):
        set_thinking(request, Node(thinking, "thinking"))
    kwargs = body.object("chat_template_kwargs") or Node({}, "chat_template_kwargs")
    for wanted in (body.boolean("enable_thinking"), kwargs.get("enable_thinking"), kwargs.get("thinking")):
        if isinstance(wanted, bool):
            _switch(request, wanted, body.integer("thinking_budget"))
    if (google := body.object("google") or _google_in(body)) and (config := google.object("thinking_config")):
        _google(request, config)


def _set_effort(request: Request, effort: str | None) -> None:
    """OpenAI's own field has precedence."""
    if request.reasoning_effort is None:
        request.reasoning_effort = effort


def _openrouter(request: Request, node: Node) -> None:
    """`exclude`: think, but do not show it. An object without it asks for reasoning."""
    if node.boolean("enabled") is False:
        _set_effort(request, OFF)
        return
    _set_effort(request, node.string("effort") or effort_of(node.integer("max_tokens")))
    summary = READABLE if node.value else None
    request.reasoning_summary = HIDDEN if node.boolean("exclude") else node.string("summary") or summary


def _switch(request: Request, wanted: bool, budget: int | None) -> None:
    _set_effort(request, effort_of(budget) if wanted else OFF)
    if wanted:
        request.reasoning_summary = request.reasoning_summary or READABLE


def _google_in(body: Node) -> Node | None:
    extra = body.object("extra_body")
    return extra.object("google") if extra else None


def _google(request: Request, config: Node) -> None:
    _set_effort(request, config.string("thinking_level") or effort_of(config.integer("thinking_budget")))
    shown = config.boolean("include_thoughts")
    if shown is not None:
        request.reasoning_summary = READABLE if shown else HIDDEN


def translated(extras: dict[str, Any]) -> dict[str, Any]:
    """Remove the fields of a request that our model has in other words from `extras` and return them."""
    names = [name for name in WORDS & extras.keys() if _is_known(name, extras[name])]
    return {name: extras.pop(name) for name in sorted(names)}


def _is_known(name: str, value: Any) -> bool:
    if name in _PLAIN:
        return True
    if not isinstance(value, dict) or not value.keys() <= _KNOWN[name]:
        return False
    return name != "extra_body" or all(_is_known(inner, value[inner]) for inner in value)
