"""The names, paths and ids of the protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

NAME = "langgraph"
INTERRUPT = "__interrupt__"
BREAKPOINT = "breakpoint"
"""The id of the interrupt that a breakpoint of the graph is: it has none, and is answered by a run without input."""
UNNAMED = "unnamed-interrupt"
"""The beginning of the ids of interrupts that a server gave none."""
MODES = ["messages-tuple", "values", "updates", "custom"]

Wire = dict[str, Any]

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_LONGEST = 500
_ID = re.compile(r"[\w-]{1,200}", re.ASCII)
_RUN = re.compile(r"/runs/([\w-]{1,200})(?:/stream)?/?$", re.ASCII)


def thread_id(name: str) -> str:
    """Return the id of a thread at the server, which takes UUIDs only: `name` if it is one, else one made of it."""
    if _UUID.fullmatch(name):
        return name.lower()
    digest = sha256(f"{NAME}:{name}".encode("utf-8", "replace")).hexdigest()
    variant = "89ab"[int(digest[16], 16) % 4]
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"


def run_in(headers: Mapping[str, str]) -> str:
    """Return the id of the run that the head of a stream names; empty if it names none."""
    for name in ("content-location", "location"):
        if found := _RUN.search(headers.get(name, "")[-_LONGEST:]):
            return found[1]
    return ""


def id_of(value: Any) -> str:
    """Return the id of a run, which is part of paths; empty for anything else."""
    return value if isinstance(value, str) and _ID.fullmatch(value) else ""
