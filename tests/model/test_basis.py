"""Coefficients of processes: which make up a block, its map, and when it is standard normal."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor.compile.mode import Mode
from pytensor.graph.traversal import ancestors
from pytensor.tensor.linalg import Cholesky

from helpers.posteriors import posterior_of
from pymc_sgmcmc.centring.coefficients import CoefficientsOfOneScale, information_of_block
from pymc_sgmcmc.model.affine_use import ModelView
from pymc_sgmcmc.model.basis import basis_coefficients
from pymc_sgmcmc.model.initial_point import initial_point

ROWS, NOISE = 40, 0.5


def places():
    return np.random.default_rng(0).uniform(-1, 1, (ROWS, 3))


def process(name, of=0, basis=5, **options):
    height, length = pm.HalfNormal(f"height_{name}", 1), pm.InverseGamma(f"length_{name}", 5, 5)
    gp = pm.gp.HSGP(m=[basis], c=1.5, cov_func=height**2 * pm.gp.cov.ExpQuad(1, length), **options)
    return gp.prior(name, X=places()[:, of : of + 1])


def observed(mean):
    pm.Normal("y", mean, NOISE, observed=np.random.default_rng(1).normal(size=ROWS))


def of_sum():
    """Two processes, one in either parametrization, beside an intercept and a slope."""
    a, b = pm.Normal("a", 1, 2), pm.Normal("b", 0, 3)
    f = process("f", parametrization="centered")
    observed(process("g", 1, 4) + f + a - b * places()[:, 0] / 3)


def bends():
    """Return two matrices: by a trend's changes of slope, and of level, it moves."""
    after = places()[:, :1] > np.linspace(-0.9, 0.6, 6)
    return after * places()[:, :1], after * np.linspace(-0.9, 0.6, 6)


def of_trend():
    """Effects with one learned scale, which enter twice, beside an intercept and two slopes."""
    a, b = pm.Normal("a", 1, 2), pm.Normal("b", 0, 3, shape=2)
    d = pm.Normal("d", 0, pm.HalfNormal("height", 1), shape=6)
    slopes, levels = bends()
    observed(a + slopes @ d - levels @ d + places()[:, :2] @ b)


def season():
    height, length = pm.HalfNormal("height", 1), pm.InverseGamma("length", 5, 5)
    gp = pm.gp.HSGPPeriodic(
        m=4, scale=height, cov_func=pm.gp.cov.Periodic(1, period=1.5, ls=length)
    )
    return gp.prior("f", X=places()[:, :1])


def of_periodic_process():
    """Cosines and sines, each with scales of their own for one part of the coefficients."""
    observed(pm.Normal("a", 1, 2) + season())


def of_standard_effects():
    height, z = pm.HalfNormal("height", 1), pm.Normal("z", 0, 1, shape=6)
    observed(bends()[0] @ (height * z))


def of_spline():
    """Changes of a slope with one learned scale, summed twice, beside level and slope."""
    a, b = pm.Normal("a", 1, 2), pm.Normal("b", 0, 3)
    height, z = pm.HalfNormal("height", 1), pm.Normal("z", 0, 2, shape=4)
    slopes = pt.concatenate([b[None], b + pt.cumsum(height * z)])
    observed(bends()[0] @ pt.concatenate([a[None], a + pt.cumsum(slopes)]))


def read(build):
    """Return coordinates and density of a model."""
    with pm.Model() as model:
        build()
    posterior, _, scales = posterior_of(model, point=initial_point(model), centring=True)
    return posterior, scales


BLOCKS = {
    of_sum: ["f_hsgp_coeffs", "g_hsgp_coeffs", "a", "b"],
    of_trend: ["a", "b", "d"],
    of_standard_effects: ["z"],
    of_spline: ["a", "b", "z"],
    of_periodic_process: ["f_hsgp_coeffs_", "a"],
}


