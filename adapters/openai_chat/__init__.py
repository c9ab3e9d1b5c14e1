"""OpenAI chat completions, as a frontend and as a backend: the dialect `openai-chat`."""

from bridge.dialects.openai_chat.codec import OpenAIChat, dialect

__all__ = ["OpenAIChat", "dialect"]
