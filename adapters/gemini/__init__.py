"""Google's Gemini API, as a frontend and as a backend: the dialect `gemini`."""

from bridge.dialects.gemini.codec import Gemini, dialect

__all__ = ["Gemini", "dialect"]
