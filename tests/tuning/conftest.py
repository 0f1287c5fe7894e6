"""What tests of tuning share."""

import pytest

from helpers.gallery import measuring
from helpers.interpreting import interpreted_unless_slow
from pymc_sgmcmc.tuning.surface import TuningError

__all__ = ["interpreted_unless_slow", "measure"]


@pytest.fixture
def no_matrix(monkeypatch):
    """No search for a posterior's bulk finds a matrix."""

    def fails(*args):
        raise TuningError("no bulk")

    monkeypatch.setattr("pymc_sgmcmc.tuning.bulk._Search.dense", fails)


@pytest.fixture
def measure(monkeypatch):
    """Return the benchmark's comparison of two chains of a thousand draws with the reference."""
    with measuring(monkeypatch) as found:
        yield found
