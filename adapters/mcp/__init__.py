"""The Model Context Protocol as a frontend: the backends of a route are tools of MCP clients. The dialect `mcp`."""

from bridge.dialects.mcp.codec import MCP, dialect

__all__ = ["MCP", "dialect"]
