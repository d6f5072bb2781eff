"""Set-up for the tests of whole programs."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def eager(eager_steps):
    """Programs train without tracing, except in tests marked as `traced`."""
