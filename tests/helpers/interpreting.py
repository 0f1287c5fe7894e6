"""Fixtures for folders whose tests compile little for themselves; a conftest.py imports one."""

from collections.abc import Iterator

import pytest

from pymc_sgmcmc.backends.workarounds import interpreted


@pytest.fixture(autouse=True)
def interpreted_unless_slow(request: pytest.FixtureRequest) -> Iterator[None]:
    """Interpret starts, and what PyMC records: numba would take longer to compile it."""
    if request.node.get_closest_marker("slow"):
        yield
        return
    with interpreted():
        yield


@pytest.fixture(autouse=True, scope="module")
def interpreted_modules() -> Iterator[None]:
    """Interpret them also in what the tests of a module share."""
    with interpreted():
        yield
