"""The engines of the history, with a real PostgreSQL among them."""

from tests.stores.conftest import engine, postgres  # noqa: F401
