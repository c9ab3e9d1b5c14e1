"""The configuration that is served without a file: a scripted agent behind every dialect over HTTP."""

from __future__ import annotations

from bridge.codec import Dialect, Operation, offers, registry

DEMO = "demo"
"""The name of the scripted agent, as a backend and as its dialect."""
_HEAD = """\
# Needs no key and no other service, and writes no file.
backends:
  demo: {dialect: demo}
stores: {history: "sqlite:///:memory:", runs: "sqlite:///:memory:"}
routes:
"""


def configuration() -> str:
    """Return the text of the configuration."""
    served = [d for name in registry.names() if _is_served(d := registry.get(name))]
    return _HEAD + "".join(f"  - {{dialect: {d.name}, path: {mount_of(d)}, backend: demo}}\n" for d in served)


def _is_served(dialect: Dialect) -> bool:
    """Return whether the dialect needs neither gRPC nor a queue of runs."""
    return not dialect.over_grpc and offers(dialect.surface, Operation.RUN)


def mount_of(dialect: Dialect) -> str:
    """Return the path at which a route of this dialect is usually mounted."""
    return dialect.mount or f"/{dialect.name}"
