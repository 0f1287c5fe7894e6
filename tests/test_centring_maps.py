"""The maps between the writings: what they map to, their Jacobians, and what they recognise."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor.graph.replace import graph_replace

from pymc_sgmcmc.backends.compiling import INTERPRETER
from pymc_sgmcmc.backends.workarounds import interpreted
from pymc_sgmcmc.centring import InformedCentring, InformedLogit, log_odds_of_beta
from pymc_sgmcmc.model.coordinates import coordinates_at


def location_scale():
    mu, sd = pm.Normal("mu"), pm.HalfNormal("sd")
    pm.StudentT("x", nu=4, mu=mu, sigma=sd, shape=3)


def log_normal():
    pm.LogNormal("x", pm.Normal("mu"), pm.HalfNormal("sd"), shape=3)


def scale():
    pm.Gamma("x", 2, 1 / pm.HalfNormal("sd"), shape=3)


def shape_and_scale():
    pm.InverseGamma("x", pm.HalfNormal("shape"), pm.HalfNormal("sd"), shape=3)


def shape_alone():
    pm.Weibull("x", pm.HalfNormal("shape"), 2, shape=3)


def exponential():
    pm.Exponential("x", pm.HalfNormal("rate"), shape=3)


def vectors():
    sds = pm.HalfNormal("sd", shape=2)
    factor = pt.stack([pt.stack([sds[0], 0.0]), pt.stack([0.3, sds[1]])])
    pm.MvNormal("x", pm.Normal("mu", shape=2), chol=factor, shape=(3, 2))


def covariance():
    cov = pm.HalfNormal("sd") ** 2 * np.array([[1.0, 0.5], [0.5, 2.0]])
    pm.MvNormal("x", np.zeros(2), cov)


def walk():
    pm.GaussianRandomWalk(
        "x", 0.1, pm.HalfNormal("sd"), init_dist=pm.Normal.dist(0, 2), shape=(2, 4)
    )


def zero_sum():
    pm.ZeroSumNormal("x", pm.HalfNormal("sd"), shape=4)


def non_centred():
    mu, sd = pm.Normal("mu"), pm.HalfNormal("sd")
    pm.Normal("y", mu + sd * pm.Normal("x", shape=3), 1, observed=np.zeros(3))


def non_centred_vectors():
    sds = pm.HalfNormal("sd", shape=2)
    factor, *_ = pm.LKJCholeskyCov("factor", eta=2, n=2, sd_dist=pm.Exponential.dist(1, size=2))
    theta = sds + pm.Normal("x", shape=(3, 2)) @ factor.T
    pm.Normal("y", theta, 1, observed=np.zeros((3, 2)))


# With the weight that leaves the variable as it is; for vectors and walks one weight for each
FAMILIES = {
    location_scale: (1, False),
    log_normal: (1, False),
    scale: (1, False),
    shape_and_scale: (1, False),
    shape_alone: (1, False),
    exponential: (1, False),
    vectors: (1, True),
    covariance: (1, True),
    walk: (1, True),
    zero_sum: (1, False),
    non_centred: (0, False),
    non_centred_vectors: (0, True),
}

# φ is a function of the variable, or its independent part
OTHERS = log_normal, scale, shape_and_scale, shape_alone, exponential, zero_sum


def coordinate_of(family):
    with pm.Model() as model:
        family()
    values = model.value_vars
    with interpreted():
        point = model.initial_point()
    found, _, _ = coordinates_at(model, values, "lipschitz", point, centring=True)
    return model, next(c for c in found if c.name == "x")


@cache
def compiled(family):
    """Return the coordinate, and θ, φ of it, the log-Jacobian and free elements of θ as numbers.

    They are a function of φ, weights and the parents, of which the shapes are returned too.
    """
    model, coordinate = coordinate_of(family)
    inputs = coordinate.rv.owner.inputs
    theta = coordinate.map.backward(coordinate.phi, *inputs)
    back = coordinate.map.forward(theta, *inputs)
    slope = pt.sum(coordinate.map.log_jac_det(coordinate.phi, *inputs))
    free = theta
    if family is zero_sum:
        # Q has orthonormal columns: the Jacobian is that of Qᵀθ
        free = model.rvs_to_transforms[coordinate.rv].forward(theta, *inputs)
    flat = pt.flatten(free)
    # Values of the parents that are no samples
    theta_of = {rv: rv.type() for rv in model.free_RVs if rv is not coordinate.rv}
    fixed = graph_replace([theta, back, slope, flat], theta_of, strict=False)
    function = pytensor.function(
        [coordinate.phi, coordinate.scale, *theta_of.values()],
        fixed,
        mode=INTERPRETER,
        on_unused_input="ignore",
    )
    return coordinate, function, [rv.shape.eval(mode=INTERPRETER) for rv in theta_of]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("weight", [0.0, 1.0, "mixed", "informed"])
def test_map_inverse_and_jacobian(family, weight):
    as_written, joint = FAMILIES[family]
    if weight == "informed" and joint:
        pytest.skip("vectors and walks have weights of 0 or 1")
    coordinate, function, shapes = compiled(family)
    assert coordinate.weighted
    shape = coordinate.phi.type.shape
    rng = np.random.default_rng(1)
    if weight == "mixed":
        lengths = (*shape[:-1], 1) if joint else shape
        lam = np.broadcast_to((rng.random(lengths) < 0.5).astype(float), shape)
        if not joint:
            lam = np.stack([lam, np.zeros(shape), np.zeros(shape)])
    elif weight == "informed":
        information = rng.exponential(3, shape)
        lam = np.stack([rng.random(shape), information, rng.normal(0, 3, shape)])
    else:
        lam = coordinate.map.uniform(weight, shape)
    at = [abs(rng.normal(size=of)) + 0.2 for of in shapes]
    phi = rng.normal(size=shape)
    values, returned, log_det, _ = function(phi, lam, *at)
    np.testing.assert_allclose(returned, phi, rtol=1e-9, atol=1e-10)
    moves = 1e-5 * np.eye(phi.size).reshape(-1, *shape)
    rows = [function(phi + m, lam, *at)[3] - function(phi - m, lam, *at)[3] for m in moves]
    # Differences have errors of the second order in 1e-5
    found = np.linalg.slogdet(np.array(rows) / 2e-5)[1]
    np.testing.assert_allclose(log_det, found, rtol=0, atol=1e-7)
    if weight == as_written and family not in OTHERS:
        np.testing.assert_allclose(values, phi, rtol=1e-9, atol=1e-10)


INFORMATION, SCORE = np.array([0.0, 0.3, 50.0]), np.array([0.0, -2.0, 90.0])


def test_with_a_normal_likelihood_phi_is_standard_normal():
    """Of any location and scale the density of φ is exp(-φ²/2) times a constant."""
    weight = np.stack([np.zeros(3), INFORMATION, SCORE])
    location, scale = pt.dscalar(), pt.dscalar()
    phi = pt.dvector()
    map_, inputs = InformedCentring(pt.as_tensor(weight)), (location, scale)
    theta = map_.backward(phi, *inputs)
    density = (
        -(((theta - location) / scale) ** 2) / 2
        - INFORMATION * theta**2 / 2
        + SCORE * theta
        + map_.log_jac_det(phi, *inputs)
        + phi**2 / 2
    )
    function = pytensor.function([phi, *inputs], density, mode=INTERPRETER)
    at = np.random.default_rng(1).normal(size=(5, 3))
    for place in ((0.0, 1.0), (-3.0, 1e-4), (2.0, 40.0)):
        found = np.array([function(x, *place) for x in at])
        np.testing.assert_allclose(found - found[0], 0, rtol=0, atol=1e-10 * abs(found).max())


def test_information_and_score_are_found_from_other_ones():
    """Curvature and mean of φ in coordinates of an I and g that are wrong say which are right."""
    rng = np.random.default_rng(2)
    wrong = np.stack([np.full(3, 0.5), rng.exponential(2, 3), rng.normal(size=3)])
    spreads = rng.exponential(1, (50, 1)) * np.ones(3)
    curvature = np.mean((1 + INFORMATION * spreads**2) / (1 + wrong[1] * spreads**2), axis=0)
    location, spread = np.array([1.0, -2.0, 0.5]), np.array([0.3, 2.0, 1.0])

    def law(of):
        precision = 1 + of[1] * spread**2
        return spread * (of[2] - of[1] * location) / precision, precision**-0.5

    (shift, width), (mean, _) = law(wrong), law([None, INFORMATION, SCORE])
    phi = (mean - shift) / width
    found = InformedCentring().with_weight(wrong).chosen(curvature, spreads, phi, location, spread)
    np.testing.assert_allclose(found[1], INFORMATION, rtol=0, atol=1e-12 * INFORMATION.max())
    np.testing.assert_allclose(found[2], SCORE, rtol=0, atol=1e-10 * SCORE.max())
    said = INFORMATION * np.median(spreads, axis=0) ** 2
    np.testing.assert_allclose(found[0], said / (1 + said), rtol=1e-12)


def test_probabilities_of_thousands_of_groups_are_standardised_in_their_log_odds():
    """With fewer parameters a matrix whitens them, as they are written."""
    inputs = [pt.dscalar(), pt.dscalar()]
    map_ = InformedLogit(log_odds_of_beta, pt.as_tensor(np.stack([[0] * 3, INFORMATION, SCORE])))
    phi = pt.dvector()
    theta = map_.backward(phi, *inputs)
    slope = pt.log(pt.diagonal(pt.jacobian(theta, phi)))
    found = [map_.forward(theta, *inputs), map_.log_jac_det(phi, *inputs), slope]
    function = pytensor.function([phi, *inputs], found, mode=INTERPRETER)
    at = np.array([-1.0, 0.3, 2.0])
    back, told, exact = function(at, 0.7, 3.0)
    np.testing.assert_allclose(back, at, rtol=1e-9)
    np.testing.assert_allclose(told, exact, rtol=0, atol=1e-9)
    for size, weighted in ((500, False), (600, True)):
        with pm.Model() as model:
            pm.Beta("x", pm.HalfNormal("a"), pm.HalfNormal("b"), shape=size)
        with interpreted():
            point = model.initial_point()
        choice, _, _ = coordinates_at(model, model.value_vars, "lipschitz", point, centring=True)
        assert choice[-1].weighted == weighted
