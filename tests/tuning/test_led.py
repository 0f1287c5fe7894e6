"""Starts that data lead through the coordinates of a hierarchy."""

import pytest

from helpers.gallery import check


@pytest.mark.slow
def test_a_process_in_a_basis(measure):
    """Its coefficients' scales fall by many powers of ten where the length is long.

    In the coordinates of the start Newton's way ends at a false length, and as they are written
    the length's effective draws are a hundredth of the draws.
    """
    check(measure("curve_of_a_process", "CoRVSGLD", 2, cores=1, options={"backend": "jax"}))


@pytest.mark.slow
def test_a_sum_of_processes(measure):
    """Of an intercept and two curves data do not tell whose the level is."""
    check(measure("sum_of_processes", "MSGNHT", 2, cores=1, options={"backend": "jax"}))


@pytest.mark.slow
def test_a_periodic_process(measure):
    """Its cosines and its sines have scales of their own, and one vector of coefficients."""
    check(measure("periodic_process", "MSGNHT", 2, cores=1, options={"backend": "jax"}))


@pytest.mark.slow
def test_products_are_not_led(measure):
    """What data say of a slope depends on abilities: in its coordinates scales fall to nothing."""
    check(measure("item_response", "CoRVSGLD", 3, cores=1, options={"backend": "jax"}))
