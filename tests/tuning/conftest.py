"""What tests of tuning share."""

import pytest

from helpers.gallery import measuring
from pymc_sgmcmc.backends.workarounds import interpreted


@pytest.fixture
def measure(monkeypatch):
    """Return the benchmark's comparison of two chains of a thousand draws with the reference."""
    with measuring(monkeypatch) as found:
        yield found


@pytest.fixture(autouse=True)
def what_pymc_computes_is_interpreted(request):
    """Interpret starts, and what PyMC records: numba would take longer to compile it."""
    if request.node.get_closest_marker("slow"):
        yield
        return
    with interpreted():
        yield
