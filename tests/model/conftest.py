"""What tests of this folder share."""

from collections.abc import Iterator

import pytest

from pymc_sgmcmc.backends.workarounds import interpreted


@pytest.fixture(autouse=True, scope="module")
def what_pymc_computes_is_interpreted() -> Iterator[None]:
    """Interpret starts, and what PyMC records: numba would take longer to compile it."""
    with interpreted():
        yield
