"""Anthropic Messages, as a frontend and as a backend: the dialect `anthropic-messages`."""

from bridge.dialects.anthropic_messages.codec import AnthropicMessages, dialect

__all__ = ["AnthropicMessages", "dialect"]
