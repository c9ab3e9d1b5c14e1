"""Bytes that nobody thought of, for everything that reads bytes."""
