"""Set-up for the tests of the lab."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def eager(eager_steps):
    """Ablations train without tracing, except in tests marked as `traced`."""
