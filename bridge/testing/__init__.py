"""For tests of what is built on the bridge: fake backends, and the checks that a dialect of your own must pass.

Backends: `fake_backend` listens on a local port, `ScriptedBackend` takes and gives bytes, `ScriptedAgent` with
`bridge_of` is a bridge in this process. Dialects: `bridge.testing.conformance` and `bridge.testing.pairs` hold test
classes to inherit, `bridge.testing.strategies` what they draw from (these need the extra `testing`).
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.testing.conformance import DialectConformance
    from bridge.testing.http import Exchange, FakeBackend, Seen, fake_backend
    from bridge.testing.local import bridge_of
    from bridge.testing.pairs import PairConformance
    from bridge.testing.script import Reply, Script, ScriptedAgent, ScriptedBackend
    from bridge.testing.sockets import bound_socket, free_port

__all__ = [
    "DialectConformance",
    "Exchange",
    "FakeBackend",
    "PairConformance",
    "Reply",
    "Script",
    "ScriptedAgent",
    "ScriptedBackend",
    "Seen",
    "bound_socket",
    "bridge_of",
    "fake_backend",
    "free_port",
]

_HOMES = {
    "DialectConformance": "conformance",
    "PairConformance": "pairs",
    "bridge_of": "local",
    **dict.fromkeys(("Exchange", "FakeBackend", "Seen", "fake_backend"), "http"),
    **dict.fromkeys(("Reply", "Script", "ScriptedAgent", "ScriptedBackend"), "script"),
    **dict.fromkeys(("bound_socket", "free_port"), "sockets"),
}

if "pytest" in sys.modules:
    # Pytest explains failed assertions in a library only if the library is registered.
    sys.modules["pytest"].register_assert_rewrite("bridge.testing.conformance", "bridge.testing.pairs")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bridge.testing' has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(f"bridge.testing.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name not in ("pytest", "hypothesis"):
            raise
        needed = f"bridge.testing.{name} needs the extra testing: pip install 'dialect-bridge[testing]'"
        raise ImportError(needed) from error
    globals()[name] = value
    return value
