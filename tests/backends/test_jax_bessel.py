"""Modified Bessel functions in JAX, beside SciPy's."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from scipy.special import ive

from pymc_sgmcmc.backends.compiling import compiled

pytest.importorskip("jax")

SIZES = np.concatenate([[0, 1e-300, 1e-10], np.logspace(-3, 6, 60)])


@pytest.mark.parametrize("largest", [1, 10, 50])
def test_values_and_derivatives_are_exact_on_both_sides_of_the_change(largest):
    order = np.arange(-1.0, largest + 1)[:, None]
    x = pt.vector("x", shape=(2 * len(SIZES),))
    at = np.concatenate([-SIZES[::-1], SIZES])
    function = pt.ive(order, x)
    slope = pt.grad(function.sum(), x)
    value, slope = (np.asarray(a) for a in compiled([x], [function, slope], "jax")(at))
    expected = ive(order, at)
    seen = np.abs(expected) > 1e-290
    np.testing.assert_allclose(value[seen], expected[seen], rtol=1e-12)
    np.testing.assert_allclose(value[~seen], 0, atol=1e-289)
    sides = ive(order - 1, at) + ive(order + 1, at) - 2 * np.sign(at) * expected
    # Of large x the terms cancel, and at 0 there is a kink
    np.testing.assert_allclose(
        slope[at != 0], sides.sum(axis=0)[at != 0] / 2, rtol=1e-9, atol=1e-13
    )


def test_single_precision():
    with pytensor.config.change_flags(floatX="float32"):
        x = pt.fvector("x", shape=(len(SIZES),))
        function = pt.ive(np.arange(4, dtype="float32")[:, None], x)
        [found] = compiled([x], [function], "jax")(SIZES.astype("float32"))
    expected = ive(np.arange(4)[:, None], SIZES)
    seen = expected > 1e-30
    np.testing.assert_allclose(np.asarray(found)[seen], expected[seen], rtol=2e-5)


@pytest.mark.parametrize("order", [0.5, 200, None])
def test_other_orders_are_left_to_numba(order):
    v, x = pt.vector("v", shape=(2,)), pt.vector("x", shape=(2,))
    with pytest.raises(NotImplementedError, match="ive"):
        compiled([v, x], [pt.ive(v if order is None else order, x)], "jax")
