"""Which pass claims which variable."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from helpers.modes import PLAIN
from helpers.rings import ring
from pymc_sgmcmc.backends.interpreting import INTERPRETER
from pymc_sgmcmc.backends.workarounds import interpreted
from pymc_sgmcmc.centring.fields import Field
from pymc_sgmcmc.centring.walks import Walk
from pymc_sgmcmc.model.coordinates import coordinates_at
from pymc_sgmcmc.model.posterior import Posterior

COUNT = 12
W = ring(COUNT)


def coordinates_of(model):
    with interpreted():
        point = model.initial_point()
    coordinates, _, _ = coordinates_at(
        model, model.continuous_value_vars, "lipschitz", point, centring=True
    )
    return {c.name: c for c in coordinates}


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
    """Where the field moves, so does the data's information on the normal effects beside it."""
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(effects()), observed=np.ones(2 * COUNT, dtype="int64"))
    coordinates = coordinates_of(model)
    theta, phi = coordinates["theta"].map, coordinates["phi"].map
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


@pytest.mark.parametrize("order", ["theta z", "z theta"])
def test_effects_beside_a_field_do_not_go_round(order):
    """Of an effect and a residual in one sum only one can have the other in its location."""
    with pm.Model() as model:
        s, t = pm.HalfNormal("s"), pm.HalfNormal("t")
        phi = pm.ICAR("phi", W=W)
        scale = {"theta": s, "z": 1.0}
        effects = {name: pm.Normal(name, 0, scale[name], shape=COUNT) for name in order.split()}
        mean = pt.add(effects["theta"], phi, t * effects["z"])
        pm.Normal("y", mean, 1, observed=np.zeros(COUNT))
    coordinates = list(coordinates_of(model).values())
    assert all(c.weighted for c in coordinates if c.name in ("theta", "z", "phi"))
    Posterior(model, coordinates)


def test_a_field_that_gives_the_spread_beside_it_does_not_go_round():
    with pm.Model() as model:
        phi = pm.ICAR("phi", W=W)
        mean = phi + pm.Normal("v", 0, pt.exp(phi[0]), shape=COUNT)
        pm.Normal("y", mean, 1, observed=np.zeros(COUNT))
    values, at = model.value_vars, model.initial_point()
    coordinates, x, scales = coordinates_at(model, values, "lipschitz", at, centring=True)
    assert all(c.weighted for c in coordinates)
    posterior = Posterior(model, coordinates)
    graphs = [posterior.log_density, sum(map(pt.sum, posterior.log_slopes)), *posterior.values]
    inputs = [*posterior.phi, *posterior.scales, *posterior.data]
    function = pm.compile(inputs, graphs, mode=INTERPRETER, on_unused_input="ignore")
    x = [part + np.linspace(-0.3, 0.4, COUNT) for part in x]
    log_density, slope, *at = function(*x, *scales, *posterior.data.values())
    exact = pm.compile(values, model.logp(), mode=INTERPRETER)(*at)
    np.testing.assert_allclose(log_density - slope, exact, rtol=1e-9)


def test_neighbours_that_are_no_constant_or_too_many_are_no_field():
    with pm.Model() as model:
        pm.CAR("of_data", np.zeros(COUNT), pm.Data("W", 1.0 * W), 0.5, 1.0)
        pm.CAR("several", np.zeros((2, COUNT)), W, 0.5, 1.0)
        pm.ICAR("large", W=ring(2500))
    assert not any(isinstance(c.transform, Field) for c in coordinates_of(model).values())


@pytest.mark.parametrize(
    "length, sampled, standardised",
    [(100, True, True), (100, False, False), (1000, True, True), (1000, False, True)],
)
def test_walks_that_a_matrix_cannot_whiten_are_standardised(length, sampled, standardised):
    with pm.Model() as model:
        scale = pm.HalfNormal("sd") if sampled else 0.5
        pm.GaussianRandomWalk("x", 0, scale, init_dist=pm.Normal.dist(0, 2), shape=length)
    assert isinstance(coordinates_of(model)["x"].transform, Walk) == standardised


