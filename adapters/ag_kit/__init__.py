"""AG-Kit's `send-message`, as front and as back, in both of its generations."""

from bridge.dialects.ag_kit.codec import AGKit, dialect

__all__ = ["AGKit", "dialect"]
