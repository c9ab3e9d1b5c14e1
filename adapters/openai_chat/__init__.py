"""OpenAI chat completions, as a frontend and as a backend: the dialect `openai-chat`."""

from adapters.openai_chat.codec import OpenAIChat, dialect

__all__ = ["OpenAIChat", "dialect"]
