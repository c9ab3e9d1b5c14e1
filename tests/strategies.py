"""The strategies of `bridge.testing.strategies`, under the name by which the tests of this project know them."""

from bridge.testing.strategies import *  # noqa: F403
