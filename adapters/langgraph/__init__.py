"""Servers of LangGraph's API, as backends. The dialect `langgraph`."""

from bridge.dialects.langgraph.codec import LangGraph, dialect

__all__ = ["LangGraph", "dialect"]
