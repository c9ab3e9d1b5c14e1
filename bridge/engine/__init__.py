"""`Bridge`: routes and backends, with or without a server in front.

The server is one caller of this, not its home: `stream` and `complete` run a request through a route's backend and
its stages and give our events.
"""

from bridge.engine.bridge import Bridge
from bridge.engine.route import LIBRARY, Caller, Route

__all__ = ["LIBRARY", "Bridge", "Caller", "Route"]
