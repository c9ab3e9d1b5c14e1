"""Ollama's own API, as a frontend and as a backend: the dialect `ollama`."""

from bridge.dialects.ollama.codec import Ollama, dialect

__all__ = ["Ollama", "dialect"]
