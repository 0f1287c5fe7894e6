"""Loops over numbers in JAX, beside PyTensor's own."""

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest

from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.elemwise import Elemwise

from pymc_sgmcmc.backends.compiling import compiled

pytest.importorskip("jax")

RNG = np.random.default_rng(1)
SHAPES = RNG.gamma(2, 2, (2, 40)) + 0.05


def evaluated(inputs, outputs, values, backend):
    return [np.asarray(x) for x in compiled(inputs, outputs, backend)(*values)]


@pytest.mark.parametrize(
    "function, last",
    [
        # Both sides of where the series changes
        (lambda a, b, x: pt.gammainc(a, x) + b, RNG.gamma(2, 3, 40)),
        (lambda a, b, x: pt.gammaincc(a, x) + b, RNG.gamma(2, 3, 40)),
        (pt.betainc, RNG.random(40)),
    ],
)
def test_derivatives_of_incomplete_functions_are_those_of_the_interpreter(function, last):
    inputs = [pt.vector(name, shape=(40,)) for name in ("a", "b", "x")]
    gradient = pt.grad(function(*inputs).sum(), inputs)
    found, expected = (
        evaluated(inputs, gradient, [*SHAPES, last], backend) for backend in ("jax", "interpreter")
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_derivatives_of_2f1_are_left_to_numba():
    inputs = [pt.vector(name, shape=(2,)) for name in "abcx"]
    gradient = pt.grad(pt.hyp2f1(*inputs).sum(), inputs[:1])
    with pytest.raises(NotImplementedError, match="Grad2F1"):
        compiled(inputs, gradient, "jax")


def looped(until=None, dtype="float64"):
    """Return x_{k + 1} = x_k / 2 + c, up to a limit or until it is near enough to 2c."""
    x, c = ps.ScalarType(dtype)("x"), ps.ScalarType(dtype)("c")
    half = np.array(0.5, dtype=dtype)
    end = None if until is None else ps.abs(x * half + c - c - c) < np.array(until, dtype=dtype)
    return Elemwise(ScalarLoop([x], [x * half + c], [c], until=end))


@pytest.mark.parametrize("steps", [0, 3, 50])
def test_elements_end_one_by_one_and_say_whether_they_did(steps):
    x, c = np.array([0.0, 1.0, 3.9, 100.0]), np.array([1.0, 0.5, 2.0, 3.0])
    values = [np.array([steps, steps, 1, steps]), x, c]
    inputs = [t(shape=(4,)) for t in (pt.lvector, pt.vector, pt.vector)]
    outputs = looped(0.3)(*inputs)
    found, expected = (evaluated(inputs, outputs, values, b) for b in ("jax", "interpreter"))
    np.testing.assert_array_equal(found[0], expected[0])
    # To make no step is no failure: PyTensor says so, but its interpreter does not
    np.testing.assert_array_equal(found[1], expected[1] | (values[0] == 0))


def test_what_is_no_number_does_not_go_on_for_all_steps():
    inputs = [t(shape=(2,)) for t in (pt.lvector, pt.vector, pt.vector)]
    values = [np.full(2, 10**9), np.array([np.nan, 0.0]), np.ones(2)]
    x, ended = evaluated(inputs, looped(1e-3)(*inputs), values, "jax")
    np.testing.assert_array_equal(np.isnan(x), [True, False])
    np.testing.assert_array_equal(ended, [False, True])


def test_without_a_condition_there_are_as_many_steps_as_asked_for():
    inputs = [pt.lvector(shape=(3,)), pt.vector(shape=(3,)), pt.scalar()]
    [x] = evaluated(inputs, [looped()(*inputs)], [np.array([0, 1, 2]), np.full(3, 8.0), 1.0], "jax")
    np.testing.assert_array_equal(x, [8.0, 5.0, 3.5])


def test_single_precision_stays_single():
    with pytensor.config.change_flags(floatX="float32"):
        inputs = [pt.lvector(shape=(2,)), pt.fvector(shape=(2,)), pt.fscalar()]
        values = [np.array([1, 2]), np.full(2, 8, "float32"), np.float32(1)]
        [x] = evaluated(inputs, [looped(dtype="float32")(*inputs)], values, "jax")
    assert x.dtype == "float32"
    np.testing.assert_array_equal(x, [5.0, 3.5])
