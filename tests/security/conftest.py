"""The toy dialect of these tests."""

from tests.server.conftest import toy  # noqa: F401
