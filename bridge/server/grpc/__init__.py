"""Agents and tools that the bridge serves over gRPC."""
