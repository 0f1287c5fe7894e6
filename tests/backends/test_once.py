"""Arrays that JAX computes once."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor.graph.traversal import ancestors

from pymc_sgmcmc.backends import jax_backend, numba_backend
from pymc_sgmcmc.backends.once import Once, computed_once


def is_held(x):
    return any(y.owner is not None and isinstance(y.owner.op, Once) for y in ancestors([x]))


@pytest.mark.parametrize("mode", ["JAX", "NUMBA", "FAST_COMPILE"])
def test_once_is_the_identity(mode):
    if mode == "JAX":
        pytest.importorskip("jax")
        jax_backend.prepare()
    elif mode == "NUMBA":
        numba_backend.prepare()
    x = pt.matrix("x")
    held = Once()(pt.exp(x))
    outputs = [held + 1, held.shape[1], pt.grad(pt.sum(held), x), Once()(x)]
    at = np.arange(6.0).reshape(2, 3)
    value, length, gradient, same = pytensor.function([x], outputs, mode=mode)(at)
    np.testing.assert_allclose(value, np.exp(at) + 1)
    np.testing.assert_allclose(gradient, np.exp(at))
    np.testing.assert_array_equal(same, at)
    assert length == 3
    assert not np.shares_memory(same, at)


def test_only_large_arrays_of_jax_are_held():
    large, small, unknown = (pt.tensor(shape=(n,), dtype="float64") for n in (2**18, 1000, None))
    assert list(map(is_held, computed_once([large, small, unknown], "jax"))) == [True, False, False]
    assert not any(map(is_held, computed_once([large, small, unknown], "numba")))


def test_xla_computes_it_once():
    jax = pytest.importorskip("jax")
    jax_backend.prepare()
    x = pt.tensor("x", shape=(2**18,), dtype="float64")

    def times_computed(held):
        p = 0.3 * pt.sqr(x) - x
        [p] = computed_once([p], "jax") if held else [p]
        function = pytensor.function([x], [2 * pt.exp(p) + x, 1 - pt.sin(p)], mode="JAX").vm.jit_fn
        text = function.lower(jax.numpy.zeros(2**18)).compile().as_text()
        return text.count("constant(0.3)")

    assert times_computed(held=True) == 1
    # Once is needed as long as this is so
    assert times_computed(held=False) == 2
