"""The one map of hierarchies, for each structure and link: inverse, slope, law."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor.graph.replace import graph_replace
from scipy.special import expit

from helpers.rings import ring
from pymc_sgmcmc.backends.interpreting import INTERPRETER
from pymc_sgmcmc.backends.workarounds import interpreted
from pymc_sgmcmc.centring.elements import Elements
from pymc_sgmcmc.centring.fields import Field
from pymc_sgmcmc.centring.links import LOGIT, log_odds_of_beta, logarithm_of
from pymc_sgmcmc.centring.vectors import lower_factor
from pymc_sgmcmc.centring.walks import Walk, steady
from pymc_sgmcmc.model.coordinates import coordinates_at

COUNT = 6
W = ring(COUNT)


def location_scale():
    pm.Normal("x", pm.Normal("mu"), pm.HalfNormal("sd"), shape=3)


def heavy_tails():
    pm.StudentT("x", nu=4, mu=pm.Normal("mu"), sigma=pm.HalfNormal("sd"), shape=3)


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


def chances():
    pm.Beta("x", pm.HalfNormal("a"), pm.HalfNormal("b"), shape=3)


def chances_of_normals():
    pm.LogitNormal("x", pm.Normal("mu"), pm.HalfNormal("sd"), shape=3)


def zero_sum():
    pm.ZeroSumNormal("x", pm.HalfNormal("sd"), shape=4)


def residuals():
    mu, sd = pm.Normal("mu"), pm.HalfNormal("sd")
    pm.Normal("y", mu + sd * pm.Normal("x", shape=3), 1, observed=np.zeros(3))


def vectors():
    sds = pm.HalfNormal("sd", shape=2)
    factor = pt.stack([pt.stack([sds[0], 0.0]), pt.stack([0.3, sds[1]])])
    pm.MvNormal("x", pm.Normal("mu", shape=2), chol=factor, shape=(3, 2))


def covariance():
    cov = pm.HalfNormal("sd") ** 2 * np.array([[1.0, 0.5], [0.5, 2.0]])
    pm.MvNormal("x", np.zeros(2), cov)


def turned_root():
    """A root of the covariance that is no triangle."""
    angle, sd = pm.Normal("angle"), pm.HalfNormal("sd")
    cos, sin = pt.cos(angle), pt.sin(angle)
    root = pt.stack([pt.stack([cos, -sin]), pt.stack([sin, cos])]) @ pt.diag(sd * np.array([1, 3]))
    pm.MvNormal("x", np.zeros(2), root @ root.T, shape=(3, 2))


def wide_root():
    root = pm.HalfNormal("sd") * np.array([[1.0, 0.5, 0.3], [0.2, 2.0, 0.1]])
    pm.MvNormal("x", np.zeros(2), root @ root.T)


def residual_vectors():
    sds = pm.HalfNormal("sd", shape=2)
    factor, *_ = pm.LKJCholeskyCov("factor", eta=2, n=2, sd_dist=pm.Exponential.dist(1, size=2))
    theta = sds + pm.Normal("x", shape=(3, 2)) @ factor.T
    pm.Normal("y", theta, 1, observed=np.zeros((3, 2)))


def walk():
    start = pm.Normal.dist(0, 2)
    pm.GaussianRandomWalk("x", pm.Normal("mu"), pm.HalfNormal("sd"), init_dist=start, shape=(2, 7))


def walk_of_two_values():
    start = pm.Normal.dist(0, 2)
    pm.GaussianRandomWalk("x", 0.1, pm.HalfNormal("sd"), init_dist=start, shape=(3, 2))


def walks_of_own_steps(length=7):
    mu, sd = pm.Normal("mu", shape=3), pm.HalfNormal("sd", shape=3)
    start = pm.Normal.dist(0, 2)
    pm.GaussianRandomWalk("x", mu, sd, init_dist=start, shape=(3, length))


def as_many_walks_as_steps():
    walks_of_own_steps(4)


def icar():
    x = pm.ICAR("x", W=W, sigma=pm.HalfNormal("sd"))
    pm.Normal("y", 2 * x, 1, observed=np.zeros(COUNT))


def car():
    alpha, tau = pm.Beta("alpha", 1, 1), pm.Gamma("tau", 2, 1)
    x = pm.CAR("x", pm.Normal("mu") * np.arange(COUNT), W, alpha, tau)
    pm.Normal("y", 2 * x, 1, observed=np.zeros(COUNT))


FAMILIES = [
    location_scale, heavy_tails, log_normal, scale, shape_and_scale, shape_alone, exponential,
    chances, chances_of_normals, zero_sum, residuals, vectors, covariance, turned_root, wide_root,
    residual_vectors, walk, walk_of_two_values, walks_of_own_steps, icar, car,
]  # fmt: skip
# Those whose prior is normal on the scale of the map
NORMAL = [
    location_scale, log_normal, zero_sum, residuals, vectors, covariance, turned_root, wide_root,
    residual_vectors, walk, walk_of_two_values, walks_of_own_steps, icar, car,
]  # fmt: skip
# Of these the data say nothing or everything
CENTRED_OR_NOT = [vectors, covariance, turned_root, wide_root, residual_vectors]


def coordinate_of(family):
    with pm.Model() as model:
        family()
    with interpreted():
        point = model.initial_point()
    coordinates, _, _ = coordinates_at(model, model.value_vars, "lipschitz", point, centring=True)
    coordinate = next(c for c in coordinates if c.name == "x")
    return model, coordinate, coordinate.map


@cache
def compiled(family):
    """Return the map, a function of φ, information and parents, and shapes of φ and of parents.

    The function returns θ, φ of it, the log slope, free elements of θ, x and the prior's density.
    """
    model, coordinate, map_ = coordinate_of(family)
    rv, phi = coordinate.rv, coordinate.phi
    array = pt.tensor(shape=(map_.rows, *phi.type.shape))
    map_ = map_.with_information(array)
    inputs = rv.owner.inputs
    theta = map_.backward(phi, *inputs)
    if map_.of_residual:
        x = map_.prior(*inputs).to(theta)
    elif isinstance(map_, Field):
        x = map_.factor * theta
    else:
        x = map_.link.back(theta, map_.spread(*inputs))
    graphs = [
        theta,
        map_.forward(theta, *inputs),
        pt.sum(map_.log_jac_det(phi, *inputs)),
        # B of a zero sum has orthonormal columns: the Jacobian is that of Bᵀθ
        pt.flatten(x if family is zero_sum else theta),
        x,
    ]
    # Values of the parents that are no samples
    parents = {other: other.type() for other in model.free_RVs if other is not rv}
    rv, *graphs = graph_replace([rv, *graphs], parents, strict=False)
    function = pytensor.function(
        [phi, array, *parents.values()],
        [*graphs, pt.sum(pm.logp(rv, graphs[0]))],
        mode=INTERPRETER,
        on_unused_input="ignore",
    )
    shapes = {other.name: other.shape.eval(mode=INTERPRETER) for other in parents}
    return map_, function, phi.type.shape, shapes


def parents_at(shapes, rng, **given):
    return [
        given.get(name, 0.2 + 0.6 * rng.random(shape)) * np.ones(shape)
        for name, shape in shapes.items()
    ]


def informed(map_, shape, rng):
    """Return some information of each element."""
    if isinstance(map_, Elements):
        return np.stack([rng.random(shape), rng.exponential(3, shape), rng.normal(0, 3, shape)])
    if isinstance(map_, Walk):
        some = rng.exponential(3, (3, *shape)) * (rng.random(shape) < 0.7)
        return np.stack([np.zeros(shape), *some])
    if isinstance(map_, Field):
        return map_.at_place(rng.gamma(1, size=shape), rng.normal(size=shape), 1.1, (0.6, 0.5, 0.4))
    # One λ for each vector
    return np.broadcast_to(rng.integers(0, 2, (*shape[:-1], 1)), (1, *shape)).astype(float)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", [0.0, 1.0, "mixed", "informed"])
def test_inverse_and_slope(family, kind):
    map_, function, shape, shapes = compiled(family)
    rng = np.random.default_rng(1)
    if kind == "informed":
        array = informed(map_, shape, rng)
    elif kind == "mixed":
        array = map_.uniform(0.0, shape)
        if isinstance(map_, Elements):
            array[0] = rng.random(shape) < 0.5
    else:
        array = map_.uniform(kind, shape)
    at, phi = parents_at(shapes, rng), rng.normal(size=shape)
    _, again, slope, *_ = function(phi, array, *at)
    slack = {Field: (1e-9, 1e-7), Walk: (0, 1e-12)}.get(type(map_), (1e-9, 1e-10))
    np.testing.assert_allclose(again, phi, rtol=slack[0], atol=slack[1])
    moves = 1e-5 * np.eye(phi.size).reshape(-1, *shape)
    rows = [function(phi + m, array, *at)[3] - function(phi - m, array, *at)[3] for m in moves]
    # Differences have errors of the second order in 1e-5
    of_differences = np.linalg.slogdet(np.array(rows) / 2e-5)[1]
    slack = (1e-6, 0) if isinstance(map_, Field) else (0, 1e-7)
    np.testing.assert_allclose(slope, of_differences, rtol=slack[0], atol=slack[1])
    if kind == map_.as_written and not map_.link.bounded and not isinstance(map_, Field):
        written = function(phi, array, *at)[4 if family is zero_sum else 0]
        slack = 1e-12 if family is zero_sum else 0
        np.testing.assert_allclose(written, phi, rtol=slack, atol=slack)


@pytest.mark.parametrize(
    ("family", "tells"),
    [(f, tells) for f in NORMAL for tells in (False, True) if not (tells and f in CENTRED_OR_NOT)],
)
def test_right_information_makes_phi_standard_normal(family, tells):
    """At any parents the density of φ is exp(−φ²/2) times a constant."""
    map_, function, shape, shapes = compiled(family)
    rng = np.random.default_rng(2)
    information = tells * rng.exponential(3, shape) * (rng.random(shape) < 0.7)
    score = tells * rng.normal(0, 3, shape)
    score[information == 0] = 0
    # Precisions of steps in units of their likelihood's are rounded
    least = 0.05 if isinstance(map_, Walk) else 1e-3
    for sd in (least, 0.6, 40.0):
        at = parents_at(shapes, rng, sd=sd)
        array = np.zeros((map_.rows, *shape))
        if isinstance(map_, Elements):
            array[1:] = information, score
        elif isinstance(map_, Walk):
            # Exact at one σ. The prior of the first value counts as what is known of it
            known = information.copy()
            known[..., 0] += 1 / 4
            spread = np.concatenate([np.ones((*shape[:-1], 1)), sd * np.ones(shape)[..., 1:]], -1)
            array[1:] = steady(known, spread), score, known
        elif isinstance(map_, Field):
            alpha = at[list(shapes).index("alpha")] if "alpha" in shapes else 0.0
            scale = at[list(shapes).index("tau")] ** -0.5 if "tau" in shapes else sd
            # Exact at one α, and the basis is that of another scale
            array = map_.at_place(information, score, 3.0, (float(alpha), float(scale), 0.0))
        values = []
        for phi in rng.normal(size=(5, *shape)):
            _, _, slope, _, x, prior = function(phi, array, *at)
            data = np.sum(score * x - information * x**2 / 2)
            values.append(prior + slope + data + np.sum(phi**2) / 2)
        # ICAR's prior of the sum of all is wide, and jitter is added to matrices
        slack = 1e-4 if isinstance(map_, Field) else 1e-10
        np.testing.assert_allclose(
            np.subtract(values, values[0]), 0, atol=slack * (1 + np.abs(values).max())
        )


@pytest.mark.parametrize("family", [walks_of_own_steps, as_many_walks_as_steps])
def test_each_walk_has_its_own_steps(family):
    map_, function, shape, shapes = compiled(family)
    rng = np.random.default_rng(3)
    at, phi = parents_at(shapes, rng), rng.normal(size=shape)
    of = dict(zip(shapes, at, strict=True))
    theta = function(phi, map_.uniform(0.0, shape), *at)[0]
    expected = of["mu"][:, None] + of["sd"][:, None] * phi[:, 1:]
    np.testing.assert_allclose(np.diff(theta), expected, rtol=0, atol=1e-12)


def test_only_a_factor_that_pymc_is_given_is_taken_as_it_is():
    factor, root = pt.tensor(shape=(2, 2)), pt.tensor(shape=(2, 2))
    given = pm.MvNormal.dist(np.zeros(2), chol=factor)
    product = pm.MvNormal.dist(np.zeros(2), root @ root.T)
    assert lower_factor(given.owner.inputs[-1]) is factor
    assert lower_factor(product.owner.inputs[-1]) is not root


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
    location, width = (float(x.eval(mode=INTERPRETER)) for x in law(*rv.owner.inputs))
    value = pt.sigmoid(phi) if is_beta else pt.exp(phi)
    slope = -pt.softplus(phi) - pt.softplus(-phi) if is_beta else phi
    potential = -pt.sum(pm.logp(rv, value) + slope)
    gradient = pt.grad(potential, phi)
    curvature = pt.grad(pt.sum(gradient), phi)
    function = pytensor.function([phi], [gradient, curvature], mode=INTERPRETER)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    first, second = function(location + width * nodes)
    mean = [weights @ x / weights.sum() for x in (first * width, second * width**2)]
    np.testing.assert_allclose(mean, [0, 1], rtol=0, atol=0.06 if is_beta else 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_probabilities_do_not_round_to_their_bounds(dtype):
    """Sticks of a Beta(1, α) with a small α have log odds of hundreds."""
    x = pt.vector("x", dtype=dtype)
    theta = LOGIT.to(x, None)
    values = np.array([-800, -50, -3, 0, 3, 50, 800], dtype=dtype)
    found, gradient = pytensor.function([x], [theta, pt.grad(pt.sum(theta), x)], mode=INTERPRETER)(
        values
    )
    assert found.dtype == dtype
    assert np.all((found > 0) & (found < 1))
    np.testing.assert_allclose(found[2:5], expit(values[2:5]), rtol=1e-6)
    exact = expit(values[2:5]) * expit(-values[2:5])
    np.testing.assert_allclose(gradient[2:5], exact, rtol=1e-6)
    assert np.all(np.isfinite(gradient))
