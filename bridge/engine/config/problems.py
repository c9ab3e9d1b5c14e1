"""Problems of a configuration, and the errors that validators raise.

Validators name what they expected and never show the value: it may be a secret, which only
`bridge.engine.config.origin` knows. They raise one of the three errors made here, and `bridge.engine.config.translate`
adds the rest of the message.
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
    """One problem: the path in the configuration, and a message that needs no further context."""

    path: Path
    message: str


def path_text(path: Path) -> str:
    """Return `("routes", 0, "models", "gpt-*")` as `routes[0].models["gpt-*"]`."""
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
    """Return `; did you mean "path"?`, or a full stop if no known word is similar."""
    import difflib  # here, since a valid configuration does not need it

    near = difflib.get_close_matches(word, list(known), 1)
    return f'; did you mean "{near[0]}"?' if near else "."


def wrong(text: str) -> PydanticCustomError:
    """Return an error with this message, which must not contain a value of the configuration."""
    return PydanticCustomError(WRONG, "{text}", {"text": text})


def expected(text: str) -> PydanticCustomError:
    """Return an error that names what was expected (`a whole number`); the translation adds the value."""
    return PydanticCustomError(EXPECTED, "{text}", {"text": text})


def unknown(what: str, known: Iterable[str]) -> PydanticCustomError:
    """Return an error for a name that is not one of `known`; `what` is the kind of name (`backend`)."""
    return PydanticCustomError(UNKNOWN, "{what}", {"what": what, "known": list(known)})


def at(path: Path, error: PydanticCustomError, value: Any = None) -> ValidationError:
    """Return the error as one at `path` below the model whose validator raises it."""
    return ValidationError.from_exception_data(
        "configuration", [InitErrorDetails(type=error, loc=path, input=value)], hide_input=True
    )