@cache
def functions(build):
    """Return the density, and functions for θ, log-slopes, ∇U, u, and φ with other information."""
    posterior, scales = read(build)
    inputs = [*posterior.phi, *posterior.scales, *posterior.new_weights, *posterior.data]
    graphs = [
        posterior.parameters,
        [slope for slope in posterior.log_slopes if slope is not None],
        posterior.gradient,
        posterior.spreads,
        posterior.reweighted,
    ]
    return (
        posterior,
        scales,
        [
            pytensor.function(inputs, part, mode=Mode("py", None), on_unused_input="ignore")
            for part in graphs
        ],
    )


class Informed:
    """A model whose block has some J and g."""

    def __init__(self, build, information=None, score=None, seed=2):
        posterior, scales, self.functions = functions(build)
        self.names = BLOCKS[build]
        self.coordinates = {c.name: c for c in posterior.coordinates}
        rng = np.random.default_rng(seed)
        self.phi = [np.array(rng.normal(size=x.type.shape)) for x in posterior.phi]
        # About 1 each
        self.shift("length", -3)
        self.shift("height", -2)
        names = [c.name for c in posterior.coordinates]
        self.rows = [names.index(name) for name in self.names]
        block = [self.coordinates[name].map for name in self.names]
        self.map = block[0]
        assert [x.own.rv.name for x in block] == [x.rv.name for x in block[0].block]
        self.parts = block[0].parts
        size = self.parts[-1].stop
        if information is None:
            root = rng.normal(size=(size, size))
            information, score = root @ root.T, rng.normal(size=size)
        told = np.vstack([np.zeros(size), np.diag(information), score, information])
        weighted = [c for c in posterior.coordinates if c.weighted]
        fitted = [c for c in posterior.coordinates if c.scale is not None]
        self.scales = list(scales)
        for name, part in zip(self.names, self.parts, strict=True):
            k = fitted.index(self.coordinates[name])
            self.scales[k] = told[:, part].reshape(scales[k].shape)
        self.weights = [self.scales[fitted.index(c)] for c in weighted]
        self.of_block = [weighted.index(self.coordinates[name]) for name in self.names]
        self.data = list(posterior.data.values())

    def __call__(self, which, phi=None, weights=None):
        phi = self.phi if phi is None else phi
        arguments = [*phi, *self.scales, *(weights or self.weights), *self.data]
        return [np.asarray(x) for x in self.functions[which](*arguments)]

    def shift(self, name, by):
        """Move lengths or heights."""
        for k in [k for k, of in enumerate(self.coordinates) if of.startswith(name)]:
            self.phi[k] = self.phi[k] + by

    def joined(self, found):
        return np.concatenate([np.ravel(found[k]) for k in self.rows])

    def moved(self, by):
        phi = [x.copy() for x in self.phi]
        for k, part in zip(self.rows, self.parts, strict=True):
            phi[k] = phi[k] + by[part].reshape(phi[k].shape)
        return phi


@pytest.mark.parametrize("build", BLOCKS)
def test_inverse_and_slope(build):
    at = Informed(build)
    size = at.parts[-1].stop
    steps = 1e-4 * np.eye(size)
    jacobian = [
        (at.joined(at(0, at.moved(e))) - at.joined(at(0, at.moved(-e)))) / 2e-4 for e in steps
    ]
    slopes = dict(zip(at.coordinates, at(1), strict=True))
    np.testing.assert_allclose(
        sum(slopes[name] for name in at.names), np.linalg.slogdet(jacobian)[1], rtol=1e-6
    )
    again = at(4)
    for k, name in zip(at.of_block, at.names, strict=True):
        at_phi = at.phi[list(at.coordinates).index(name)]
        np.testing.assert_allclose(again[k], at_phi, atol=1e-9)


@pytest.mark.parametrize("build", [of_sum, of_trend])
def test_other_information_is_that_of_all(build):
    """φ with other information is that of the same θ."""
    at, other = Informed(build), Informed(build, seed=3)
    moved = at(4, weights=other.weights)
    names = list(at.coordinates)
    phi = [x.copy() for x in at.phi]
    for k, name in zip(at.of_block, at.names, strict=True):
        phi[names.index(name)] = moved[k]
    for there, here in zip(other(0, phi), at(0), strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-9, atol=1e-9)


