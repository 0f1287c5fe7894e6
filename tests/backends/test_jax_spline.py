"""Splines in JAX, beside SciPy's."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc.distributions.dist_math import SplineWrapper
from scipy.interpolate import InterpolatedUnivariateSpline

from pymc_sgmcmc.backends.compiling import compiled

pytest.importorskip("jax")

# PyMC's own, of PyTensor's next version
pytestmark = pytest.mark.filterwarnings("ignore:SplineWrapper should implement:FutureWarning")

POINTS = np.sort(np.random.default_rng(1).uniform(-2, 3, 12))


@pytest.mark.parametrize("ext", ["extrapolate", "zeros", "const"])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_values_and_slopes_are_scipys_inside_and_outside(degree, ext):
    spline = InterpolatedUnivariateSpline(POINTS, np.cos(POINTS), k=degree, ext=ext)
    x = pt.vector("x", shape=(101,))
    at = np.linspace(-3, 4, 101)
    outputs = [SplineWrapper(spline)(x), pt.grad(SplineWrapper(spline)(x).sum(), x)]
    value, slope = compiled([x], outputs, "jax")(at)
    np.testing.assert_allclose(value, spline(at), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(slope, spline.derivative()(at), rtol=1e-10, atol=1e-11)


def test_one_that_raises_outside_its_points_is_left_to_others():
    spline = InterpolatedUnivariateSpline(POINTS, np.cos(POINTS), ext="raise")
    x = pt.vector("x", shape=(3,))
    with pytest.raises(NotImplementedError, match="SplineWrapper"):
        compiled([x], [SplineWrapper(spline)(x)], "jax")


def test_the_density_of_an_interpolated_prior():
    with pm.Model() as model:
        pm.Interpolated("x", POINTS, np.exp(-(POINTS**2)))
    [x] = model.value_vars
    density = model.logp(sum=True)
    graphs = [density, pt.grad(density, x)]
    found, expected = (
        [float(y) for y in compiled([x], graphs, backend)(np.array(0.3))]
        for backend in ("jax", "interpreter")
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)
