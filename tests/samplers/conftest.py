"""What tests of samplers share."""

import pytest

from pymc_sgmcmc.backends.workarounds import interpreted


@pytest.fixture(autouse=True)
def what_pymc_computes_is_interpreted(request):
    """Interpret starts, and what PyMC records: numba would take longer to compile it."""
    if request.node.get_closest_marker("slow"):
        yield
        return
    with interpreted():
        yield
