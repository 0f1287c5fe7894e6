"""Every sampler hits targets with known laws, on both backends."""

from functools import partial

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.laws import euler_variance, lm_variance, sghmc_variance, thermostat_variance
from pymc_sgmcmc import testing
from pymc_sgmcmc.testing import UNTUNED, check, check_sampler, normal_normal, run_chain

LANGEVIN = {"variance": euler_variance, "euler": True}
LM = {"variance": lm_variance}
THERMOSTAT = {"variance": thermostat_variance, "unknown": 0.2, "patience": 4.0}
HAMILTONIAN = {"variance": sghmc_variance, "unknown": 0.04}
SAMPLERS = {
    "SGLD": (sg.SGLD, LANGEVIN),
    "CoRVSGLD-euler": (partial(sg.CoRVSGLD, integrator="euler"), LANGEVIN),
    "CoRVSGLD-lm": (sg.CoRVSGLD, LM),
    "FLA-2": (partial(sg.FLA, alpha=2.0), LANGEVIN),
    "SMLD": (sg.SMLD, {**LM, "transforms": "mirror"}),
    "MSGNHT": (sg.MSGNHT, THERMOSTAT),
    "SGHMC": (sg.SGHMC, HAMILTONIAN),
    "SGNHT": (sg.SGNHT, THERMOSTAT),
}


# Draws of SGLD and of Euler's scheme are those of FLA at α = 2, draw for draw, and SMLD's those of
# the Leimkuhler-Matthews scheme but for its maps
_OWN = ("CoRVSGLD-lm", "FLA-2", "SMLD", "MSGNHT", "SGHMC", "SGNHT")


# One quick backend for each method: the draws of both are compared below
@pytest.mark.parametrize("name", ["CoRVSGLD-lm", "MSGNHT", "FLA-2", "SGHMC", "SGNHT"])
def test_one_target_of_the_matrix(name):
    """The one with minibatches: a wrong step, noise or scale of the gradient shows there."""
    make_step, law = SAMPLERS[name]
    h = 0.02
    target = normal_normal(10, law["variance"], h, unknown=law.get("unknown", 0.0))
    check(target, make_step, step_size=h, patience=law.get("patience", 1.0), backend="jax")


# Others are the same draw for draw, which test_reductions_draw_for_draw sees, but for SMLD's
# maps, which test_dirichlet sees
def test_matrix_jax(monkeypatch):
    # One of the two variables on a half-line, and one on an interval
    monkeypatch.setattr(testing, "BOUNDED", testing.BOUNDED[::2])
    make_step, law = SAMPLERS["CoRVSGLD-lm"]
    check_sampler(make_step, backends=["jax"], dimensions=(1,), **law)


@pytest.mark.slow
@pytest.mark.parametrize("name", _OWN)
def test_matrix_jax_in_all_dimensions(name):
    make_step, law = SAMPLERS[name]
    # Ten dimensions are in the default run. Without bounds SMLD's draws are those of CoRVSGLD
    dimensions = () if name == "SMLD" else (1, 100)
    check_sampler(make_step, backends=["jax"], dimensions=dimensions, **law)


def of_the_matrix(*, bounded):
    """One model of what the matrix's targets are made of, with variables within bounds or none."""
    data = np.random.default_rng(1).normal(0, np.sqrt(199), size=(200, 40))
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 1e6, shape=(4, 10))
        batch = pm.Minibatch(data, batch_size=20)
        pm.Normal("y", mean.ravel(), np.sqrt(199), observed=batch, total_size=200)
        if bounded:
            pm.Gamma("gamma", 0.5, 0.5, shape=50)
            pm.Beta("beta", 0.5, 0.5, shape=50)
            pm.TruncatedNormal("truncated", 0.5, lower=0, upper=2, shape=50)
            pm.HalfNormal("half", 1, shape=50)
    return model


# So that what the matrix says of JAX's draws holds for numba's. Maps of bounds are those of one
# method each, as numba compiles them for long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "bounded"),
    [*((name, False) for name in _OWN if name != "SMLD"), ("CoRVSGLD-lm", True), ("SMLD", True)],
)
def test_numba_draws_what_jax_draws(name, bounded):
    make_step, law = SAMPLERS[name]
    model, found = of_the_matrix(bounded=bounded), []
    options = {**UNTUNED, "thin": 10, "batch": "random"}
    options["transforms"] = law.get("transforms", "lipschitz")
    for backend in ("jax", "numba"):
        with model:
            step = make_step(step_size=0.01, backend=backend, **options)
        found.append(run_chain(model, step, burn=2, draws=4, seed=1))
    for variable, draws in found[0].items():
        np.testing.assert_allclose(
            found[1][variable], draws, rtol=1e-7, atol=1e-9, err_msg=variable
        )
        assert np.ptp(draws, axis=0).min() > 0
