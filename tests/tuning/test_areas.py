"""Effects of areas beside normal ones, of which data tell only the sum."""

import pytest

from helpers.gallery import check


@pytest.mark.slow
@pytest.mark.parametrize("method", ["CoRVSGLD", "MSGNHT"])
def test_areas_of_a_map(method, measure):
    """As they are written their chains fail after minutes."""
    check(measure("areas_of_a_map", method, 1, cores=1, options={"backend": "jax"}))
