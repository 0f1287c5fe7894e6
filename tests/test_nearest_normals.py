"""Location and scale of logarithms and log odds: those of the nearest normal law."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_sgmcmc.backends.compiling import INTERPRETER
from pymc_sgmcmc.centring import log_odds_of_beta, logarithm_of

LAWS = {
    "LogNormal": (0.3, 0.7),
    "InverseGamma": (3.0, 2.0),
    "HalfNormal": (2.0,),
    "Weibull": (1.7, 2.0),
    # Only nearly, as its log odds have no such law in closed form
    "Beta": (3.0, 8.0),
}


@pytest.mark.parametrize("name", LAWS)
def test_nearest_normal(name):
    """Under it the mean gradient of the density is 0, and the mean curvature its own."""
    rv = getattr(pm, name).dist(*LAWS[name])
    phi, is_beta = pt.dvector(), name == "Beta"
    law = log_odds_of_beta if is_beta else logarithm_of(rv.owner.op)
    location, scale = (float(x.eval(mode=INTERPRETER)) for x in law(*rv.owner.inputs))
    value = pt.sigmoid(phi) if is_beta else pt.exp(phi)
    slope = -pt.softplus(phi) - pt.softplus(-phi) if is_beta else phi
    potential = -pt.sum(pm.logp(rv, value) + slope)
    gradient = pt.grad(potential, phi)
    curvature = pt.grad(pt.sum(gradient), phi)
    function = pytensor.function([phi], [gradient, curvature], mode=INTERPRETER)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    first, second = function(location + scale * nodes)
    mean = [weights @ x / weights.sum() for x in (first * scale, second * scale**2)]
    np.testing.assert_allclose(mean, [0, 1], rtol=0, atol=0.06 if is_beta else 1e-6)
