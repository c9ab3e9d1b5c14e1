"""Connections over which both sides ask, and their sessions: what serves an `RpcDialect`, whatever carries it.

A `SessionConnection` reads the calls of one client. Its `RpcHost` is the server, or the command that was started by the
client: who the client is, when the bridge is open, and what is reported of each run.
"""

from __future__ import annotations

from bridge.server.sessions.host import RpcHost, RunScope
from bridge.server.sessions.session_connection import SessionConnection

__all__ = ["RpcHost", "RunScope", "SessionConnection"]
