"""Set-up for the tests of tasks."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def eager(eager_steps):
    """Tasks train without tracing, except in tests marked as `traced`."""
