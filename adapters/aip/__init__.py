"""AIP (Agent Interaction Protocol) over gRPC, as a frontend and as a backend: the dialect `aip`."""

from bridge.dialects.aip.codec import AIP, dialect

__all__ = ["AIP", "dialect"]
