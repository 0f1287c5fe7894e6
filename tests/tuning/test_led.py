"""Hierarchies of which data tell sums and products: right from the start that data lead to."""

import pytest

from helpers.gallery import check


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method", "seed"),
    [
        # Its coefficients' scales fall by many powers of ten where the length is long. In the
        # coordinates of the start Newton's way ends at a false length, and as they are written the
        # length's effective draws are a hundredth of the draws
        ("curve_of_a_process", "CoRVSGLD", 2),
        # Of an intercept and two curves data do not tell whose the level is
        ("sum_of_processes", "MSGNHT", 2),
        # Cosines and sines have scales of their own, and one vector of coefficients
        ("periodic_process", "MSGNHT", 2),
        # Products are not led: what data say of a slope depends on abilities, and in its
        # coordinates scales fall to nothing
        ("item_response", "CoRVSGLD", 3),
        # As they are written the chains of areas fail after minutes
        ("areas_of_a_map", "CoRVSGLD", 1),
        # With one weight for each walk their scale was off by four sds
        ("panel_of_walks", "CoRVSGLD", 1),
    ],
)
def test_a_model_of_the_benchmark(measure, name, method, seed):
    check(measure(name, method, seed, cores=1, options={"backend": "jax"}))