def test_one_factorisation():
    """Each vector's map has it, and adjoints of three would take longer than all else."""
    posterior, *_ = functions(of_sum)
    found = {x.owner for x in ancestors([posterior.log_density]) if x.owner is not None}
    ops = [getattr(node.op, "core_op", node.op) for node in found]
    assert sum(isinstance(op, Cholesky) for op in ops) == 1


def learned(at):
    """Return J and g by the moves of s x in U."""
    # Of short lengths all elements are wide enough to be seen
    at.shift("length", -2)
    scale = np.concatenate([np.ravel(np.broadcast_to(at(3)[k], part.stop - part.start))
                            for k, part in zip(at.of_block, at.parts, strict=True)])  # fmt: skip
    middle = at.joined(at(2))
    curvature = np.stack([at.joined(at(2, at.moved(e))) - middle for e in np.eye(len(middle))])
    old, phi = [at.weights[k] for k in at.of_block], at.joined(at.phi)
    found = information_of_block(old, scale, phi, middle, curvature, at.map.factorised)
    return np.concatenate([w.reshape(len(w), -1) for w in found], axis=1)


@cache
def laws(build):
    """Return J and g of normal data."""
    size = Informed(build).parts[-1].stop
    return learned(Informed(build, np.zeros((size, size)), np.zeros(size)))


