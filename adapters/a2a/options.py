"""The options of a route (front) or a backend (back) of this dialect."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bridge.codec import Context, Options


class FrontOptions(Options):
    """Options of a route whose clients speak A2A."""

    versions: tuple[Literal["1.0", "0.3"], ...] = Field(
        ("1.0",), min_length=1, description="The versions of the protocol that clients may speak."
    )


class BackOptions(Options):
    """Options of a backend that speaks A2A."""


def front(context: Context) -> FrontOptions:
    """The options of a route; a context made without any means the defaults."""
    return context.options if isinstance(context.options, FrontOptions) else FrontOptions()


def back(context: Context) -> BackOptions:
    """The options of a backend; a context made without any means the defaults."""
    return context.options if isinstance(context.options, BackOptions) else BackOptions()
