"""OpenAI Responses, as a frontend and as a backend: the dialect `openai-responses`."""

from bridge.dialects.openai_responses.codec import OpenAIResponses, dialect

__all__ = ["OpenAIResponses", "dialect"]
