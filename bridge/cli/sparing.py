"""What a server imports stays for good, so that its start is where a server's own memory is decided."""

from __future__ import annotations

import gc
import os
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_YOUNG = 1000
"""New objects after which the collector looks at them."""
_NEVER = 1_000_000
"""Looks at the new ones after which it looks at those that it has seen."""

_PLAIN_LISTS = "FROZENLIST_NO_EXTENSIONS"


@contextmanager
def sparing() -> Iterator[None]:
    """Imports inside the block take less time and memory; how they work afterwards is the same."""
    with ExitStack() as stack:
        for saving in (_walked_once, _certificates_where_checked, _plain_lists):
            stack.enter_context(saving())
        yield


@contextmanager
def _walked_once() -> Iterator[None]:
    """Walking what is imported again and again took the collector a tenth of the start, and what stays need not be
    walked later either. Once it is, while it is new: a class with slots leaves behind the one it is made from, which is
    0.9 MB in all.
    """
    before = gc.get_threshold()
    gc.set_threshold(_YOUNG, _NEVER, _NEVER)
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(*before)


@contextmanager
def _certificates_where_checked() -> Iterator[None]:
    """aiohttp makes two contexts when it is imported, and reads all certificates of the system for both, although one
    of them checks none: 1 MB, and a twentieth of the start.
    """
    read = ssl.SSLContext.set_default_verify_paths

    def where_checked(context: ssl.SSLContext) -> None:
        if context.verify_mode is not ssl.CERT_NONE:
            read(context)

    ssl.SSLContext.set_default_verify_paths = where_checked  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        ssl.SSLContext.set_default_verify_paths = read  # type: ignore[method-assign]


@contextmanager
def _plain_lists() -> Iterator[None]:
    """Of all that is loaded, only the compiled form of `frozenlist` needs the library of C++: 0.9 MB, for lists that
    aiohttp makes once in an application.
    """
    given = os.environ.get(_PLAIN_LISTS)
    os.environ.setdefault(_PLAIN_LISTS, "1")
    try:
        yield
    finally:
        if given is None:
            del os.environ[_PLAIN_LISTS]
