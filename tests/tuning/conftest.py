"""What tests of tuning share."""

import pytest

from helpers.gallery import measuring
from helpers.interpreting import interpreted_unless_slow

__all__ = ["interpreted_unless_slow", "measure"]


@pytest.fixture
def measure(monkeypatch):
    """Return the benchmark's comparison of two chains of a thousand draws with the reference."""
    with measuring(monkeypatch) as found:
        yield found
