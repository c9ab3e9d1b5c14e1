"""A Python function as a tool: its signature describes the arguments, whose texts are converted to its types."""

from __future__ import annotations

import asyncio
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

_SPHINX = re.compile(r":param\s[^:]*\b(\w+)\s*:\s*(.+)")
_GOOGLE = re.compile(r"(\w+)\s*(?:\([^)]*\)\s*)?:\s*(.+)")
_SECTION = re.compile(r"\s*(?:args|arguments|parameters)\s*:\s*", re.IGNORECASE)


class FunctionCall:
    """Calls `function`, which may be a coroutine function; any other runs in a thread, as it may block."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Raises `TypeError` for what can be called by position only: calls name their arguments."""
        self.function = function
        self.signature = inspect.signature(function)
        hints = _hints(function)
        self._adapters: dict[str, TypeAdapter[Any]] = {}
        self.arguments: dict[str, str] = {}
        doc = parameter_docs(inspect.getdoc(function) or "")
        for name, parameter in self.signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD or parameter.kind is parameter.VAR_POSITIONAL:
                continue
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise TypeError(
                    f"{_name(function)}: the parameter {name} is positional-only, but tools get named arguments"
                )
            hint = hints.get(name, Any)
            self._adapters[name] = TypeAdapter(hint)
            self.arguments[name] = _told(hint, doc.get(name, ""), parameter.default)

    @property
    def name(self) -> str:
        return _name(self.function)

    @property
    def description(self) -> str:
        """The docstring up to its list of parameters."""
        lines = (inspect.getdoc(self.function) or "").splitlines()
        end = next((n for n, line in enumerate(lines) if _SECTION.fullmatch(line) or ":param" in line), len(lines))
        return "\n".join(lines[:end]).strip()

    async def __call__(self, arguments: Mapping[str, Any]) -> Any:
        """Raises what the function raises, `TypeError` for missing and unknown arguments, `ValueError` for bad ones."""
        values = {name: self._value(name, value) for name, value in arguments.items()}
        self.signature.bind(**values)
        if inspect.iscoroutinefunction(self.function):
            return await self.function(**values)
        result = await asyncio.to_thread(self.function, **values)
        return await result if inspect.isawaitable(result) else result

    def _value(self, name: str, value: Any) -> Any:
        adapter = self._adapters.get(name)
        if adapter is None:
            return value
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            if isinstance(value, str):
                try:
                    return adapter.validate_json(value)
                except ValidationError:
                    pass
            raise ValueError(f"{name}: {error.errors(include_url=False, include_input=False)[0]['msg']}") from None


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return annotations as types, without those that cannot be resolved (under TYPE_CHECKING, for example)."""
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError):
        return {}


def _told(hint: Any, doc: str, default: Any) -> str:
    """Return the type as the reference library writes it, the text of the docstring, and the default."""
    text = str(hint)
    if doc:
        text += f": {doc}"
    return text if default is inspect.Parameter.empty else f"{text} (default: {default!r})"


def parameter_docs(doc: str) -> dict[str, str]:
    """Return the description of each parameter in a docstring in the style of Google or Sphinx."""
    found = {m[1]: m[2].strip() for m in map(_SPHINX.match, map(str.strip, doc.splitlines())) if m}
    lines = iter(doc.splitlines())
    for line in lines:
        if not _SECTION.fullmatch(line):
            continue
        for inner in lines:
            entry = _GOOGLE.match(inner.strip())
            if not inner.startswith((" ", "\t")) or entry is None:
                break
            found[entry[1]] = entry[2].strip()
    return found
