"""The UI message stream of Vercel's AI SDK, as a frontend and as a backend: the dialect `ai-sdk-ui`."""

from bridge.dialects.ai_sdk_ui.codec import AISDKUI, dialect

__all__ = ["AISDKUI", "dialect"]
