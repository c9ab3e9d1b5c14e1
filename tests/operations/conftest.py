"""The stores of these tests."""

from tests.runs.conftest import bridge, make_runs  # noqa: F401
from tests.server.conftest import toy  # noqa: F401
from tests.stores.conftest import engine, history, postgres, postgres_schema  # noqa: F401
from tests.stores.run_engines import run_engine, run_store  # noqa: F401
