"""The coordinates of effects of areas: what the map is, and when they are standard."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_sgmcmc.backends.compiling import INTERPRETER
from pymc_sgmcmc.model.coordinates import coordinates_at
from pymc_sgmcmc.model.fields import fields_of
from pymc_sgmcmc.model.graphs import substitute

COUNT = 12
W = np.roll(np.eye(COUNT, dtype=int), 1, axis=0)
W = W + W.T
AT = {"tau": 2.0, "alpha": 0.8, "sigma": 0.7, "mu": 0.3}


def icar():
    return pm.ICAR("phi", W=W, sigma=pm.HalfNormal("sigma"))


def car():
    alpha, tau = pm.Uniform("alpha", 0, 1), pm.Gamma("tau", 2, 1)
    return pm.CAR("phi", pm.Normal("mu") * np.arange(COUNT), W, alpha, tau)


@pytest.fixture(params=[icar, car], scope="module", ids=lambda build: build.__name__)
def field(request):
    """A field that the model multiplies by 2, its map, and what makes numbers of graphs."""
    with pm.Model() as model:
        phi = request.param()
        pm.Normal("y", 2 * phi, 1, observed=np.zeros(COUNT))
    [(rv, found)] = fields_of(model, set(model.free_RVs)).items()
    values = {x: pt.constant(AT[x.name], dtype=x.dtype) for x in model.free_RVs if x.name in AT}
    return rv, found, lambda graphs: substitute(graphs, values)


def weights(found):
    rng = np.random.default_rng(1)
    information, score = rng.gamma(1, size=COUNT), rng.normal(size=COUNT)
    yield found.uniform(0.0, (COUNT,))
    yield found.uniform(1.0, (COUNT,))
    yield found._weight(information, score, 1.1, 0.6, 0.5, 0.4)


def functions(rv, found, numbers, weight):
    """Return the map, the logarithm of its slope and what the inverse finds of it."""
    of_map = found.with_beside(pt.constant(0.6)).with_weight(pt.constant(weight))
    x, inputs = pt.vector("x"), rv.owner.inputs
    theta = of_map.backward(x, *inputs)
    outputs = [theta, of_map.log_jac_det(x, *inputs), of_map.forward(theta, *inputs)]
    return pytensor.function([x], numbers(outputs), mode=INTERPRETER)


def test_inverse_and_slope(field):
    rv, found, numbers = field
    at = np.random.default_rng(2).normal(size=COUNT)
    for weight in weights(found):
        function = functions(rv, found, numbers, weight)
        _, slope, again = function(at)
        np.testing.assert_allclose(again, at, atol=1e-7)
        steps = 1e-4 * np.eye(COUNT)
        jacobian = [(function(at + e)[0] - function(at - e)[0]) / 2e-4 for e in steps]
        np.testing.assert_allclose(slope, np.linalg.slogdet(jacobian)[1], rtol=1e-6)


def test_right_information_makes_them_standard_normal(field):
    """φ of N(0, I) are draws of what prior and normal data say, whatever the scale is."""
    rv, found, numbers = field
    rng = np.random.default_rng(3)
    information, score = rng.gamma(1, size=COUNT), rng.normal(size=COUNT)
    prior = found.prior
    location, scale, share = (
        np.broadcast_to(x, COUNT) * 1.0
        for x in pytensor.function(
            [], numbers([prior.location, prior.scale, prior.share]), mode=INTERPRETER
        )()
    )
    s, alpha = scale[0], share[0]
    # The basis is that of another scale
    weight = found._weight(information, score, 3.0, alpha, s, 0.0)
    of_map = found.with_weight(pt.constant(weight))
    x = pt.vector("x")
    [theta] = numbers([of_map.backward(x, *rv.owner.inputs)])
    function = pytensor.function([x], theta, mode=INTERPRETER)
    middle = function(np.zeros(COUNT))
    root = np.stack([function(e) - middle for e in np.eye(COUNT)], axis=1)
    precision = prior.precision(alpha, s) / s**2 + np.diag(4 * information)
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(precision), rtol=1e-4, atol=1e-7)
    of_prior = prior.precision(alpha, s) / s**2 @ location
    expected = np.linalg.solve(precision, of_prior + 2 * score)
    np.testing.assert_allclose(middle, expected, rtol=1e-4, atol=1e-6)


def test_the_choice_finds_what_data_say():
    """Of a gradient and its change where all effects move alike."""
    with pm.Model() as model:
        phi = car()
        pm.Normal("y", 2 * phi, 1, observed=np.zeros(COUNT))
    [found] = fields_of(model, set(model.free_RVs)).values()
    rng = np.random.default_rng(4)
    information, score = rng.gamma(1, size=COUNT), rng.normal(size=COUNT)
    s, alpha = AT["tau"] ** -0.5, AT["alpha"]
    c, at = 2 * s, 2 * AT["mu"] * np.arange(COUNT)
    location = np.stack([at, *np.outer([alpha, s, 0.0], np.ones(COUNT))])
    spread = np.full(COUNT, c)
    weight = found.uniform(0.0, (COUNT,))
    of_map = found.with_weight(weight)
    basis, precision = weight[-COUNT:], weight[4] - (alpha - weight[8]) * weight[5]

    def gradient(x):
        z = basis @ (x / np.sqrt(precision))
        of_z = found.prior.precision(alpha, s) @ z + c * (information * (at + c * z) - score)
        return basis.T @ of_z / np.sqrt(precision)

    x = rng.normal(size=COUNT)
    move = of_map.shift(location, spread)
    change = (gradient(x + move) - gradient(x - move)) / 2
    told = of_map.told(x, gradient(x), change, location, spread)
    np.testing.assert_allclose(told[1], information, rtol=1e-5, atol=1e-8)
    expected = found._weight(information, score, c, alpha, s, 0.0)
    np.testing.assert_allclose(told[3:7], expected[3:7], rtol=1e-4, atol=1e-7)


def besag_york_mollie():
    sigma, rho = pm.HalfNormal("sigma"), pm.Beta("rho", 0.5, 0.5)
    theta, phi = pm.Normal("theta", 0, 1, shape=COUNT), pm.ICAR("phi", W=W)
    mixture = pm.math.sqrt(1 - rho) * theta + pm.math.sqrt(rho / 0.4) * phi
    return sigma * pm.Deterministic("mixture", mixture)[np.arange(COUNT).repeat(2)]


def of_rows():
    sigma, rho = pm.HalfNormal("sigma"), pm.Beta("rho", 0.5, 0.5)
    theta, phi = pm.Normal("theta", 0, 1, shape=COUNT), pm.ICAR("phi", W=W)
    row = pt.constant(np.arange(COUNT).repeat(2))
    mixture = pm.math.sqrt(1 - rho) * theta[row] + pm.math.sqrt(rho / 0.4) * phi[row]
    return pm.Normal("intercept") + sigma * mixture


def of_own_scales():
    sigma, rho = pm.HalfNormal("sigma"), pm.Beta("rho", 0.5, 0.5)
    row = pt.constant(np.arange(COUNT).repeat(2))
    theta = pm.Normal("theta", 0, sigma * pm.math.sqrt(1 - rho), shape=COUNT)
    phi = pm.ICAR("phi", W=W)
    return theta[row] + sigma * pm.math.sqrt(rho / 0.4) * phi[row]


@pytest.mark.parametrize("effects", [besag_york_mollie, of_rows, of_own_scales])
def test_effects_beside_a_field_are_those_of_the_sum(effects):
    """Where the field moves, so does what data tell of the normal effects beside it."""
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(effects()), observed=np.ones(2 * COUNT, dtype="int64"))
    coordinates, _, _ = coordinates_at(
        model, model.continuous_value_vars, "lipschitz", model.initial_point(), centring=True
    )
    maps = {c.name: c.map for c in coordinates if c.weighted}
    theta, phi = maps["theta"], maps["phi"]
    rvs = {rv.name: rv for rv in model.free_RVs}
    at = {
        rvs["phi"]: np.arange(COUNT) * 1.0,
        rvs["sigma"]: np.array(0.5),
        rvs["rho"]: np.array(0.2),
    }
    inputs = rvs["theta"].owner.inputs
    graphs = [theta.location(*inputs), theta.spread(*inputs), phi.spread(), phi.beside]
    location, spread, of_field, beside = (
        pt.as_tensor(x).eval(at, mode=INTERPRETER, on_unused_input="ignore") for x in graphs
    )
    factor = 0.5 * np.sqrt(0.2 / 0.4)
    np.testing.assert_allclose(location, factor * np.arange(COUNT))
    np.testing.assert_allclose([of_field, np.max(spread), beside], [factor, *[0.5 * 0.8**0.5] * 2])


def test_a_map_that_is_no_constant_or_too_large_is_left():
    with pm.Model() as model:
        pm.CAR("of_data", np.zeros(COUNT), pm.Data("W", 1.0 * W), 0.5, 1.0)
        pm.CAR("several", np.zeros((2, COUNT)), W, 0.5, 1.0)
        large = np.roll(np.eye(2500, dtype=int), 1, axis=0)
        pm.ICAR("large", W=large + large.T)
    assert not fields_of(model, set(model.free_RVs))