@pytest.mark.parametrize("build", BLOCKS)
@pytest.mark.parametrize("seed", [5, 6])
def test_right_information_makes_them_standard_normal(build, seed):
    """Whatever heights and lengths are, ∇U of the block is φ."""
    told = laws(build)
    at = Informed(build, told[3:], told[2], seed=seed)
    np.testing.assert_allclose(at.joined(at(2)), at.joined(at.phi), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("build", [of_sum, of_trend])
def test_information_is_learned_in_any_coordinates(build):
    again = learned(Informed(build))
    np.testing.assert_allclose(again[2:], laws(build)[2:], rtol=1e-5, atol=1e-5)


def group_effects():
    effects = pm.Normal("theta", 0, pm.HalfNormal("sigma"), shape=4)
    observed(process("f") + effects[np.arange(ROWS) % 4])


def rate():
    pm.Poisson("y", pm.math.exp(pm.Normal("a") + process("f")), observed=np.ones(ROWS, dtype=int))


def level_of_scale():
    level = pm.Normal("level", 0, 1)
    cov = pm.math.exp(2 * level) * pm.gp.cov.ExpQuad(1, 0.5)
    gp = pm.gp.HSGP(m=[5], c=1.5, cov_func=cov)
    observed(level + gp.prior("f", X=places()[:, :1]))


def heavy_tails():
    observed(pm.StudentT("a", nu=3) + process("f"))


def sampled_law():
    observed(pm.Normal("a", pm.Normal("m"), 1) + process("f"))


def horseshoe():
    z, scale = pm.Normal("z", 0, 1, shape=5), pm.HalfCauchy("scale", 1, shape=5)
    observed(pm.Normal("a") + np.ones((ROWS, 5)) @ (z * scale))


def ridge(*further):
    beta = pm.Normal("beta", 0, pm.HalfNormal("scale"), shape=5)
    observed(pm.Normal("a") + np.ones((ROWS, 5)) @ beta + sum(further))


def two_scales():
    other = pm.Normal("other", 0, pm.HalfNormal("scale_of_other"), shape=5)
    ridge(np.ones((ROWS, 5)) @ other)


def used_otherwise():
    x = pm.Normal("x", 0, pm.HalfNormal("scale"), shape=5)
    observed(np.ones((ROWS, 5)) @ x + pm.math.exp(x[0]))


def in_a_potential():
    x = pm.Normal("x", 0, pm.HalfNormal("scale"), shape=5)
    pm.Potential("p", -((np.ones((ROWS, 5)) @ x) ** 2).sum() - (x**2).sum())


def linear_potential():
    x = pm.Normal("x", 0, pm.HalfNormal("scale"), shape=5)
    pm.Potential("p", pm.Normal("a") + np.ones((ROWS, 5)) @ x)


def parts(first, second, *further):
    """Return coefficients of which two parts have a matrix and a scale each."""
    z, basis = pm.Normal("z", 0, 3, shape=6), np.ones((ROWS, 6))
    one = pm.HalfNormal("scale", 1) * z[first]
    two = z[second] / pm.HalfNormal("other", 1)
    observed(
        (basis[:, first] @ one if np.ndim(basis[0, first]) else basis[:, first] * one)
        + basis[:, second] @ two
        + sum(pm.math.exp(z[k]) for k in further)
    )


def joined_scales(scale):
    """Return coefficients with a vector of scales of which a graph does not say the sign."""
    one = pt.tile(pm.HalfNormal("scale", 1), 2)
    scales = pt.concatenate([one, one * pm.Normal("other", 0, 1), pt.ones(2)])
    observed(np.ones((ROWS, 6)) @ (scales * pm.Normal("z", 0, scale, shape=6)))


def intercept_among_them(*factor):
    """Return effects of which the first has no column, with one learned scale for all."""
    effects = pm.Normal("effects", 0, 1 if factor else pm.HalfNormal("scale", 1), shape=6)
    first, further = effects[0], effects[1:]
    for build in factor:
        scale = build("scale", 1)
        first, further = scale * first, scale * further
    observed(first + np.ones((ROWS, 5)) @ further)


def of_any_sign():
    observed(np.ones((ROWS, 5)) @ (pm.Normal("factor", 0, 1) * pm.Normal("z", 0, 1, shape=5)))


def large():
    observed(process("f", basis=100) + process("g", basis=60) + pm.Normal("a"))


def too_large():
    observed(process("f", basis=200) + pm.Normal("a"))


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (group_effects, [["f_hsgp_coeffs"]]),
        (rate, [["f_hsgp_coeffs", "a"]]),
        (level_of_scale, [["f_hsgp_coeffs"]]),
        (heavy_tails, [["f_hsgp_coeffs"]]),
        (sampled_law, [["f_hsgp_coeffs"]]),
        (horseshoe, []),
        (ridge, [["a", "beta"]]),
        (two_scales, []),
        (lambda: ridge(process("f")), [["f_hsgp_coeffs", "a"]]),
        (used_otherwise, []),
        (in_a_potential, []),
        (linear_potential, [["a", "x"]]),
        (of_trend, [["a", "b", "d"]]),
        (of_standard_effects, [["z"]]),
        (of_spline, [["a", "b", "z"]]),
        (of_periodic_process, [["f_hsgp_coeffs_", "a"]]),
        (lambda: parts(slice(2), slice(2, None)), [["z"]]),
        (lambda: parts(0, slice(1, None)), [["z"]]),
        (lambda: parts([4, 0, 2], [1, 5, 3]), [["z"]]),
        (lambda: joined_scales(1), [["z"]]),
        (lambda: joined_scales(3), [["z"]]),
        (of_any_sign, []),
        (intercept_among_them, [["effects"]]),
        (lambda: intercept_among_them(pm.HalfNormal), [["effects"]]),
        # An element in both parts, one in none, and one used otherwise
        (lambda: parts(slice(3), slice(2, None)), []),
        (lambda: parts(slice(2), slice(3, None)), []),
        (lambda: parts(slice(2), slice(2, None), 0), []),
        (large, [["f_hsgp_coeffs", "a"], ["g_hsgp_coeffs"]]),
        (too_large, []),
        (lambda: observed(process("f") * pm.Normal("a")), [["f_hsgp_coeffs"]]),
    ],
)
def test_what_is_in_a_block(build, names):
    blocks = dict.fromkeys(of_map.block for of_map in maps_of(build).values())
    assert [[member.rv.name for member in block] for block in blocks] == names


def test_parts_of_one_scale_are_decomposed_once():
    [of_map] = maps_of(intercept_among_them).values()
    assert isinstance(of_map, CoefficientsOfOneScale)


def maps_of(build):
    with pm.Model() as model:
        build()
    shapes = model.eval_rv_shapes()
    view = ModelView(model, model.free_RVs, {rv: shapes[rv.name] for rv in model.free_RVs})
    return basis_coefficients(view)
