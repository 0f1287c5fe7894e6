"""Langevin samplers against their exact laws and against one another."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.laws import euler_variance, lm_variance
from helpers.steps import sharing
from pymc_sgmcmc.testing import UNTUNED, check, correlated_gaussian, run_chain


@pytest.mark.parametrize(
    ("method", "variance"), [(sg.CoRVSGLD, lm_variance), (sg.SGLD, euler_variance)]
)
def test_lm_is_exact_where_euler_is_too_wide(method, variance):
    """Along the narrowest direction, of precision 1, h is that of a standard normal."""
    first, make = correlated_gaussian(10, variance, 0.2), sharing(method)
    for h in (0.2, 0.4):
        target = replace(correlated_gaussian(10, variance, h), model=first.model)
        check(target, make, step_size=h, draws=200, thin=5, backend="jax")


def mixed_model():
    rng = np.random.default_rng(3)
    data = rng.normal(1.0, 2.0, size=(300, 2))
    with pm.Model() as model:
        batch = pm.Minibatch(data, batch_size=50)
        mu = pm.Normal("mu", 0, 10, shape=2)
        pm.Normal("y", mu, 2.0, observed=batch, total_size=300)
    return model


def draws_of(model, make_step, **options):
    with model:
        step = make_step(step_size=1e-3, backend="jax", **UNTUNED, **options)
    return run_chain(model, step, burn=0, draws=20, seed=5)


def test_reductions_draw_for_draw():
    model = mixed_model()
    sgld = draws_of(model, sg.SGLD)
    same = [
        draws_of(model, sg.CoRVSGLD, integrator="euler"),
        draws_of(model, sg.SMLD, integrator="euler"),
        draws_of(model, sg.FLA, alpha=2.0),
    ]
    for other in same:
        np.testing.assert_allclose(other["mu"], sgld["mu"], rtol=1e-12)
    lm = draws_of(model, sg.CoRVSGLD)
    assert not np.allclose(lm["mu"], sgld["mu"])
    np.testing.assert_allclose(draws_of(model, sg.SMLD)["mu"], lm["mu"], rtol=1e-12)
