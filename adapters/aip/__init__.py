"""AIP (Agent Interaction Protocol) over gRPC, as front and as back."""

from adapters.aip.codec import AIP, dialect

__all__ = ["AIP", "dialect"]
