"""Effects of areas beside normal ones, of which data tell only the sum."""

import pytest

from helpers.gallery import check


@pytest.mark.slow
def test_areas_of_a_map(measure):
    """As they are written their chains fail after minutes."""
    check(measure("areas_of_a_map", "CoRVSGLD", 1, cores=1, options={"backend": "jax"}))
