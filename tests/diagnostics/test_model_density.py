"""Scores of a model at draws."""

import numpy as np
import pymc as pm
import pymc.distributions.transforms as tr
import pytest

from pymc_sgmcmc.backends.interpreting import INTERPRETER
from pymc_sgmcmc.diagnostics.model_density import Standard, density_of
from pymc_sgmcmc.diagnostics.result import constrained


def bounded_model(minibatched):
    data = np.random.default_rng(1).normal(1.0, 2.0, size=20)
    with pm.Model() as model:
        # 20 rows in blocks of 7: the last one wraps round
        y = pm.Minibatch(data, batch_size=7) if minibatched else data
        sigma = pm.HalfNormal("sigma", 2.0)
        lower = pm.Beta("lower", 2.0, 3.0)
        inside = pm.Uniform("inside", lower, lower + 1 + sigma, shape=2)
        shares = pm.Dirichlet("shares", [1.0, 2.0, 3.0], shape=(2, 3))
        levels = pm.Normal("levels", [-1.0, 0.0, 2.0], 1.0, transform=tr.ordered)
        mu = inside.sum() + (shares * levels).sum()
        total_size = 20 if minibatched else None
        pm.Normal("y", mu, sigma, observed=y, total_size=total_size)
    return model


def test_scores_of_bounded_variables_have_the_jacobian():
    twin = bounded_model(minibatched=False)
    d, rng = 11, np.random.default_rng(2)
    shapes = [(), (), (2,), (2, 2), (3,)]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    names = [value.name for value in twin.value_vars]

    def split(flat):
        parts = np.split(flat, ends[:-1], axis=-1)
        return {
            name: part.reshape((*flat.shape[:-1], *shape))
            for name, part, shape in zip(names, parts, shapes, strict=True)
        }

    # Every transform twice: to the constrained draws, and back for the scores
    phi = np.sort(rng.normal(size=(6, d)), axis=1)
    draws = constrained(twin, split(phi))
    density = density_of(bounded_model(minibatched=True))
    positions = density.positions(draws)
    np.testing.assert_allclose(positions, phi, rtol=1e-9, atol=1e-9)

    logp = pm.compile(twin.value_vars, twin.logp(jacobian=True), mode=INTERPRETER)

    def at(flat):
        return float(logp(*split(flat).values()))

    step = 1e-5 * np.eye(d)
    scores = [[(at(x + e) - at(x - e)) / 2e-5 for e in step] for x in phi]
    np.testing.assert_allclose(-density.gradients(positions), scores, rtol=1e-5, atol=1e-6)
    values, _ = density._potential.full(positions)
    np.testing.assert_allclose(-values, [at(x) for x in phi], rtol=1e-10)


def test_a_model_with_new_data_is_compiled_anew():
    with pm.Model() as model:
        data = pm.Data("data", np.zeros(100))
        mu = pm.Normal("mu")
        pm.Normal("y", mu, observed=data)
    first = density_of(model)
    assert density_of(model) is first
    x = np.zeros((1, 1))
    assert first.gradients(x)[0, 0] == pytest.approx(0.0)
    with model:
        pm.set_data({"data": np.ones(100)})
    assert density_of(model).gradients(x)[0, 0] == pytest.approx(-100.0)


def test_a_coordinate_in_which_all_draws_agree_keeps_its_unit():
    positions = np.random.default_rng(1).normal(size=(50, 3))
    positions[:, 1] = 2.0
    standard = Standard.of(positions)
    assert standard.root.shape == (3, 3)
    np.testing.assert_allclose(standard.positions(positions + 1.0)[:, 1], 1.0, rtol=1e-6)
