"""What tests of tuning share."""

import pytest

from helpers.gallery import measuring


@pytest.fixture
def measure(monkeypatch):
    """Return the benchmark's comparison of two chains of a thousand draws with the reference."""
    with measuring(monkeypatch) as found:
        yield found
