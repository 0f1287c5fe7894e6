"""Every sampler hits targets with known laws, on both backends."""

from functools import partial

import pytest

import pymc_sgmcmc as sg

from helpers.laws import euler_variance, lm_variance, sghmc_variance, thermostat_variance
from pymc_sgmcmc import testing
from pymc_sgmcmc.testing import check, check_sampler, normal_normal

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


# One quick backend for each method: both compile the same update, and the matrix below has both
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
    check_sampler(make_step, backends=["jax"], **law)


# Compilation takes nearly all of the time
@pytest.mark.slow
@pytest.mark.parametrize("name", _OWN)
def test_matrix_numba(name):
    make_step, law = SAMPLERS[name]
    dimensions = (1, 100) if name in ("CoRVSGLD-lm", "MSGNHT") else (100,)
    check_sampler(make_step, backends=["numba"], dimensions=dimensions, **law)