ZEROS = np.zeros(10)


def shifted_normal(mean, sd, size):
    return 1 + pm.Normal.dist(mean, sd, size=size)


def batches_of_one_row(x):
    weight, y = pm.Minibatch(np.ones(50), np.ones(50), batch_size=1)
    pm.Normal("y", x[3], weight * pm.HalfNormal("s"), observed=y, total_size=50)


LIKELIHOODS = {
    "one noise": lambda x: pm.Normal("y", x[::2], pm.HalfNormal("s"), observed=ZEROS[::2]),
    "known": lambda x: pm.Normal("y", x, 0.3, observed=ZEROS),
    "each its own": lambda x: pm.Normal("y", x, pm.HalfNormal("s", shape=10), observed=ZEROS),
    "of the walk": lambda x: pm.Normal("y", x, pt.exp(x[0]), observed=ZEROS),
    "of sums": lambda x: pm.Normal("y", x.cumsum(), pm.HalfNormal("s"), observed=ZEROS),
    "not observed": lambda x: pm.Normal("y", x, pm.HalfNormal("s"), shape=10),
    "not normal": lambda x: pm.Laplace("y", x, pm.HalfNormal("s"), observed=ZEROS),
    "of log odds": lambda x: pm.LogitNormal("y", x, pm.HalfNormal("s"), observed=ZEROS + 0.5),
    "of the user": lambda x: pm.CustomDist(
        "y", x, pm.HalfNormal("s"), dist=shifted_normal, observed=ZEROS
    ),
    "of batches of one row": batches_of_one_row,
}


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_a_walk_is_in_units_of_its_noise_where_that_is_sampled(name):
    with pm.Model() as model:
        start = pm.Normal.dist(0, 2)
        x = pm.GaussianRandomWalk("x", 0, pm.HalfNormal("sd"), init_dist=start, shape=10)
        LIKELIHOODS[name](x)
    coordinate = coordinates_of(model)["x"]
    read = ancestors(coordinate.map.depends_on(*coordinate.rv.owner.inputs))
    assert (model.named_vars.get("s") in read) == (name == "one noise")


@pytest.mark.parametrize("prior", [pm.Beta, pm.LogitNormal])
@pytest.mark.parametrize("size", [3, 600])
def test_probabilities_are_standardised_in_their_log_odds(size, prior):
    with pm.Model() as model:
        prior("x", pm.HalfNormal("a"), pm.HalfNormal("b"), shape=size)
    assert coordinates_of(model)["x"].weighted


GRAPHS = {
    "sigmoid": (pm.math.invlogit, True),
    "exponential": (pm.math.exp, True),
    "square": (pm.math.sqr, False),
    "sigmoid of a product": (lambda x: pm.math.invlogit(2 * x), False),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_functions_of_a_normal_variable_are_standardised_in_it(name):
    function, is_known = GRAPHS[name]

    def of_normal(mu, sigma, size):
        return function(pm.Normal.dist(mu, sigma, size=size))

    with pm.Model() as model:
        pm.CustomDist("x", pm.Normal("mu"), pm.HalfNormal("s"), dist=of_normal, shape=3)
    coordinate = coordinates_of(model)["x"]
    assert bool(coordinate.weighted) == is_known
    if is_known:
        location, scale = coordinate.map.parents(*coordinate.rv.owner.inputs)
        known = {
            model[name]: pt.constant(x, dtype="float64") for name, x in (("mu", 1.5), ("s", 0.5))
        }
        found = [x.eval(mode=PLAIN) for x in graph_replace([location, scale], known)]
        np.testing.assert_allclose(np.broadcast_arrays(*found)[0], 1.5)
        np.testing.assert_allclose(np.broadcast_arrays(*found)[1], 0.5)
