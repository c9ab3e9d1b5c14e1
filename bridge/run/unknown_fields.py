"""Fields and betas that a backend does not know: `context_management: Extra inputs are not permitted`.

Anthropic's API, Bedrock, Vertex AI and servers of other models take different fields of the same protocol, and coding
agents send those of the newest one. The refusal has the place of the field: `tools.2.custom.strict`, in which numbers
and names of kinds lead to one of many equal places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bridge.contract import Feature
from bridge.model.jsontext import dict_of, dicts_of

_PLACE = re.compile(
    r"(?:^|[\s\"'`{:])([a-z_][a-z0-9_]{0,40}(?:\.[a-z0-9_]{1,40}){0,8})"
    r": extra inputs (?:are )?not (?:permitted|allowed)"
)
_MOST_PLACES = 8
_NEEDED = frozenset(
    {"model", "messages", "max_tokens", "system", "tools", "tool_choice", "stream", "contents", "input", "prompt"}
    | {"previous_response_id", "conversation", "anthropic_version"}
)
"""Fields of a body without which a request is another one."""
_NEEDED_INSIDE = frozenset(
    {"type", "role", "content", "text", "id", "tool_use_id", "input", "source", "input_schema", "data", "thinking"}
    | {"signature", "is_error", "cache_control", "function", "parameters", "tool_calls", "tool_call_id"}
)
_CONTROL = "cache_control"
_FEATURES = {"output_config": Feature.REASONING_EFFORT, "thinking": Feature.REASONING_EFFORT, "strict": Feature.TOOLS}


@dataclass(frozen=True, slots=True)
class WithoutField:
    """Leaves a field out of a body: of the whole, or of all entries of the list `of`, or of their cache controls."""

    name: str
    of: str = ""
    of_controls: bool = False

    @property
    def feature(self) -> Feature:
        """What is lost without it."""
        return _FEATURES.get(self.name, Feature.EXTRAS)

    @property
    def what(self) -> str:
        """The change in words."""
        within = f" of {self.of}" if self.of else ""
        return f"the field {self.name}{within} is left out"

    def __call__(self, body: dict[str, Any]) -> bool:
        """Change the body in place and return whether that was done."""
        changed = False
        for holder in self._holders(body):
            if self.name in holder:
                del holder[self.name]
                changed = True
        return changed

    def _holders(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if not self.of:
            yield body
            return
        for entry in dicts_of(body.get(self.of)):
            for each in (entry, dict_of(entry.get("function")), *dicts_of(entry.get("content"))):
                if self.of_controls:
                    yield dict_of(each.get(_CONTROL))
                elif self.name != "name" or each is entry:
                    yield each


def unknown_fields(words: str) -> list[WithoutField]:
    """Return the fields that a refusal calls unknown, in lower case, as far as a request means the same without."""
    found: dict[WithoutField, None] = {}
    for place in _PLACE.findall(words)[:_MOST_PLACES]:
        first, *rest = place.split(".")
        name = rest[-1] if rest else first
        if not rest:
            field, needed = WithoutField(name), _NEEDED
        else:
            field, needed = WithoutField(name, first, _CONTROL in rest[:-1]), _NEEDED_INSIDE
        if name not in needed and not (first == "tools" and name == "name"):
            found[field] = None
    return list(found)


BETAS = "anthropic-beta"
_REFUSED_BETAS = re.compile(rf"unexpected value\(s\) ([^\n]{{1,400}}?) for the .?{BETAS}\b")
_BETA = re.compile(r"[\w.-]{4,80}")
_ANY_BETA = "invalid beta flag"


@dataclass(frozen=True, slots=True)
class WithoutBetas:
    """Leaves names out of the header `anthropic-beta`; all of them without `names`."""

    names: frozenset[str] = frozenset()

    @property
    def what(self) -> str:
        """The change in words."""
        return f"{', '.join(sorted(self.names)) or 'everything'} is left out of {BETAS}"

    def __call__(self, headers: dict[str, Any]) -> bool:
        """Change the headers in place and return whether that was done."""
        said = [each.strip() for each in str(headers.get(BETAS, "")).split(",")]
        kept = [each for each in said if self.names and each.lower() not in self.names]
        if BETAS not in headers or kept == said:
            return False
        if kept:
            headers[BETAS] = ",".join(kept)
        else:
            del headers[BETAS]
        return True


def refused_betas(words: str) -> WithoutBetas | None:
    """Return the names of betas that a refusal calls unknown, in lower case; None if it is about something else."""
    if found := _REFUSED_BETAS.search(words):
        return WithoutBetas(frozenset(_BETA.findall(found[1])[:_MOST_PLACES]))
    return WithoutBetas() if _ANY_BETA in words else None
