"""One mistake in a configuration, and the words in which mistakes are told.

Validators say what they expected and never show what they got: what came may be a secret, and only
`bridge.config.origin` knows that. So they raise one of the three values made here, and the translation in
`bridge.config.translate` adds the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

Path = tuple[str | int, ...]

WRONG = "bridge_wrong"
EXPECTED = "bridge_expected"
UNKNOWN = "bridge_unknown"

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: the place in the configuration, and a sentence that needs no further context."""

    path: Path
    message: str


def path_text(path: Path) -> str:
    """`("routes", 0, "models", "gpt-*")` as `routes[0].models["gpt-*"]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f'["{step}"]'
    return text


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean "path"?`, or nothing when no known word is near."""
    import difflib  # here: a sound configuration has no use for it

    near = difflib.get_close_matches(word, list(known), 1)
    return f'; did you mean "{near[0]}"?' if near else "."


def wrong(text: str) -> PydanticCustomError:
    """A whole sentence; it holds no value of the configuration."""
    return PydanticCustomError(WRONG, "{text}", {"text": text})


def expected(text: str) -> PydanticCustomError:
    """What was expected (`a whole number`); the translation adds what came."""
    return PydanticCustomError(EXPECTED, "{text}", {"text": text})


def unknown(what: str, known: Iterable[str]) -> PydanticCustomError:
    """A name that should have been one of `known`; `what` is the kind of thing (`backend`)."""
    return PydanticCustomError(UNKNOWN, "{what}", {"what": what, "known": list(known)})


def at(path: Path, error: PydanticCustomError, value: Any = None) -> ValidationError:
    """The error as one that lies at `path` below the model whose validator raises it."""
    return ValidationError.from_exception_data(
        "configuration", [InitErrorDetails(type=error, loc=path, input=value)], hide_input=True
    )
