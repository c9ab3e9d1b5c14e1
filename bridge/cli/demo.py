"""The configuration of the demo: a scripted agent in every dialect that streams over HTTP."""

from __future__ import annotations

from bridge.contract import Dialect, Operation, offers, registry

DEMO = "demo"
"""The name of the scripted agent, as a backend and as its dialect."""
FIRST = "openai-chat"
"""Its route is the first one: most clients speak it."""
_HEAD = """\
# Needs no key and no other service, and writes no file.
backends:
  demo: {dialect: demo}
stores: {history: "sqlite:///:memory:", runs: "sqlite:///:memory:"}
routes:
"""


def configuration() -> str:
    """Return the text of the configuration."""
    dialects = map(registry.get, registry.names())
    # Those that need neither gRPC nor a queue of runs.
    served = [d for d in dialects if not d.over_grpc and offers(d.surface, Operation.RUN)]
    served.sort(key=lambda dialect: dialect.name != FIRST)
    return _HEAD + "".join(f"  - {{dialect: {d.name}, path: {_path_of(d)}, backend: demo}}\n" for d in served)


def _path_of(dialect: Dialect) -> str:
    """Return the path of a route beside those of all other dialects: none of them has the root for itself."""
    return mount_of(dialect) if mount_of(dialect) != "/" else f"/{dialect.name}"


def mount_of(dialect: Dialect) -> str:
    """Return the path at which a route of this dialect is usually mounted."""
    return dialect.mount or f"/{dialect.name}"
