"""What tests of this folder share."""

import pytest

from helpers.interpreting import interpreted_modules

__all__ = ["interpreted_modules"]


@pytest.fixture
def no_draws_ahead(monkeypatch):
    """Chains are left after a draw; those that are made ahead and forgotten would count twice."""
    monkeypatch.setattr("pymc_sgmcmc.kernel.program._MOST_DRAWS", 1)
